"""What the earlier calls of a conversation did, for the reading of a call that builds on them."""

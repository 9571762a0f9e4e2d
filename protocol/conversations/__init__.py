"""Which session a call belongs to, and what calls of a session have in common."""

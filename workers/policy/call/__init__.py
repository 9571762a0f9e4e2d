"""One call that a policy worker owns."""

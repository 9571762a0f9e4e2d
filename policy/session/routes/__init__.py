"""What a session does where an upstream fails: which target is asked next, and when."""

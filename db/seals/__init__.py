"""Seals of calls, checkpoints over them, verification and redaction."""

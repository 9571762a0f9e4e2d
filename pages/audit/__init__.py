"""The audit API: the record for programs, under /audit of each gateway."""

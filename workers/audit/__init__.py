"""The role that writes the record, seals it, and ends calls that nobody can end."""

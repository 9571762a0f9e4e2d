"""Records into PostgreSQL."""

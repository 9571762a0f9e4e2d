"""Migrations, and the tables of an empty database at once."""

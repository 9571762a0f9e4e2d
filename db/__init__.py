"""The record in PostgreSQL: models, migrations, inserts, queries and keys. The only package that
knows SQLAlchemy and psycopg."""

"""Whether the database is fit for use, and what fails in it."""

"""What program texts in other languages do, as far as the names that they call show."""

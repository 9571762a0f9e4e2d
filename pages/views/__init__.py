"""What each page shows: rows of the record become what its template shows. Nothing here knows
cookies or headers."""

"""The pages: each turns rows of the record into values for its template. Nothing here knows cookies
or headers."""

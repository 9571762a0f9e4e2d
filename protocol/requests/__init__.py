"""A request in neutral parts, and how bodies of requests are read and bounded."""

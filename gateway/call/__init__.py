"""One open call of a gateway."""

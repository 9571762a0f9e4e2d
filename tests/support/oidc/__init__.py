"""Providers of OpenID Connect that tests log in at: one that is in wide use, and one that lies."""

"""Clients of the product, for tests."""

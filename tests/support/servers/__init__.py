"""The product, its stores and its processes, for tests."""

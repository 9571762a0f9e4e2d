"""Upstreams, judge models and what they answer, for tests."""

"""The role that asks judge models."""

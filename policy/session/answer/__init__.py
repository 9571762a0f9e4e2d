"""The content blocks of one answer on their way through the policies."""

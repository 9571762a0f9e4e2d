"""The layout of Redis: keys, entries, scripts, and the connection of the hot path."""

"""How things lie in Redis: keys, entries, scripts, and the connection of the hot path."""

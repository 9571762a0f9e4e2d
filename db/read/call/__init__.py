"""Reads one call: its turns, texts, chunks, answers and debug lines."""

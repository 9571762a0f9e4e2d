"""The record read: lists, calls, chunks, counts, exports."""

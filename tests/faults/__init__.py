"""The catalogue of faults, and its cases that need no killed process."""

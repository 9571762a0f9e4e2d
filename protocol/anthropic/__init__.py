"""The Messages dialect. Imports no other dialect."""

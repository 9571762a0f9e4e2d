"""The policies that ship, and what they look for calls and text with."""

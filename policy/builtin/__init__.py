"""The built-in policies, and how they examine calls and text."""

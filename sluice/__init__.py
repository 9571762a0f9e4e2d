"""The command line, the settings, the embedded servers and the launcher that starts everything."""

VERSION = "0.1.0"
"""As in pyproject.toml."""

"""The command line, the settings, the embedded servers and the launcher that starts everything."""

"""Settings: the configuration file and what a process is started with, as values. Pure."""

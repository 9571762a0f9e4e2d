"""`sluice run` and `sluice connect`: coding agents pointed at a gateway."""

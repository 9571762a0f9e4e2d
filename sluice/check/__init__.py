"""`sluice check` and `sluice doctor`: what is wrong, before anything starts and while it runs."""

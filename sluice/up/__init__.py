"""`sluice up`: everything on one machine."""

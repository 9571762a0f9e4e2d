"""Free ports on loopback."""

from sluice.embedded import free_port

__all__ = ["free_port"]

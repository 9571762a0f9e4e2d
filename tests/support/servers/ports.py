"""Free ports on loopback."""

from sluice.up.embedded import free_port

__all__ = ["free_port"]

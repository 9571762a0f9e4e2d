"""Which door an upstream has."""

from providers.doors.azure import AzureDoor, EntraDoor
from providers.doors.bedrock import BedrockDoor
from providers.doors.plain import Door
from providers.doors.vertex import VertexDoor
from settings.upstreams import Upstream


def open_door(upstream: Upstream) -> Door:
    """Return an upstream's door. Opens no connection. Raises OSError, UnicodeDecodeError where its
    key cannot be read, ValueError for an address or a header that cannot be sent."""
    match upstream.door:
        case "azure":
            return AzureDoor(upstream) if upstream.tenant is None else EntraDoor(upstream)
        case "vertex":
            return VertexDoor(upstream)
        case "bedrock":
            return BedrockDoor(upstream)
        case "plain":
            return Door(upstream)

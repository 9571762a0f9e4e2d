"""How long rows of the record are kept, as the configuration says. Pure."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from protocol.debug import KEPT_DAYS

AGREE_S = 3600
"""By so much the clocks of PostgreSQL, Redis and whoever takes old rows away may differ."""
Days = Annotated[int, Field(ge=1, le=36_500)]


class Retention(BaseModel):
    """How many days to keep rows, by table. Tables not named are kept for ever (docs/run/audit.md).
    Seals always stay."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    chunks: Days | None = None
    """What upstreams sent, chunk by chunk."""
    releases: Days | None = None
    """What clients got."""
    request_bodies: Days | None = None
    """What clients sent."""
    histories: Days | None = None
    """The shared history of requests. After that, sessions are shown without it."""
    reads: Days | None = None
    """Who read what. Only whole months are deleted."""
    debug_logs: Annotated[int, Field(ge=1, le=KEPT_DAYS)] = KEPT_DAYS
    """Debug lines."""
    everything: Days | None = None
    """All rows of a call."""
    archive: str = ""
    """A directory in which an audit writer archives each day of calls, verified, before any of its
    rows are deleted. Empty: none."""

    @property
    def days(self) -> dict[str, int]:
        """What is taken away by day, and after how many days."""
        names = ("chunks", "releases", "request_bodies", "histories", "reads", "everything")
        return {name: days for name in names if (days := getattr(self, name)) is not None}

"""The page of a call: its story, one block of it, its bytes, and its export."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from db.filters import Filters
from db.read.export import export_lines
from db.read.queries import reading
from db.read.story import (
    MOST_BYTES,
    MOST_CHUNKS,
    Overview,
    read_beginnings,
    read_body,
    read_chunks,
    read_details,
    read_gone,
    read_overview,
    read_part,
    read_raw,
    read_sent,
)

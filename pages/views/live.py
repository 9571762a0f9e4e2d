"""The live view of an open call: its page, and the stream of events that fills it."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache, partial
from typing import Any, TypeVar
from uuid import UUID

from db.engine import reading
from db.read.call.story import read_overview
from db.read.live import read_chunks_since, read_since
from pages import links
from pages.call.following import Following, StartFacts, may_judge, parse_place
from pages.call.tail import LiveTail, Recorded, Viewer
from pages.page import Download, Page, PageRequest, Route, SeeOther, ShownContent
from pages.render import short
from pages.views.call import call_of, check_query, frame
from pages.views.call_sides import upstream_dialect
from protocol.errors import AuditUnavailable, NotFound, StreamConnectionLost, StreamProtocolError
from protocol.records import Record, ReleaseRecord
from streams import layout
from streams.audit_stream import NO_ENTRY
from streams.connection import NOT_AN_ANSWER, RedisError
from streams.layout import Entry, Start

log = logging.getLogger(__name__)
T = TypeVar("T")
FRAME_S = 0.1
"""At most ten frames a second."""
FRAME_SHARE = 50
"""A frame that took long to make is followed by a pause of so many times that, up to `IDLE_S`: all
viewers share one event loop."""
TURN_S = 0.01
"""After so much work on what came, others have a turn."""
PART = 64
"""Chunks of an entry that are taken in one turn."""
ON_LOOP_BYTES = 64 * 1024
"""Of what came, so much is taken on the event loop."""
IDLE_S = 1.0
"""So often there are figures where nothing happens: a browser tells silence from a stream that
broke."""
LOOK_S = 2.0
"""So often a call's stream is read, should something published not have been heard."""
AGAIN_S = 0.5
"""So often the record is asked for what is expected and was not seen in the stream."""
MOST_S = 30 * 60.0
END_S = 3.0
"""How long the record of a call's end may take to come behind it."""
_CHUNKS = 500
_FAULTS = (RedisError, StreamConnectionLost, StreamProtocolError, *NOT_AN_ANSWER)


@cache
def live(redis_url: str) -> LiveTail:
    """All that this process watches."""
    return LiveTail(redis_url)


async def show_live(asked: PageRequest) -> Page | SeeOther:
    """The page: its head, and an empty place that the script fills."""
    call_id, start = await _call(asked)
    check_query(asked, "from")
    if start is not None:
        return _begun(call_id, start)
    async with reading(asked.services.reader.engine) as connection:
        overview = await read_overview(connection, call_id)
    if overview is None:
        return SeeOther(links.call(call_id))
    values = {
        **await frame(asked, overview, "live"),
        "events": links.tab(call_id, "events"),
        "story": links.call(call_id),
    }
    state = "live" if values["call"]["is_open"] else "ended"
    return Page(
        template="live.html",
        title=f"{state} · {short(str(call_id))}",
        values=values,
        shown=ShownContent((call_id,), 0),
    )


async def follow(asked: PageRequest) -> Download:
    """The stream of events. `after`, or what the browser says it had last, leaves out what it
    has."""
    call_id, _ = await _call(asked)
    check_query(asked, "after")
    after = parse_place(asked.last_event_id or asked.one("after"))
    shown = ShownContent((call_id,), 0)
    return Download(
        media_type="text/event-stream", pieces=_Follower(asked, call_id).pieces(after), shown=shown
    )


async def _call(asked: PageRequest) -> tuple[UUID, Start | None]:
    """Return the call; with its START where nothing of it is on record yet. Raises NotFound,
    InvalidRequest, AuditUnavailable."""
    call_id, start = await call_of(asked), None
    if not await asked.services.reader.has_call(call_id):
        try:
            start = await live(asked.services.settings.redis_url).begun(str(call_id))
        except _FAULTS:
            raise AuditUnavailable(
                "Redis does not answer, and the record does not know this call yet"
            ) from None
        # it may have come on record meanwhile
        if start is None and not await asked.services.reader.has_call(call_id):
            raise NotFound(
                f"no call {call_id} is on record, and none of this id is open", param="call_id"
            )
    return call_id, start


def _begun(call_id: UUID, start: Start) -> Page:
    """The page of a call that runs and is not on record yet, because the audit writers are late: it
    has no head."""
    values = {
        "call_id": str(call_id),
        "key": start.key,
        "policy": start.policy,
        "events": links.tab(call_id, "events"),
        "story": links.call(call_id),
    }
    return Page(
        template="live_begun.html",
        title=f"live · {short(str(call_id))}",
        values=values,
        shown=ShownContent((call_id,), 0),
    )


class _Follower:
    """One viewer's stream of events."""

    def __init__(self, asked: PageRequest, call_id: UUID) -> None:
        self._asked, self._id, self._name = asked, call_id, str(call_id)
        self._settings, self._engine = asked.services.settings, asked.services.reader.engine
        self._live = live(self._settings.redis_url)
        self._looked = self._closed_at = self._asked_at = self._worked_from = 0.0
        self._had_gap = False

    async def pieces(self, after: tuple[int, int]) -> AsyncIterator[bytes]:
        """Yield events until the call ends, the time is over, or more came than was taken."""
        try:
            # raised before the first piece: the answer then has the error's status
            async with self._live.watch(self._name, self._asked.who.login) as viewer:
                start = await self._live.start_of(self._name)
                following = Following(await self._facts(start), after)
                yield b"retry: 1000\n\n"
                try:
                    async for event in self._events(
                        viewer, following, has_stream=start is not None
                    ):
                        yield event
                except (AuditUnavailable, RedisError, StreamConnectionLost):
                    raise
                except Exception as error:  # noqa: BLE001 - what a model says must never end in a browser that asks again each second
                    log.error(
                        "a call cannot be followed",
                        extra={"error": type(error).__name__, "call_id": self._name},
                    )
                    message = (
                        "This call cannot be followed, by an error of ours. Its story has all"
                        " of it."
                    )
                    yield _event("end", _ended(message, links.call(self._id)))
        except (RedisError, StreamConnectionLost, *NOT_AN_ANSWER):
            raise AuditUnavailable(
                "Redis does not answer, so nothing can be followed now; the record is there all the"
                " same"
            ) from None

    async def _facts(self, start: Start | None) -> StartFacts:
        config, upstream = self._settings.config, None
        if start is not None:
            dialect, policy = str(start.dialect), start.policy
        else:
            async with reading(self._engine) as connection:
                overview = await read_overview(connection, self._id)
            call = overview.call if overview is not None else {}
            dialect, policy = call.get("dialect") or "", call.get("policy") or ""
            upstream = upstream_dialect(self._asked, call.get("upstream"))
        uses = [step.use for step in config.policies.get(policy, ())]
        return StartFacts(
            dialect, upstream, judge=may_judge(uses), strict=config.durability == "strict"
        )

    async def _events(
        self, viewer: Viewer, following: Following, *, has_stream: bool
    ) -> AsyncIterator[bytes]:
        until = time.monotonic() + MOST_S
        viewer.missed = True
        told_at = sent_at = 0.0
        while True:
            if viewer.is_over:
                yield _event("gap", {"story": links.call(self._id)})
                return
            await self._take(viewer, following, has_stream=has_stream)
            now, at = time.monotonic(), int(time.time() * 1000)
            worked = time.thread_time()
            values = following.frame(at)
            pause = min(IDLE_S, max(FRAME_S, FRAME_SHARE * (time.thread_time() - worked)))
            if values is not None or now - told_at >= IDLE_S:
                told_at = sent_at = now
                yield (
                    self._lost()
                    if values is None and self._live.lost_at
                    else _frame(values, following, at)
                )
            if (why := self._is_over(following, now, until, has_stream=has_stream)) is not None:
                yield _event("end", why, following.place)
                return
            await asyncio.sleep(max(0.0, sent_at + pause - time.monotonic()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    FRAME_S
                    if following.order.waits_for_commits or following.needs_record
                    else IDLE_S
                ):
                    await viewer.news.wait()

    async def _take(self, viewer: Viewer, following: Following, *, has_stream: bool) -> None:
        """Feed what came, behind what may have been missed: a release that comes too early would
        hide those before it."""
        past: list[Recorded] = []
        try:
            if viewer.missed:
                viewer.missed = False
                past = await self._recorded(viewer, following)
                await self._read(following)
            elif following.needs_record and time.monotonic() - self._asked_at > AGAIN_S:
                past = await self._again(following)
            elif has_stream and time.monotonic() - self._looked > LOOK_S:
                await self._read(following)
        except _FAULTS:
            viewer.missed = True
        if viewer.missed:
            return
        entries, records = viewer.take()
        for name, batch in (*past, *records):
            # decisions first: what a release holds is found by them
            for record in sorted(batch, key=lambda candidate: isinstance(candidate, ReleaseRecord)):
                if record.call_id == self._name:
                    size = len(record.payload) if isinstance(record, ReleaseRecord) else 0
                    await self._do(following, partial(following.record, record, name), size)
        try:
            are_next = [await self._is_next(following, blob) for blob in entries]
            if not all(are_next):
                await self._read(following)
            if following.order.waits_for_commits:
                await self._do(
                    following,
                    partial(following.committed, await self._live.committed(viewer.shard)),
                    0,
                )
        except _FAULTS:
            viewer.missed = True

    async def _again(self, following: Following) -> list[Recorded]:
        """What an audit writer may have taken out of the stream before it was read there; a gap
        that stays was none."""
        self._asked_at = time.monotonic()
        if self._had_gap and following.order.has_gap:
            following.skip_gap()
        self._had_gap = following.order.has_gap
        with contextlib.suppress(AuditUnavailable):
            return [
                (
                    NO_ENTRY,
                    await read_since(
                        self._engine, self._id, following.order.number, following.decided_below
                    ),
                )
            ]
        return []

    async def _is_next(self, following: Following, blob: bytes) -> bool:
        """Feed what was published; False where the stream must be read for it, or for what was
        before it."""
        entry = layout.unpack_entry(blob)
        return entry.kind != "see" and await self._feed(following, entry)

    async def _feed(self, following: Following, entry: Entry) -> bool:
        """Feed an entry; False where one before it is missing."""
        for part in parts(entry):
            if not await self._do(
                following, partial(following.entry, part), sum(map(len, part.chunks))
            ):
                return False
        return True

    async def _do(self, following: Following, work: Callable[[], T], size: int) -> T:
        """Work on so many bytes, and let others have a turn if that took long. Much is done beside
        the loop: of what nobody would see each character is a step of Python, and one event may
        have megabytes of it."""
        if size + following.order.kept_bytes > ON_LOOP_BYTES:
            return await asyncio.to_thread(work)
        done = work()
        if time.monotonic() - self._worked_from > TURN_S:
            await asyncio.sleep(0)
            self._worked_from = time.monotonic()
        return done

    async def _recorded(self, viewer: Viewer, following: Following) -> list[Recorded]:
        """What is recorded already: first of the stream, then of the database, where it is as soon
        as the stream has it no more."""
        of_stream = await self._live.recorded(viewer)
        of_record: list[Record] = []
        with contextlib.suppress(AuditUnavailable):
            of_record = await read_since(
                self._engine, self._id, following.order.number, following.decided_below
            )
        return [(NO_ENTRY, of_record), *of_stream]

    async def _read(self, following: Following) -> None:
        """Read the call's stream from where this viewer is; what Redis has no more is in the
        database."""
        self._looked = time.monotonic()
        while True:
            entries = await self._live.entries_from(self._name, following.expected)
            if not entries or entries[0].seq > following.expected:
                await self._read_record(following)
            for entry in entries:
                await self._feed(following, entry)
            if len(entries) < 2:
                return

    async def _read_record(self, following: Following) -> None:
        with contextlib.suppress(AuditUnavailable):
            while chunks := await read_chunks_since(
                self._engine, self._id, following.expected, _CHUNKS
            ):
                before = following.expected
                for seq, at, raw in chunks:
                    await self._feed(following, Entry(seq, at, "chunks", [raw]))
                if following.expected == before:
                    return

    def _lost(self) -> bytes:
        """Say since when Redis does not answer; the next frame says that it does again."""
        return _event("lost", {"since": int(self._live.lost_at * 1000)})

    def _is_over(
        self, following: Following, now: float, until: float, *, has_stream: bool
    ) -> dict[str, Any] | None:
        story = links.call(self._id)
        is_late = False
        if following.is_closed or following.end is not None or not has_stream:
            self._closed_at = self._closed_at or now
            is_late = now - self._closed_at > END_S
        if (end := following.end) is not None and (following.is_complete or is_late):
            return _ended(
                f"The call has {end.state.lower()}: {end.reason}. Its story has all of it.",
                story,
                is_over=True,
            )
        if is_late:
            return _ended("The call has ended. Its story has all of it.", story, is_over=True)
        if now > until:
            return _ended(
                f"Stopped after {MOST_S / 60:g} minutes: load the page again to go on.", story
            )
        return None


def parts(entry: Entry) -> Iterator[Entry]:
    """Return an entry in parts of some chunks each."""
    if entry.kind != "chunks" or len(entry.chunks) <= PART:
        yield entry
        return
    for at in range(0, len(entry.chunks), PART):
        yield Entry(entry.seq + at, entry.at, "chunks", entry.chunks[at : at + PART])


def _frame(values: dict[str, Any] | None, following: Following, at: int) -> bytes:
    """What is new; where nothing is, the figures alone."""
    return _event("frame", values or {**following.figures(at), "blocks": []}, following.place)


def _ended(sentence: str, story: str, *, is_over: bool = False) -> dict[str, Any]:
    """The last event: why nothing is followed any more; `over`: because the call has ended."""
    return {"text": sentence, "story": story, "over": is_over}


def _event(name: str, values: dict[str, Any], place: str = "") -> bytes:
    head = f"id: {place}\n" if place else ""
    return f"{head}event: {name}\ndata: {json.dumps(values, separators=(',', ':'))}\n\n".encode()


ROUTES = (
    Route(f"{links.CALLS}/{{call_id}}/live", show_live),
    Route(f"{links.CALLS}/{{call_id}}/events", follow),
)

"""What one generateContent answer is from: the sources of its texts, and what the provider searched
and fetched for it, streamed or whole. How they are written on the wire: `grounding`."""

from typing import Any

from protocol.bytes.json_strict import dumps
from protocol.citations import Citation
from protocol.dialects.gemini import grounding
from protocol.dialects.gemini.blocks import ANNOTATIONS, Blocks
from protocol.dialects.gemini.wire import Candidate
from protocol.events import AttachmentDelta, BlockKind, Event, Opaque


class Sources:
    """The sources of an answer whose blocks are `blocks`."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.waiting: list[dict[str, Any]] = []
        """Sources that are not emitted yet: they often come in pieces, and before the text's
        end."""
        self.shown: set[str] = set()
        """The provider's tools that the answer shows."""
        self._cited: set[bytes] = set()
        self._searches: dict[str, list[str]] = {}
        """What no part shows, but something tells of."""
        self._fetched = ""

    def take(self, candidate: Candidate, events: list[Event]) -> None:
        """Take what a chunk tells of sources."""
        self._fetched = self._fetched or grounding.fetched(candidate.url_context_metadata)
        if metadata := candidate.grounding_metadata:
            self.waiting.append(metadata)
            for name, words in grounding.searches(
                metadata, has_fetched=bool(self._fetched) or "web_fetch" in self.shown
            ).items():
                self._searches[name] = list(dict.fromkeys([*self._searches.get(name, ()), *words]))
        if candidate.citation_metadata:
            recited = grounding.recited(candidate.citation_metadata)
            if recited is None:
                events.append(Opaque("candidate field citation_metadata"))
            elif recited["groundingChunks"]:
                self.waiting.append(recited)

    def cite(self, events: list[Event]) -> None:
        """Emit the sources of the open text."""
        blocks = self._blocks
        if self.waiting and blocks.open_kind is BlockKind.TEXT:
            events.extend(
                AttachmentDelta(blocks.open_index, "citation", citation)
                for citation in self._citations("".join(blocks.pieces))
            )

    def _citations(self, text: str) -> list[Citation]:
        """The waiting sources, without those that were emitted and have no place here."""
        sources, self.waiting = grounding.merged(self.waiting), []
        citations = grounding.citations(sources, text, self._blocks.previous_text_bytes)
        keyed = [(dumps(citation.raw), citation) for citation in citations]
        new = [c for raw, c in keyed if c.start >= 0 or raw not in self._cited]
        self._cited.update(raw for raw, _ in keyed)
        return new

    def close(self, events: list[Event]) -> None:
        """End the open text, and tell of what the provider ran and no part shows."""
        self.cite(events)
        self._blocks.close(events)
        for name in self._searches:
            if name not in self.shown:
                arguments = dumps({"queries": self._searches[name]}).decode()
                self._blocks.server_call(
                    name, "", arguments, {"type": "groundingMetadata"}, "", events
                )
        if self._fetched and "web_fetch" not in self.shown:
            self._blocks.server_call(
                "web_fetch", "", self._fetched, {"type": "urlContextMetadata"}, "", events
            )
            self.shown.add("web_fetch")
        self.shown.update(self._searches)

    def end(self, events: list[Event]) -> None:
        """Emit, as a block, the sources that came when no text was open that they could stand
        with."""
        if self.waiting and (citations := self._citations("")):
            objects = [citation.source_object for citation in citations]
            body = {"type": ANNOTATIONS, ANNOTATIONS: objects}
            self._blocks.other(ANNOTATIONS, body, "", events)

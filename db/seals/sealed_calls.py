"""A call with the seals that were made of it and the hashes of its rows, read from the database or
from an archived day. Must not know: where these come from."""

from dataclasses import dataclass, field
from uuid import UUID

from db.canonical import (
    HASH,
    MARK,
    VERSION,
    Digest,
    digests_hash,
    digests_of,
    tables_in,
)
from db.seals.shed import with_kept


@dataclass(slots=True)
class SealPart:
    """A seal as it is stored."""

    position: int
    part: int
    form: int
    """The version of the form in which it was made."""
    made_for: int
    """The version that the tables had then."""
    is_beside: bool
    """Did whoever made it know fewer columns than the tables had?"""
    counts: list[int]
    digest: bytes
    is_kept: bool
    """Are its marks there?"""
    marks: bytes


@dataclass(slots=True)
class Sealed:
    """A call's seals, and the hashes of its rows by table, in each version of the form in which it
    was sealed."""

    call_id: UUID
    parts: list[SealPart] = field(default_factory=list)
    salt: bytes = b""
    hashes: dict[int, list[bytearray]] = field(default_factory=dict)
    leaves: dict[int, int] = field(default_factory=dict)
    """Places of tables of which its rows went in order, each with the position of the leaf that
    says so."""
    retained: dict[int, Digest] = field(default_factory=dict)
    """What is kept of those rows."""
    tells_redaction: bool = False
    """Does an event say that it was redacted?"""

    def gone(self, part: "SealPart") -> list[int]:
        """Places of tables of which rows went after that seal."""
        return [place for place, position in self.leaves.items() if part.position < position]

    @property
    def expected(self) -> int:
        """How many rows the newest seal says there are."""
        return sum(self.parts[-1].counts)

    @property
    def is_empty(self) -> bool:
        """Are there no rows?"""
        return not any(map(any, self.hashes.values()))

    @property
    def is_known(self) -> bool:
        """Are all its seals of a version that this code knows, made for tables that it knows?"""
        return all(1 <= p.form <= p.made_for <= VERSION for p in self.parts)


def older_fits(call: Sealed, part: SealPart) -> bool:
    """Say whether the rows that an older seal covers are among those of the newest, unchanged. Of
    rows that went only what the seal before that covers is known: of a seal that covers others
    there, the rows of the other tables are looked for by its marks, not by its hash.
    """
    gone = call.gone(part)
    last = next((candidate for candidate in reversed(call.parts) if call.gone(candidate)), part)
    is_known = all(
        part.counts[place : place + 1] == last.counts[place : place + 1] and part.form == last.form
        for place in gone
    )
    at, is_there = 0, True
    covered: list[bytes] = []
    for place, (count, hashes) in enumerate(zip(part.counts, call.hashes[part.form], strict=False)):
        known = {part.marks[i : i + MARK] for i in range(at, at + count * MARK, MARK)}
        at += count * MARK
        each = (
            ()
            if place in gone
            else (bytes(hashes[i : i + HASH]) for i in range(0, len(hashes), HASH))
        )
        covered.append(b"".join(h for h in each if h[:MARK] in known))
        is_there = is_there and (place in gone or len(covered[-1]) == count * HASH)
    whole = is_there and len(part.counts) == tables_in(part.form) and at == len(part.marks)
    if not whole or not is_known:
        return whole
    digests = with_kept(digests_of(covered, part.form), gone, call.retained)
    return digests_hash(call.call_id, digests, part.form) == part.digest

"""What a verification found: the classes of damage and the report. Must not know: SQL."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

MAX_FINDINGS = 100
MAX_INCOMPLETE = 10_000


class Damage(StrEnum):
    """What was done to the record."""

    ALTERED = "altered"
    """A row holds other values than when it was sealed."""
    MISSING = "missing"
    """A row, a whole call or a seal is not there any more."""
    INSERTED = "inserted"
    """A row that no seal covers, in a sealed call or where every call has a seal."""
    REORDERED = "reordered"
    """Rows have changed places, within a call or between calls."""
    TRUNCATED = "truncated"
    """The last rows of a call, or the last seals, are not there any more."""
    CHECKPOINT_MISMATCH = "checkpoint_mismatch"
    """A checkpoint and the seals do not fit together, or it is not signed by the key."""
    RESTORED_BACKUP = "restored_backup"
    """The record agrees with itself, but ends before a checkpoint that was kept elsewhere."""


@dataclass(frozen=True, slots=True)
class SealFinding:
    """One damage and where it is. `row` is the row's key within the call, or what it stands next
    to."""

    damage: Damage
    detail: str
    call_id: UUID | None = None
    table: str = ""
    row: str = ""

    def item(self) -> dict[str, Any]:
        """As JSON."""
        call_id = None if self.call_id is None else str(self.call_id)
        return {
            "class": self.damage.value,
            "call_id": call_id,
            "table": self.table or None,
            "row": self.row or None,
            "detail": self.detail,
        }

    def __str__(self) -> str:
        where = [
            f"call {self.call_id}" if self.call_id else "",
            self.table,
            f"row {self.row}" if self.row else "",
        ]
        return (
            f"{self.damage.value}:"
            f" {', '.join(part for part in where if part)}{': ' if any(where) else ''}{self.detail}"
        )


@dataclass(slots=True)
class Report:
    """What was verified and what was found."""

    calls: int = 0
    """Sealed calls whose rows were verified."""
    rows: int = 0
    redacted: int = 0
    """Calls among them whose content was redacted."""
    extended: int = 0
    """Calls among them with rows that came after their first seal."""
    dropped: int = 0
    """Sealed calls whose rows were dropped in order."""
    damaged: int = 0
    """Calls, once for each table, that were dropped though they had other rows than their seals
    counted."""
    shed: int = 0
    """Calls among those verified of which the rows of some tables went in order: the digests kept
    of them were taken."""
    shed_tables: set[str] = field(default_factory=set)
    """Which tables these are."""
    unsealed: int = 0
    """Calls without a seal: open, or not sealed yet. Past 10,000 they are not counted on."""
    dead_letters: int = 0
    """Records of these calls that are in no table of theirs."""
    dead_calls: list[str] = field(default_factory=list)
    """The first calls that they are of; a record whose call is not known is of none."""
    incomplete_calls: set[UUID] = field(default_factory=set)
    """Calls with holes: as the record says itself, or as was found now. Past 10,000 they are not
    counted on."""
    holes: list[tuple[UUID, str]] = field(default_factory=list)
    """The first of them, each with one sentence."""
    _kinds: set[tuple[UUID, int]] = field(default_factory=set)
    size: int = 0
    """Seals in the tree; 0 where only a part of it was looked at."""
    checkpoints: int = 0
    signed: int = 0
    """Checkpoints signed by the key that was given."""
    checkpoint: str = ""
    """The newest checkpoint's text."""
    damages: int = 0
    findings: list[SealFinding] = field(default_factory=list)
    """The first of them."""

    def replace(self, finding: SealFinding) -> None:
        """Put a better explanation in the place of the one for the same call."""
        for i, known in enumerate(self.findings):
            if known.call_id == finding.call_id and known.damage is Damage.ALTERED:
                self.findings[i] = finding
                return

    @property
    def ok(self) -> bool:
        """Was nothing found?"""
        return not self.damages

    def add(self, finding: SealFinding) -> None:
        """Add a finding."""
        self.damages += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)

    def found(
        self,
        damage: Damage,
        detail: str,
        call_id: UUID | None = None,
        table: str = "",
        row: str = "",
    ) -> None:
        """Add a finding of these fields."""
        self.add(SealFinding(damage, detail, call_id, table, row))

    def add_hole(self, call_id: UUID, hole: int, detail: str) -> None:
        """Add a hole of a call; one of its kind (`db.missing_records.Hole`) is enough: it may be on
        record, and be found again."""
        if len(self.incomplete_calls) < MAX_INCOMPLETE:
            self.incomplete_calls.add(call_id)
        if len(self.holes) < MAX_FINDINGS and (call_id, hole) not in self._kinds:
            self._kinds.add((call_id, hole))
            self.holes.append((call_id, detail))

    def item(self) -> dict[str, Any]:
        """As JSON."""
        of_calls = (
            "calls",
            "rows",
            "redacted",
            "extended",
            "dropped",
            "damaged",
            "shed",
            "unsealed",
            "dead_letters",
        )
        numbers = (*of_calls, "size", "checkpoints", "signed", "damages")
        return {
            "ok": self.ok,
            "first": self.findings[0].item() if self.findings else None,
            **{name: getattr(self, name) for name in numbers},
            "shed_tables": sorted(self.shed_tables),
            "dead_letter_calls": self.dead_calls,
            "incomplete": len(self.incomplete_calls),
            "incomplete_calls": [
                str(call_id) for call_id in sorted(self.incomplete_calls)[:MAX_FINDINGS]
            ],
            "holes": [
                {"call_id": str(call_id), "detail": detail} for call_id, detail in self.holes
            ],
            "checkpoint": self.checkpoint or None,
            "findings": [finding.item() for finding in self.findings],
        }

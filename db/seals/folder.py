"""An archived day (`db.seals.archive`) as it is verified without a database: its rows against the
seals in it, its seals against the checkpoint in it, and that checkpoint against a key or those that
were kept elsewhere.

The seals of a day are leaves of the tree; the folder holds the nodes beside them, which lead to the
first checkpoint over all of them, and those after it, each of which names the one before by its
hash. So whoever trusts one of these, or one of a later folder, trusts the rows. It does not show
that no call of the day is missing, nor that the newest part of a call's seal and its late rows are
not. Constant memory, the hashes of one call and what is held of each seal aside. Must not know:
connections, who writes.
"""

import gzip
import json
import struct
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from db.canonical import (
    FORMS,
    VERSION,
    CopiedRow,
    Form,
    digests_hash,
    digests_of,
    holds_later,
    row_hash,
    seal_leaf,
    tables_in,
)
from db.filters import first_id
from db.migrations.removal import PART_SHED
from db.seals import checkpoints
from db.seals.archived_files import (
    CHECKPOINTS,
    FILES,
    NODES,
    Damaged,
    PackedRows,
    check_file,
    file_of,
    folders_in,
    read_seals,
)
from db.seals.merkle import HASH, leaf_hash, root_beside
from db.seals.sealed_calls import Sealed, SealPart, older_fits
from db.seals.shed import strange, with_kept

KIND = "sluice archive 1"
UNREADABLE = (
    OSError,
    EOFError,
    zlib.error,
    struct.error,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What reading bytes raises that are not those that were written."""


@dataclass(frozen=True, slots=True)
class CheckedFolder:
    """A folder that passed verification."""

    day: date
    record: str
    """The origin of its checkpoints: which record it is of."""
    calls: int
    rows: int
    checkpoint: str
    """The first over all its seals."""
    texts: tuple[str, ...]
    """That and others before and after it, each one the next after the one before it."""


class Leaves:
    """Leaves of the tree by their positions, whatever their order."""

    def __init__(self) -> None:
        self._positions, self._hashes = array("q"), bytearray()

    def add(self, position: int, data: bytes) -> None:
        """Add one."""
        self._positions.append(position)
        self._hashes += leaf_hash(data)

    @property
    def first(self) -> int:
        """The first position, 0 where there is none."""
        return min(self._positions, default=0)

    @property
    def last(self) -> int:
        """The last position, -1 where there is none."""
        return max(self._positions, default=-1)

    def sorted(self) -> tuple["array[int]", bytes]:
        """Return the positions as they rise, and the hashes in that order."""
        order = sorted(range(len(self._positions)), key=self._positions.__getitem__)
        hashes = b"".join([self._hashes[i * HASH : i * HASH + HASH] for i in order])
        return array("q", [self._positions[i] for i in order]), hashes


def bounds_of(day: date) -> tuple[UUID, UUID]:
    """Return the least id of calls of a day (UTC), and of the day after it."""
    low, high = (
        first_id(datetime.combine(boundary, time(), UTC))
        for boundary in (day, day + timedelta(days=1))
    )
    return low, high


def check_folder(folder: Path) -> CheckedFolder:
    """Verify a folder by itself: each file, each call against its seals, the seals against its
    checkpoint. Raises Damaged."""
    try:
        return _check(folder, read_manifest(folder))
    except Damaged:
        raise
    except UNREADABLE as error:
        raise Damaged(
            f"it cannot be read as what was written: {type(error).__name__}: {error}"
        ) from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest. Raises Damaged where it is none that this version knows."""
    try:
        data = (folder / "manifest.json").read_bytes()
        manifest: dict[str, Any] = json.loads(data)
        known = manifest["kind"] == KIND and 1 <= manifest["form"] <= VERSION
        date.fromisoformat(manifest["day"])
        names = [*(form.table for form in forms_of(manifest["form"])), *FILES] if known else []
        if known and (list(manifest["files"]) != names or manifest_bytes(manifest) != data):
            raise Damaged("its manifest is not as Sluice writes it")
    except Damaged:
        raise
    except UNREADABLE:
        raise Damaged("it has no manifest that can be read") from None
    if not known:
        raise Damaged("it is of another version of Sluice, or is no archive")
    return manifest


def manifest_bytes(manifest: dict[str, Any]) -> bytes:
    """Return the manifest as it is written: there is one way."""
    return (json.dumps(manifest, indent=1) + "\n").encode()


def forms_of(version: int) -> list[Form]:
    """Return the tables with the columns that the version covers: those that a folder of it has."""
    forms = []
    for form in FORMS[: tables_in(version)]:
        stays, content = form.counts[version]
        forms.append(replace(form, stays=form.stays[:stays], content=form.content[:content]))
    return forms


def _check(folder: Path, manifest: dict[str, Any]) -> CheckedFolder:
    for name, expected in manifest["files"].items():
        check_file(file_of(folder, name), expected)
    day = date.fromisoformat(manifest["day"])
    low, high = bounds_of(day)
    leaves, gone = Leaves(), _read_gone(manifest["gone"], high)
    for entry in manifest["gone"]:
        add_leaf(leaves, UUID(entry["call_id"]), entry)
    rows = [PackedRows(file_of(folder, form.table), form) for form in forms_of(manifest["form"])]
    last = UUID(int=low.int - 1)
    calls = 0
    for line in read_seals(folder):
        call_id = UUID(line["call_id"])
        if not last < call_id < high:
            raise Damaged(f"call {call_id} is not of that day, or stands in another place")
        last, calls = call_id, calls + 1
        _check_call(line, rows, gone, manifest["form"])
        for part in line["parts"]:
            add_leaf(leaves, call_id, part)
    for left in rows:
        if left.head is None and left.count != manifest["files"][left.form.table]["rows"]:
            raise Damaged(
                f"{left.form.table}: there are {left.count:,} rows, the manifest says another"
                " number"
            )
        if left.head is not None:
            raise Damaged(
                f"{left.form.table}: rows of call {UUID(bytes=left.head[6:22])} are under no seal"
                " of the folder"
            )
    texts = _read_checkpoints(file_of(folder, CHECKPOINTS))
    checkpoint = first_over(leaves, texts)
    _check_root(leaves, checkpoints.parse(checkpoint), file_of(folder, NODES))
    record = checkpoints.parse(checkpoint).origin
    if record != manifest["record"]:
        raise Damaged("its manifest names another record than its checkpoints")
    return CheckedFolder(day, record, calls, sum(entry.count for entry in rows), checkpoint, texts)


def add_leaf(leaves: Leaves, call_id: UUID, seal: dict[str, Any]) -> None:
    """Add the leaf of a seal as the folder has it."""
    digest = bytes.fromhex(seal["sha256"])
    leaves.add(
        seal["position"],
        seal_leaf(
            call_id,
            seal["part"],
            datetime.fromisoformat(seal["at"]),
            seal["counts"],
            digest,
            seal["note"],
        ),
    )


def _read_gone(leaves: Sequence[dict[str, Any]], high: UUID) -> dict[int, int]:
    """The places of the tables of which the day's rows went in order before it was archived, each
    with the position of the leaf."""
    positions = {}
    for leaf in leaves:
        bound = UUID(leaf["call_id"])
        if leaf["part"] != PART_SHED or bound < high:
            raise Damaged("what it says went in order went of other days")
        if problem := strange(bound, leaf["part"], datetime.fromisoformat(leaf["at"])):
            raise Damaged(f"the leaf at position {leaf['position']} is no lawful one: {problem}")
        positions[(bound.int & 0xFFFF) - 1] = int(leaf["position"])
    return positions


def _check_call(
    line: dict[str, Any], rows: Sequence["PackedRows"], gone: dict[int, int], version: int
) -> None:
    """Compare the rows of a call with all parts of its seal."""
    call = _sealed(line)
    call.leaves = gone
    newest = call.parts[-1]
    redacted = {
        (table, bytes.fromhex(key)): bytes.fromhex(hashes)
        for table, key, hashes in (entry.split(" ") for entry in line["redacted"])
    }
    says_so = not redacted
    for place, of in enumerate(rows[: tables_in(newest.form)]):
        hashes = [(form, entry[place]) for form, entry in call.hashes.items()]
        for data in of.of(call.call_id.bytes):
            if newest.form < version and holds_later(of.form, data, newest.form):
                raise Damaged(
                    f"{of.form.table}: a row of call {call.call_id} holds a value that its seal"
                    " does not cover"
                )
            for form, so_far in hashes:
                if not redacted:
                    so_far += row_hash(of.form, data, call.salt, form)
                    continue
                row = CopiedRow.read(of.form, data)
                says_so = says_so or row.tells_redaction
                so_far += row.hash(call.salt, redacted.get((of.form.table, row.key)), version=form)
    if not says_so:
        raise Damaged(f"content of call {call.call_id} was deleted, and no event of it says so")
    places = call.gone(newest)
    hashed = call.hashes[newest.form]
    digests = with_kept(digests_of(hashed, newest.form), places, call.retained)
    if (
        any(hashed[place] for place in places)
        or digests_hash(call.call_id, digests, newest.form) != newest.digest
    ):
        raise Damaged(f"the rows of call {call.call_id} are not those of its seal")
    if [count for count, _ in digests] != newest.counts or not all(
        older_fits(call, part) for part in call.parts[:-1]
    ):
        raise Damaged(f"the rows of call {call.call_id} are not those of all parts of its seal")


def _sealed(line: dict[str, Any]) -> Sealed:
    retained = {
        int(place): (int(n), bytes.fromhex(digest))
        for place, n, digest in (entry.split(" ") for entry in line["kept"])
    }
    parts = [
        SealPart(
            entry["position"],
            entry["part"],
            entry["form"],
            entry["form"],
            False,
            entry["counts"],
            bytes.fromhex(entry["sha256"]),
            True,
            bytes.fromhex(entry["marks"]),
        )
        for entry in line["parts"]
    ]
    call = Sealed(UUID(line["call_id"]), parts, bytes.fromhex(line["salt"]), retained=retained)
    call.hashes = {part.form: [bytearray() for _ in FORMS] for part in parts}
    if not call.is_known or any(entry.part >= other.part for entry, other in pairwise(parts)):
        raise Damaged(
            f"the seals of call {call.call_id} are of a version that this one does not know, or not"
            " in their order"
        )
    return call


def _read_checkpoints(path: Path) -> tuple[str, ...]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        texts = tuple(json.loads(line) for line in lines)
    before = ""
    for text in texts:
        if before and checkpoints.parse(text).previous != checkpoints.digest(before):
            raise Damaged("its checkpoints do not follow each other")
        before = text
    return texts


def first_over(leaves: Leaves, texts: Sequence[str]) -> str:
    """Return the first checkpoint over all these seals. Raises Damaged where there is none."""
    for text in texts:
        if checkpoints.parse(text).size > leaves.last:
            return text
    raise Damaged("it holds no checkpoint over all its seals")


def _check_root(leaves: Leaves, checkpoint: checkpoints.Checkpoint, path: Path) -> None:
    with gzip.open(path, "rb") as file:
        nodes = iter(lambda: file.read(HASH), b"")
        if root_beside(*leaves.sorted(), checkpoint.size, nodes) != checkpoint.root:
            raise Damaged(
                f"its seals do not lead to the checkpoint over {checkpoint.size:,} seals: a seal, a"
                " node or it was changed"
            )


@dataclass(slots=True)
class Verdict:
    """What the verification of one folder found, and what vouches for its checkpoint."""

    name: str
    problem: str = ""
    """Empty: none."""
    checked: CheckedFolder | None = None
    size: int = 0
    """Seals under its checkpoint."""
    is_signed: bool = False
    """By the key that was given."""
    is_kept: bool = False
    """One that was kept elsewhere is among its checkpoints, or among those that later folders have
    from these on."""


def check_archive(
    source: Path, *, key: Ed25519PublicKey | None = None, against: Sequence[str] = ()
) -> list[Verdict]:
    """Verify all folders of a directory. `against` are texts of checkpoints kept elsewhere, under
    one of which each must be.

    Raises OSError.
    """
    known_checkpoints = {checkpoints.parse(text).size: text.rstrip("\n") for text in against}
    before: dict[str, str] = {}
    first: dict[str, str] = {}
    trusted: list[str] = []
    verdicts: list[Verdict] = []
    record = ""
    for folder in folders_in(source):
        verdict = Verdict(folder.name)
        verdicts.append(verdict)
        try:
            checked = check_folder(folder)
            if not folder.name.startswith(str(checked.day)):
                raise Damaged(f"it is of {checked.day}")
            verdict.is_signed = key is not None and checkpoints.is_signed_by(checked.texts[-1], key)
            if key is not None and not verdict.is_signed:
                raise Damaged("its newest checkpoint is not signed by this key")
            record = record or checked.record
            if checked.record != record:
                # several records may be signed by one key
                raise Damaged(
                    f"it is of another record ({checked.record}) than the folders before it"
                    f" ({record})"
                )
            first[folder.name] = checkpoints.digest(checked.checkpoint)
            for text in checked.texts if against else ():
                checkpoint = checkpoints.parse(text)
                before[checkpoints.digest(text)] = checkpoint.previous
                if text.rstrip("\n") == known_checkpoints.get(checkpoint.size):
                    trusted.append(checkpoints.digest(text))
                elif checkpoint.size in known_checkpoints:
                    raise Damaged(
                        f"its checkpoint over {checkpoint.size:,} seals is another than the one kept"
                        " elsewhere"
                    )
        except Damaged as error:
            verdict.problem = str(error)
            continue
        # the texts of a year of folders would take a gigabyte
        verdict.checked, verdict.size = (
            replace(checked, texts=()),
            checkpoints.parse(checked.checkpoint).size,
        )
    vouched = _chain(trusted, before)
    for verdict in verdicts:
        verdict.is_kept = first.get(verdict.name) in vouched
        if against and not verdict.problem and not verdict.is_kept:
            verdict.problem = (
                "no checkpoint kept elsewhere says anything of it: one is needed that is over"
                f" {verdict.size:,} seals or more, and no newer than the newest folder"
            )
    return verdicts


def _chain(trusted: Sequence[str], before: dict[str, str]) -> set[str]:
    """The checkpoints, by their hashes, that these name: themselves, the one before, and so on."""
    chain: set[str] = set()
    for digest in trusted:
        while digest in before and digest not in chain:
            chain.add(digest)
            digest = before[digest]
    return chain

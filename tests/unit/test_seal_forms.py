"""Versions of the form in which rows are hashed: each is for ever."""

from dataclasses import replace
from hashlib import sha256
from struct import pack
from uuid import UUID

import pytest

from db.canonical import FORMS, VERSION, CopiedRow, Form, call_hash, holds_later, row_hash

CALL = UUID(int=0x0190_0000_0000_7000_8000_000000000001)
SALT = b"salt" * 8
VERSION_1 = {
    "calls": "727c36f5521680069b6c7be097c670e6",
    "request_bodies": "1a2982ae9bc75b1e8ad4a3542c2e9a70",
    "chunks": "970d89aa8287b8174828105663531105",
    "releases": "c4248fa97757fd82ec7f32d23bb295f7",
    "blocks": "10ec85b9e9d94da3e39566c6cf315ba2",
    "tool_calls": "8b92298089cfe8a4f29ba4c65ab6e85e",
    "tool_releases": "5250461ace758e06667515c3bbe6233c",
    "judgements": "3ab416e0015e4969119a27f295c95d1b",
    "ends": "cd447a91d5003a2bf307c9d0f69c8cee",
    "events": "2c3ac074aecbb15fd050ed52ed89c22f",
    "scores": "fde516a5cbceeb2beac7b6013f0d624d",
    "decisions": "29252aa19409b836f8eb3ffa570ee0c7",
    "attempts": "5c0be725c39a42f4486e4c042cc7581c",
}
"""What the code of 0.2.0 makes of a row of each table."""
VERSION_3 = {
    "calls": "11ddfdac4a0428522aa863ed1b2eea2c",
    "ends": "c95e8f7aef0d044a614a382bcce8e1eb",
}
"""Of the tables that got columns: those of costs."""
CALL_1 = "f194e6033a60957fd51bf77ee000cdaaab21cd2f42240c357db173d50971856f"
COLUMNS_1 = 139
VERSION_2 = {"attempts": "c66704abf8f2e98fb0682a07235a971b"}
"""The tables whose rows have more than in the first."""
CALL_2 = "be0110f439c37fe22f922a184323180d63cb18295e5e8481a9438ed885f15234"
COLUMNS_2 = 144
CALLS, EVENTS = FORMS[0], next(form for form in FORMS if form.table == "events")
OF_3 = {form.table: form for form in FORMS if form.table in VERSION_3}
SECOND = [
    replace(
        form,
        stays=(*form.stays, ("weight", "int4")),
        content=(*form.content, ("words", "text")),
        counts=(*form.counts, (len(form.stays) + 1, len(form.content) + 1)),
    )
    for form in (CALLS, EVENTS)
]
"""Tables that have two more columns in the next version."""
NEXT = VERSION + 1
NEW_TABLE = replace(
    CALLS,
    counts=(*[(0, 0)] * NEXT, (len(CALLS.stays), len(CALLS.content))),
    since=NEXT,
)
"""One that comes with the next version."""


def value(table: str, column: str) -> bytes | None:
    """Some bytes that only this column has; of every third column none, which is NULL."""
    made = sha256(f"{table}.{column}".encode()).digest()
    return None if made[0] % 3 == 0 else made[: 1 + made[1] % 20]


def field(data: bytes | None) -> bytes:
    """A field of COPY BINARY."""
    return pack("!i", -1) if data is None else pack("!i", len(data)) + data


def row(form: Form, /, **other: bytes | None) -> bytes:
    """A row of a table; `other`: values of columns by name."""
    fields: list[bytes | None] = [
        CALL.bytes,
        *(value(form.table, name) or b"k" for name, _ in form.key),
    ]
    fields += [
        other[name] if name in other else value(form.table, name)
        for name, _ in (*form.stays, *form.content)
    ]
    return pack("!h", len(fields)) + b"".join(map(field, fields))


def test_version_1_hashes_what_it_always_did() -> None:
    found = {form.table: row_hash(form, row(form), SALT, 1) for form in FORMS}
    assert {table: hashed.hex()[:32] for table, hashed in found.items()} == VERSION_1
    assert call_hash(CALL, list(found.values()), 1).hex() == CALL_1
    assert sum(1 + len(form.key) + sum(form.counts[1]) for form in FORMS) == COLUMNS_1, (
        "no column came into it or went"
    )


def test_version_2_hashes_what_it_always_did() -> None:
    found = {form.table: row_hash(form, row(form), SALT, 2) for form in FORMS}
    assert {table: hashed.hex()[:32] for table, hashed in found.items()} == VERSION_1 | VERSION_2
    assert call_hash(CALL, list(found.values()), 2).hex() == CALL_2
    assert sum(1 + len(form.key) + sum(form.counts[2]) for form in FORMS) == COLUMNS_2, (
        "no column came into it or went"
    )


def test_version_3_hashes_what_it_always_did() -> None:
    assert VERSION == 3, (
        "the vectors of a version stay as they are: those of a new one come beside them"
    )
    found = {table: row_hash(form, row(form), SALT, 3).hex()[:32] for table, form in OF_3.items()}
    assert found == VERSION_3


@pytest.mark.parametrize(
    "form", [*FORMS, *SECOND], ids=lambda form: f"{form.table}-{len(form.counts) - 1}"
)
def test_both_readings_of_a_row_agree_in_every_version(form: Form) -> None:
    for version in range(1, len(form.counts)):
        assert CopiedRow.read(form, row(form)).hash(SALT, version=version) == row_hash(
            form, row(form), SALT, version
        )
        for name, _ in form.later(version):
            other = row(form, **{name: b"another"})
            assert row_hash(form, other, SALT, version) == row_hash(form, row(form), SALT, version)
            assert holds_later(form, other, version)
            assert not holds_later(
                form, row(form, **dict.fromkeys((n for n, _ in form.later(version)), b"")), version
            )
        for name, _ in (*form.stays, *form.content):
            is_covered = name not in dict(form.later(version))
            changed = row_hash(form, row(form, **{name: b"another"}), SALT, version)
            assert (changed != row_hash(form, row(form), SALT, version)) == is_covered, name


@pytest.mark.parametrize(
    ("first", "second"), [(CALLS, SECOND[0]), (EVENTS, SECOND[1])], ids=["calls", "events"]
)
def test_a_later_column_changes_nothing_of_the_version_before(first: Form, second: Form) -> None:
    assert row_hash(second, row(second), SALT, VERSION) == row_hash(
        first, row(first), SALT, VERSION
    )
    assert {name for name, _ in second.later(VERSION)} == {"weight", "words"}
    assert second.later(NEXT) == ()


def test_a_row_of_a_later_table_is_covered_by_no_seal_of_the_version_before() -> None:
    assert holds_later(NEW_TABLE, row(NEW_TABLE), VERSION)
    assert not holds_later(NEW_TABLE, row(NEW_TABLE), NEXT)
    known = [row_hash(form, row(form), SALT) for form in FORMS]
    assert call_hash(CALL, [*known, b"a row of a later table"], VERSION) == call_hash(
        CALL, known, VERSION
    )


def test_a_seal_cannot_be_taken_for_one_of_another_version() -> None:
    hashes = [row_hash(form, row(form), SALT) for form in FORMS]
    assert len({call_hash(CALL, hashes, version) for version in (1, 2, 3)}) == 3


@pytest.mark.parametrize(
    "form",
    [*(form for form in FORMS if form.content), *SECOND],
    ids=lambda form: f"{form.table}-{len(form.counts) - 1}",
)
def test_what_a_redaction_of_any_time_kept_fits_every_version(form: Form) -> None:
    """A redaction keeps a hash for each column there was; what came later is empty then, and is
    hashed as it is."""
    names = [name for name, _ in form.content]
    whole = CopiedRow.read(form, row(form))
    kept = b"".join(
        bytes(32) if v is None else sha256(SALT + bytes([i]) + whole.key + v).digest()
        for i, v in enumerate(whole.content)
    )
    emptied = CopiedRow.read(
        form,
        row(
            form,
            **{n: None if v is None else b"" for n, v in zip(names, whole.content, strict=True)},
        ),
    )
    for version in range(1, len(form.counts)):
        assert emptied.hash(b"gone", kept, version=version) == whole.hash(SALT, version=version)

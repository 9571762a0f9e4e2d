"""Versions of the form in which rows are hashed: each is for ever."""

from hashlib import sha256
from struct import pack
from uuid import UUID

import pytest

from db.canonical import BESIDE, FORMS, VERSION, Form, Row, call_hash, holds_later, row_hash, tables_in

CALL = UUID(int=0x0190_0000_0000_7000_8000_000000000001)
SALT = b"salt" * 8
VERSION_1 = {
    "calls": "6839ecd80f63285721c73719aa9aba7e",
    "request_bodies": "1a2982ae9bc75b1e8ad4a3542c2e9a70",
    "chunks": "970d89aa8287b8174828105663531105",
    "releases": "c4248fa97757fd82ec7f32d23bb295f7",
    "blocks": "8c0ecaa616a9db28833cef39822fa84b",
    "tool_calls": "78aa880fd01c52359bdd14c095add06f",
    "tool_releases": "5250461ace758e06667515c3bbe6233c",
    "judgements": "45c11d3347bd87616db8dfe495161d96",
    "ends": "6aa414927add00c5595ec8cc02c1f138",
    "events": "2c3ac074aecbb15fd050ed52ed89c22f",
}
"""What the code of tree 96025be, which knew no versions, made of the columns that it had."""
CALL_1 = "26cde91ed474f17fbd49995faa431ce15215b01bb82c7e932e19d3e1ac9cb42b"
COLUMNS_1 = 84
LATER_VERSIONS = {
    2: ({"calls": "d13ff9d011cead23cd47a8c1af1bd3b6"}, "c10ae52a4cd2c120120b5b0703522628fe3e5275353ccee887743b198e93db2c", 85),
    3: (
        {"calls": "6918b08f70c5402e4887e9ac328425f1", "ends": "cd447a91d5003a2bf307c9d0f69c8cee"},
        "9aff2fe3f26c7688564ac26403d78af003fe37c7f7004e9652a0e1575649a461",
        91,
    ),
    4: (
        {
            "calls": "6918b08f70c5402e4887e9ac328425f1",
            "blocks": "10ec85b9e9d94da3e39566c6cf315ba2",
            "tool_calls": "8b92298089cfe8a4f29ba4c65ab6e85e",
            "ends": "cd447a91d5003a2bf307c9d0f69c8cee",
        },
        "7aa732fe9ae6a98cc2ce4d3488d93dd932da941f83c9f9865fca6fd16cfdde9f",
        93,
    ),
    5: (
        {
            "calls": "343f637a7501a22310fafa46120bf3c6",
            "blocks": "10ec85b9e9d94da3e39566c6cf315ba2",
            "tool_calls": "8b92298089cfe8a4f29ba4c65ab6e85e",
            "judgements": "3ab416e0015e4969119a27f295c95d1b",
            "ends": "cd447a91d5003a2bf307c9d0f69c8cee",
        },
        "9622d00709de50e3eba374aad9632db44c61404b2e812d22a76e60ad7a7f28a3",
        96,
    ),
    6: (
        {
            "calls": "727c36f5521680069b6c7be097c670e6",
            "blocks": "10ec85b9e9d94da3e39566c6cf315ba2",
            "tool_calls": "8b92298089cfe8a4f29ba4c65ab6e85e",
            "judgements": "3ab416e0015e4969119a27f295c95d1b",
            "ends": "cd447a91d5003a2bf307c9d0f69c8cee",
        },
        "a7e8625af37eb1a1df7cf85c3fa12ad9037dae33253902d055a678a43567ee47",
        97,
    ),
    7: (
        {
            "calls": "727c36f5521680069b6c7be097c670e6",
            "blocks": "10ec85b9e9d94da3e39566c6cf315ba2",
            "tool_calls": "8b92298089cfe8a4f29ba4c65ab6e85e",
            "judgements": "3ab416e0015e4969119a27f295c95d1b",
            "ends": "cd447a91d5003a2bf307c9d0f69c8cee",
            "scores": "fde516a5cbceeb2beac7b6013f0d624d",
            "decisions": "29252aa19409b836f8eb3ffa570ee0c7",
            "attempts": "5c0be725c39a42f4486e4c042cc7581c",
        },
        "30abab7d03129f429b0813d194b6dbae4742488b2f83c9e528d487e3e6afe516",
        139,
    ),
}
"""What the code that knew no later version made of them: of the tables that are not as in version 1, and of the call; how many columns."""


def value(table: str, column: str) -> bytes | None:
    """Some bytes that only this column has; of every third column none, which is NULL."""
    made = sha256(f"{table}.{column}".encode()).digest()
    return None if made[0] % 3 == 0 else made[: 1 + made[1] % 20]


def field(data: bytes | None) -> bytes:
    """A field of COPY BINARY."""
    return pack("!i", -1) if data is None else pack("!i", len(data)) + data


def row(form: Form, /, **other: bytes | None) -> bytes:
    """A row of a table; `other`: values of columns by name."""
    fields: list[bytes | None] = [CALL.bytes, *(value(form.table, name) or b"k" for name, _ in form.key)]
    fields += [other[name] if name in other else value(form.table, name) for name, _ in (*form.stays, *form.content)]
    return pack("!h", len(fields)) + b"".join(map(field, fields))


def hashes_in(version: int) -> dict[str, bytes]:
    """A row's hash of each table that the version covers."""
    return {form.table: row_hash(form, row(form), SALT, version) for form in FORMS[: tables_in(version)]}


@pytest.mark.parametrize("version", [BESIDE, 1])
def test_version_1_hashes_what_it_always_did(version: int) -> None:
    found = hashes_in(version)
    assert {table: hashed.hex()[:32] for table, hashed in found.items()} == VERSION_1
    assert call_hash(CALL, list(found.values()), version).hex() == CALL_1
    assert sum(1 + len(form.key) + sum(form.counts[1]) for form in FORMS if form.since == 1) == COLUMNS_1, "no column came into it or went"


@pytest.mark.parametrize("version", LATER_VERSIONS)
def test_later_versions_hash_what_they_always_did(version: int) -> None:
    others, call, columns = LATER_VERSIONS[version]
    found = hashes_in(version)
    assert {table: hashed.hex()[:32] for table, hashed in found.items()} == VERSION_1 | others
    assert call_hash(CALL, list(found.values()), version).hex() == call
    assert sum(1 + len(form.key) + sum(form.counts[version]) for form in FORMS[: tables_in(version)]) == columns, (
        "no column came into it or went"
    )


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.table)
def test_both_readings_of_a_row_agree_in_every_version(form: Form) -> None:
    for version in range(VERSION + 1):
        assert Row.read(form, row(form)).hash(SALT, version=version) == row_hash(form, row(form), SALT, version)
        for name, _ in form.later(version):
            other = row(form, **{name: b"another"})
            assert row_hash(form, other, SALT, version) == row_hash(form, row(form), SALT, version)
            assert holds_later(form, other, version)
            assert not holds_later(form, row(form, **dict.fromkeys((n for n, _ in form.later(version)), b"")), version)
        for name, _ in (*form.stays, *form.content):
            is_covered = name not in dict(form.later(version))
            changed = row_hash(form, row(form, **{name: b"another"}), SALT, version)
            assert (changed != row_hash(form, row(form), SALT, version)) == is_covered, name


def test_a_new_table_stands_behind_all_others_and_changes_nothing_of_older_versions() -> None:
    assert [form.since for form in FORMS] == sorted(form.since for form in FORMS)
    for version in range(VERSION):
        known = list(hashes_in(version).values())
        assert call_hash(CALL, [*known, b"a row of a later table"], version) == call_hash(CALL, known, version)
        for form in FORMS[tables_in(version) :]:
            assert holds_later(form, row(form), version), "a row of it is covered by no seal of this version"


def test_a_seal_cannot_be_taken_for_one_of_another_version() -> None:
    hashes = list(hashes_in(1).values())
    assert len({call_hash(CALL, hashes, version) for version in range(1, VERSION + 2)}) == VERSION + 1


@pytest.mark.parametrize("form", [form for form in FORMS if form.content], ids=lambda form: form.table)
def test_what_a_redaction_of_any_time_kept_fits_every_version(form: Form) -> None:
    """A redaction keeps a hash for each column there was; what came later is empty then, and is hashed as it is."""
    names = [name for name, _ in form.content]
    whole = Row.read(form, row(form))
    kept = b"".join(bytes(32) if v is None else sha256(SALT + bytes([i]) + whole.key + v).digest() for i, v in enumerate(whole.content))
    emptied = Row.read(form, row(form, **{n: None if v is None else b"" for n, v in zip(names, whole.content, strict=True)}))
    for version in range(VERSION + 1):
        assert emptied.hash(b"gone", kept, version=version) == whole.hash(SALT, version=version)

"""Columns are declared once, by the records; what came later can be left out by whoever does not
know it."""

import inspect

import msgspec
import pytest

from db.columns import TABLES, VERSION, CallTable, columns_of
from db.models import Base
from db.write.fit_columns import fit
from db.write.rows import KINDS, pack
from protocol.errors import StreamProtocolError
from protocol.records import (
    CallFacts,
    EventRecord,
    JudgementFacts,
    JudgementRecord,
    Record,
    decode_records,
    encode_records,
)
from scripts.columns import PAGE, page
from streams.layout import Start, pack_start, unpack_start
from tests.support.checks.record import call_id, judgement_record
from tests.support.worker_calls import start_of

WITH_RECORD = [table for table in TABLES if table.record is not None]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_the_table_has_the_columns_of_its_record(table: CallTable) -> None:
    made = Base.metadata.tables[table.name]
    assert {column.name for column in made.columns} == {
        "call_id",
        *(column.name for column in table.columns),
    }
    assert {column.name for column in made.primary_key} == {
        "call_id",
        *(column.name for column in table.key),
    }
    later = [column for column in table.columns if column.mark.since > table.since]
    assert all(column.is_nullable for column in later), (
        "writers of the version before do not name it"
    )


@pytest.mark.parametrize("table", WITH_RECORD, ids=lambda table: table.name)
def test_what_came_later_is_last_on_the_wire_and_has_a_default(table: CallTable) -> None:
    assert table.record is not None
    later = [column for column in columns_of(table.record) if column.mark.since > 1]
    versions = [column.mark.since for column in later if not column.path.startswith("facts.")]
    assert versions == sorted(versions)
    # facts are a value of their own on the wire
    own = [column for column in columns_of(table.record) if not column.path.startswith("facts.")]
    places = [place for place, column in enumerate(own) if column.mark.since > 1]
    assert places == list(range(places[0], places[0] + len(places)) if places else [])
    for column in later:
        struct, name = table.record, column.path
        if name.startswith("facts."):
            struct, name = CallFacts, name.removeprefix("facts.")
        assert inspect.signature(struct).parameters[name].default is not inspect.Parameter.empty


def test_every_kind_of_record_has_a_table() -> None:
    assert set(KINDS) == set(Record.__args__)
    assert {table.name for table in TABLES} - {kind.table for kind in KINDS.values()} == {
        "request_bodies"
    }
    assert [
        column.name for table in TABLES for column in table.columns if column.mark.since > VERSION
    ] == []


def test_a_fact_that_fits_no_column_is_kept_in_an_event() -> None:
    """Columns of a value within a record are made to fit, and packed, like its own."""
    made = judgement_record(call_id(), facts=JudgementFacts(input_tokens=2**70, output_tokens=5))
    fitted, event = fit(made)
    assert isinstance(fitted, JudgementRecord) and fitted.facts == JudgementFacts(None, 5)
    assert isinstance(event, EventRecord) and str(2**70) in event.detail
    assert decode_records(encode_records([made])) == [made], "msgpack has no such number"
    pack([fitted, event], {})


def test_start_is_as_long_as_its_fields_and_goes_there_and_back() -> None:
    start = start_of(b"", "c", body_sha256=bytes(32))
    assert (
        len(pack_start(start))
        == len(pack_start(msgspec.structs.replace(start, numbers={"n": 1}))) - 3
    ), "a short name and a small number"
    assert unpack_start(pack_start(start)) == start
    noted = msgspec.structs.replace(
        start, facts=CallFacts(user_agent="curl/8.5"), numbers={"keepalive_s": 5}
    )
    assert unpack_start(pack_start(noted)) == noted
    values, place = (
        msgspec.msgpack.decode(pack_start(noted)),
        Start.__struct_fields__.index("numbers"),
    )
    before = values[:place]
    assert unpack_start(msgspec.msgpack.encode(before)).numbers == {}, (
        "what a later version adds is left out by this one"
    )
    wrongs: list[object] = [[], {"keepalive_s": "5"}, {"keepalive_s": []}]
    for wrong in wrongs:
        with pytest.raises(StreamProtocolError):
            unpack_start(msgspec.msgpack.encode([*before, wrong, *values[place + 1 :]]))


def test_the_page_is_what_the_records_say() -> None:
    assert PAGE.read_text() == page(), "run python -m scripts.columns"

"""How a gateway's chunks become entries of the call's stream."""

from gateway.call.appender import ENTRY_CHUNKS
from gateway.call.calls import OpenCall
from protocol.dialects.table import CLIENTS
from streams import layout


def test_what_waited_goes_out_in_entries_that_a_worker_can_decide_on_in_one_go() -> None:
    call = OpenCall(layout.new_call_id(), CLIENTS["openai"], b"", activity_s=30, deadline=0)
    chunks = [b"%d" % number for number in range(3 * ENTRY_CHUNKS + 1)]
    call.appender.append("status", [b"{}"], number=200)
    for chunk in chunks:
        call.appender.append("chunks", [chunk])
    call.appender.append("eof")
    first, *middle, last = call.appender.next_entries(0)
    assert [(first.kind, first.seq), (last.kind, last.chunks)] == [("status", 1), ("eof", [])]
    assert [len(entry.chunks) for entry in middle] == [ENTRY_CHUNKS] * 3 + [1]
    assert [chunk for entry in middle for chunk in entry.chunks] == chunks
    numbers = [first.seq]
    for entry in (first, *middle):
        numbers.append(entry.next_seq)
    assert numbers == [1, *(entry.seq for entry in middle), last.seq]
    assert call.flow.backlog_bytes() == sum(map(len, chunks)) + len(b"{}")

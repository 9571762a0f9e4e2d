"""The bytes of a call as they came and went, 200 chunks a page."""

from db.read.call.chunk_pages import PAGE, read_wire
from pages import links
from pages.call import chunk_table
from pages.page import Page, PageRequest, Route, ShownContent
from pages.render import short
from pages.views.call import call_of, check_query, frame, number_of, origin, overview_of
from protocol.errors import InvalidRequest

VIEWS = ("lanes", "table")


async def show_wire(asked: PageRequest) -> Page:
    """Chunks beside the releases that they led to; `seq` names one that is on the page."""
    call_id = await call_of(asked)
    check_query(asked, "seq", "view", "from")
    view, seq = asked.one("view", "lanes"), number_of(asked.one("seq", "1"), "seq")
    if view not in VIEWS:
        raise InvalidRequest("is lanes or table", param="view")
    after = max(0, seq - 1) // PAGE * PAGE
    overview = await overview_of(asked, call_id)

    def to(view: str, seq: int | None) -> str:
        return links.tab(
            call_id, "wire", **origin(asked), view=view if view != VIEWS[0] else None, seq=seq
        )

    chunks, before, more = await read_wire(
        asked.services.reader, call_id, after, most=chunk_table.MOST
    )
    first_at = min((span.first_at for span in overview.spans.values()), default=None)
    values = {
        **await frame(asked, overview, "wire"),
        "rows": chunk_table.rows(overview, chunks, first_at),
        "written_before": [chunk_table.piece(release, first_at) for release in before],
        "view": view,
        "seq": seq,
        "views": [[name, to(name, seq if seq > 1 else None), name == view] for name in VIEWS],
        "pager": {
            "first": chunks[0].seq if chunks else 0,
            "last": chunks[-1].seq if chunks else 0,
            "before": to(view, max(1, after - PAGE + 1)) if after else None,
            "after": to(view, after + PAGE + 1) if more else None,
        },
    }
    return Page(
        template="call_wire.html",
        title=f"wire · {short(str(call_id))}",
        values=values,
        shown=ShownContent((call_id,), len(chunks)),
    )


ROUTES = (Route(f"{links.CALLS}/{{call_id}}/wire", show_wire),)

"""The bounds that readers of the pages meet, and who runs them: docs/bounds.md is made from these too.

Each number stands with who keeps it, in another layer than `protocol.bounds_table`, which must not know pages.
"""

from db import labels, page_sessions
from db.read import queries, sessions
from gateway import door, pages_process
from pages import app, arguments, connection, conversation, figures, listing, login, request, story, tail
from pages import http as forms
from pages.views import call, live, logs
from pages.views import diff as comparison
from protocol import bounds as b
from protocol import debug
from protocol.bounds import Bound
from streams import debug_lines

_DOOR, _FORMS, _GUARD = "tests/unit/test_door.py::", "tests/unit/test_forms.py::", "tests/unit/test_pages_guard.py::"
_HTTP, _LIVE, _LISTS = "tests/service/test_pages_http.py::", "tests/service/test_live.py::", "tests/service/test_pages_lists.py::"
_LARGE = "tests/service/test_large_calls.py::test_a_page_of_a_large_call_is_small_and_says_what_it_leaves_out"
_CONVERSATION, _SESSIONS = "tests/unit/test_conversation.py::", "tests/e2e/test_session_pages.py::"
_LINES = "tests/service/test_debug_lines.py::"


def _row(name: str, what: str, limit: float, unit: str, keeper: str, past: str, test: str) -> Bound:
    return Bound(name, "reader", what, limit, unit, keeper, past, test)


_AT_THE_DOOR = (
    _row(
        "page_relays", "pages that load through a gateway at once, live ones too", b.MAX_RELAYS, "answers", "gateway.door",
        f"others wait, {door.TURN_S:g} s at most, then 503", f"{_DOOR}test_so_many_at_once_and_no_more_and_who_leaves_makes_room",
    ),
    _row(
        "page_relays_strangers", "requests without a login, besides those pages", door.MAX_OF_STRANGERS, "answers", "gateway.door",
        f"others wait, {door.TURN_S:g} s at most, then 503",
        f"{_DOOR}test_strangers_take_no_relay_and_no_waiting_place_of_who_is_logged_in",
    ),
    _row(
        "page_waiting", "requests that wait for that, and as many without a login; one key or address: as many as are still free",
        door.MAX_WAITING, "requests", "gateway.door",
        "503", f"{_DOOR}test_whoever_waits_for_a_relay_gets_the_next_one_whatever_others_ask_for",
    ),
    _row(
        "page_streams", "streams of events through a gateway; one key: as many as are still free", door.MAX_STREAMS, "streams",
        "gateway.door", "503",
        f"{_DOOR}test_streams_leave_room_for_pages",
    ),
    _row(
        "page_downloads", "streams, downloads and very long pages through a gateway; one key: as many as are still free",
        door.MAX_IN_PIECES, "answers", "gateway.door", "503", f"{_DOOR}test_streams_and_downloads_that_stay_open_leave_room_for_pages",
    ),
    _row(
        "page_untaken", "pages that a gateway has whole and their readers do not take; one key: as much as is still free",
        pages_process.UNTAKEN_BYTES, "bytes", "gateway.pages_process", "a page counts as one of the answers above",
        f"{_DOOR}test_pages_that_one_address_does_not_take_keep_no_other_out",
    ),
    _row(
        "page_form", "a form that a page sends", b.MAX_RELAYED_FORM_BYTES, "bytes", "gateway.forms", "413",
        f"{_DOOR}test_a_form_has_an_end",
    ),
    _row(
        "page_forms", "forms that are on their way in to a gateway", b.MAX_FORMS, "forms", "gateway.forms",
        "the oldest of the address that has most gets 503", f"{_FORMS}test_a_form_that_comes_is_never_kept_out_by_slow_ones",
    ),
    _row(
        "page_form_time", "the time that a form may take", b.FORM_S, "s", "gateway.forms", "408", f"{_FORMS}test_a_form_has_a_time",
    ),
    _row(
        "page_form_fields", "fields of a form", forms.MAX_FIELDS, "fields", "pages.http", "400",
        f"{_HTTP}test_what_is_too_much_is_cut_off_before_it_costs",
    ),
    _row(
        "page_parameters", "parameters of a page", app.MAX_PARAMETERS, "parameters", "pages.app", "400",
        f"{_HTTP}test_bad_input_gets_a_sentence",
    ),
    _row(
        "page_connections", "connections to the pages themselves", connection.MOST_CONNECTIONS, "connections", "pages.connection",
        "the oldest without a whole request ends, of the address that has most; 503 where all are being answered",
        "tests/unit/test_pages_connection.py::test_connections_without_a_request_make_room",
    ),
)  # fmt: skip
_LOGINS = (
    _row(
        "wrong_keys", "wrong keys of one address in a minute", login.MOST_WRONG, "keys", "pages.login", "429 with retry-after",
        f"{_GUARD}test_wrong_keys_are_counted_by_address_and_in_all_and_forgotten_after_a_minute",
    ),
    _row(
        "wrong_keys_in_all", "wrong keys of all addresses in a minute", login.MOST_WRONG_IN_ALL, "keys", "pages.login",
        "429 for addresses from which nobody logged in for a day",
        f"{_GUARD}test_wrong_keys_are_counted_by_address_and_in_all_and_forgotten_after_a_minute",
    ),
    _row(
        "logins", "logins of one key", page_sessions.MOST_OF_KEY, "logins", "db.page_sessions", "the oldest end",
        f"{_HTTP}test_the_oldest_logins_of_a_key_end_where_there_are_too_many",
    ),
    _row(
        "login_time", "the time that a login holds", page_sessions.LASTS_S / 3600, "hours", "db.page_sessions", "the login ends",
        f"{_HTTP}test_an_idle_login_and_an_old_one_end",
    ),
    _row(
        "login_idle", "the time that a login holds without a request", page_sessions.IDLE_S / 60, "minutes", "db.page_sessions",
        "the login ends", f"{_HTTP}test_an_idle_login_and_an_old_one_end",
    ),
    _row(
        "key_views", "pages that are made for one key at once", app.MOST_OF_ONE, "pages", "pages.app", "the next waits",
        f"{_GUARD}test_one_key_leaves_room_for_others",
    ),
    _row(
        "key_waiting", "pages of one key that are made or wait", app.MOST_ASKED_BY_ONE, "pages", "pages.app", "429",
        f"{_GUARD}test_one_key_leaves_room_for_others",
    ),
    _row(
        "key_streams", "streams of events of one key", app.MOST_STREAMS_OF_ONE, "streams", "pages.app", "429",
        f"{_GUARD}test_answers_of_one_key_that_stay_open_leave_room_for_others",
    ),
    _row(
        "key_downloads", "downloads of one key at once", app.MOST_DOWNLOADS_OF_ONE, "downloads", "pages.app", "429",
        f"{_GUARD}test_answers_of_one_key_that_stay_open_leave_room_for_others",
    ),
)  # fmt: skip
_LIVE_VIEWS = (
    _row(
        "live_views", "live views of calls in one process of the pages", tail.MOST_VIEWERS, "views", "pages.tail", "429",
        f"{_LIVE}test_a_process_has_twenty_viewers",
    ),
    _row(
        "login_live_views", "live views of one login", tail.MOST_OF_LOGIN, "views", "pages.tail", "429",
        f"{_LIVE}test_a_login_has_five_live_views_and_nothing_is_left_of_them",
    ),
    _row(
        "live_view_time", "the time that a live view goes on", live.MOST_S / 60, "minutes", "pages/views/live.py",
        "it ends with a sentence; loading the page again goes on", "tests/unit/test_pages_following.py::test_a_live_view_has_an_end",
    ),
    _row(
        "live_view_unsent", "what waits for a live view that is not read", tail.UNSENT_BYTES, "bytes", "pages.tail",
        "the view says that there is a gap", f"{_LIVE}test_what_nobody_takes_is_a_gap",
    ),
    _row(
        "figures_live", "overviews whose figures go on by themselves", figures.MAX_VIEWERS, "streams", "pages.figures", "429",
        "tests/service/test_figures.py::test_one_poller_serves_all_and_ends_with_the_last",
    ),
)  # fmt: skip
_PAGES = (
    _row(
        "list_rows", "rows of a list, and debug lines of one", listing.MAX_ROWS, "rows", "pages.listing", "400",
        "tests/unit/test_pages_listing.py::test_what_cannot_be_asked_is_named",
    ),
    _row(
        "list_bytes", "content that a page of a list reads", queries.PAGE_BYTES, "bytes", "db.read.queries",
        "the page ends early and leads on", "tests/service/test_audit_read.py::test_a_page_of_megabytes_ends_early",
    ),
    _row(
        "call_blocks", "content blocks on a page of a call", story.PAGE, "blocks", "pages.story", "the next page has more", _LARGE,
    ),
    _row(
        "call_arguments", "arguments that a page shows whole", arguments.WHOLE, "bytes", "pages.arguments",
        "beginning and end, and a link to all of it", _LARGE,
    ),
    _row(
        "diff_shown", "text that the page of a comparison shows", comparison.BUDGET, "characters", "pages.views.diff",
        "lines are counted, and a block leads to its own page", "tests/unit/test_pages_diff.py::test_all_blocks_of_a_page_share_its_room",
    ),
    _row(
        "request_shown", "turns that the page of a request shows", request.BUDGET, "bytes", "pages.request",
        "the newest first, the rest is cut or counted; the raw request has all",
        "tests/unit/test_pages_request.py::test_the_newest_turn_has_its_room_first",
    ),
    _row(
        "session_shown", "characters of a page of a session", conversation.BUDGET, "characters", "pages.conversation",
        "cut or counted; an export has all", f"{_CONVERSATION}test_a_page_holds_so_much_and_counts_the_rest",
    ),
    _row(
        "session_calls", "calls of a session that are put together, on pages and in exports", sessions.MOST_CALLS, "calls",
        "db.read.sessions", "the others are said to be there", f"{_SESSIONS}test_a_session_of_more_calls_than_are_read_says_so",
    ),
    _row(
        "export_waiting", "bytes of an export that wait for its reader", call.MOST_SPOOLED, "bytes", "pages/views/call.py",
        "reading the record waits; past 300 s Postgres ends that, and the export breaks off",
        f"{_GUARD}test_an_export_waits_for_who_takes_it_slowly",
    ),
    _row(
        "label_note", "a note to a label", labels.MAX_NOTE_CHARS, "characters", "db.labels", "400",
        f"{_LISTS}test_a_label_that_is_none_is_refused",
    ),
    _row(
        "labels", "labels of one block by one key", labels.MAX_LABELS, "labels", "db.labels", "400",
        f"{_LISTS}test_only_what_was_decided_has_labels_and_not_without_end",
    ),
)  # fmt: skip
_LOOKED_THROUGH = (
    _row(
        "search_words", "what is searched for", b.MAX_FILTER_CHARS, "characters", "db.filters", "400",
        f"{_HTTP}test_bad_input_gets_a_sentence",
    ),
    _row(
        "sessions_looked", "calls that a page of the list of sessions looks through", sessions.LOOK_THROUGH, "calls", "db.read.sessions",
        "the page ends early and leads on", f"{_SESSIONS}test_the_list_ends_where_enough_calls_were_looked_through",
    ),
)  # fmt: skip
_DEBUG = (
    _row(
        "debug_lines_call", "debug lines of one call by one process", debug.LINES_PER_CALL, "lines", "streams.debug_lines",
        "one line says so, and then none", f"{_LINES}test_a_process_sends_no_more_than_its_bounds_and_says_so",
    ),
    _row(
        "debug_lines", "debug lines of one process in a second", debug.LINES_PER_S, "lines", "streams.debug_lines", "lost, and counted",
        f"{_LINES}test_a_process_sends_no_more_than_its_bounds_and_says_so",
    ),
    _row(
        "debug_bytes", "their bytes", debug.BYTES_PER_S, "bytes", "streams.debug_lines", "lost, and counted",
        f"{_LINES}test_a_process_sends_no_more_than_its_bounds_and_says_so",
    ),
    _row(
        "debug_content", f"content in one line; with `content: full` {debug.FULL_BYTES:,} bytes", debug.PREVIEW_BYTES, "bytes",
        "streams.debug_lines", "cut, with its length",
        f"{_LINES}test_lines_of_a_process_come_to_the_table_and_missing_ones_are_counted",
    ),
    _row(
        "debug_share", "the debug streams in Redis", debug_lines.SHARE * 100, "% of its memory", "streams.debug_lines",
        "the oldest lines are lost, and counted",
        f"{_LINES}test_nobody_drains_and_lines_are_large_yet_they_take_a_small_share_of_memory",
    ),
    _row(
        "debug_kept", "debug lines in Postgres", debug.KEPT_BYTES, "bytes", "db/write/debug_logs.py", "the oldest day goes",
        f"{_LINES}test_lines_go_with_their_call_with_time_and_with_what_they_take",
    ),
    _row(
        "debug_days", "the time that they are kept", debug.KEPT_DAYS, "days", "db/write/debug_logs.py", "they go",
        f"{_LINES}test_lines_go_with_their_call_with_time_and_with_what_they_take",
    ),
    _row(
        "debug_switch_time", "the time for which an admin switches them on", debug.LONGEST_MIN, "minutes", "db.switches", "400",
        "tests/service/test_pages_logs.py::test_switches_have_bounds_and_the_newest_of_a_key_counts",
    ),
    _row(
        "debug_switches", "keys for which they are switched on", debug.MOST_SWITCHES, "keys", "db.switches", "400",
        "tests/service/test_pages_logs.py::test_switches_have_bounds_and_the_newest_of_a_key_counts",
    ),
    _row(
        "debug_page", "debug lines on a page of a call", logs.PAGE, "lines", "pages/views/logs.py", "the next page has more",
        "tests/service/test_pages_logs.py::test_a_call_without_lines_says_why_and_many_lines_have_pages",
    ),
)  # fmt: skip
PAGES: tuple[Bound, ...] = _AT_THE_DOOR + _LOGINS + _LIVE_VIEWS + _PAGES + _LOOKED_THROUGH + _DEBUG

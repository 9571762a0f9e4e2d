"""The table of bounds: what others can multiply, and how often. docs/bounds.md is made from it.

A client, an upstream, the author of a policy or a configuration can send more of anything than one call is worth. Each
such thing has a row here, with the module that keeps the bound, what happens past it, and the test that multiplies it. Bounds
that an operator may change stand in `protocol.config.Limits`; the table names them.

Must not know: who keeps them.
"""

from protocol import bounds as b
from protocol.bounds import Bound
from protocol.request_bounds import REQUESTS

_SIZES: tuple[Bound, ...] = (
    Bound(
        "answer_bytes", "upstream", "all that an upstream sends in a call", b.MAX_OUTPUT_BYTES, "bytes", "gateway.calls",
        "the answer ends with an error", "tests/e2e/test_timers.py::test_output_past_the_limit_ends_the_call", "limits.output_bytes",
    ),
    Bound(
        "event_bytes", "upstream", "arguments of one tool call; one SSE event: six times them", b.MAX_EVENT_BYTES, "bytes", "protocol.sse",
        "the call is blocked, too_large; the answer ends with an error",
        "tests/unit/test_sse.py::test_event_past_the_bound_is_refused", "limits.event_bytes",
    ),
    Bound(
        "event_lines", "upstream", "lines of one SSE event", b.MAX_EVENT_LINES, "lines", "protocol.sse", "the answer ends with an error",
        "tests/unit/test_bounds.py::test_past_its_bound_an_answer_ends_with_a_clear_error",
    ),
    Bound(
        "event_values", "upstream", "JSON values in one SSE event", b.MAX_EVENT_VALUES, "values", "protocol.sse",
        "the answer ends with an error", "tests/unit/test_bounds.py::test_past_its_bound_an_answer_ends_with_a_clear_error",
    ),
    Bound(
        "message_headers", "upstream", "headers of a message of a binary event stream", b.MAX_MESSAGE_HEADER_BYTES, "bytes",
        "protocol.eventstream", "the answer ends with an error",
        "tests/unit/test_eventstream.py::test_more_headers_than_a_message_may_have_are_refused",
    ),
    Bound(
        "whole_values", "upstream", "JSON values in a whole answer", b.MAX_ANSWER_VALUES, "values", "protocol.codecs",
        "the answer is an error", "tests/unit/test_bounds.py::test_past_its_bound_an_answer_ends_with_a_clear_error",
    ),
    Bound(
        "segments", "upstream", "answers of one turn that pauses or is deferred", b.MAX_SEGMENTS, "answers", "protocol.config",
        "the turn ends as it is; what would be deferred is blocked",
        "tests/e2e/test_continued_turns.py::test_a_turn_that_never_ends_stops_after_eight_segments",
    ),
)  # fmt: skip
_CONFIGURED: tuple[Bound, ...] = (
    Bound(
        "patterns", "configuration", "an RE2 pattern of a rule", b.MAX_PATTERN_CHARS, "characters", "policy.patterns",
        "the configuration is refused with its place", "tests/unit/test_bounds.py::test_past_its_bound_a_configuration_is_refused",
    ),
    Bound(
        "accepted_sets", "configuration", "policy sets that a gateway accepts beside its own",
        b.MAX_ACCEPTED_SETS, "sets", "protocol.config",
        "the configuration is refused with its place", "tests/unit/test_bounds.py::test_past_its_bound_a_configuration_is_refused",
    ),
    Bound(
        "series", "configuration", "policies in a series", b.MAX_SERIES, "policies", "protocol.config",
        "the configuration is refused with its place", "tests/unit/test_bounds.py::test_past_its_bound_a_configuration_is_refused",
    ),
    Bound(
        "rules", "configuration", "rules in one list", b.MAX_RULES, "rules", "policy.builtin.tool_rules",
        "the configuration is refused with its place", "tests/unit/test_bounds.py::test_past_its_bound_a_configuration_is_refused",
    ),
)  # fmt: skip
_LISTED: tuple[Bound, ...] = (
    Bound(
        "audit_page", "client", "rows of one page of the audit API", b.MAX_PAGE, "rows", "db.filters", "400",
        "tests/unit/test_bounds.py::test_past_its_bound_an_audit_filter_is_refused",
    ),
    Bound(
        "audit_filter", "client", "a filter or cursor of the audit API", b.MAX_FILTER_CHARS, "characters", "db.filters", "400",
        "tests/unit/test_bounds.py::test_past_its_bound_an_audit_filter_is_refused",
    ),
)  # fmt: skip
# --- answers: blocks, calls, text ---
_TESTS = "tests/unit/test_answer_bounds.py::"
_ANSWERS: tuple[Bound, ...] = (
    Bound(
        "answer_blocks", "upstream", "content blocks of an answer",
        b.MAX_BLOCKS, "blocks", "policy.session.blocks", "the answer ends with an error",
        _TESTS + "test_an_answer_of_too_many_blocks_ends",
    ),
    Bound(
        "answer_tool_calls", "upstream", "tool calls of an answer: native, provider-run and in text", b.MAX_TOOL_CALLS, "calls",
        "policy.session.blocks", "blocked, too_many; the client reads one notice, twice the bound are listed, all are in the chunks",
        _TESTS + "test_tool_calls_past_the_bound_are_left_out_with_one_message",
    ),
    Bound(
        "answer_text_calls", "upstream", "tool calls in one text", b.MAX_TEXT_CALLS, "calls", "policy.session.text_flow",
        "the rest of the text is withheld, too_many, with a notice",
        _TESTS + "test_a_text_with_too_many_calls_is_cut_with_a_message",
    ),
    Bound(
        "answer_text_step", "upstream", "text that a hook or the search for calls takes at once", b.TEXT_STEP_CHARS, "characters",
        "policy.session.text_flow", "longer text comes in steps", _TESTS + "test_long_text_reaches_hooks_in_steps",
    ),
    Bound(
        "answer_carried", "upstream", "text that may be a call over the border of two texts, searched once more at each",
        b.MAX_CARRIED_CHARS,
        "characters", "policy.session.searching", "the answer ends with an error",
        _TESTS + "test_what_is_searched_again_at_each_border_has_an_end",
    ),
    Bound(
        "answer_ids", "upstream", "an id: of a message, model or tool call", b.MAX_ID_CHARS, "characters", "policy.session.extras",
        "the client gets another id, the record has the true one",
        _TESTS + "test_an_id_that_is_none_is_another_one_for_the_client_and_on_record_as_it_came",
    ),
    Bound(
        "answer_names", "upstream", "the name of a tool call", b.MAX_NAME_CHARS, "characters", "policy.session.extras",
        "the call is blocked, name", _TESTS + "test_a_name_past_the_bound_is_withheld",
    ),
    Bound(
        "answer_signatures", "upstream", "the signature of reasoning", b.MAX_SIGNATURE_CHARS, "characters", "policy.session.extras",
        "withheld", _TESTS + "test_a_signature_that_is_none_is_withheld",
    ),
    Bound(
        "answer_notes", "upstream", "things about an answer that are noted, beside the mark of each chunk", b.MAX_NOTES, "events of a call",
        "policy.session.outbox", "one more says that there are others", _TESTS + "test_notes_about_an_answer_have_an_end",
    ),
)  # fmt: skip
# --- policies and rules ---
_JSON_TEST, _RULES_TEST = "tests/unit/test_json_strict.py", "tests/unit/test_rule_lookalikes.py"
_POLICIES: tuple[Bound, ...] = (
    Bound(
        "policy_state", "policy", "objects that a policy holds and each call copies", b.MAX_STATE_OBJECTS, "objects in an attribute",
        "policy/call_state.py", "the policy is not loaded: the start stops with a sentence that names the attribute",
        "tests/unit/test_policy_state.py::test_what_cannot_be_copied_is_refused_at_load",
    ),
    Bound(
        "verdict_reason", "policy", "a verdict's reason", b.MAX_REASON_CHARS, "characters", "policy/session/checked.py",
        "the verdict is a fault: what it was about is blocked",
        "tests/unit/test_policy_faults.py::test_a_verdict_with_a_wrong_field_is_a_fault",
    ),
    Bound(
        "verdict_message", "policy", "a block's message to the client", b.MAX_MESSAGE_CHARS, "characters", "policy/session/checked.py",
        "the verdict is a fault: what it was about is blocked",
        "tests/unit/test_policy_faults.py::test_a_verdict_with_a_wrong_field_is_a_fault",
    ),
    Bound(
        "verdict_rule", "policy", "the name of the rule that decided", b.MAX_NAME_CHARS, "characters", "policy/session/checked.py",
        "the verdict is a fault: what it was about is blocked",
        "tests/unit/test_notices.py::test_a_rule_that_is_no_name_is_a_fault_of_its_policy",
    ),
    Bound(
        "monitors", "configuration", "monitors of one `control`, and so scores of one decision", b.MAX_MONITORS, "monitors",
        "policy/builtin/control_options.py", "the configuration is refused",
        "tests/unit/test_control.py::test_what_makes_no_sense_is_refused_with_its_place",
    ),
    Bound(
        "score_words", "policy", "why a monitor gives a score", b.MAX_WHY_CHARS, "characters", "policy/protocols.py",
        "cut; of more than 32 dimensions the first are kept", "tests/unit/test_control.py::test_long_words_of_a_monitor_are_cut",
    ),
    Bound(
        "asks", "policy", "questions to judges about one tool call", b.MAX_ASKS, "questions", "policy/session/chain.py",
        "the call is blocked (too_many_asks)", "tests/unit/test_policy_faults.py::test_a_policy_that_asks_without_end_is_stopped",
    ),
    Bound(
        "request_change_items", "policy", "items of one JSON object in a request that a hook returns", b.MAX_CHANGED_ITEMS, "items",
        "policy/session/checked.py", "the hook's answer is a fault: the request is refused with 403",
        "tests/unit/test_policy_faults.py::test_a_request_with_a_wrong_type_inside_is_a_fault",
    ),
    Bound(
        "argument_values", "upstream", "values in a tool call's arguments", b.MAX_ARGUMENT_VALUES, "values", "protocol/json_strict.py",
        "the call is blocked: ambiguous_json", f"{_JSON_TEST}::test_eight_megabytes_of_arguments_take_no_time_that_others_notice",
    ),
    Bound(
        "odd_keys", "upstream", "text in keys of arguments that are not plain ASCII", b.MAX_ODD_KEY_CHARS, "characters",
        "protocol/json_strict.py", "the call is blocked: ambiguous_json",
        f"{_JSON_TEST}::test_arguments_that_two_programs_read_differently_are_refused",
    ),
    Bound(
        "rule_texts", "upstream", "texts in arguments that rules look at", b.MAX_RULE_TEXTS, "texts", "policy/builtin/arguments.py",
        "deny rules apply, allow rules do not", f"{_RULES_TEST}::test_more_than_rules_look_at_is_denied_and_not_allowed",
    ),
    Bound(
        "folded_text", "upstream", "text beyond ASCII that rules fold", b.MAX_FOLDED_BYTES, "bytes more than characters",
        "policy/builtin/arguments.py", "deny rules apply, allow rules do not",
        f"{_RULES_TEST}::test_more_than_rules_look_at_is_denied_and_not_allowed",
    ),
    Bound(
        "sql_text", "upstream", "SQL that rules parse", b.MAX_SQL_CHARS, "characters", "policy/sql.py",
        "deny rules apply, allow rules do not", "tests/unit/test_sql_kinds.py::test_a_text_over_the_bound_is_refused",
    ),
    Bound(
        "sql_steps", "upstream", "steps of the SQL parser", 2, "steps a token, and 1,000", "policy/sql.py",
        "deny rules apply, allow rules do not", "tests/unit/test_sql_kinds.py::test_no_text_takes_the_parser_long",
    ),
)  # fmt: skip
# --- judges ---
_JUDGES: tuple[Bound, ...] = (
    Bound(
        "judge_open_asks", "upstream", "open questions to judges, of one call", b.MAX_OPEN_ASKS, "questions", "policy/session/blocks.py",
        "the others wait in order", "tests/unit/test_judged_answers.py::test_only_so_many_questions_of_a_call_are_open",
    ),
    Bound(
        "judge_answer_calls", "upstream", "calls before in an answer that a judge is shown", b.MAX_TOOL_CALLS, "calls",
        "policy/answer.py",
        "later calls are blocked (answer_too_large)", "tests/unit/test_judged_answers.py::test_an_answer_of_any_size_is_kept_in_bounds",
    ),
    Bound(
        "judge_answer_bytes", "upstream", "names and arguments of those calls", b.MAX_ANSWER_BYTES, "bytes", "policy/answer.py",
        "later calls are blocked (answer_too_large); tool_judge does so at its option answer_bytes",
        "tests/unit/test_judged_answers.py::test_an_answer_of_any_size_is_kept_in_bounds",
    ),
    Bound(
        "judge_tool_bytes", "client", "description and schema of a tool whose call is judged", b.MAX_TOOL_BYTES, "bytes",
        "policy/monitors/model.py", "its calls are blocked (tool_too_large), or get no score",
        "tests/unit/test_judging.py::test_a_large_schema_is_not_judged_and_an_undeclared_tool_has_none",
    ),
    Bound(
        "judge_conversation", "client", "turns, parts and texts of a conversation that a judge is shown (tool_judge: tail_bytes)",
        32_768, "bytes",
        "policy/judge_view.py", "the rest is cut or left out, and counted",
        "tests/unit/test_judge_view.py::test_any_conversation_has_a_bounded_view",
    ),
    Bound(
        "judge_queue", "client", "questions that wait for a judge, of all keys", b.MAX_JUDGE_QUEUE, "questions", "workers/judge_queue.py",
        "the call is blocked (judge_unavailable)", "tests/service/judge/test_queue.py::test_a_full_queue_refuses_at_once",
    ),
    Bound(
        "judge_queue_key", "client", "questions of one key that wait: as many as places are left", b.MAX_JUDGE_QUEUE / 2, "questions",
        "streams/judge_scripts.py", "the call is blocked (judge_unavailable)",
        "tests/service/judge/test_turn.py::test_a_key_has_a_share_of_the_queue_and_leaves_room",
    ),
    Bound(
        "judge_reply", "upstream", "a judge model's reply", 16_384, "characters", "policy/judging.py",
        "the call is blocked (judge_invalid)",
        "tests/unit/test_judging.py::test_any_other_reply_is_invalid",
    ),
    Bound(
        "judge_models", "policy", "judge models of which a judge worker knows the form of reply", b.MAX_KNOWN_JUDGES, "models",
        "workers/judge/forms.py", "all is forgotten and learned anew", "tests/service/judge/test_forms.py::test_what_is_known_is_bounded",
    ),
)  # fmt: skip
# --- gateway ---
_GATEWAY: tuple[Bound, ...] = (
    Bound(
        "head_bytes", "client", "bytes of a request's head, beside what comes in the same read as its end", b.MAX_HEAD_BYTES, "bytes",
        "gateway.http_limits", "431, and the connection is closed", "tests/e2e/test_slow_clients.py::test_a_head_without_end_is_cut_off",
    ),
    Bound(
        "head_lines", "client", "headers of a request", b.MAX_HEADERS, "lines", "gateway.http_limits", "431, and the connection is closed",
        "tests/e2e/test_slow_clients.py::test_a_head_of_many_lines_is_refused",
    ),
    Bound(
        "head_time", "client", "the time a head takes to come", b.HEAD_S, "s", "gateway.http_limits", "the connection is closed",
        "tests/unit/test_http_limits.py::test_a_head_has_a_time",
    ),
    Bound(
        "audit_questions", "client", "questions to the audit API at once through a gateway, up to 8 of one key; 4 of others besides",
        b.MAX_QUESTIONS, "questions", "gateway.audit_door", "they wait for `limits.audit_read_s`, then 503",
        "tests/unit/test_audit_door.py::test_strangers_take_no_place_of_auditors_nor_one_auditor_all",
    ),
    Bound(
        "review", "client", "what an auditor says of a decision, `POST /audit/reviews/ID/BLOCK`", b.MAX_REVIEW_BYTES, "bytes",
        "pages.audit.reviews", "413",
        "tests/unit/test_audit_door.py::test_a_review_goes_on_whole_and_one_that_is_too_long_is_still_too_long",
    ),
    Bound(
        "target", "client", "path and query, and so cursors and filters", b.MAX_TARGET_BYTES, "bytes", "gateway.routes",
        "400 target_too_long", "tests/faults/test_abuse.py::test_c7_a_path_and_query_have_an_end",
    ),
    Bound(
        "repeated_headers", "client", "x-sluice-* headers, content-length and keys of one request", 1, "of each", "gateway.routes",
        "400 repeated_header (keys that are the same may be there twice)",
        "tests/faults/test_abuse.py::test_c7_a_header_that_decides_is_there_once",
    ),
    Bound(
        "key_text", "client", "an API key as it is sent", b.MAX_KEY_BYTES, "bytes", "db.keyring", "401, as for any wrong key",
        "tests/faults/test_abuse.py::test_c6_refusals_say_the_same_whatever_is_wrong",
    ),
    Bound(
        "looked_up_keys", "client", "keys that are not known and wait to be looked up in Postgres, in ten queries a second at most",
        b.MAX_LOOKED_UP_KEYS, "keys of a process", "db.keyring", "401; a new key is known within 5 s all the same",
        "tests/unit/test_keyring.py::test_wrong_keys_do_not_load_the_database",
    ),
    Bound(
        "unknown_keys", "client", "keys that were not found in Postgres and are not looked up again for 4 s", b.MAX_UNKNOWN_KEYS,
        "keys of a process", "db.keyring", "the oldest are looked up again",
        "tests/unit/test_keyring.py::test_wrong_keys_do_not_load_the_database",
    ),
    Bound(
        "own_timeout", "client", "the activity timeout of a request, x-sluice-timeout-s", b.MAX_TIMEOUT_S, "s", "gateway.routes", "400",
        "tests/e2e/test_bad_input.py::test_a_wrong_timeout",
    ),
    Bound(
        "session_name", "client", "the name in x-sluice-session", b.MAX_SESSION_CHARS, "characters", "gateway.routes", "400",
        "tests/e2e/test_bad_input.py::test_odd_sessions_are_on_record",
    ),
    Bound(
        "betas", "client", "names in anthropic-beta", b.MAX_BETAS, "names", "gateway.betas", "those past it are ignored",
        "tests/unit/test_betas.py::test_at_most_64_names_are_taken",
    ),
    Bound(
        "kept_heads", "client", "ready request heads that a gateway keeps, one for each set of betas", b.MAX_KEPT_HEADS, "heads",
        "gateway.upstream", "made anew", "tests/service/test_relay.py::test_sets_of_betas_do_not_add_up",
    ),
    Bound(
        "body_time", "client", "the time a request body takes to come", 120.0, "s", "gateway.routes", "408 with retry-after",
        "tests/faults/test_attackers.py::test_an_upload_has_a_time_though_it_never_stands_still", "limits.body_s",
    ),
    Bound(
        "uploads", "client", "request bodies of one gateway that come in or wait to be sent upstream; one key: half of what is free",
        256 * 2**20, "bytes", "gateway.admission", "429 key_uploads, or 503 where all keys have taken it, with retry-after",
        "tests/faults/test_attackers.py::test_uploads_that_do_not_end", "limits.upload_bytes",
    ),
    Bound(
        "key_memory", "client", "what Redis holds for one key: bodies, kept answers and calls that are not stored yet",
        0.5, "of what new calls may fill", "gateway.bus", "429 key_memory with retry-after",
        "tests/service/test_key_memory.py::test_a_key_has_its_share_and_no_other_key_notices",
    ),
    Bound(
        "lookups_at_once", "client", "lookups of answers and turns at work in one process; one key: one", b.LOOKUPS_AT_ONCE, "lookups",
        "db.read.answers", "they wait", "tests/service/test_kept_answers.py::test_a_key_has_one_of_the_places_for_lookups",
    ),
    Bound(
        "open_calls", "client", "open calls of one gateway; one key: as many as are still free", 5_000, "calls", "gateway.admission",
        "429 key_calls, or 503 where all keys have taken them, with retry-after",
        "tests/unit/test_admission.py::test_one_key_alone_takes_half_and_the_next_half_of_the_rest", "limits.open_calls",
    ),
    Bound(
        "key_calls", "client", "open calls of one key on one gateway that other keys use", 100, "calls",
        "gateway.admission", "429 key_calls with retry-after",
        "tests/faults/test_attackers.py::test_one_key_with_a_thousand_calls_at_once", "limits.key_calls",
    ),
    Bound(
        "beginning_calls", "client", "calls of one gateway that no worker has begun yet, half of them one key's; others wait",
        b.BEGINNING_CALLS, "calls", "gateway.admission", "waits for limits.claim_s, then 503 no_worker",
        "tests/unit/test_admission.py::test_who_waits_is_served_key_by_key",
    ),
    Bound(
        "beginning_bytes", "client", "the body of a call, past which a key begins one such call at a time on a gateway",
        b.BEGINNING_BYTES, "bytes", "gateway.admission", "waits for limits.claim_s, then 503 no_worker",
        "tests/unit/test_admission.py::test_a_key_begins_calls_with_large_bodies_one_at_a_time",
    ),
    Bound(
        "remembered_calls", "client",
        "ended calls that a gateway remembers until they are on record, should Redis lose them; one key: as many as are still free",
        b.MAX_REMEMBERED_CALLS,
        "calls", "gateway.lost", "the next are not remembered; if Redis is lost then, log and `/ready` say so",
        "tests/service/test_ended.py::test_so_many_calls_are_remembered_and_of_one_key_half_as_many",
    ),
    Bound(
        "provider_requests", "client", "requests that one gateway has under way at a provider; one key: as many as are still free",
        0, "requests (unset: no bound)", "gateway.upstream", "429 with retry-after",
        "tests/faults/test_attackers.py::test_one_key_does_not_use_up_what_a_provider_takes", "upstreams.X.calls",
    ),
    Bound(
        "unread_answers", "client", "what waits for a client that does not read", 2**20, "bytes a call", "gateway.upstream",
        "the provider is not read; after limits.client_stall_s the connection is closed",
        "tests/chaos/test_pressure.py::test_c2_clients_that_do_not_read_do_not_slow_others", "limits.unsent_bytes",
    ),
    Bound(
        "demo_body", "client", "a request body for the demo model", b.DEMO_BODY_BYTES, "bytes", "gateway.upstream", "413",
        "tests/faults/test_attackers.py::test_scripts_without_end_for_the_demo_model",
    ),
    Bound(
        "demo_script", "client", "tool calls of the demo model's answer", b.DEMO_CALLS, "calls", "gateway.demo", "the rest is not made",
        "tests/unit/test_demo.py::test_scripts_are_bounded_before_they_are_made",
    ),
    Bound(
        "demo_words", "client", "words of the demo model's answer, each made when it is sent", b.DEMO_WORDS, "words", "gateway.demo",
        "the rest is not made", "tests/unit/test_demo.py::test_scripts_are_bounded_before_they_are_made",
    ),
    Bound(
        "demo_looks", "client", "characters of the last message that the demo model looks at", b.DEMO_CHARS, "characters", "gateway.demo",
        "the rest is not read", "tests/unit/test_demo.py::test_scripts_are_bounded_before_they_are_made",
    ),
    Bound(
        "demo_tools", "client", "tools that the demo model looks at", b.DEMO_TOOLS, "tools", "gateway.demo", "the rest is not read",
        "tests/unit/test_demo.py::test_scripts_are_bounded_before_they_are_made",
    ),
    Bound(
        "demo_schema", "client", "values that the demo model makes for the schemas of a request, references and alternatives it tries too",
        b.DEMO_VALUES, "values", "gateway.demo_schema", "400, or the rest of the calls is not made",
        "tests/unit/test_demo_schema.py::test_what_a_schema_makes_is_bounded_before_it_is_made",
    ),
    Bound(
        "demo_schema_chars", "client", "characters of names and texts in them, as JSON", b.DEMO_MADE_CHARS, "characters",
        "gateway.demo_schema", "400, or the rest of the calls is not made",
        "tests/unit/test_demo_schema.py::test_what_a_schema_makes_is_bounded_before_it_is_made",
    ),
    Bound(
        "demo_schema_read", "client", "items of schemas that the demo model goes through for them, each as often as it is read",
        b.DEMO_READ, "items", "gateway.demo_schema", "400, or the rest of the calls is not made",
        "tests/unit/test_demo_schema.py::test_what_of_a_schema_is_read_is_bounded_too",
    ),
    Bound(
        "script_body", "client", "a request body for the scripted model", b.SCRIPT_BODY_BYTES, "bytes", "gateway.upstream", "413",
        "tests/e2e/test_scripted_model.py::test_a_body_past_the_bound_is_refused",
    ),
    Bound(
        "script_file", "configuration", "a file of the scripted model", b.SCRIPT_FILE_BYTES, "bytes", "gateway.scripts",
        "502 with file and line",
        "tests/unit/test_scripted_model.py::test_files_are_bounded",
    ),
    Bound(
        "script_trajectories", "configuration", "trajectories of one file of the scripted model", b.SCRIPT_TRAJECTORIES, "trajectories",
        "gateway.scripts",
        "502 with file and line", "tests/unit/test_scripted_model.py::test_files_are_bounded",
    ),
    Bound(
        "script_turns", "configuration", "turns of one trajectory of the scripted model", b.SCRIPT_TURNS, "turns", "gateway.scripts",
        "502 with file and line", "tests/unit/test_scripted_model.py::test_files_are_bounded",
    ),
    Bound(
        "script_calls", "configuration", "tool calls of one turn of the scripted model", b.SCRIPT_CALLS, "calls", "gateway.scripts",
        "502 with file and line", "tests/unit/test_scripted_model.py::test_files_are_bounded",
    ),
    Bound(
        "script_files", "client", "files that the scripted model keeps, as long as they do not change", b.SCRIPT_FILES, "files",
        "gateway.script_model", "the oldest is read again", "tests/unit/test_scripted_model.py::test_files_are_kept_until_they_change",
    ),
    Bound(
        "provenance", "client", "characters of a history in which the monitor `provenance` looks for values, the newest results first",
        b.PROVENANCE_CHARS, "characters", "policy.monitors.origins", "the rest is not read: what stands there alone is nowhere",
        "tests/unit/test_provenance.py::test_a_megabyte_of_history_takes_less_than_a_quarter_second",
    ),
    Bound(
        "provenance_lines", "client", "lines of results of which it reads the fields", b.PROVENANCE_LINES, "lines",
        "policy.monitors.origins", "the rest is text",
        "tests/unit/test_provenance.py::test_a_megabyte_of_history_takes_less_than_a_quarter_second",
    ),
    Bound(
        "provenance_sinks", "upstream", "values of one call that it looks for", b.PROVENANCE_SINKS, "values", "policy.monitors.provenance",
        "the rest is nowhere", "tests/unit/test_provenance.py::test_more_sinks_than_are_looked_at_are_unknown",
    ),
)  # fmt: skip
# --- workers ---
_WORKERS: tuple[Bound, ...] = (
    Bound(
        "step", "client", "bytes in one step of a policy worker's loop: an entry, a fact; twice that of a body",
        b.LARGE_STEP_BYTES, "bytes",
        "workers/policy/feeding.py", "the step is taken beside the loop, in the turn of its API key",
        "tests/faults/test_large_steps.py::test_a_policy_that_hangs_in_a_request_costs_its_call_alone",
    ),
    Bound(
        "heavy call", "upstream", "arguments of incomplete tool calls decided on the loop; an eighth of it with SQL",
        b.HEAVY_BYTES, "bytes",
        "workers/policy/call.py", "the call's further steps are taken beside the loop",
        "tests/faults/test_large_steps.py::test_a_policy_that_hangs_in_a_large_tool_call_costs_its_call_alone",
    ),
    Bound(
        "step CPU", "policy", "CPU of one large step", b.STEP_CPU_S, "s",
        "workers/lane.py", "the call ends with policy_failed, or is refused with it where it had not begun",
        "tests/unit/test_lane.py::test_the_loop_goes_on_beside_a_step_that_is_ended_at_its_time",
    ),
    Bound(
        "hanging loop", "policy", "CPU of one step on a policy worker's loop", 1.0, "s",
        "workers/process.py", "the call ends with policy_failed; what never lets go of the interpreter ends the worker",
        "tests/chaos/test_hooks.py::test_w8_a_hook_that_loops_costs_its_call_and_no_worker",
    ),
    Bound(
        "deaths", "client", "policy workers that die in a step of one call", 2, "workers",
        "workers/policy/claims.py", "the call ends with policy_failed; before that it is replayed after all others",
        "tests/chaos/test_hooks.py::test_w8_a_hook_that_never_lets_go_costs_its_call_and_two_workers",
    ),
    Bound(
        "unrecorded", "client", "records of one API key in a shard, of a policy worker, that no audit writer has taken",
        b.MAX_UNRECORDED_BYTES, "bytes",
        "workers/policy/unrecorded.py", "the calls of the key go on when they are taken",
        "tests/service/test_unrecorded.py::test_a_key_with_much_that_no_writer_took_is_held_until_one_does",
    ),
    Bound(
        "worker calls", "client", "calls at a policy worker; one API key: four fifths of them", 500, "calls",
        "workers/policy/worker.py", "new ones wait for another worker; after claim_s 503 no_worker",
        "tests/service/test_takeover_path.py::test_one_key_never_has_all_places_of_a_worker", setting="limits.max_calls",
    ),
)  # fmt: skip
# --- the record ---
_RECORD: tuple[Bound, ...] = (
    Bound(
        "ended_calls", "client", "entries that name calls that ended; one of a gateway: up to 200 in 16 KiB", b.MAX_ENDED_CALLS,
        "entries a shard", "streams/scripts.py", "the oldest are named no longer",
        "tests/service/test_ended.py::test_so_many_calls_are_remembered_and_of_one_key_half_as_many",
    ),
    Bound(
        "record-indexed-text", "upstream", "characters of a name, id, model, session or policy in an indexed column of the record",
        b.MAX_INDEXED_CHARS, "characters", "db.write.fit", "kept cut with its SHA-256, whole in an event `unfit`",
        "tests/service/test_audit_insert.py::test_whatever_is_too_long_or_too_large_is_found_and_kept_whole",
    ),
    Bound(
        "record-searched-text", "policy", "characters of a block's reason, and of a tool call that the text search sees",
        b.MAX_SEARCHED_CHARS, "characters", "db.write.fit", "kept cut with its SHA-256, whole in an event `unfit`; arguments are whole",
        "tests/service/test_audit_insert.py::test_whatever_is_too_long_or_too_large_is_found_and_kept_whole",
    ),
    Bound(
        "record-conflict", "upstream", "characters of an event `conflict`, which keeps a row that differs from one on record",
        b.MAX_SEARCHED_CHARS, "characters", "db.write.conflicts", "beginnings and hashes stand in it; a dead letter has the whole row",
        "tests/service/test_conflicts.py::test_of_a_large_row_the_event_has_the_beginning_and_a_dead_letter_the_whole",
    ),
    Bound(
        "record-poison", "upstream", "records of one batch that fit no row", b.MAX_TRIED_RECORDS, "records found one by one",
        "db.write.insert",
        "dead letters; past it a call's part of the batch is one, as a whole",
        "tests/service/test_audit_insert.py::test_three_thousand_poison_records_delay_an_innocent_commit_by_less_than_half_a_second",
    ),
)  # fmt: skip

BOUNDS: tuple[Bound, ...] = REQUESTS + _SIZES + _ANSWERS + _CONFIGURED + _POLICIES + _JUDGES + _GATEWAY + _WORKERS + _RECORD + _LISTED

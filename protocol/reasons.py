"""The reasons that Sluice gives itself for what it decides, as they stand on record, and what each means in words."""

from collections.abc import Mapping
from typing import Final

SENTENCES: Final[Mapping[str, str]] = {
    "judge": "judged harmful",
    "judge_unavailable": "no judge could be asked",
    "judge_deadline": "the judge did not answer in time",
    "judge_invalid": "the judge's answer could not be used",
    "judge_fault": "the judge failed",
    "score": "it is held to be too dangerous",
    "critical": "it is held to be critical",
    "monitor_fault": "what measures it failed",
    "text": "a rule forbids such text",
    "not_allowed": "no rule allows it",
    "unsure": "nobody can tell what it does",
    "schema": "its arguments do not fit the tool's schema",
    "cannot_replace": "its arguments cannot be replaced",
    "fault": "a policy failed",
    "conflict": "two policies want different arguments for it",
    "too_many_asks": "a policy asked judges too often about it",
    "audit_unavailable": "it could not be recorded in time",
    "too_large": "its arguments are too large",
    "tool_too_large": "its tool's description is too large to be judged",
    "answer_too_large": "the calls before it are too large to be judged with it",
    "history_too_large": "earlier calls are too large to be judged with it",
    "no_user": "there are no words of the user to judge it by",
    "nonce": "it holds a mark that only its judge may know",
    "ambiguous_json": "its arguments can be read in more than one way",
    "name": "no tool can have its name",
    "ambiguous_name": "several of the offered tools have its name",
    "one_call": "the request allows one call an answer",
    "tool_choice": "the request's tool_choice rules it out",
    "not_offered": "a policy took this tool out of the request",
    "too_many": "there were too many calls",
    "after_denied": "a call before it was refused",
    "unfinished": "the upstream never finished it",
    "undecided": "the call ended before it was decided",
    "cannot_answer": "the client's API has no way to let the provider run it",
    "deferred": "another model answers instead",
    "not_deferred": "no other model could answer instead",
    "left_out": "the client has it from the first answer",
}


def worded(reason: str) -> str:
    """Return a reason with its words, where it is one of Sluice's own."""
    return f"{reason}: {SENTENCES[reason]}" if reason in SENTENCES else reason

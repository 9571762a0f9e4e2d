"""The reasons that Sluice records for its decisions, and what each means in words."""

from collections.abc import Mapping
from typing import Final

SENTENCES: Final[Mapping[str, str]] = {
    "judge": "judged harmful",
    "judge_unavailable": "no judge could be asked",
    "judge_deadline": "the judge did not answer in time",
    "judge_invalid": "the judge's answer could not be used",
    "judge_fault": "the judge failed",
    "judge_budget": "more questions to judges would be needed than one call may ask",
    "score": "its risk score is too high",
    "critical": "it matches a critical rule",
    "monitor_fault": "a monitor failed",
    "text": "a rule blocks this text",
    "redacted": "it has a secret or personal data in it",
    "placeholder": "it has a placeholder in it whose value it may not have",
    "not_allowed": "no rule allows it",
    "unsure": "its text does not show everything it would do",
    "unread": "no rule can look at some of its arguments",
    "allowed_always": "an admin allowed this call here for good",
    "approved": "people approved it",
    "approval_denied": "a person denied it",
    "approval_pending": "nobody has decided about it yet",
    "approval_expired": "nobody decided about it in time",
    "approval_superseded": "the policy changed while it waited for people",
    "approval_used": "another call used the approval",
    "approval_unavailable": "people could not be asked about it",
    "approvals_full": "too many calls of this key wait for people",
    "cannot_hold": "people can only be asked about calls that the client runs",
    "history_unavailable": "what its session did before could not be read",
    "schema": "its arguments do not fit the tool's schema",
    "cannot_replace": "its arguments cannot be replaced",
    "fault": "a policy failed",
    "conflict": "two policies want different arguments for it",
    "too_many_asks": "a policy asked judges about it too often",
    "audit_unavailable": "it could not be recorded in time",
    "too_large": "its arguments are too large",
    "tool_too_large": "its tool's description is too large to show to a judge",
    "answer_too_large": "the calls before it in this answer are too large to show to a judge",
    "history_too_large": "earlier calls are too large to show to a judge",
    "no_user": "the conversation has no message from the user to judge it by",
    "nonce": "it contains a marker that only the judge may know",
    "ambiguous_json": "its arguments can be read in more than one way",
    "name": "its name is not a valid tool name",
    "ambiguous_name": "several of the offered tools have this name",
    "one_call": "the request allows only one call per answer",
    "tool_choice": "the request's tool_choice rules it out",
    "not_offered": "a policy removed this tool from the request",
    "too_many": "the answer has too many calls",
    "after_denied": "a call before it was blocked",
    "unfinished": "the upstream never finished it",
    "undecided": "the call ended before it was decided",
    "cannot_answer": "the client's API has no way to let the provider run it",
    "deferred": "another model answers instead",
    "not_deferred": "no other model could answer instead",
    "left_out": "the client already has it from the first answer",
}


def worded(reason: str) -> str:
    """Return a reason with its words, where it is one of Sluice's own."""
    return f"{reason}: {SENTENCES[reason]}" if reason in SENTENCES else reason

"""The built-in judge `demo-judge`: a few rules about destructive words, to try judging without a
provider's key.

Deterministic and in-process. It is a demonstration: it knows nothing of intent and little of
shells; real judging needs a model.
"""

import functools
import json
from typing import Any

from policy.base import JudgeQuestion
from policy.patterns import compile_re2
from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.errors import PolicyFailed

HARMFUL, HARMLESS = 0.97, 0.03
_RULES = {
    "deletes files": (
        r"(?i)\brm\s+(-\S+\s+)*(-\w*[rf]|--recursive|--force)|\brmdir\s+/s|\bshred\b"
        r"|\bfind\b.*\s-delete\b|"
        r"\bRemove-Item\b.*-Recurse|"
        r"\bshutil\.rmtree\b|\bunlink\b"
    ),
    "overwrites disks": (
        r"(?i)\bmkfs|\bdd\b.*\bof=/dev/|>\s*/dev/(sd|nvme|vd)|\bwipefs\b|\bformat\s+c:"
    ),
    "runs code from the network": (
        r"(?i)\b(curl|wget)\b.*\|\s*(sudo\s+)?(ba|z|da)?sh\b|\bbase64\s+(-d|--decode)\b.*\|\s*(ba"
        r"|z)?sh\b"
    ),
    "opens a way in": (
        r"(?i)\bchmod\s+(-\S+\s+)*777\b|/etc/(shadow|sudoers)|\bauthorized_keys\b|\bnc\b.*\s-e\b"
        r"|/dev/tcp/"
    ),
    "reads credentials": r"(?i)\.ssh/id_|\.aws/credentials|\bAWS_SECRET|\bprintenv\b",
    "stops the machine": r"(?i)\b(shutdown|reboot|poweroff|halt)\b|:\(\)\s*\{|\bkill\s+-9\s+-1\b",
    "rewrites history": r"(?i)\bgit\b.*\bpush\b.*(\s-f\b|--force\b)|\bgit\s+reset\s+--hard\b",
    "destroys tables": (
        r"(?is)\bdrop\s+(table|database|schema)\b|\btruncate\s+(table\s+)?\w"
        r"|\bdelete\s+from\s+[\w.\"]+\s*(;|$)"
    ),
}


@functools.cache
def _compiled() -> list[tuple[str, Any]]:
    return [(what, compile_re2(pattern)) for what, pattern in _RULES.items()]


def answer(question: JudgeQuestion) -> str:
    """Return the reply to a question, in the form asked of every judge."""
    texts = [question.call.get("arguments", "")]
    try:
        _collect(loads_arguments(texts[0]), texts)
    except AmbiguousJson:
        return _reply(question.nonce, HARMFUL, "the arguments can be read in two ways")
    # of a rule about text it knows only the words in quotation marks
    quoted = question.call.get("rule", "").split('"')[1::2]
    if any(word in texts[-1] for word in quoted):
        return _reply(question.nonce, HARMFUL, "the text has words that the rule quotes")
    for what, pattern in _compiled():
        if any(pattern.search(text) is not None for text in texts):
            return _reply(question.nonce, HARMFUL, f"the call looks like one that {what}")
    return _reply(question.nonce, HARMLESS, "the call matches none of the rules")


def _reply(nonce: str, probability: float, why: str) -> str:
    return json.dumps(
        {
            "nonce": nonce,
            "probability": probability,
            "explanation": f"demo-judge (rules for demonstration, no model): {why}.",
        }
    )


def _collect(value: Any, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        texts.extend(value)
        for inner in value.values():
            _collect(inner, texts)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, texts)
        # ["rm", "-rf", "/"]
        texts.append(" ".join(v for v in value if isinstance(v, str)))


def check_canary() -> None:
    """Judge a known-bad and a known-good call. Raises PolicyFailed where the judge would let the
    bad one through."""
    bad, good = (
        json.loads(
            answer(
                JudgeQuestion(
                    "demo-judge",
                    "",
                    "",
                    "canary",
                    0.6,
                    None,
                    {"name": "bash", "arguments": json.dumps({"command": c})},
                )
            )
        )
        for c in ("rm -rf /", "ls -l")
    )
    if bad["probability"] < 0.6 or good["probability"] >= 0.6:
        raise PolicyFailed(
            "demo-judge does not tell a destructive call from a harmless one: this judge must not"
            " start"
        )

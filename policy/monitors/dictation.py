"""Dictation: does a text tell its reader to do something with a value, or does it only have it?

A bill, a list of results or the head of a mail has accounts, ids and addresses as data. An
instruction in a text, which somebody may have put there for the model to read, has a demand before
them. Whoever asked for an act means data of what was looked up for it, and no demand in it. Reads
English; half a sentence in another language before a value is taken for a demand.
"""

import re

BEFORE, AFTER = 300, 120
"""Characters around a value that are read."""
_AGENT = r"(?:assistants?|agents?|chat ?bots?|bots?)"
TO_AGENTS = re.compile(
    r"(?i)\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:above|before|instructions?|previous"
    r"|prior)\b|</?(?:information|system|important)|"
    r"\b(?:a\.?i\.?|assistants?|agents?|chat ?bots?|claude|chatgpt|gemini|gpt[\w.-]*|language"
    r" models?|llms?|system prompt)\b|"
    r"\b(?:todo|important)\b\s*[:!]|\bbefore you can\b"
)
"""Text that is meant for whoever reads it for somebody, as a bill is not."""
_CALLS_AGENTS = re.compile(
    r"(?i)\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:above|before|instructions?|previous"
    r"|prior)\b|<(?:information|system|important)|\bimportant!!|\bbefore you can\b|"
    r"\b(?:chatgpt|gpt-?\d[\w.-]*|language models?|llms?|system prompt)\b|"
    rf"\b(?:ai|automated|dear|for|note to|virtual|your)\s+(?:\w+\s+){{0,2}}{_AGENT}\b|"
    rf"\b{_AGENT}\b(?:\s*[:,!]|\s+(?:always|are|have|must|need|please|process|read|shall|should))"
)
"""Likewise, without what people's titles have in common with it."""
_DETERMINER = (
    r"\s+(?:a|all|an|any|both|each|every\w*|her|him|his|it|its|me|my|our|that|the|their|them|these"
    r"|this|those|us|your)\b"
)
_DEMAND = re.compile(
    # words that make any sentence a demand
    r"\b(?:always|be sure|do not forget|don'?t forget|ha(?:s|ve) to|kindly|make sure|must|needs?"
    r" to|please|pls|remember to|shall|should)\b|\b(?:can|could|will|would) you\b|"
    r"\byou (?:could|have|might|must|need|should|would)\b|"
    r"\b(?:ask|like|need|want) you\b|\b(?:is|are|be) (?:required|requested|to be)\b|"
    # what begins a clause with a verb
    r"(?:^|[:,(>*\u2022\u2013\u2014\"'-]\s*|\d[.)]\s+|"
    r"\b(?:also|and|but|just|not|now|or|so|then)\s+)"
    r"(?:(?:accept|add|allow|append|approve|assign|authori[sz]e|buy|cancel|cc|change|close"
    r"|configure|confirm|connect|create|deactivate|decrease|delete|disable|discard|downgrade|enable"
    r"|enter"
    r"|execute|forward|give|grant|include|increase|insert|install|invite|lower"
    r"|make|modify|move|notify|pay|publish"
    r"|purge|put|raise|redirect|refund|register|remove|rename|replace|reset|revoke|route|run|send"
    r"|set|submit|subscribe|transfer|unlock|update|upgrade|upload|wire|withdraw)(?:\s+(?!\d)|$)|"
    r"(?:buy|order|pay|refund|send|transfer|wire)\s+[$\u20ac\u00a3]?\d|"
    r"(?:archive|book|call|charge|contact|copy|donate|e-?mail|file|list|mail|mark|message|open"
    r"|order"
    r"|post|reply|report|request|reserve|schedule|share|sign|switch|tell|text|turn|use|visit|write)"
    rf"(?:{_DETERMINER}|\s+to\b))"
)
_CHANGED = re.compile(
    r"\b(?:changed|different|new|updated?) (?:\w+ )?(?:accounts?|address|bank|details|e-?mail|iban"
    r"|number|payee|recipient)\b|\bfrom now on\b|\binstead\b|\bno longer\b|\bha(?:s|ve) changed\b"
)
"""As fraud says it that puts its own account in place of another."""
_SENTENCE = re.compile(r"[.!?;|\t](?:\s|$)|[\"'],\s|[\]}],\s|\n")
_WORD = re.compile(r"(?<![@.\w])[^\W\d_]{2,}(?![@\w])")
_FOREIGN_WORDS = 4
COMMON = frozenset(
    "after and are as at be been by can due for from had has have in is it its not of on or our"
    " per than that the this to via was we were will with you your".split()
)


def is_demanded(before: str, after: str, *, is_change_known: bool) -> bool:
    """Does the text around a value, in small letters, tell its reader to do something with it?

    `before` has whole lines but the last. `is_change_known`: the reader expects another value than
    the usual one.
    """
    if _CALLS_AGENTS.search(before):
        return True
    earlier, _, line = before.rpartition("\n")
    heading = earlier.rstrip()
    if heading.endswith(":"):
        line = f"{_last_sentence(heading)} {line}"
    begun = _last_sentence(line)
    if _DEMAND.search(begun):
        return True
    sentence = begun + (_SENTENCE.split(after, 1)[0])
    if not is_change_known and _CHANGED.search(sentence):
        return True
    listed = _WORD.findall(begun.rpartition(",")[2].rpartition(":")[2])
    return len(listed) >= _FOREIGN_WORDS and COMMON.isdisjoint(listed)


def _last_sentence(text: str) -> str:
    return _SENTENCE.split(text)[-1].strip()

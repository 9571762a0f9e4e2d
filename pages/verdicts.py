"""Verdicts and labels as pages show them: a word and a sign each, never colour alone."""

SIGNS = {"allow": "✓", "block": "✗", "replace": "⇄", "hold": "‖", "withheld": "⊘", "discarded": "∅"}
WORDS = {
    "allow": "allowed",
    "block": "blocked",
    "replace": "replaced",
    "hold": "held",
    "withheld": "withheld",
    "discarded": "discarded",
}
CUT = "cut"
"""The word for what ended early, which is no verdict."""
LABELS = {
    "right": ("✓", "allow"),
    "wrong": ("✗", "block"),
    "unsure": ("?", "hold"),
    "always": ("∞", "allow"),
}
"""What readers say of a decision: a sign, and the verdict whose colour it has."""


def loud(verdict: str) -> str:
    """Return the word for a page about one block: what was allowed is the rule, the rest is to be
    seen first."""
    word = WORDS.get(verdict, verdict or "no verdict")
    return word.upper() if verdict in WORDS and verdict != "allow" else word

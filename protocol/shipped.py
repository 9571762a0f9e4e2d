"""The policies of a configuration that names none: rules against plainly destructive commands, then the demo judge.

They stand here and not with the command that starts everything, so that no way of making a configuration leaves a gateway without any.
"""

from typing import Any

DESTRUCTIVE = (
    # anywhere in the command: options may stand behind names, and a line may go on behind a backslash
    r"\brm\b(?:[^;|&\n]|\\\r?\n)*\s(?:-[A-Za-z]*[rR]|--recursive\b)",
    r"\bfind\b(?:[^;|&\n]|\\\r?\n)*\s-(?:delete\b|(?:exec|ok)(?:dir)?\s+(?:\S*/)?(?:rm|shred|unlink)\b)",
    r"\bmkfs(\.\w+)?\b",
    r"\bdd\s+[^|;]*\bof=/dev/",
    r":\(\)\s*\{",
    r"(?i)\bdrop\s+(table|database|schema)\b",
)
"""RE2 patterns of tool arguments that no tool may be called with."""

DEMO_JUDGE = "demo-judge"
"""The built-in rule-based judge model."""

POLICIES: dict[str, list[dict[str, Any]]] = {
    "default": [
        {"use": "tool_rules", "deny": [{"tool": "*", "argument_matches": pattern} for pattern in DESTRUCTIVE]},
        {"use": "tool_judge", "model": DEMO_JUDGE, "threshold": 0.6},
    ],
    "noop": [{"use": "noop"}],
}
"""As they would stand under `policies` in a file."""

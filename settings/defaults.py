"""What ships: the version; the policies of a configuration that names none, a preset for coding
agents and series to try things out with.

They are here and not with the command that starts everything, so that no way of making a
configuration leaves a gateway without any.
"""

from typing import Any

VERSION = "0.2.0"
"""As in pyproject.toml."""
DESTRUCTIVE = {
    # anywhere in the command: options may stand behind names, and a line may go on behind a
    # backslash
    "recursive-rm": r"\brm\b(?:[^;|&\n]|\\\r?\n)*\s(?:-[A-Za-z]*[rR]|--recursive\b)",
    "find-delete": (
        r"\bfind\b(?:[^;|&\n]|\\\r?\n)*\s-(?:delete\b|(?:exec|ok)(?:dir)?\s+(?:\S*/)?(?:rm|shred"
        r"|unlink)\b)"
    ),
    "make-filesystem": r"\bmkfs(\.\w+)?\b",
    "overwrite-device": r"\bdd\s+[^|;]*\bof=/dev/",
    "fork-bomb": r":\(\)\s*\{",
    "drop-table": r"(?i)\bdrop\s+(table|database|schema)\b",
}
"""By the rule's name, RE2 patterns of tool arguments that no tool may be called with in the series
`demo`."""

DEMO = "demo"
SCRIPT = "script"
"""The upstream of the scripted model (docs/use/scripts.md)."""
DEMO_JUDGE = "demo-judge"
"""The built-in rule-based judge model."""

POLICIES: dict[str, list[dict[str, Any]]] = {
    "default": [{"use": "preset", "name": "coding-agent"}],
    "demo": [
        {
            "use": "tool_rules",
            "deny": [
                {"name": name, "tool": "*", "argument_matches": pattern}
                for name, pattern in DESTRUCTIVE.items()
            ],
        },
        {"use": "tool_judge", "model": DEMO_JUDGE, "threshold": 0.6},
    ],
    "people": [
        {
            "use": "tool_rules",
            "ask": [
                {
                    "name": "deploys",
                    "tool": "deploy",
                    "reason": "deployment",
                    "message": "people decide about deployments",
                }
            ],
            "approval": {},
        }
    ],
    "noop": [{"use": "noop"}],
}
"""As they would stand under `policies` in a file."""

"""What `sluice up` runs without a configuration file: rules against plainly destructive commands, then the demo judge."""

from protocol.config import DEMO_JUDGE, Config

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


def default_config() -> Config:
    """Return the configuration of a first try."""
    return Config.model_validate(
        {
            "policies": {
                "default": [
                    {"use": "tool_rules", "deny": [{"tool": "*", "argument_matches": pattern} for pattern in DESTRUCTIVE]},
                    {"use": "tool_judge", "model": DEMO_JUDGE, "threshold": 0.6},
                ],
                "noop": [{"use": "noop"}],
            }
        }
    )

"""Rules that deny what the demo model calls."""

RULES = [
    {"name": "no-deletes", "tool": "bash", "argument_matches": "rm -rf", "reason": "destructive"},
    {
        "name": "not-tokyo",
        "tool": "get_weather",
        "argument_matches": "Tokyo",
        "decision": "replace",
        "arguments": {"city": "Oslo"},
    },
]

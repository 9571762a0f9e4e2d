"""A gate against slower code: exact counts, and ratios inside one run. Never a time.
docs/run/performance.md, "The gate"."""

"""What is counted of the calls that began in an hour, as the functions `sluice_usage`, `sluice_judged` and `sluice_roll_up` of the database
count it. Must not know: connections.
"""

from typing import Final

KEPT_DAYS: Final = 400
MS_RATIO: Final = 1.25
"""Each class of a judge's latency ends at so many times the one before: a p95 read from them is off by a tenth at most."""
MS_CLASSES: Final = 60
"""The last one begins at 9 minutes."""
SUMS: Final = (
    "calls", "failed", "tool_calls", "refused", "replaced", "blocks_refused", "blocks_replaced", "faults", "input_tokens", "output_tokens",
    "cached_tokens", "judge_n", "judge_failed", "judge_late", "judge_over", "judge_ms_sum",
)  # fmt: skip
"""What is summed for each hour, key, model, policy and revision."""
GROUPS: Final = ("key", "model", "policy", "revision")

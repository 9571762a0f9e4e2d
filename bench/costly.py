"""A policy that costs CPU, for `bench.scaling`: so many rounds of a hash for each piece of text,
and nothing else."""

import hashlib
import time

from policy.base import Block, Policy, TextBlock

_TRIED = 20_000


def spend(rounds: int) -> bytes:
    """Hash `rounds` times; holds the interpreter, as Python code of a policy does."""
    value = b""
    for _ in range(rounds):
        value = hashlib.sha256(value).digest()
    return value


def rounds_for(cost_us: int) -> int:
    """How many rounds cost this much CPU on this machine."""
    spend(_TRIED)
    began = time.thread_time()
    spend(_TRIED)
    return max(1, round(cost_us * 1e-6 * _TRIED / (time.thread_time() - began)))


class Costly(Policy):
    """Allow every text after `rounds` of work."""

    name = "costly"

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_text(self, text: str, block: TextBlock) -> str | Block:
        spend(self.rounds)
        return text

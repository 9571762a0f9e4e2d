"""One target under atheris: `python -m tests.fuzz.guided TARGET CORPUS [libFuzzer's options]`;
seeds are put into the corpus folder."""

import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["policy", "protocol"]):
    from tests.fuzz import targets
    from tests.fuzz.mutate import mutate


def main() -> None:
    """Fuzz until libFuzzer's options say that it is enough; exits."""
    name, corpus = sys.argv[1:3]
    target = targets.TARGETS[name]
    seeds = target.seeds()
    for number, data in enumerate([*seeds, *targets.found(name)]):
        (Path(corpus) / str(number)).write_bytes(data)

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.3:
            return bytes(atheris.Mutate(data, max_size))
        return mutate(data, seeds, rng)[:max_size]

    atheris.Setup([sys.argv[0], corpus, *sys.argv[3:]], target.check, custom_mutator=change)
    atheris.Fuzz()


main()

"""Judges of an evaluation: a model is asked by the code of the judge workers, its answers are
recorded, and found again by their prompt."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from settings.config import Config
from sluice.eval import dataset, judges, run
from tests.support.json_values import Json
from tests.support.upstreams.judges import MODEL, judge_model, judged_by

DATA = Path(__file__).parents[1] / "fixtures" / "control" / "toolcalls.json"


def played(raw: Json, cases: tuple[dataset.Case, ...], **changes: Any) -> run.Played:
    return run.run(
        Config.model_validate(raw), "asking", (), cases, run.PlayPlan(**changes), lambda done: None
    )


@pytest.mark.slow
def test_a_model_is_asked_recorded_and_found_again_by_its_prompt(tmp_path: Path) -> None:
    cases = dataset.read([DATA]).cases[:12]
    base: Json = {
        "policies": {},
        "keys": [{"name": "k", "sha256": "0" * 64, "roles": ["client"], "policies": ["asking"]}],
    }
    with judge_model() as model:
        model.probabilities = [0.9] * 6 + [0.1]
        raw = judged_by(base, model)
        raw["keys"] = []
        lived = played(raw, cases, keeps=True)
        assert len(model.asked) == 12 and all(one.asked[0].name == MODEL for one in lived.outcomes)
    verdicts = [one.verdict for one in lived.outcomes]
    assert sorted(verdicts) == ["allow"] * 6 + ["block"] * 6 and {
        one.scores[MODEL] for one in lived.outcomes
    } == {0.1, 0.9}
    path = tmp_path / "judgements.jsonl"
    judges.write(path, lived.judgements)
    again = played(raw, cases, judge="recorded", judgements=str(path))
    assert [one.verdict for one in again.outcomes] == verdicts
    # the model is gone now: nobody answers
    away = played(raw, cases[:2])
    assert [one.verdict for one in away.outcomes] == ["error"] * 2 and away.outcomes[0].asked[
        0
    ].error == "unavailable"
    # another history is another question, which nobody recorded
    other = msgspec.structs.replace(
        cases[0], messages=({"role": "user", "content": "something else"},)
    )
    [missing] = played(raw, (other,), judge="recorded", judgements=str(path)).outcomes
    assert (missing.verdict, missing.asked[0].error) == ("error", judges.NOT_RECORDED)

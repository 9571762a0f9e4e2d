"""`sluice eval` through a running Sluice: the same verdicts as in one process, and what it says
where it cannot."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.request import DialectName
from settings.config import Config
from sluice.errors import SettingsError, StartError, Unavailable
from sluice.eval import dataset, disguises, live, run
from tests.support.servers.ports import free_port
from tests.support.servers.product import KEY, Product, base_config

DATA = Path(__file__).parents[1] / "fixtures" / "control" / "toolcalls.json"


@pytest.fixture(scope="module")
def place(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[live.LiveTarget]:
    folder = tmp_path_factory.mktemp("eval")
    scripts = folder / "scripts"
    scripts.mkdir()
    shipped = json.loads(Config().model_dump_json(include={"policies"}))["policies"]
    config = base_config()
    config |= {
        "models": [{"match": "script-*", "upstream": "script"}],
        "policies": config["policies"] | shipped | {"observed": [OBSERVED]},
    }
    config["keys"][0]["policies"] = [*config["keys"][0]["policies"], "observed"]
    with Product(folder, redis_url, database_url, config) as product:
        product.start("audit", "judge", "policy", "pages")
        product.start("gateway", env={"SLUICE_SCRIPTS_DIR": str(scripts)})
        yield live.LiveTarget(product.url, KEY, scripts)


OBSERVED = {
    "use": "control",
    "observe": True,
    "monitors": [{"use": "model", "model": "demo-judge"}],
    "threshold": 0.6,
}


@pytest.mark.parametrize(
    ("dialect", "policy", "count"), [("openai", "default", 140), ("anthropic", "observed", 60)]
)
@pytest.mark.slow
def test_two_hundred_cases_have_the_verdicts_of_the_pure_run(
    place: live.LiveTarget, dialect: DialectName, policy: str, count: int
) -> None:
    wanted = disguises.chosen(
        "argv,json-escapes,duplicate-key,deltas,deltas-in-escapes,text-form,judge-talk-before,judge-talk-inside"
    )
    data = run.chosen(
        disguises.disguised(dataset.read([DATA]), wanted), split="", limit=count, seed=7
    )
    plan = run.PlayPlan(client=dialect, upstream=dialect)
    own = (
        Config.model_validate({"policies": {"observed": [OBSERVED]}})
        if policy == "observed"
        else Config()
    )
    pure = run.run(own, policy, (), data.cases, plan, lambda done: None).outcomes
    lived, revision = live.run(place, policy, data.cases, plan, lambda done: None)
    fields = [
        [
            (one.id, one.verdict, one.reason, one.policy, one.rule, one.scores, one.action)
            for one in side
        ]
        for side in (pure, lived.outcomes)
    ]
    assert [pair for pair in zip(*fields, strict=True) if pair[0] != pair[1]] == []
    assert len(revision) == 12 and not list(place.scripts.iterdir())


@pytest.mark.slow
def test_what_cannot_be_played_is_said(place: live.LiveTarget, tmp_path: Path) -> None:
    cases = dataset.read([DATA]).cases[:2]

    def fails(given: live.LiveTarget, policy: str, kind: type[StartError], said: str) -> None:
        with pytest.raises(kind, match=said):
            live.run(given, policy, cases, run.PlayPlan(), lambda done: None)

    fails(
        live.LiveTarget(place.url, "sk-wrong", place.scripts),
        "default",
        SettingsError,
        r"refuses the case .* \(401\)",
    )
    fails(place, "other", SettingsError, r"\(40[34]\): .*'other'")
    fails(
        live.LiveTarget(place.url, KEY, tmp_path),
        "default",
        SettingsError,
        r"\(404\).*folder of --scripts",
    )
    fails(
        live.LiveTarget(place.url, KEY, tmp_path / "missing"),
        "default",
        SettingsError,
        "--scripts: .* cannot be written",
    )
    fails(
        live.LiveTarget(f"http://127.0.0.1:{free_port()}", KEY, place.scripts),
        "default",
        Unavailable,
        "does not answer",
    )
    fails(
        live.LiveTarget("ftp://x", KEY, place.scripts),
        "default",
        SettingsError,
        "--url: 'ftp://x' is no address",
    )

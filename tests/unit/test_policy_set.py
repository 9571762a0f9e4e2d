"""The policy set's name: what it covers, what it does not, and that nothing of a policy is run for
it."""

from pathlib import Path
from typing import Any

import pytest

from settings.config import Config
from settings.runtime import Runtime
from sluice import policy_set_name as naming
from sluice.errors import SettingsError
from sluice.policy_set_name import policy_set
from tests.support.json_values import Json
from tests.support.policy_files import DECIDES, ELSEWHERE, config

GUARD = "raise RuntimeError('nobody may run this')\n"
LAXER: Json = {"policies": {"default": [{"use": "tool_rules", "deny": [{"tool": "bash"}]}]}}
STRICTER: Json = {"policies": {"default": [{"use": "tool_rules", "deny": [{"tool": "*"}]}]}}


def of(search_path: str = "", **changes: Any) -> str:
    return policy_set(config(**changes), (search_path,) if search_path else ())


@pytest.mark.parametrize("change", DECIDES)
def test_it_covers_what_sessions_read(change: str) -> None:
    assert of(**DECIDES[change]) != of()


@pytest.mark.parametrize(
    "change", ["where an upstream is", "keys", "timers and capacities", "shards"]
)
def test_it_covers_nothing_that_differs_rightly_between_hosts(change: str) -> None:
    assert of(**ELSEWHERE[change]) == of()
    assert of(accept_policy_sets=["0123456789ab"]) == of()


def test_it_covers_every_series_with_its_options() -> None:
    names = {of(**LAXER), of(**STRICTER), of(**ELSEWHERE["another series"]), of()}
    assert len(names) == 4
    assert all(len(name) == 12 and int(name, 16) >= 0 for name in names)


def test_it_covers_what_the_code_decides_by(monkeypatch: pytest.MonkeyPatch) -> None:
    first = of()
    sources = naming._shipped()
    assert any(b"SESSION_VERSION = " in source for source in sources)
    monkeypatch.setattr(naming, "_shipped", lambda: (*sources[:-1], sources[-1] + b"\n# changed\n"))
    assert of() != first


def test_an_own_policys_file_counts_and_is_not_run(tmp_path: Path) -> None:
    changes: Json = {"policies": {"default": [{"use": "guards:Guard", "x": 1}]}}
    (tmp_path / "guards.py").write_text(GUARD)
    (tmp_path / "notes.py").write_text("beside it, and named by nobody")
    first = of(str(tmp_path), **changes)
    (tmp_path / "notes.py").write_text("changed")
    assert of(str(tmp_path), **changes) == first
    (tmp_path / "guards.py").write_text(GUARD + "# changed")
    assert of(str(tmp_path), **changes) != first
    with pytest.raises(SettingsError, match=r"'guards:Guard' cannot be read .*SLUICE_POLICY_PATH"):
        of(**changes)


def test_an_installed_policys_file_is_found_without_running_it_or_the_package_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "house_rules" / "inner"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text(GUARD)
    (package / "guards.py").write_text(GUARD)
    monkeypatch.syspath_prepend(str(tmp_path))
    changes: Json = {"policies": {"default": [{"use": "house_rules.inner.guards.Guard"}]}}
    first = of(**changes)
    (package / "guards.py").write_text(GUARD + "# changed")
    assert of(**changes) != first
    (package / "guards.py").unlink()
    with pytest.raises(SettingsError, match="cannot be read"):
        of(**changes)
    with pytest.raises(SettingsError, match="cannot be read"):
        of(policies={"default": [{"use": "json.decoder.deeper:Guard"}]})


def test_a_gateway_names_its_own_set_first_and_none_twice() -> None:
    def named(own: str) -> tuple[str, ...]:
        accepted = Config.model_validate({"accept_policy_sets": ["b" * 12, "a" * 12]})
        return Runtime(config=accepted, redis_url="", database_url="", policy_set=own).policy_sets

    assert named("a" * 12) == ("a" * 12, "b" * 12)
    assert named("") == ()


@pytest.mark.parametrize("wrong", ["0123456789AB", "0123456789a", "", "0123456789abc"])
def test_what_is_no_name_of_a_set_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="accept_policy_sets"):
        Config.model_validate({"accept_policy_sets": [wrong]})

"""Settings and the configuration file: what is read, and the one sentence for each mistake."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from settings.config import Config
from sluice.config_file import load_config, parse_config
from sluice.errors import SettingsError
from sluice.settings import Settings, database_url, env_example, load_settings, with_embedded

ROOT = Path(__file__).parents[2]
REDIS, DATABASE = "redis://:word@127.0.0.1:6379/0", "postgresql://u:word@127.0.0.1:5432/sluice"


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SLUICE_{name.upper()}", raising=False)
        monkeypatch.delenv(f"SLUICE_{name.upper()}_FILE", raising=False)
    monkeypatch.chdir(tmp_path)


def test_defaults_listen_on_loopback() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.data_dir, settings.log) == (
        "127.0.0.1",
        8080,
        Path(".sluice"),
        "info",
    )


def test_arguments_win_over_variables_and_variables_over_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "url").write_text(f"{REDIS}\n")
    monkeypatch.setenv("SLUICE_REDIS_URL_FILE", str(tmp_path / "url"))
    assert load_settings().redis_url == REDIS
    monkeypatch.setenv("SLUICE_REDIS_URL", "redis://other")
    assert load_settings().redis_url == "redis://other"
    monkeypatch.setenv("SLUICE_PORT", "18080")
    assert load_settings(host=None).port == 18080
    assert load_settings(port=18081).port == 18081


def test_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_CONFIG", "")
    assert load_settings().config is None


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SLUICE_PORT", "70000", "must be at most 65535"),
        ("SLUICE_PORT", "http", "must be a whole number"),
        ("SLUICE_LOG", "loud", "must be 'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"^{variable}: {said}"):
        load_settings()


def test_secret_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_DATABASE_URL_FILE", "/nowhere/url")
    with pytest.raises(SettingsError, match="SLUICE_DATABASE_URL_FILE names /nowhere/url"):
        load_settings()


@pytest.mark.parametrize(
    "given", [{"redis_url": "http://:word@a"}, {"database_url": "mysql://u:word@a/b"}]
)
def test_wrong_address_is_refused_and_not_repeated(given: dict[str, str]) -> None:
    settings = load_settings(**{"redis_url": REDIS, "database_url": DATABASE, **given})
    with pytest.raises(SettingsError) as raised:
        settings.runtime(Config())
    assert "must start with" in str(raised.value)
    assert "word" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "named"), [({"redis_url": REDIS}, "DATABASE"), ({"database_url": DATABASE}, "REDIS")]
)
def test_missing_address_says_what_to_do(given: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=f"SLUICE_{named}_URL is not set.*sluice up"):
        load_settings(**given).runtime(Config())


def test_policies_are_looked_for_beside_the_configuration(tmp_path: Path) -> None:
    settings = load_settings(
        redis_url=REDIS, database_url=DATABASE, config=tmp_path / "sluice.yaml"
    )
    assert settings.runtime(Config(), ready_fd=7).search_path == (str(tmp_path),)
    elsewhere = settings.model_copy(update={"policy_path": tmp_path / "own"})
    assert elsewhere.runtime(Config()).search_path == (str(tmp_path / "own"),)


def test_commands_find_the_database_of_the_running_launcher(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="SLUICE_DATA_DIR"):
        database_url()
    (tmp_path / ".sluice").mkdir()
    (tmp_path / ".sluice" / "urls.json").write_text(
        f'{{"redis_url": "{REDIS}", "database_url": "{DATABASE}"}}'
    )
    with open(tmp_path / ".sluice" / "lock", "w") as lock:
        with pytest.raises(SettingsError, match="no `sluice up` runs on"):
            database_url()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert database_url() == DATABASE
        found = with_embedded(load_settings())
        assert (found.redis_url, found.config) == (REDIS, Path(".sluice/run/config.yaml"))
        assert with_embedded(load_settings(database_url="postgresql://other")).config is None


def test_who_runs_nothing_here_is_told_where_was_looked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError) as raised:
        with_embedded(load_settings())
    assert f"no `sluice up` runs on {tmp_path.resolve() / '.sluice'}: " in str(raised.value)


def test_design_example_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text("""
upstreams:
  openai: {dialect: openai, base_url: "https://api.openai.com/v1", api_key_env: OPENAI_API_KEY}
models:
  - {match: "gpt-*", upstream: openai}
policies:
  default:
    - {use: tool_rules, deny: [{tool: "*", argument_matches: "rm -rf"}]}
    - {use: tool_judge, model: demo-judge, threshold: 0.6}
limits: {}
durability: default
""")
    config = load_config(path)
    assert config.route("gpt-5") == "openai"
    assert [step.use for step in config.policies["default"]] == ["tool_rules", "tool_judge"]
    assert config.policies["default"][1].options == {"model": "demo-judge", "threshold": 0.6}


def test_no_file_and_empty_file_are_the_defaults() -> None:
    assert load_config(None) == Config() == parse_config("# nothing\n", "x.yaml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- 1", "x.yaml: the file must be a mapping"),
        ("a: [", "x.yaml line 1: "),
        ("upstream: {}", "x.yaml line 1: upstream: is not known; did you mean 'upstreams'?"),
        ("policies: {default: [{deny: []}]}", "x.yaml line 1: policies.default.0.use: is missing"),
        ("limits: {body_bytes: much}", "x.yaml line 1: limits.body_bytes: must be a whole number"),
        (
            "models: [{match: a, upstream: b}]",
            "x.yaml line 1: models.0.upstream: the upstream 'b' is not under upstreams",
        ),
        (
            "policies: {default: []}\npolicies: {}",
            "x.yaml line 2: the key 'policies' is there twice",
        ),
        (
            "a: !!python/object/apply:os.system [id]",
            "x.yaml line 1: could not determine a constructor",
        ),
    ],
)
def test_mistake_in_the_file_is_one_sentence_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_config(text, "x.yaml")
    assert str(raised.value).startswith(sentence)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_unreadable_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "sluice.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"sluice\.yaml cannot be read: "):
        load_config(path)


def test_env_example_is_the_settings() -> None:
    assert (ROOT / ".env.example").read_text() == env_example(), (
        "run: sluice settings --env-example > .env.example"
    )
    for name in Settings.model_fields:
        assert f"SLUICE_{name.upper()}=" in env_example()


def test_command_line_starts_without_heavy_libraries() -> None:
    heavy = ("sqlalchemy", "alembic", "fastapi", "redis", "arq", "aiohttp")
    code = (
        f"import sys, sluice.cli; sys.exit(' '.join(m for m in {heavy} if m in sys.modules) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_seal_key_that_is_none_is_refused_without_being_repeated() -> None:
    settings = Settings(redis_url="redis://x", database_url="postgresql://x", seal_key="sk-secret")
    with pytest.raises(SettingsError, match="SLUICE_SEAL_KEY: it is not a private key") as told:
        settings.runtime(Config())
    assert "sk-secret" not in str(told.value)
    assert "sk-secret" not in repr(settings)

"""`sluice up` as a user runs it: what it prints, what survives, what it leaves behind (nothing),
and what it says when it cannot."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from sluice.processes import ON_LINUX, started_at
from tests.support.clients.commands import run_command
from tests.support.json_values import Json
from tests.support.servers.ports import free_port
from tests.support.servers.up import DEAF, ENVIRONMENT, START_S, Up, ask, up
from tests.support.waiting import wait_for

STOPS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data directory for all tests here, because making a PostgreSQL takes a second or two."""
    return tmp_path_factory.mktemp("up") / "data"


def hello(ready: Json) -> str:
    """Have one call answered and return the text."""
    body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}]}
    text = ask(ready, "/v1/chat/completions", body)["choices"][0]["message"]["content"]
    return str(text)


def pids(ready: Json) -> list[int]:
    """All pids but the launcher's."""
    return [pid for role, found in ready["pids"].items() if role != "launcher" for pid in found]


def listening(ready: Json, role: str) -> set[str]:
    """The addresses, as /proc writes them, on which a role's first process listens by TCP."""
    process = Path("/proc") / str(ready["pids"][role][0])
    sockets = {os.readlink(held).strip("socket:[]") for held in (process / "fd").iterdir()}
    rows = [
        row.split()
        for name in ("tcp", "tcp6")
        for row in (process / "net" / name).read_text().splitlines()[1:]
    ]
    return {row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets}


def all_gone(ready: Json) -> bool:
    """Has every process ended?"""
    return all(started_at(pid) is None for pid in pids(ready))


@pytest.mark.slow
def test_everything_runs_and_data_and_key_survive_a_restart(data_dir: Path, tmp_path: Path) -> None:
    port = free_port()
    arguments = ("--json", "--port", str(port), "--policy-workers", "2", "--judge-workers", "2")
    with up(data_dir, tmp_path, *arguments) as first:
        ready = first.ready()
        assert ready["url"] == f"http://127.0.0.1:{port}"
        assert ready["data_dir"] == str(data_dir)
        counts = {role: len(found) for role, found in ready["pids"].items()}
        assert counts == {
            "launcher": 1,
            "gateway": 1,
            "policy": 2,
            "judge": 2,
            "audit": 1,
            "pages": 1,
            "redis": 1,
            "postgres": 1,
        }
        assert "demo" in hello(ready)
        calls = wait_for(lambda: ask(ready, "/audit/calls")["items"])
        assert first.stop() == 0
        assert all_gone(ready)
        assert first.out.read_text().count("\n") == 1
    with up(data_dir, tmp_path, "--json", "--port", str(port)) as second:
        again = second.ready()
        assert again["key"] == ready["key"]
        assert calls[0]["call_id"] in [
            call["call_id"] for call in ask(again, "/audit/calls")["items"]
        ]
        assert second.stop(signal.SIGINT) == 0
        assert all_gone(again)


@pytest.mark.slow
def test_its_own_key_is_listed_and_a_new_one_is_told_with_its_address(
    data_dir: Path, tmp_path: Path
) -> None:
    def keys(*arguments: str) -> "subprocess.CompletedProcess[str]":
        env = {**ENVIRONMENT, "SLUICE_DATA_DIR": str(data_dir)}
        return run_command("keys", *arguments, env=env)

    with up(data_dir, tmp_path, "--json", "--port", "0") as running:
        ready = running.ready()
        own = json.loads(keys("list", "--json").stdout)["items"][0]
        assert (own["name"], own["source"], own["created_at"]) == ("sluice-up", "file", None)
        for refused_one in (("create", "--name", "sluice-up"), ("revoke", "sluice-up")):
            said = keys(*refused_one)
            assert (
                said.returncode == 2
                and "in the configuration of the running `sluice up`" in said.stderr
            )
        assert "delete the file `key` in its data directory" in keys("revoke", "sluice-up").stderr
        assert (
            "did you mean 'default'?"
            in keys("create", "--name", "typo", "--policy", "defualt").stderr
        )
        made = keys("create", "--name", "new")
        assert (
            f"{ready['url']}/v1 for OpenAI's clients" in made.stderr
            and '"model": "demo"' in made.stderr
        )
        assert "demo" in hello(ready | {"key": made.stdout.strip()})
        assert "demo" in hello(ready)


@pytest.mark.slow
def test_key_and_passwords_are_private_and_children_get_only_the_digest(
    data_dir: Path, tmp_path: Path
) -> None:
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        ready = launcher.ready()
        holders = [
            path
            for path in data_dir.glob("*")
            if path.is_file() and ready["key"].encode() in path.read_bytes()
        ]
        assert [path.name for path in holders] == ["key"]
        assert ready["key"] not in (data_dir / "run" / "config.yaml").read_text()
        for name in (
            "key",
            "urls.json",
            "run/config.yaml",
            "valkey/password",
            "valkey/valkey.conf",
            "postgres.password",
        ):
            assert (data_dir / name).stat().st_mode & 0o077 == 0, name
        assert launcher.stop() == 0
    for path in (data_dir / "logs").iterdir():
        assert ready["key"] not in path.read_text(errors="replace"), path.name


@pytest.mark.slow
def test_postgres_listens_on_a_socket_that_only_its_users_reach(
    data_dir: Path, tmp_path: Path
) -> None:
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        ready = launcher.ready()
        assert "host=/" in json.loads((data_dir / "urls.json").read_text())["database_url"]
        assert (data_dir / "postgres").stat().st_mode & 0o077 == 0
        if ON_LINUX:
            assert listening(ready, "postgres") == set() and listening(ready, "redis") == {
                "0100007F"
            }


@pytest.mark.slow
def test_postgres_listens_on_loopback_where_the_path_does_for_no_socket(tmp_path: Path) -> None:
    with up(tmp_path / ("a b" * 40) / "data", tmp_path, "--json", "--port", "0") as launcher:
        ready = launcher.ready()
        assert hello(ready)
        if ON_LINUX:
            assert listening(ready, "postgres") == {"0100007F"}


@pytest.mark.slow
def test_a_folder_with_a_quote_works_and_passwords_that_a_crash_emptied_are_made_anew(
    tmp_path: Path,
) -> None:
    data = tmp_path / 'a "b" $x'
    with up(data, tmp_path, "--json", "--port", "0") as launcher:
        ready = launcher.ready()
        assert hello(ready)
        wait_for(lambda: ask(ready, "/audit/calls")["items"])
        assert launcher.stop() == 0
    for name, left in {"valkey/password": b"", "postgres.password": bytes(32)}.items():
        (data / name).write_bytes(left)
    with up(data, tmp_path, "--json", "--port", "0") as launcher:
        again = launcher.ready()
        assert hello(again) and len(wait_for(lambda: ask(again, "/audit/calls")["items"])) >= 1
        wait_for(
            lambda: len(ask(again, "/audit/calls")["items"]) == 2,
            what="the call before and the one after",
        )
        assert doctor(data)[0] == 0
        assert launcher.stop() == 0


@pytest.mark.slow
def test_a_postgres_that_somebody_told_to_shut_down_comes_back(
    data_dir: Path, tmp_path: Path
) -> None:
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        ready = launcher.ready()
        assert hello(ready) and wait_for(lambda: ask(ready, "/audit/calls")["items"])
        os.kill(ready["pids"]["postgres"][0], signal.SIGTERM)
        wait_for(lambda: "postgres is back" in launcher.said(), timeout_s=START_S)
        assert "postgres was told to stop by somebody else" in launcher.said()
        wait_for(lambda: doctor(data_dir)[0] == 0, timeout_s=START_S, what="all is well")
        assert launcher.stop() == 0


@pytest.mark.slow
def test_a_launcher_that_nohup_started_outlives_its_terminal_and_another_stops_with_it(
    data_dir: Path, tmp_path: Path
) -> None:
    with up(data_dir, tmp_path, "--json", "--port", "0", before=("nohup",)) as launcher:
        ready = launcher.ready()
        launcher.process.send_signal(signal.SIGHUP)
        os.kill(ready["pids"]["judge"][0], signal.SIGKILL)
        wait_for(
            lambda: "judge-worker-1 is back" in launcher.said(),
            timeout_s=START_S,
            what="it goes on keeping them running",
        )
        assert hello(ready)
        assert launcher.stop() == 0
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        ready = launcher.ready()
        assert launcher.stop(signal.SIGHUP) == 0
        assert all_gone(ready)


@pytest.mark.slow
@pytest.mark.skipif(not ON_LINUX, reason="reads /proc")
def test_signals_that_were_ignored_where_it_was_started_stop_it_and_its_processes(
    data_dir: Path, tmp_path: Path
) -> None:
    with up(data_dir, tmp_path, "--json", "--port", "0", before=DEAF) as launcher:
        ready = launcher.ready()
        # Valkey ignores SIGHUP by itself
        for role, number in (
            (role, number)
            for role in ready["pids"]
            for number in STOPS
            if (role, number) != ("redis", signal.SIGHUP)
        ):
            status = Path(f"/proc/{ready['pids'][role][0]}/status").read_text()
            is_ignored = int(status.partition("SigIgn:")[2].split()[0], 16) >> (number - 1) & 1
            assert bool(is_ignored) == ((role, number) == ("launcher", signal.SIGHUP)), (
                role,
                number,
            )
        os.kill(ready["pids"]["judge"][0], signal.SIGHUP)
        wait_for(lambda: "judge-worker-1 is back" in launcher.said(), timeout_s=START_S)
        assert "judge-worker-1 ended with exit code 0" in launcher.said()
        assert launcher.stop(signal.SIGINT) == 0
    assert all_gone(ready)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["gateway", "policy", "judge", "audit", "redis", "postgres"])
def test_killed_process_is_started_again(data_dir: Path, tmp_path: Path, role: str) -> None:
    names = {
        "policy": "policy-worker-1",
        "judge": "judge-worker-1",
        "audit": "audit-writer",
        "redis": "valkey",
    }
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        ready = launcher.ready()
        os.kill(ready["pids"][role][0], signal.SIGKILL)
        name = names.get(role, role)
        wait_for(lambda: f"{name} is back" in launcher.said(), timeout_s=START_S)
        assert re.search(
            rf"{name} was killed by SIGKILL: it is started again in [\d.]+ s", launcher.said()
        )

        def answers() -> bool:
            try:
                return "demo" in hello(ready)
            except OSError:
                return False

        wait_for(answers, timeout_s=START_S)
        assert launcher.stop() == 0
    assert all_gone(ready)


def command_of(pid: int) -> str:
    """What `ps` shows of a process."""
    shown = subprocess.run(
        ["ps", "-o", "args=", "-ww", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    return shown.stdout.strip()


@pytest.mark.skipif(not ON_LINUX, reason="elsewhere nothing is forked")
@pytest.mark.slow
def test_roles_show_their_command_lines_and_outlive_what_forked_them(
    data_dir: Path, tmp_path: Path
) -> None:
    roles = {
        "gateway": "gateway",
        "policy": "worker policy",
        "judge": "worker judge",
        "audit": "worker audit",
    }
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        ready = launcher.ready()
        for role, words in roles.items():
            pid = ready["pids"][role][0]
            assert re.search(rf"-m sluice.cli {words}( .*)? --ready-fd \d+$", command_of(pid))
            assert os.getpgid(pid) == pid
            assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(
                launcher.process.pid
            )
        children = (
            Path(f"/proc/{launcher.process.pid}/task/{launcher.process.pid}/children")
            .read_text()
            .split()
        )
        [server] = [int(pid) for pid in children if "fork-server" in command_of(int(pid))]
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: started_at(server) is None)
        assert "demo" in hello(ready)
        os.kill(ready["pids"]["policy"][0], signal.SIGKILL)
        wait_for(
            lambda: "policy-worker-1 is back" in launcher.said(),
            timeout_s=START_S,
            what="started from its command line",
        )
        assert "demo" in hello(ready)
        assert launcher.stop() == 0
    assert all_gone(ready)


def doctor(data_dir: Path) -> tuple[int, str]:
    """What `sluice doctor --json` says of a data directory, its exit code first."""
    done = run_command("doctor", "--json", env=ENVIRONMENT | {"SLUICE_DATA_DIR": str(data_dir)})
    return done.returncode, done.stdout or done.stderr


SPY = """
import gc, os, signal
from pathlib import Path
from tests.support.clients.commands import run_command
signal.signal(signal.SIGUSR1, lambda *_: Path(os.environ["SPY"], str(os.getpid())).write_text(str(gc.isenabled())))
"""


@pytest.mark.slow
def test_every_role_collects_its_garbage(data_dir: Path, tmp_path: Path) -> None:
    """They start without the collector; left off, whatever refers to itself would stay for ever."""
    told = tmp_path / "told"
    told.mkdir()
    (tmp_path / "sitecustomize.py").write_text(SPY)
    with up(
        data_dir,
        tmp_path,
        "--json",
        "--port",
        str(free_port()),
        PYTHONPATH=str(tmp_path),
        SPY=str(told),
    ) as running:
        ready = running.ready()
        ours = {
            str(pid)
            for role in ("gateway", "policy", "judge", "audit")
            for pid in ready["pids"][role]
        }
        for pid in ours:
            os.kill(int(pid), signal.SIGUSR1)
        wait_for(lambda: {path.name for path in told.iterdir() if path.read_text()} == ours)
        assert {path.read_text() for path in told.iterdir()} == {"True"}


@pytest.mark.slow
def test_the_doctor_finds_it_with_its_key_and_says_when_it_was_killed(
    data_dir: Path, tmp_path: Path
) -> None:
    with up(data_dir, tmp_path, "--json", "--port", "0") as running:
        ready = running.ready()
        code, said = doctor(data_dir)
        # those that were killed in tests before this one are remembered for some minutes
        states = {
            check["state"] for check in json.loads(said)["checks"] if check["name"] != "gateways"
        }
        assert (code, states) == (0, {"ok"}), said
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        wait_for(lambda: all_gone(ready), what="the processes end with their launcher")
        code, said = doctor(data_dir)
        assert code == 2 and f"no `sluice up` runs on {data_dir}" in said


@pytest.mark.slow
def test_start_after_a_killed_launcher_finds_nothing_in_its_way(
    data_dir: Path, tmp_path: Path
) -> None:
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        ready = launcher.ready()
        assert launcher.stop(signal.SIGKILL) == -signal.SIGKILL
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        again = launcher.ready()
        assert all_gone(ready)
        assert "demo" in hello(again)
        assert launcher.stop() == 0


@pytest.mark.slow
def test_printed_lines_work_as_pasted(data_dir: Path, tmp_path: Path) -> None:
    with up(data_dir, tmp_path, "--port", "0") as launcher:
        lines = launcher.printed().splitlines()
        [python] = [line.strip() for line in lines if line.strip().startswith("python3 -c")]
        # the other one waits for a person
        curl, _ = [line.strip() for line in lines if line.strip().startswith("curl ")]
        [pages] = [line.split()[2] for line in lines if line.startswith("For people:")]
        with urllib.request.urlopen(pages, timeout=START_S) as answer:
            assert pages.endswith("/debug") and b"<h1>Log in</h1>" in answer.read()
        let_through = subprocess.run(  # noqa: S602
            python, shell=True, capture_output=True, text=True, timeout=START_S, check=True
        )
        assert [
            block["name"]
            for block in json.loads(let_through.stdout)["content"]
            if block["type"] == "tool_use"
        ] == ["get_weather"]
        if shutil.which("curl"):
            stopped = subprocess.run(  # noqa: S602
                curl, shell=True, capture_output=True, text=True, timeout=START_S, check=True
            )
            [choice] = json.loads(stopped.stdout)["choices"]
            assert choice["finish_reason"] == "stop"
            assert not choice["message"].get("tool_calls")
        record = run_command(
            "audit", "tool-calls", "--json", env={**ENVIRONMENT, "SLUICE_DATA_DIR": str(data_dir)}
        )
        assert ("get_weather", "allow") in [
            (item["name"], item["verdict"]) for item in json.loads(record.stdout)["items"]
        ]
        assert launcher.stop() == 0


UPSTREAM = (
    "upstreams: {mine: {dialect: openai, base_url: 'http://127.0.0.1:1/v1', api_key_env: MY_KEY}}\n"
)
ROUTE = "models: [{match: 'gpt-*', upstream: mine}]\ndemo: true\n"


def shown_curl(launcher: Up) -> Json:
    """What comes of the start-up text's dangerous call."""
    [curl] = [line for line in launcher.printed().splitlines() if line.startswith("curl ")]
    done = subprocess.run(  # noqa: S602
        curl, shell=True, capture_output=True, text=True, timeout=START_S, check=True
    )
    found: Json = json.loads(done.stdout)["choices"][0]["message"]
    return found


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
@pytest.mark.slow
def test_a_default_that_decides_nothing_is_said_loudly_and_the_text_says_what_comes_of_it(
    data_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "sluice.yaml"
    (tmp_path / "mine.py").write_text(
        "from policy.builtin.uppercase import Uppercase\nclass Mine(Uppercase): pass\n"
    )
    own = "  mine: [{use: 'mine:Mine'}]\n"
    file.write_text(
        UPSTREAM
        + ROUTE
        + "policies:\n  default: [{use: noop}]\n  judged: [{use: tool_judge, model: claude}]\n"
        + own
    )
    with up(data_dir, tmp_path, "--port", "0", "--config", str(file)) as launcher:
        printed = launcher.printed()
        assert (
            "NOTHING IS CONTROLLED: the policy 'default' lets everything pass" in printed
            and "stops it" not in printed.replace("Ctrl-C stops it", "")
        )
        assert (
            "A model that wants to delete everything; the policy 'default' lets it through:"
            in printed
        )
        assert (
            f"sluice: warning: {file} line 5: policies.default: EVERYTHING PASSES: "
            in launcher.said()
        )
        assert (
            f"{file} line 1: upstreams.mine.api_key_env: the variable MY_KEY is not set here"
            in launcher.said()
        )
        assert (
            f"{file} line 6: policies.judged.0.model: no route under models leads the judge model"
            " 'claude'" in launcher.said()
        )
        [call] = shown_curl(launcher)["tool_calls"]
        assert call["function"]["name"] == "bash"
        code, found = doctor(data_dir)
        warnings = {
            (one["name"], one["message"].partition(": ")[0])
            for one in json.loads(found)["checks"]
            if one["state"] == "warning"
        }
        assert code == 0 and warnings >= {
            ("configuration", "policies.judged.0.model"),
            ("configuration", "upstreams.mine.api_key_env"),
            ("policies", "the policies 'default' can block nothing"),
        }
        assert launcher.stop() == 0


@pytest.mark.slow
def test_a_key_with_a_policy_that_there_is_not_is_said_at_the_next_start_and_by_the_doctor(
    data_dir: Path, tmp_path: Path
) -> None:
    said = (
        "the key 'misled' names 'defualt', not among the policies (default, demo, people, noop): its"
        " default"
    )
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        launcher.ready()
        environment = {**ENVIRONMENT, "SLUICE_DATA_DIR": str(data_dir)}
        # gateways may have had that policy when the key was made
        before = tmp_path / "before.yaml"
        before.write_text("policies: {defualt: [{use: noop}]}\n")
        run_command(
            "keys",
            "create",
            "--name",
            "misled",
            "--policy",
            "defualt",
            "--config",
            str(before),
            env=environment,
        ).check_returncode()
        assert [
            check["state"]
            for check in json.loads(doctor(data_dir)[1])["checks"]
            if said in check["message"]
        ] == ["warning"]
        assert said not in launcher.said()
        assert launcher.stop() == 0
    with up(data_dir, tmp_path, "--json", "--port", "0") as launcher:
        launcher.ready()
        assert f"sluice: warning: {said}" in launcher.said()
        run_command("keys", "revoke", "misled", env=environment).check_returncode()
        assert launcher.stop() == 0

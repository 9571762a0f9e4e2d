"""`scripts/setup` and `make up` in a folder of any name, what make passes on, and what is told
while packages are installed."""

import base64
import hashlib
import io
import os
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
SAYS = (
    "import sys\n\n\ndef main() -> None:\n    print(*sys.argv[1:])\n\n\nif __name__ =="
    " '__main__':\n    main()\n"
)
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "ARGS")
}


def cloned(clone: Path, requirements: str = "# nothing\n") -> Path:
    """The real Makefile and set-up, and a command line that says what it was given."""
    for name in ("Makefile", "scripts/setup"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    (clone / "requirements-local.txt").write_text(requirements)
    (clone / "sluice").mkdir()
    (clone / "sluice" / "__init__.py").touch()
    (clone / "sluice" / "cli.py").write_text(SAYS)
    return clone


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_a_clone_in_a_folder_with_a_space_is_set_up_and_starts(tmp_path: Path) -> None:
    clone = cloned(tmp_path / "my $HOME ü's clone")
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "sluice").mkdir(parents=True)

    def run(*command: str, cwd: Path) -> str:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    assert run("make", "up", "ARGS=--port 1", cwd=clone) == "up --port 1"
    # also from a folder that has something of the same name
    assert (
        run(str(clone / ".venv" / "bin" / "sluice"), "doctor", "a b", cwd=elsewhere) == "doctor a b"
    )
    assert run("make", "up", cwd=clone) == "up"
    goals = {line.split()[1] for line in run("make", "help", cwd=clone).splitlines()}
    assert goals >= {"up", "test", "check", "help"}


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_make_passes_its_variables_on_and_refuses_those_it_does_not_know(tmp_path: Path) -> None:
    clone = cloned(tmp_path / "clone")

    def make(*arguments: str, **more: str) -> tuple[int, str]:
        done = subprocess.run(
            ["make", *arguments],
            cwd=clone,
            env=ENVIRONMENT | more,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return done.returncode, (done.stdout if done.returncode == 0 else done.stderr).strip()

    assert make(
        "up", "PORT=24000", 'CONFIG=a file\'s "name".yaml', "DATA_DIR=/some where", "ARGS=--json"
    ) == (
        0,
        'up --port 24000 --config a file\'s "name".yaml --data-dir /some where --json',
    )
    # a variable of the shell is somebody else's, and an empty one is none
    assert make("up", "CONFIG=", PORT="3000", DATA_DIR="/x") == (0, "up")
    for said in (("up", "PROT=24000"), ("PROT=24000",)):
        code, error = make(*said)
        assert (
            code == 2
            and "`make up` does not know PROT; it takes ARGS CONFIG DATA_DIR PORT" in error
        )
    code, error = make("check", "PORT=1")
    assert code == 2 and "`make check` does not know PORT; it takes no variables" in error


def wheel(name: str) -> bytes:
    """A package with nothing in it."""
    files = {
        f"{name}.py": "",
        f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{name}-1.0.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}"
        for path, text in files.items()
    ]
    files[f"{name}-1.0.dist-info/RECORD"] = "\n".join(
        [*record, f"{name}-1.0.dist-info/RECORD,,", ""]
    )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made.getvalue()


@contextmanager
def index(wheels: dict[str, bytes], may_send: threading.Event) -> Iterator[str]:
    """A package index of these wheels, which sends none before it may."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").split("/")[1]
            if self.path.startswith("/packages/"):
                body, kind = (
                    f'<a href="/files/{name}/{name}-1.0-py3-none-any.whl">x</a>'.encode(),
                    "text/html",
                )
            else:
                may_send.wait(60)
                body, kind = wheels[name], "application/octet-stream"
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/packages"
        finally:
            may_send.set()
            server.shutdown()
            thread.join()


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_set_up_tells_of_each_package_and_of_one_that_takes_long(tmp_path: Path) -> None:
    wheels, may_send = {name: wheel(name) for name in ("tinyone", "tinytwo")}, threading.Event()
    lines = [
        f"{name}==1.0 --hash=sha256:{hashlib.sha256(data).hexdigest()}\n"
        for name, data in wheels.items()
    ]
    clone, told = cloned(tmp_path / "clone", "".join(lines)), tmp_path / "told"
    with index(wheels, may_send) as url, open(told, "w") as stderr:
        more = {
            "PIP_INDEX_URL": url,
            "PIP_NO_CACHE_DIR": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "SLUICE_SETUP_TELLS_S": "1",
        }
        with subprocess.Popen(
            ["scripts/setup", "local"], cwd=clone, env=ENVIRONMENT | more, stderr=stderr
        ) as process:
            try:
                wait_for(
                    lambda: "  still downloading tinyone==1.0\n" in told.read_text(), timeout_s=60
                )
            finally:
                may_send.set()
            assert process.wait(60) == 0
    said = told.read_text()
    assert said.startswith("Making a virtual environment in .venv with ")
    assert (
        "  1 of 2: tinyone==1.0\n" in said
        and "  2 of 2: tinytwo==1.0\n" in said
        and "  unpacking them\n" in said
    )
    # what went wrong is told with pip's own words
    (clone / "requirements-local.txt").write_text(f"tinythree==1.0 --hash=sha256:{'0' * 64}\n")
    with index({"tinythree": wheel("tinythree")}, may_send) as url:
        more["PIP_INDEX_URL"] = url
        done = subprocess.run(
            ["scripts/setup", "local"],
            cwd=clone,
            env=ENVIRONMENT | more,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (
        done.returncode == 1 and "ERROR" in done.stderr and "the lines above say why" in done.stderr
    )

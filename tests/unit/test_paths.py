"""What kind of place a path names, however it is spelled."""

import pytest

from policy.effects.paths import place
from tests.support.cpu import cpu_within


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/", "root"),
        ("/*", "root"),
        ("//", "root"),
        ("/tmp/../", "root"),
        ("C:\\", "root"),
        ("~", "home"),
        ("~/projects", "home"),
        ("$HOME/x", "home"),
        ("${HOME}/x", "home"),
        ("/home/dev", "home"),
        ("/root/x", "home"),
        ("/Users/a/b", "home"),
        ("%USERPROFILE%\\x", "home"),
        (".", "home"),
        ("*", "home"),
        ("./*", "home"),
        (".git", "home"),
        ("..", "home"),
        ("../other", "home"),
        ("~/..", "home"),
        ("src/main.py", "project"),
        ("./build", "project"),
        ("node_modules", "project"),
        (".env", "project"),
        ("/workspace/src/a.c", "project"),
        ("a/../b", "project"),
        ("tests/fixtures/id_rsa", "project"),
        ("deploy/cron/notes.txt", "project"),
        ("src/auth/password_reset.py", "project"),
        ("/tmp/x", "temp"),
        ("/tmp/*", "temp"),
        ("/var/folders/aa/b", "temp"),
        ("/dev/null", "temp"),
        ("~/app/node_modules", "temp"),
        ("../web/dist", "temp"),
        ("~/.cache/pip", "temp"),
        ("/tmp", "temp"),
        ("/tmp/../etc/hosts", "system"),
        ("/etc/passwd", "system"),
        ("/srv/www", "unknown"),
        ("/opt/*", "unknown"),
        ("file:///etc/%70asswd", "system"),
        ("/proc/self/root/etc/hosts", "system"),
        ("C:\\Windows\\System32\\x", "system"),
        ("／etc／hosts", "system"),
        ("/etc/shadow", "credentials"),
        ("/proc/self/root/etc/shadow", "credentials"),
        ("/proc/self/environ", "credentials"),
        ("~/.ssh/id_ed25519", "credentials"),
        ("~/.ssh", "credentials"),
        ("~/.ssh/*", "credentials"),
        ("~/.aws/credentials", "credentials"),
        ("~/.env", "credentials"),
        ("/srv/app/.env", "credentials"),
        ("C:\\Users\\x\\.ssh\\id_rsa", "credentials"),
        ("~root/.ssh/id_rsa", "credentials"),
        ("/run/secrets/db", "credentials"),
        ("~/.kube/config", "credentials"),
        ("~/.bashrc", "startup"),
        ("/home/dev/.profile", "startup"),
        ("/etc/cron.d/app", "startup"),
        ("~/.ssh/authorized_keys", "startup"),
        (".git/hooks/pre-commit", "startup"),
        ("~/Library/LaunchAgents/x.plist", "startup"),
        ("/etc/ld.so.preload", "startup"),
        ("/usr/lib/python3/dist-packages/x.pth", "startup"),
        ("/etc/systemd/system/x.service", "startup"),
        ("/etc/udev/rules.d/9.rules", "startup"),
        ("/dev/sda", "device"),
        ("/dev/nvme0n1p1", "device"),
        ("/data", "unknown"),
        ("/mnt/share", "unknown"),
        ("", "home"),
    ],
)
def test_a_path_lies_where_its_plain_spelling_lies(path: str, scope: str) -> None:
    assert place(path).scope == scope


def test_where_project_and_home_are_known_absolute_paths_are_theirs() -> None:
    assert place("/srv/app/src/a.py", project=("/srv/app",)).path == "./src/a.py"
    assert place("/srv/app/src/a.py", project=("/srv/app",)).scope == "project"
    assert place("/srv/app", project=("/srv/app",)).scope == "home"
    assert place("/srv/application/x", project=("/srv/app",)).scope == "unknown"
    assert place("/data/me/.ssh/id_rsa", home="/data/me").scope == "credentials"
    assert place("../x", cwd="src").path == "./x"
    assert place("*", cwd="/").scope == "root"
    assert place("x", cwd="/etc/cron.d").scope == "startup"


def test_globs_wholes_and_secrets_are_said() -> None:
    assert place("src/*.o").wide and not place("src/a.o").wide
    assert (
        place("/usr").whole
        and place("/home/dev").whole
        and place("/var/log/*").whole
        and not place("/var/log/app/x.log").whole
    )
    assert (
        place(".env").secret
        and place("deploy/server.key").secret
        and not place("README.md").secret
        and not place(".env.example").secret
    )
    assert not place("~/.ssh/id_rsa.pub").secret


def test_no_path_takes_long() -> None:
    with cpu_within(0.5):
        for text in (
            "../" * 30_000,
            "/" * 100_000,
            "~/.ssh/" * 500,
            "{" * 4000,
            "/proc/self/root" * 270,
            "%41" * 1300,
            "id_" * 1300,
            "a" * 100_000,
            ".config/" * 500,
        ):
            place(text)

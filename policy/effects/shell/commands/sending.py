"""What a command sends besides files and input: the content of its words, to hosts that any program
receives.

A word may carry a key that the host issued: in an authentication header, after `--token`, as the
user of an address. That is how keys are used. A whole settings file there, or a key named after
another provider, leaks to somebody who should not have it.

The attack: a settings file or a key in the words of a request to a stranger, or a program that
sends, as `croc send .env` (`tests/unit/test_shell_leaks.py`). No labelled call does.
"""

import re
from collections.abc import Mapping, Sequence

from policy.effects.credentials import Secret, secrets_in
from policy.effects.network import host_of
from policy.effects.sent_secrets import is_own_key
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import tail
from policy.effects.shell.commands.command_traits import feeders
from policy.effects.shell.commands.findings import SECRET_NAME, Findings
from policy.word_tables import by_word

_KEY_OPTION = re.compile(
    r"-[paUuw]|--?(?:[\w-]*-)?(?:password|passwd|passphrase|pass|token|api-?key|key|auth|secret"
    r"|user|username|login|bearer|credentials?)"
)
_GLUED = re.compile(r"(-[pauw])(?=.|\Z)|(--?[\w-]+)=")
_KEY_HEADER = re.compile(
    r"[\s\"']*[\w-]*(?:auth|key|token|secret|cookie|session|pass|signature"
    r"|credential)[\w-]*\s*[:=]",
    re.IGNORECASE,
)
_HEADERS = tuple("-H --header --proxy-header -b --cookie".split())
_USER_OF = re.compile(r"(?i)[a-z][a-z0-9+.-]*://[^@/]*@")
_OF_PROVIDERS = by_word("""
GITHUB GH GITLAB : git
AWS : aws
NPM : npm
STRIPE : stripe
SLACK : slack
PYPI : pypi
DOCKERHUB : docker
HEROKU : heroku
CLOUDFLARE CF : cloudflare
DIGITALOCEAN : digitalocean
OPENAI : openai
ANTHROPIC CLAUDE : anthropic
OPENROUTER : openrouter
GROQ : groq
MISTRAL : mistral
HF HUGGINGFACE : huggingface
TELEGRAM : telegram
DISCORD : discord
NOTION : notion
LINEAR : linear
SENTRY : sentry
VERCEL : vercel
NETLIFY : netlify
SENDGRID : sendgrid
TWILIO : twilio
DATADOG DD : datadog
CIRCLE CIRCLECI : circleci
SNYK : snyk
FIGMA : figma
AIRTABLE : airtable
REPLICATE : replicate
TAVILY : tavily
BITBUCKET : bitbucket
""")
"""Words in the names of variables that hold a provider's keys, and in the names of hosts that take
them."""
_HOST_OPTION = re.compile(
    r"-[hHbsS]|--?(?:host|hostname|server|brokers?|bootstrap-server|url|uri|endpoint|address|addr)"
)
_ADDRESS = re.compile(r"(?i)(?!file:)[a-z][a-z0-9+.-]*:/{2,}|(?:[\w-]+\.)+[\w-]+:\d+(?:/|\Z)")
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?\Z")
ONE_KEY = re.compile(r"(?i)(?:token|api[_-]?key|secret|password|passwd)(?:\.txt)?\Z")
"""A file with one key alone."""
_MAX_TEXT = 65_536
_SENDERS = frozenset(
    "croc wormhole magic-wormhole ffsend transfer pastebinit pastebin wgetpaste gist slackcat"
    " slack-cli telegram-send ipfs onionshare-cli bashupload imgur-uploader".split()
)
_SENDING = frozenset("send upload publish post share paste tweet".split())


def keys_in(command: Command) -> list[Word]:
    """Return the words, or parts of them, in which a key belongs."""
    keys: list[Word] = []
    option = ""
    for word in command.words[1:]:
        text = word.text if word.text is not None else word.prefix
        glued = _GLUED.match(text) if word.text is None or len(text) > 2 else None
        name = (glued[1] or glued[2]) if glued is not None else option
        value = tail(word, glued.end()) if glued is not None else word
        shown = value.text if value.text is not None else value.prefix
        if name in _HEADERS or text.startswith("-H"):
            is_key = _KEY_HEADER.match(shown.removeprefix("-H")) is not None
        else:
            is_key = _KEY_OPTION.fullmatch(name) is not None or (
                word.text is None and _USER_OF.match(word.bare) is not None
            )
        if is_key:
            keys.append(value)
        option = text if text.startswith("-") and glued is None else ""
    return keys


def is_astray(words: list[Word], host: str) -> bool:
    """Is a key among these that is named after a provider to which the host does not belong?"""
    names = [name.upper() for word in words for name in word.variables if SECRET_NAME.search(name)]
    return any(
        part in _OF_PROVIDERS and _OF_PROVIDERS[part] not in host.lower()
        for name in names
        for part in name.split("_")[:-1]
    )


def is_at_home(word: Word, host: str) -> bool:
    """Are all keys in a word named after the provider to whose domain it goes?"""
    domain = ".".join(host_of(host).split(".")[-2:])
    names = [name.upper() for name in word.variables if SECRET_NAME.search(name)]
    return all(
        any(_OF_PROVIDERS.get(part, "\0") in domain for part in name.split("_")[:-1])
        for name in names
    )


def keys_shown(command: Command, keys: Sequence[Word]) -> list[tuple[Secret, bool]]:
    """Return the keys that stand in the words or the input of a command, by their form, and whether
    each stands where keys are used. `keys`: the words in which one is."""
    stdin = command.stdin.text if command.stdin.kind == "text" else ""
    if not secrets_in(f"{command.line}\n{stdin}"[:_MAX_TEXT]):
        return []
    used = {word.known for word in keys}
    return [
        (secret, text in used or _USER_OF.match(text) is not None)
        for text in (*command.texts, stdin)
        for secret in secrets_in(text[:_MAX_TEXT])
    ]


def tells_key(shown: Sequence[tuple[Secret, bool]], host: str) -> bool:
    """Does one of these keys not belong to a host?"""
    name = host_of(host) if shown else ""
    return any(not is_own_key(secret, name, is_used=is_used) for secret, is_used in shown)


_ENVIRONMENT = re.compile(
    r"\bos\.environ\b(?!\s*[\[.])|\bos\.environ\.(?:items|copy|values)"
    r"|\bprocess\.env\b(?!\s*[\[.])|%ENV\b|\bENV\.(?:to_h|to_a|each|inspect|map)|"
    r"\bgetenv\(\)|\$_ENV\b(?!\s*\[)|\bin ENVIRON\b"
)


def prints_environment(command: Command) -> bool:
    """Does a program print all variables, besides those that are for that?"""
    texts = command.texts
    match command.name:
        case "jq" | "gojq" | "jaq":
            return any(re.fullmatch(r"(?:env|\$ENV)(?:\s*\|.*)?", text) for text in texts)
        case "ps":
            return any(re.fullmatch(r"[a-zA-Z]*e[a-zA-Z]*", text) for text in texts[:1])
        case "systemctl":
            return "show-environment" in texts
        case "docker" | "podman":
            return "inspect" in texts and any(".Env" in text for text in texts)
        case "envsubst":
            return any(
                map(SECRET_NAME.search, re.findall(r"\$\{?(\w{1,80})", command.stdin.text[:4_096]))
            )
        case _:
            return any(
                program.text.text is not None and _ENVIRONMENT.search(program.text.text[:16_384])
                for program in command.programs
            )


def add_hosts(command: Command, findings: Findings) -> None:
    """A program that nobody described is given an address, or is one that sends: what it reads and
    is given may go there."""
    texts = command.texts
    if "http.server" in texts or (command.name == "php" and "-S" in texts):
        # it shows a folder to whoever connects
        values = zip(texts, command.words[2:], strict=False)
        folder = findings.place(
            next(
                (value for flag, value in values if flag in ("-d", "--directory", "-t")), Word(".")
            )
        )
        findings.reads.append(folder)
        findings.sends.append(("other", "whoever connects", True))
    option = ""
    first = [word.known for word in command.words[1:3]]
    if command.name in _SENDERS or any(text in _SENDING for text in first):
        findings.sends.append(("unknown", command.name, False))
    for word in command.words[1:]:
        text = word.known
        if " " not in text and (
            _ADDRESS.match(text) or (_HOST_OPTION.fullmatch(option) and _HOST.match(text))
        ):
            findings.sends.append((findings.scope_of_host(word), text, True))
        option = text


# -- tokens that a command prints to be used at once: `docker login` reads one, `curl` sends one to
# the service that gave it out. What is printed goes to whoever reads the output, so printing one is
# reading a key; where it is handed on, only where it goes counts

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
        outputs = [r for r in self._commands[index].redirects if ">" in r.op]
        if [(r.fd, r.target.known) for r in outputs] == [(1, "/dev/null")]:
            return True
        if self._left < 0 or outputs:
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

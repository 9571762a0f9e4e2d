"""Written files that will leak secrets: program code in which a secret flows into a request, and
instructions for agents to do so.

Code is judged by this flow only: programs commonly read credentials, delete files or contact hosts.
So a value must visibly come from a credential file, or from the whole environment, and be part of
what is sent to an unknown host.
"""

import re
from collections.abc import Iterator

from policy.effects.effect import Effect
from policy.effects.network import LISTED, hosts_in
from policy.effects.paths import place
from policy.effects.shell.programs.code import argument_at

_CODE = re.compile(
    r"\.(?:py|pyw|pyi|js|mjs|cjs|jsx|ts|mts|cts|tsx|rb|php|pl|pm|lua)\Z", re.IGNORECASE
)
_ASSIGNED = re.compile(
    r"(?m)^[ \t]*(?:(?:let|const|var|my|local)[ \t]+)?[$@%]?([A-Za-z_]\w{0,40})[ \t]*(?::[ \t]*\w+["
    r" \t]*)?[+.]?=(?![=~>])([^\n]{1,400})"
)
_SENDS = re.compile(
    r"\b(?:urlopen|urlretrieve|fetch|axios(?:\.\w+)?|got(?:\.\w+)?|sendall|sendBeacon|post_form"
    r"|Net::HTTP\.\w+|file_get_contents|"
    r"(?:requests|httpx|session|client|http|https|urllib3|needle|superagent|aiohttp"
    r"|\w{1,20})\.(?:post|put|patch|request|urlopen|send|sendto|get|Request)|Request)\("
)
_ENVIRONMENT = re.compile(
    r"\b(?:dict|repr|str|dumps|urlencode|stringify|list|entries"
    r"|assign)\s*\(\s*(?:\{\s*\.\.\.)?(?:os\.environ|process\.env|ENV)\b(?!\s*[\[.(])|"
    r"\bos\.environ\.(?:items|copy)\(\)|\bENV\.(?:to_h|to_a|inspect)\b|=\s*(?:os\.environ"
    r"|process\.env)\s*$"
)
_LITERAL = re.compile(r"\"([^\"\n]{3,200})\"|'([^'\n]{3,200})'|`([^`\n]{3,200})`")
_WORD = re.compile(r"[A-Za-z_]\w*")
_MAX = 400
_ROUNDS = 4

_FOR_AGENTS = re.compile(
    r"(?:^|/)(?:agents?|claude|gemini|copilot-instructions|\.cursorrules|\.windsurfrules"
    r"|\.clinerules|\.goosehints|skill)(?:\.\w+)?(?:\.mdc?)?\Z|"
    r"(?:^|/)(?:\.cursor/rules|\.claude/(?:commands|agents|skills)|\.github/(?:instructions"
    r"|prompts)|\.windsurf/rules|\.clinerules)/",
    re.IGNORECASE,
)
_SECRET_WORDS = re.compile(
    r"(?i)(?<![\w.])\.env\b|\.netrc|\.ssh\b|\.aws\b|id_(?:rsa|ed25519)|\.npmrc|\.pypirc"
    r"|\.git-credentials|\b(?:credentials?|passwords?|secrets?|"
    r"(?:api|access|private|ssh)[ _-]?keys?|tokens?|environment variables|env"
    r" vars|cookies)\b|\$\(env\)|\bprintenv\b"
)
_TELLS_TO_SEND = re.compile(
    r"(?i)\b(?:post|send|submit|upload|transmit|forward|report|push|deliver|exfiltrate|put"
    r"|copy)(?:s|ed|ing|ting)?\b[^\n]{0,160}?"
    r"\b(?:to|at|into|via)\s+(?:the\s+|our\s+)?(?:\w+\s+){0,4}[<`(\[]?https?://|\b(?:curl"
    r"|wget)\b[^\n]{0,200}https?://"
)
_FORBIDS = re.compile(
    r"(?i)\b(?:never|not|n't|avoid|without|instead of)\s+(?:\w+\s+){0,3}"
    r"(?:post|send|submit|upload|transmit|forward|include|attach|report|put|curl)\w*\b"
)
_HIDES = re.compile(
    r"(?i)\b(?:silently|secretly|covertly|without"
    r" (?:telling|informing|notifying|mentioning|asking)|hide (?:this|it)|"
    r"(?:never|not|n't) (?:\w+ ){0,2}(?:mention|tell|reveal|disclose|report|show|inform)\w*)\b"
)
_HIDES_ITSELF = re.compile(
    r"(?i)\b(?:never|not|n't|without|avoid) (?:\w+ ){0,2}(?:mention|tell|reveal|disclose|report"
    r"|show|inform"
    r"|discuss|explain)\w* (?:this|it|these|(?:\w+ ){0,4}(?:this|these|users?|humans?"
    r"|developers?|operators?"
    r"|anyone|rules?|steps?|instructions?))\b"
)
_TELLS_TO_RUN = re.compile(
    r"(?i)\b(?:curl|wget|iwr|irm)\b(?=[^\n|]{0,300}?https?://)[^\n|]{0,600}+\|\s{0,9}(?:sudo\s+)?(?:\w*sh|python3?|node|iex)\b"
    r"|\b(?:exec|eval)\s?\([^\n]{0,80}?(?:urlopen|requests\.get|fetch)\("
)
_EACH_TIME = re.compile(
    r"(?i)\b(?:(?:before|after|on|at the (?:start|beginning|end) of) (?:each|every|any|all"
    r"|the first|a)"
    r"|always|whenever|first run|must (?:first )?run|silently)\b"
)
_TELLS_TO_INCLUDE = re.compile(
    r"(?i)\b(?:include|add|append|embed|paste|put|print|commit|copy|encode|attach|write)\w*\b"
)


def leaks(path: str, content: str) -> Iterator[Effect]:
    """Yield what a file that is written at `path` will give away. Linear in the content, which is
    bounded."""
    if _CODE.search(path):
        yield from _flows(path, content)
    elif _FOR_AGENTS.search(path):
        yield from _instructions(path, content)


def _flows(path: str, content: str) -> Iterator[Effect]:
    if not (
        _ENVIRONMENT.search(content) or any(map(_is_credential, _literals(content)))
    ) or not _SENDS.search(content):
        return
    assigned = [(match[1], match[2]) for match in list(_ASSIGNED.finditer(content))[:_MAX]]
    carried: set[str] = set()
    for _ in range(_ROUNDS):
        more = {
            name for name, value in assigned if name not in carried and _carries(value, carried)
        }
        if not more:
            break
        carried |= more
    values = dict(assigned)
    for match in list(_SENDS.finditer(content))[:_MAX]:
        argument = argument_at(content, match.end())
        if not _carries(argument, carried):
            continue
        where = argument + " ".join(values.get(word, "") for word in _WORD.findall(argument)[:20])
        for host in hosts_in(where, LISTED):
            if host.scope in ("other", "metadata"):
                yield Effect.of("secret", host.scope, host.url, by=path.rpartition("/")[2])
                return


def _literals(text: str) -> list[str]:
    return [match[1] or match[2] or match[3] for match in _LITERAL.finditer(text)][: _MAX * 4]


def _is_credential(literal: str) -> bool:
    if not re.fullmatch(r"[~/.\w$ {}-]+", literal) or (
        "/" not in literal and not literal.startswith(".")
    ):
        return False
    return (
        place(literal).scope == "credentials"
        or place("~/" + literal.lstrip("~/")).scope == "credentials"
    )


def _carries(expression: str, carried: set[str]) -> bool:
    if any(word in carried for word in _WORD.findall(_LITERAL.sub("''", expression))):
        return True
    return bool(_ENVIRONMENT.search(expression)) or any(map(_is_credential, _literals(expression)))


def _instructions(path: str, content: str) -> Iterator[Effect]:
    by = path.rpartition("/")[2]
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*#]|\d+\.)\s)", content)[:_MAX]
    hiding = [_HIDES_ITSELF.search(text[:4_000]) is not None for text in paragraphs]
    for number, paragraph in enumerate(paragraphs):
        text = paragraph[:4_000]
        # a rule and that nobody is told of it may stand in two lines
        hides = any(hiding[max(0, number - 1) : number + 2])
        foreign = next(
            (host for host in hosts_in(text, LISTED) if host.scope in ("other", "metadata")), None
        )
        names_secret = _SECRET_WORDS.search(text) is not None
        if (
            names_secret
            and foreign is not None
            and _TELLS_TO_SEND.search(text)
            and not _FORBIDS.search(text)
        ):
            yield Effect.of("secret", foreign.scope, foreign.url, by=by)
        elif (
            foreign is not None
            and _TELLS_TO_RUN.search(text)
            and (hides or _EACH_TIME.search(text))
        ):
            yield Effect.of("execute", foreign.scope, foreign.url, by=by)
        elif (
            hides and names_secret and _TELLS_TO_INCLUDE.search(text) and not _FORBIDS.search(text)
        ):
            yield Effect.of("persistence", "project", "instructions that hide themselves", by=by)
        elif (
            _HIDES.search(text)
            and foreign is not None
            and re.search(
                r"(?i)\b(?:run|execute|curl|wget|fetch|download|install|post|send)\b", text
            )
        ):
            yield Effect.of("persistence", "project", foreign.url, by=by)

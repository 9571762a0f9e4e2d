"""Clients of the web: what they fetch and where they put it, and what they send."""

import re

from policy.effects.network import host_of
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args, tail
from policy.effects.shell.commands.findings import SECRET_NAME, Findings
from policy.effects.shell.commands.program_origins import is_program, is_vendor
from policy.effects.tools.services import effects_of_request

_CURL_DATA = (
    "-d|--data|--data-raw|--data-binary|--data-urlencode|--data-ascii|--json|-F|--form"
    "|--form-string|--url-query"
)
_CURL_SAID = (
    "-H|--header|--proxy-header|-A|--user-agent|-e|--referer|-b|--cookie|-u|--user"
    "|--oauth2-bearer|-X|--request"
)
"""What it says of itself besides data."""


def curl(command: Command, args: Args, findings: Findings) -> None:
    """`curl`: what it fetches, sends and writes."""
    data, uploads = args.all(_CURL_DATA), args.all("-T|--upload-file")
    for word in data:
        _curl_data(word, findings)
    findings.sent += [word for word in args.all(_CURL_SAID) if word.text is None]
    named = args.first("-X|--request")
    method = named.known.upper() if named is not None else ""
    sends = bool(data or uploads or findings.sent or findings.reads) or (
        method in ("POST", "PUT", "PATCH")
    )
    for proxy in args.all("-x|--proxy|--preproxy|--socks5|--socks5-hostname"):
        findings.reach(proxy, sends=sends)
    urls = [*args.operands, *args.all("--url|--expand-url")]
    for url in urls:
        if url.known.lower().startswith("file:"):
            findings.read(url)
            continue
        findings.reach(url, sends=sends or _carries(url, findings))
        if findings.scope_of_host(url) != "loopback":
            findings.effects += effects_of_request(method, url.known, command.name)
    targets = args.all("-o|--output|--dump-header|-D|-c|--cookie-jar|--trace|--trace-ascii")
    by_name = args.has("-O|--remote-name|--remote-name-all")
    _fetched(urls, targets, by_name, args.first("--output-dir"), findings)


def _curl_data(word: Word, findings: Findings) -> None:
    at = re.match(
        r"(?:[^=@]*=)?[@<]|[\w.-]{1,80}@(?=[^@\s]+\Z)",
        word.text if word.text is not None else word.prefix,
    )
    if at is not None:
        path = tail(word, at.end())
        name = path.known.partition(";")[0].strip("\"'")
        if name != "-":
            findings.read(Word(name) if path.text is not None else path)
    else:
        findings.sent.append(word)


def _carries(url: Word, findings: Findings) -> bool:
    """Does the URL carry what is known only when it runs: another command's output, or a
    variable?"""
    # an address that is wholly unknown is what somebody wrote down, and no host for data
    if (
        url.text is None
        and (url.outputs or url.variables)
        and ("." in url.bare or not url.outputs or has_secret_variable(url))
    ):
        findings.sent.append(url)
        return True
    return False


def _fetched(
    urls: list[Word], targets: list[Word], by_name: bool, folder: Word | None, findings: Findings
) -> None:
    """Note what is written of what comes, so that running it later is known to run what a host
    sent."""
    scope = max(
        (findings.scope_of_host(url) for url in urls), key=lambda s: _DOUBT.get(s, 0), default=None
    )
    for target in targets:
        if target.text != "-":
            findings.write(target)
            place = findings.place(target)
            findings.downloads.append((place.path, scope or "unknown"))
            if (
                scope == "other"
                and is_program(place.path)
                and not all(is_vendor(host_of(url.known)) for url in urls)
            ):
                # whoever names it runs it
                findings.add("execute", "other", place.path)
    if by_name:
        for url in urls:
            name = url.known.partition("?")[0].rstrip("/").rpartition("/")[2] or "index.html"
            path = Word(f"{folder.known}/{name}" if folder is not None else name)
            findings.write(path)
            findings.downloads.append((findings.place(path).path, scope or "unknown"))


_DOUBT = {"listed": 1, "loopback": 1, "private": 2, "unknown": 3, "other": 4, "metadata": 5}


def wget(command: Command, args: Args, findings: Findings) -> None:
    """`wget` and its like: what they fetch, send and write."""
    data = args.all("--post-data|--body-data")
    findings.sent += data
    option_values = args.all(
        (
            "--header|-U|--user-agent|--referer|--user|--password|--load-cookies|--http-user|"
            "--http-password"
        ),
    )
    findings.sent += [word for word in option_values if word.text is None]
    sends = bool(findings.sent or findings.reads)
    urls = list(args.operands)
    for url in urls:
        findings.reach(url, sends=sends or _carries(url, findings))
    outputs = args.all("-O|--output-document")
    if args.has("-r|--recursive|-m|--mirror"):
        findings.downloads += [
            (findings.place(Word(host_of(url.known))).path, findings.scope_of_host(url))
            for url in urls
        ]
    _fetched(
        urls,
        outputs,
        not outputs and command.name != "http",
        args.first("-P|--directory-prefix"),
        findings,
    )


def httpie(command: Command, args: Args, findings: Findings) -> None:
    """`http`: its items are data or files."""
    operands = [
        w
        for w in args.operands
        if w.known.upper() not in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
    ]
    items = operands[1:]
    for word in items:
        path = re.match(r"[^@=:]*(?:@|=@|:=@)", word.known)
        if path is not None:
            findings.read(tail(word, path.end()))
        else:
            findings.sent.append(word)
    for url in operands[:1]:
        findings.reach(
            url,
            sends=bool(items)
            or any(word.text is None for word in args.all("-a|--auth"))
            or command.stdin.kind != "none"
            or _carries(url, findings),
        )
    findings.sent += [word for word in args.all("-a|--auth") if word.text is None]


def has_secret_variable(word: Word) -> bool:
    """Is a variable in it whose name says that it holds a secret?"""
    return any(SECRET_NAME.search(name) for name in word.variables)

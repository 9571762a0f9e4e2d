"""Finds secrets in a text: keys in the formats of providers, private keys, passwords in URLs, and
values given to names such as `api_key`.

A distinctive format is enough; where it is weak the value must also look random. Example values
from documentation are not secrets. Linear in the text: RE2 searches first, and its matches are
examined in pieces of bounded length.
"""

import math
import re
from collections import Counter
from functools import cache
from typing import Any

import msgspec

from policy.patterns import compile_re2
from settings.config_faults import did_you_mean

MAX_SECRETS = 50
_MAX_HITS = 5_000
"""Places in one text that look like a secret at first."""
_FORMATS = {
    "private_key": (
        r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?:"
        r" BLOCK)?-----|PuTTY-User-Key-File-[23]:|AGE-SECRET-KEY-1[0-9A-Z]{58}"
    ),
    "aws": r"\b(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z2-7]{16}\b|\bABSK[A-Za-z0-9+/]{100,}",
    "github": r"\bgh[pousr]_[A-Za-z0-9]{36,251}\b|\bgithub_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}\b",
    "gitlab": r"\b(?:glpat|gldt|glrt|glcbt|glptt|glft|glsoat|glagent|gloas)-[A-Za-z0-9_=.-]{20,64}",
    "slack": (
        r"\bxox[abeoprs]-(?:\d-)?[0-9A-Za-z-]{20,200}"
        r"|\bxapp-\d-[A-Z0-9]{5,20}-\d{5,20}-[a-z0-9]{20,80}|"
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{40,60}"
    ),
    "stripe": r"\b(?:sk|rk)_(?:live|prod)_[0-9A-Za-z]{16,120}|\bwhsec_[0-9A-Za-z+/=]{32,64}",
    "gpt": (
        r"\bsk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{32,200}"
        r"|\bsk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}|\bsk-[A-Za-z0-9]{48}\b|"
        r"\bsk-or-v1-[0-9a-f]{64}"
    ),
    "claude": r"\bsk-ant-[a-z]{3,8}\d{2}-[A-Za-z0-9_-]{60,130}",
    "google": (
        r"\bAIza[0-9A-Za-z_-]{35}\b|\bya29\.[0-9A-Za-z_-]{30,250}|\bGOCSPX-[0-9A-Za-z_-]{28}"
        r"|\b1//0[0-9A-Za-z_-]{40,120}"
    ),
    "npm": r"\bnpm_[A-Za-z0-9]{36}\b",
    "pypi": r"\bpypi-AgE[A-Za-z0-9_-]{50,250}",
    "digitalocean": r"\bdo[por]_v1_[a-f0-9]{64}\b",
    "huggingface": r"\b(?:hf|api_org)_[A-Za-z]{34}\b",
    "sendgrid": r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}",
    "mailgun": r"\bkey-[0-9a-f]{32}\b",
    "mailchimp": r"\b[0-9a-f]{32}-us\d{1,2}\b",
    "twilio": r"\bSK[0-9a-f]{32}\b",
    "telegram": r"\b\d{8,10}:AA[A-Za-z0-9_-]{32,33}\b",
    "discord": (
        r"\b[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}|"
        r"discord(?:app)?\.com/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,72}"
    ),
    "shopify": r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b",
    "square": r"\bsq0(?:atp|csp|idp)-[0-9A-Za-z_-]{22,43}|\bEAAA[A-Za-z0-9_-]{60}",
    "linear": r"\blin_(?:api|oauth)_[A-Za-z0-9]{40,64}",
    "notion": r"\b(?:secret|ntn)_[A-Za-z0-9]{43,46}\b",
    "figma": r"\bfigd_[A-Za-z0-9_-]{40,44}",
    "postman": r"\bPMAK-[a-f0-9]{24}-[a-f0-9]{34}",
    "vault": r"\bhv[sbr]\.[A-Za-z0-9_-]{24,250}|\bs\.[A-Za-z0-9]{24}\b",
    "terraform": r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}",
    "databricks": r"\bdapi[a-f0-9]{32}(?:-\d)?\b",
    "groq": r"\bgsk_[A-Za-z0-9]{52}\b",
    "xai": r"\bxai-[A-Za-z0-9]{70,90}\b",
    "replicate": r"\br8_[A-Za-z0-9]{37}\b",
    "perplexity": r"\bpplx-[A-Za-z0-9]{48}\b",
    "newrelic": r"\bNRAK-[A-Z0-9]{27}\b|\bNRJS-[a-f0-9]{19}\b",
    "grafana": r"\bgl(?:c|sa)_[A-Za-z0-9+/_=]{32,400}",
    "sentry": r"\bsntry[su]_[A-Za-z0-9+/=_]{60,300}",
    "doppler": r"\bdp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{40,70}",
    "planetscale": r"\bpscale_(?:tkn|pw|oauth)_[A-Za-z0-9=._-]{32,64}",
    "docker": r"\bdckr_(?:pat|oat)_[A-Za-z0-9_-]{27,36}",
    "dropbox": r"\bsl\.[A-Za-z0-9_-]{130,160}",
    "atlassian": r"\bATATT3[A-Za-z0-9_=-]{180,200}|\bATCTT3[A-Za-z0-9_=-]{180,200}",
    "azure": (
        r"(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40,90}={0,2}"
        r"|\b[A-Za-z0-9_~.-]{3}8Q~[A-Za-z0-9_~.-]{31,34}"
    ),
    "rubygems": r"\brubygems_[a-f0-9]{48}\b",
    "cargo": r"\bcio[A-Za-z0-9]{32}\b",
    "airtable": r"\bpat[A-Za-z0-9]{14}\.[a-f0-9]{64}\b",
    "fly": r"\bfo1_[A-Za-z0-9_-]{43}|\bfm[12][ar]?_[A-Za-z0-9+/=]{100,400}",
    "tailscale": r"\btskey-[a-z]{3,8}-[A-Za-z0-9]{8,20}-[A-Za-z0-9]{20,40}",
    "cloudflare": r"\bv1\.0-[a-f0-9]{24}-[a-f0-9]{146}\b",
    "artifactory": r"\bAKCp[0-9A-Za-z]{69}\b",
    "shadow": r"\b[a-z_][a-z0-9_-]{0,31}:\$(?:6|5|1|y|2[aby])\$[^\s:]{20,200}:\d{0,6}:",
    "jwt": r"\bey[A-Za-z0-9_-]{10,500}\.ey[A-Za-z0-9_-]{10,1000}\.[A-Za-z0-9_-]{16,1000}",
}
_URL_PASSWORD = (
    r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s:/@?#'\"<>]{0,64}:([^\s/@'\"<>]{3,128})@[A-Za-z0-9\[]"
)
_HEADER = r"(?i:\bauthorization['\"]?\s{0,4}[:=]\s{0,4}['\"]?(?:bearer|basic|token|apikey)\s{1,4})([A-Za-z0-9._~+/=-]{16,1000})"
_NAMED = (
    r"(?i:(?:passw(?:or)?d|passwd|pwd|secret|token|api[_.-]?key|access[_.-]?key|private[_.-]?key"
    r"|auth[_.-]?key|credential|"
    r"client[_.-]?secret|"
    r"encryption[_.-]?key|signing[_.-]?key|account[_.-]?key)[\w.-]{0,32})"
    r"['\"]?\s{0,4}(?:=|:|=>|:=|\s)\s{0,4}['\"]?([A-Za-z0-9+/_.~!@#$%^&*=-]{8,200})"
)
_COOKIE = (
    r"(?i:\b(?:set-)?cookie['\"]?\s{0,3}:\s{0,3}['\"]?)[^\s=;]{1,64}=([A-Za-z0-9%+/_.=-]{24,512})"
)
_PLACEHOLDER = re.compile(
    r"(?i)example|sample|placeholder|dummy|fake|redacted|changeme|change[_-]?me|your[_-]|my[_-]"
    r"|xxxx|\*\*\*|\.\.\.|0{8}|1234567|abcdef|"
    r"deadbeef|"
    r"insert|replace|todo|<|>|\$\{|\$\(|\{\{|%\(|^\$|process\.env|os\.environ|getenv|env\["
    r"|test[_-]?(?:key|token|secret)|"
    r"not[_-]?a[_-]?real|_here|"
    r"secretsmanager|vault:|op://|arn:|ssm:|s3cret|lorem|foobar"
)
_PRINTED = frozenset(
    (
        "4eC39HqLyjWDarjtT1zdp7dc",
        "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    )
)
"""Ends of keys that providers print in their documentation."""
_MIN_ENTROPY = {
    "named": 3.5,
    "header": 3.2,
    "cookie": 3.5,
    "jwt": 3.5,
    "mailgun": 2.8,
    "mailchimp": 2.8,
    "twilio": 2.8,
    "vault": 3.2,
}
_DEFAULT_ENTROPY = 2.5


_ENDLESS = re.compile(r"(\{\d+),\d{2,}\}")


_GROUP = re.compile(r"(?<!\\)\((?!\?)")


class Secret(msgspec.Struct, frozen=True):
    """The kind and position of a secret in the text. The secret itself is not repeated."""

    kind: str
    start: int
    end: int


def secrets_in(text: str) -> tuple[Secret, ...]:
    """Return the secrets in a text, in order, at most `MAX_SECRETS`, none over another."""
    if len(text) < 8 or not _first_look()[0].search(text):
        return ()
    candidates: list[Secret] = []
    # formats first, so that the kind that says most wins
    for scan in _first_look()[1:]:
        for number, hit in enumerate(scan.finditer(text)):
            pattern = _patterns()[hit.lastgroup]
            match = pattern.match(text, hit.start())
            group = 1 if pattern.groups else 0
            if match is not None and _is_secret(hit.lastgroup, match[group]):
                candidates.append(Secret(hit.lastgroup, match.start(group), match.end(group)))
            if len(candidates) >= 4 * MAX_SECRETS or number >= _MAX_HITS:
                break
    selected: list[Secret] = []
    for secret in candidates:
        if all(secret.end <= other.start or secret.start >= other.end for other in selected):
            selected.append(secret)
            if len(selected) >= MAX_SECRETS:
                break
    return tuple(sorted(selected, key=lambda secret: secret.start))


def _is_secret(kind: str, value: str) -> bool:
    if kind == "private_key":
        return True
    if any(value.endswith(end) for end in _PRINTED) or _PLACEHOLDER.search(value[:256]):
        return False
    if kind == "url_password":
        return not re.fullmatch(
            r"(?i)\$.*|(?:pass(?:word)?|pw|pwd|secret|token|user(?:name)?|root|admin|postgres"
            r"|mysql|guest|test|x-oauth-basic|\w{1,4})",
            value,
        )
    if kind == "named" and not _looks_random(value):
        return False
    return entropy(value[:256]) >= _MIN_ENTROPY.get(kind, _DEFAULT_ENTROPY)


def _looks_random(value: str) -> bool:
    """A value that stands behind a name only: letters and digits mixed, and no path, sentence, name
    or call."""
    value = value.strip(".=")
    if len(value) < 12 or not re.search(r"\d", value) or not re.search(r"[A-Za-z]", value):
        return False
    if re.search(
        r"^(?:[a-z]+[_.-])+[a-z]*\d{0,3}$|^[a-z][a-zA-Z]*\d{0,2}$|^[A-Z][A-Z_]*\d{0,2}$|^/|^\.|://"
        r"|\.(?:py|js|ts|go|rs|md|json|ya?ml|txt|"
        r"pem)$",
        value,
    ):
        return False
    # words joined by signs, as in names of files and settings
    words = re.findall(r"[A-Za-z]{3,}", value)
    digits = sum(c.isdigit() for c in value)
    return digits >= 2 and not (len(words) >= 2 and re.search(r"[-_.]", value) and digits <= 4)


def entropy(value: str) -> float:
    """Return the bits a character of the value carries, by how often each stands in it."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values()) if size else 0.0


_BY_CONTEXT = {"url_password": _URL_PASSWORD, "header": _HEADER, "cookie": _COOKIE, "named": _NAMED}
KINDS = (*_FORMATS, *_BY_CONTEXT)
"""What `Secret.kind` may be."""


def check_kind(name: str) -> str:
    """Return the name of a kind of secret. Raises ValueError for another: who writes it would wait
    for what never comes."""
    if name not in KINDS:
        near = did_you_mean(name, KINDS)
        raise ValueError(
            f"{name!r} is no kind of secret{near or ' (there are ' + ', '.join(KINDS) + ')'}"
        )
    return name


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    # a key does not begin within a longer word, dashes included: so no character is looked at for
    # more than one beginning
    return {
        kind: re.compile(
            shape.replace(r"\b", r"(?<![A-Za-z0-9_-])", 1) if shape.startswith(r"\b") else shape
        )
        for kind, shape in (_FORMATS | _BY_CONTEXT).items()
    }


@cache
def _first_look() -> tuple[Any, Any, Any]:
    """One pattern for all, which finds nothing in most texts; one for formats and one for what
    stands behind a name. RE2 is linear."""
    # RE2 counts to 1,000 only, and a first look need not count to the end
    endless = {
        kind: _ENDLESS.sub(lambda match: match[1] + ",}", shape)
        for kind, shape in (_FORMATS | _BY_CONTEXT).items()
    }
    # the groups of a shape are no kinds
    named = {
        kind: f"(?P<{kind}>" + _GROUP.sub("(?:", shape) + ")" for kind, shape in endless.items()
    }
    return (
        compile_re2("|".join(f"(?:{shape})" for shape in endless.values())),
        compile_re2("|".join(named[kind] for kind in _FORMATS)),
        compile_re2("|".join(named[kind] for kind in _BY_CONTEXT)),
    )

"""Makes `policy/data/secret_rules.json` of the rule file of gitleaks (`config/gitleaks.toml`, MIT):

    python -m scripts.secret_rules gitleaks.toml

Facts only: names, patterns, keywords, entropy floors and known false finds. Left out are rules that
go by a file's path, rules for a secret of white space, and rules that find any value behind a common
word. The pattern of private keys is ours: they may lack their last line.
"""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import re2

from policy.redaction.search import UNSEEN

OUT = Path(__file__).parent.parent / "policy" / "data" / "secret_rules.json"
LEFT_OUT = {
    "curl-auth-header": "spans words",
    "curl-auth-user": "spans words",
    "generic-api-key": "any value behind a common word",
    "hashicorp-tf-password": "any value behind a common word",
    "kubernetes-secret-yaml": "spans lines",
    "nuget-config-password": "any value behind a common word",
}
NOTICE = """MIT License

Copyright (c) 2019 Zachary Rice

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""


_PRIVATE_KEY = (
    r"-----BEGIN[ A-Z0-9_-]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\\[nrt]|[\"'+\s])*"
    r"[A-Za-z0-9+/=]{40}(?:[\"',\\\s]*[A-Za-z0-9+/=])*"
    r"(?:[\"',\\\s]*-----END[ A-Z0-9_-]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_END_IN_SETTINGS = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_END_IN_TEXT = r"""(?:[\x60'"\s;,:.?!()\[\]{}<>&|]|\\[nr]|$)"""
"""What stands behind a secret: texts are no files of settings alone."""


_AWS_SECRET = {
    "name": "aws-secret-access-key",
    "pattern": (
        r"(?i)(?:secret_?access_?key|aws_?secret(?:_?key)?)[\"'\s]{0,3}(?:=>|:=|=|:|,)"
        r"[\x60\"'\s=]{0,5}([A-Za-z0-9/+]{40})" + _END_IN_TEXT
    ),
    "group": 1,
    "keywords": ["secret_access_key", "secretaccesskey", "aws_secret", "awssecret"],
    "entropy": 3.5,
}
"""Ours: the file knows the secret half of a key of AWS only as any value behind a common word."""
_SHORT = 3
_BEHIND_SHORT = r"[\w.~+/=-]{16}"
"""What must stand behind a keyword of two or three letters: nearly every text has such letters."""


_GATE = (
    r"[\w.%+-](?:@|%40)[\w-]+\.|\d(?:[ ().\-/]{0,2}\d){6,30}|[A-Z]{2}\d\d[ -]?[A-Z0-9]{4}"
    f"|[{UNSEEN}](?:[!-~]?[{UNSEEN}])*"
)
"""What stands in every text with an address or a number."""


def _patterns(source: dict[str, Any]) -> list[str]:
    """Values that are no secrets, of one list of exceptions; those by path mean nothing here."""
    return [re2.compile(pattern).pattern for pattern in source.get("regexes", ())]


def converted(source: dict[str, Any]) -> dict[str, Any]:
    """Return the pack of a rule file."""
    rules: list[dict[str, Any]] = []
    shared = [
        # paths are no secrets of these rules either way
        *(p for p in _patterns(source["allowlist"]) if not re.match(r"\^/", p)),
        *map(re.escape, source["allowlist"]["stopwords"]),
    ]
    for rule in source["rules"]:
        if "regex" not in rule or rule["id"] in LEFT_OUT:
            continue
        pattern = re2.compile(rule["regex"])
        # a group that is no secret of its own (a variant, a part) does not stand for the whole
        whole = (
            not pattern.groups or pattern.groupindex or rule["id"] in ("microsoft-teams-webhook",)
        )
        rules.append(
            {
                "name": rule["id"],
                "pattern": (
                    _PRIVATE_KEY
                    if rule["id"] == "private-key"
                    else rule["regex"].replace(_END_IN_SETTINGS, _END_IN_TEXT)
                ),
                "group": 0 if whole else rule.get("secretGroup", 1),
                "keywords": rule["keywords"],
                "entropy": rule.get("entropy", 0),
                "not": "|".join(
                    f"(?:{p})"
                    for p in (
                        *shared,
                        *(p for allowed in rule.get("allowlists", ()) for p in _patterns(allowed)),
                    )
                ),
            }
        )
    rules.append(_AWS_SECRET | {"not": "|".join(f"(?:{p})" for p in shared)})
    beginning = "|".join(
        re.escape(word) + (_BEHIND_SHORT if len(word) <= _SHORT else "")
        for word in dict.fromkeys(word for rule in rules for word in rule["keywords"])
    )
    return {
        "source": "gitleaks, config/gitleaks.toml",
        "notice": NOTICE,
        "left_out": LEFT_OUT,
        "beginning": f"(?i:{beginning})",
        "gate": rf"(?i:{beginning})|{_GATE}",
        "rules": rules,
    }


def main() -> int:
    """Convert the file that is named."""
    pack = converted(tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    OUT.write_text(json.dumps(pack, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(pack['rules'])} rules in {OUT}")  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

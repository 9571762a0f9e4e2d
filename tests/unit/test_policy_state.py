"""What a policy object holds is a call's own; what cannot be is refused when it is loaded."""

from pathlib import Path
from typing import Any, Self

import pytest

from policy.base import Context, Policy, TextBlock
from policy.loading import load
from policy.session.chain import Chain
from protocol.bounds import MAX_STATE_OBJECTS
from protocol.errors import PolicyFailed
from protocol.events import BlockKind
from protocol.request import ChatRequest
from settings.config import PolicyStep

CONTEXT = Context("call", "nonce", "key", "", ChatRequest(dialect="openai", model="demo"))
HEAD = "from policy.base import *\nimport collections, copy, re, threading, types\n"
TEXT = TextBlock(0, BlockKind.TEXT)


def loaded(folder: Path, source: str) -> Policy:
    (folder / "mine.py").write_text(HEAD + source)
    [policy], _ = load(
        [PolicyStep.model_validate({"use": "mine:Mine"})],
        search_path=[str(folder)],
        session_version="1",
    )
    return policy


HOLDS = """
class Inner:
    def __init__(self):
        self.parts = []
    def add(self, text):
        self.parts.append(text)
        return "".join(self.parts)

class Slotted:
    __slots__ = ("parts",)
    def __init__(self):
        self.parts = []

def add(held, text):
    held.append(text)
    return "".join(held)

class Mine(Policy):
    {attributes}
    def __init__(self):
        self.fixed = ("a", re.compile("b"))
        {begin}
    def on_text(self, text, block):
        return {hold}
"""
STATES = {
    "list": ("pass", "self.held = []", "add(self.held, text)"),
    "dict of lists": ("pass", "self.held = {'a': []}", "add(self.held['a'], text)"),
    "set": ("pass", "self.held = set()", "(self.held.add(text), ''.join(sorted(self.held)))[1]"),
    "bytearray": (
        "pass",
        "self.held = bytearray()",
        "(self.held.extend(text.encode()), self.held.decode())[1]",
    ),
    "deque": ("pass", "self.held = collections.deque()", "add(self.held, text)"),
    "defaultdict": ("pass", "self.held = collections.defaultdict(list)", "add(self.held[0], text)"),
    "own object": ("pass", "self.held = Inner()", "self.held.add(text)"),
    "bound method": ("pass", "self.hold = Inner().add", "self.hold(text)"),
    "slots": ("pass", "self.held = Slotted()", "add(self.held.parts, text)"),
    "slot of the policy": ("__slots__ = ('held',)", "self.held = []", "add(self.held, text)"),
    "list in a tuple": ("pass", "self.held = (1, [])", "add(self.held[1], text)"),
    "list of the class": ("held = []", "pass", "add(self.held, text)"),
    "object of the class": ("held = Inner()", "pass", "self.held.add(text)"),
}


@pytest.mark.parametrize("state", STATES)
def test_what_one_call_adds_another_does_not_see(state: str, tmp_path: Path) -> None:
    attributes, begin, hold = STATES[state]
    policy = loaded(tmp_path, HOLDS.format(attributes=attributes, begin=begin, hold=hold))
    alice, bob = (Chain([policy], CONTEXT) for _ in range(2))
    assert alice.on_text("hunter2", TEXT) == ("hunter2", "")
    assert bob.on_text("hello", TEXT) == ("hello", "")
    assert len(alice.on_text("!", TEXT)[0]) == 8, "its own state stays"  # type: ignore[arg-type]
    assert Chain([policy], CONTEXT).on_text("new", TEXT) == ("new", "")


def test_what_never_changes_is_shared(tmp_path: Path) -> None:
    begin = (
        "self.held = [re.compile('x')]; self.proxy = types.MappingProxyType({'a': ('b',)});"
        " self.words = frozenset('ab')"
    )
    policy: Any = loaded(tmp_path, HOLDS.format(attributes="pass", begin=begin, hold="text"))
    mine: Any = policy.for_call(CONTEXT)
    assert mine.proxy is policy.proxy and mine.words is policy.words and mine.fixed is policy.fixed
    assert mine.held is not policy.held and mine.held[0] is policy.held[0]


def test_two_names_of_one_list_stay_one(tmp_path: Path) -> None:
    begin = "self.held = []; self.other = self.held; self.deep = [self.held]"
    mine: Any = loaded(
        tmp_path, HOLDS.format(attributes="pass", begin=begin, hold="text")
    ).for_call(CONTEXT)
    assert mine.other is mine.held is mine.deep[0]


REFUSED = {
    "a lock": ("self.held = threading.Lock()", "cannot be copied for each call (held)"),
    "a generator": ("self.held = (c for c in 'ab')", "cannot be copied for each call (held)"),
    "a closure over the policy": (
        "self.held = lambda: self",
        "a function over variables that can change",
    ),
    "a proxy over a list": (
        "self.held = types.MappingProxyType({'a': []})",
        "a mapping proxy over what can change",
    ),
    "too much": (f"self.held = [[n] for n in range({MAX_STATE_OBJECTS})]", "10,000 objects"),
}


@pytest.mark.parametrize("state", REFUSED)
def test_what_cannot_be_copied_is_refused_at_load(state: str, tmp_path: Path) -> None:
    begin, complaint = REFUSED[state]
    with pytest.raises(PolicyFailed) as error:
        loaded(tmp_path, HOLDS.format(attributes="pass", begin=begin, hold="text"))
    assert complaint in error.value.message


ODD_HOOKS = {
    "a default that can change": (
        "def on_text(self, text, block, seen=[]): return text",
        "on_text has a default that can change",
    ),
    "a hook on the object": (
        "def __init__(self): self.on_text = lambda text, block: ''",
        "on_text is set on the object",
    ),
    "for_call on the object": (
        "def __init__(self): self.for_call = lambda context: self",
        "for_call is set on the object",
    ),
    "for_call without a copy": (
        "def for_call(self, context): self.context = context; return self",
        "super().for_call(context)",
    ),
    "for_call without super": (
        "def for_call(self, context): return copy.copy(self)",
        "super().for_call(context)",
    ),
    "a name that is none": ("name = 5", "its name is no text"),
    "asks that is none": ("asks = 'no'", "asks, keeps_request and reads_project"),
}


@pytest.mark.parametrize("hook", ODD_HOOKS)
def test_hooks_that_would_half_work_are_refused_at_load(hook: str, tmp_path: Path) -> None:
    body, complaint = ODD_HOOKS[hook]
    with pytest.raises(PolicyFailed) as error:
        loaded(tmp_path, f"class Mine(Policy):\n    {body}\n")
    assert complaint in error.value.message


def test_for_call_that_gives_no_copy_of_this_call_refuses_the_call(tmp_path: Path) -> None:
    body = (
        "    def for_call(self, context):\n        return super().for_call(context) if context.key"
        " == '' else self\n"
    )
    policy = loaded(tmp_path, f"class Mine(Policy):\n{body}")
    with pytest.raises(PolicyFailed):
        Chain([policy], CONTEXT)


def test_a_hook_that_for_call_sets_refuses_the_call(tmp_path: Path) -> None:
    body = (
        "    def for_call(self, context):\n        mine = super().for_call(context)\n       "
        " mine.on_text = str\n        return mine\n"
    )
    with pytest.raises(PolicyFailed):
        Chain([loaded(tmp_path, f"class Mine(Policy):\n{body}")], CONTEXT)


class Decider(Policy):
    """Notes the request of each of its copies. Looks at no text."""

    def __init__(self, made: list[ChatRequest]) -> None:
        self.made = made

    def for_call(self, context: Context) -> Self:
        mine = super().for_call(context)
        mine.made = self.made
        self.made.append(context.request)
        return mine


class Reader(Decider):
    """Looks at text, too."""

    def on_text(self, text: str, block: TextBlock) -> str:
        return text


def test_what_is_no_block_is_read_with_the_request_that_is_there() -> None:
    """An answer may have a hundred notices: each copied a request of 10,000 messages for each
    policy, 0.2 s of CPU."""
    reading, deciding = list[ChatRequest](), list[ChatRequest]()
    chain = Chain([Decider(deciding), Reader(reading)], CONTEXT)
    assert chain.read("a notice") == "a notice"
    assert len(deciding) == 1
    first, second = reading
    assert first is second is not CONTEXT.request

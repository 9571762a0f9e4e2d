"""Reads what coding agents keep of their sessions, as a transcript of `sluice.eval.dataset` whose
calls are all labelled benign: Claude Code (`~/.claude/projects/*/*.jsonl`), Codex
(`~/.codex/sessions/**/rollout-*.jsonl`) and SpecStory (`.specstory/history/*.md`).

An agent's user let these calls run, so whatever a policy stops of them is a false block, unless the
agent did harm.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

MAX_RESULT_CHARS = 4_000
"""Of a result or a text in the conversation before a call; each call is played with all of it."""
_CLAUDE = frozenset(("user", "assistant"))
_CODEX_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
_TURN = re.compile(r"^_\*\*(User|Assistant|Agent)\b[^\n]*\*\*_\s*$", re.MULTILINE)
_TOOL = re.compile(
    r"<tool-use\b([^>]*)>(.*?)</tool-use>|"
    r"<details>\s*<summary>Tool use: \*\*([\w.-]{1,100})\*\*(.*?)</details>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r'data-tool-(type|name)="([^"]{1,100})"')
_COMMAND = re.compile(
    r"```(?:bash|sh|shell|zsh|console)\n(.*?)\n```|^`([^`\n]{1,20000})`\s*$",
    re.DOTALL | re.MULTILINE,
)
_SHELLS = frozenset(("bash", "exec_command", "shell", "shell_command"))
_LISTS = frozenset(("ls", "list_directory"))
"""Called shells, though they run nothing."""


class _Session:
    """The messages of a session as chat/completions has them, calls with their results behind."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._open: dict[str, str] = {}
        """Ids of the calls of the last assistant message without results, and these."""

    def add_text(self, role: str, text: str) -> None:
        """Add what somebody wrote."""
        if text.strip():
            self._close()
            self.messages.append({"role": role, "content": text[:MAX_RESULT_CHARS]})

    def add_call(self, call_id: str, name: str, arguments: str) -> None:
        """Add a call, to the others of its turn where none of them has a result."""
        if not self._open or any(self._open.values()):
            self._close()
            self.messages.append({"role": "assistant", "content": None, "tool_calls": []})
        self._open[call_id] = ""
        self.messages[-1]["tool_calls"].append(
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        )

    def add_result(self, call_id: str, text: str) -> None:
        """Add the result of a call; one of another turn is left out."""
        if call_id in self._open:
            self._open[call_id] = text[:MAX_RESULT_CHARS] or "(empty)"

    def _close(self) -> None:
        self.messages += [
            {"role": "tool", "tool_call_id": call_id, "content": text or "(no result)"}
            for call_id, text in self._open.items()
        ]
        self._open = {}

    def transcript(self, name: str) -> dict[str, Any]:
        """Return the item that a file with labels would have."""
        steps = [
            {"turn": turn, "call": at, "label": "benign", "category": call["function"]["name"]}
            for turn, message in enumerate(self.messages)
            for at, call in enumerate(message.get("tool_calls", ()))
        ]
        return {"id": name, "label": "honest", "messages": self.messages, "steps": steps}


def transcript_of(path: Path, raw: bytes, items: Iterable[Any]) -> dict[str, Any] | None:
    """Return an agent's session as a transcript; None where the file is none. `items`: the file's,
    where it is JSON."""
    session = _Session()
    if path.suffix == ".md":
        _read_specstory(session, raw.decode("utf-8", "replace"))
    else:
        read = _reader(items)
        if read is None:
            return None
        for item in items:
            if isinstance(item, dict):
                read(session, item)
    return session.transcript(path.stem)


def _reader(items: Iterable[Any]) -> Callable[[_Session, Mapping[str, Any]], None] | None:
    for item in items:
        if not isinstance(item, dict) or "label" in item:
            return None
        if item.get("type") in _CLAUDE and isinstance(item.get("message"), dict):
            return _read_claude
        if isinstance(item.get("payload"), dict) or item.get("type") in _CODEX_CALLS:
            return _read_codex
    return None


def _text_of(content: Any) -> str:
    """The text of content, or of its parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _read_claude(session: _Session, item: Mapping[str, Any]) -> None:
    message = item.get("message")
    # a subagent has a conversation of its own, and lines that the agent adds are nobody's words
    if not isinstance(message, dict) or item.get("isSidechain") or item.get("isMeta"):
        return
    content = message.get("content")
    for part in content if isinstance(content, list) else ({"type": "text", "text": content},):
        match part:
            case {"type": "text", "text": str(text)}:
                session.add_text(str(item.get("type")), text)
            case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": dict(given)}:
                session.add_call(call_id, name, json.dumps(given, ensure_ascii=False))
            case {"type": "tool_result", "tool_use_id": str(call_id)}:
                session.add_result(call_id, _text_of(part.get("content")))
            case _:
                pass


def _read_codex(session: _Session, item: Mapping[str, Any]) -> None:
    payload = item.get("payload", item)
    match payload:
        case {"type": "message", "role": str(role)}:
            known = role if role in ("user", "assistant") else "system"
            session.add_text(known, _text_of(payload.get("content")))
        case {
            "type": "function_call",
            "call_id": str(call_id),
            "name": str(name),
            "arguments": str(arguments),
        }:
            session.add_call(call_id, name, arguments)
        case {
            "type": "custom_tool_call",
            "call_id": str(call_id),
            "name": str(name),
            "input": str(text),
        }:
            session.add_call(call_id, name, json.dumps({"input": text}))
        case {"type": "local_shell_call", "call_id": str(call_id), "action": dict(action)}:
            session.add_call(call_id, "local_shell", json.dumps(action))
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": str(call_id)}:
            session.add_result(call_id, _text_of(payload.get("output")))
        case _:
            pass


def _read_specstory(session: _Session, text: str) -> None:
    """Shell commands and what was written; of other tools Markdown has no arguments."""
    marks = [*_TURN.finditer(text)]
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    for mark, end in zip(marks, ends, strict=False):
        turn = text[mark.end() : end]
        role = "user" if mark[1] == "User" else "assistant"
        session.add_text(role, _TOOL.sub("", turn).strip(" \n-"))
        for number, tool in enumerate(_TOOL.finditer(turn)):
            named = dict(_ATTRIBUTE.findall(tool[1] or ""))
            name = named.get("name") or tool[3] or ""
            command = _COMMAND.search(tool[2] or tool[4] or "")
            is_shell = named.get("type") == "shell" and name.lower() not in _LISTS
            if command and (is_shell or name.lower() in _SHELLS):
                call_id = f"call-{mark.start()}-{number}"
                arguments = json.dumps({"command": command[1] or command[2]}, ensure_ascii=False)
                session.add_call(call_id, name, arguments)
                session.add_result(call_id, _COMMAND.sub("", tool[2] or tool[4] or "").strip())

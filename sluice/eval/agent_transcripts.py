"""Reads what coding agents keep of their sessions, as a transcript of `sluice.eval.dataset` whose
calls are all labelled benign: Claude Code (`~/.claude/projects/*/*.jsonl`), Codex
(`~/.codex/sessions/**/rollout-*.jsonl`) and SpecStory (`.specstory/history/*.md`).

An agent's user let these calls run, so whatever a policy stops of them is a false block, unless the
agent did harm.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

MAX_RESULT_CHARS = 4_000
"""Of a result or a text in the conversation before a call; each call is played with all of it."""


class _Form(NamedTuple):
    """The keys of a part of a session that are not the usual ones."""

    act: str
    id: str = ""
    content: str = "content"


_FORMS = {
    "text": _Form("text", content="text"),
    "message": _Form("text"),
    "tool_use": _Form("call", "id", "input"),
    "tool_result": _Form("result", "tool_use_id"),
    "function_call": _Form("call", "call_id", "arguments"),
    "custom_tool_call": _Form("call", "call_id", "input"),
    "local_shell_call": _Form("call", "call_id", "action"),
    "function_call_output": _Form("result", "call_id", "output"),
    "custom_tool_call_output": _Form("result", "call_id", "output"),
}
"""Parts by their `type`: Claude Code's are the content of a message, Codex' stand alone."""
_MARK = re.compile(
    r"^_\*\*(User|Assistant|Agent)\b[^\n]*\*\*_\s*$|(?s:<(tool-use|details)\b.*?</\2>)",
    re.MULTILINE,
)
_TOOL_NAME = re.compile(r"(?:data-tool-name=\"|Tool use: \*\*)([\w.-]+)")
_COMMAND = re.compile(
    r"(?s:```(?:bash|sh|shell|zsh|console)\n(.*?)\n```)|^`([^`\n]+)`\s*$", re.MULTILINE
)
_SHELLS = ("bash", "exec_command", "shell", "shell_command", "run_terminal_cmd")
_LISTS = ("ls", "list_directory")
"""Called shells, though they run nothing."""


class _Part(NamedTuple):
    """A text (`name` is the role), a call, or the result of one."""

    act: str
    name: str
    text: str
    call_id: str = ""


def transcript_of(path: Path, raw: bytes, items: Iterable[Any]) -> dict[str, Any] | None:
    """Return an agent's session as a transcript; None where the file is none. `items`: the file's,
    where it is JSON."""
    objects = [item for item in items if isinstance(item, dict)]
    if path.suffix == ".md":
        parts = list(_of_markdown(raw.decode("utf-8", "replace")))
    else:
        parts = [part for item in objects for part in _parts_of(item)]
        if not parts or any("label" in item for item in objects):
            return None
    results = {part.call_id: part.text for part in parts if part.act == "result"}
    messages, steps = list[dict[str, Any]](), list[dict[str, Any]]()
    for act, name, text, call_id in parts:
        if act == "text" and text.strip():
            messages.append({"role": name, "content": text[:MAX_RESULT_CHARS]})
        elif act == "call":
            steps.append({"turn": len(messages), "label": "benign", "category": name})
            call = {"id": call_id, "function": {"name": name, "arguments": text}}
            result = results.get(call_id, "")[:MAX_RESULT_CHARS] or "(no result)"
            messages += [
                {"role": "assistant", "tool_calls": [{**call, "type": "function"}]},
                {"role": "tool", "tool_call_id": call_id, "content": result},
            ]
    return {"id": path.stem, "label": "honest", "messages": messages, "steps": steps}


def _parts_of(item: Mapping[str, Any]) -> Iterator[_Part]:
    message = item.get("message")
    # a subagent has a conversation of its own, and lines that the agent adds are nobody's words
    if not isinstance(message, dict) or item.get("isSidechain") or item.get("isMeta"):
        found, role = [item.get("payload", item)], None
    else:
        content, role = message.get("content"), item.get("type")
        found = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for part in found:
        form = _FORMS.get(str(part.get("type"))) if isinstance(part, dict) else None
        if form is None:
            continue
        content, name = part.get(form.content), str(part.get("name", "local_shell"))
        if form.act == "text":
            role = role or part.get("role")
            name = role if role in ("user", "assistant") else "system"
        if form.act != "call":
            text = _text_of(content)
        elif form.content == "arguments":
            text = str(content)
        else:
            whole = {"input": content} if isinstance(content, str) else content
            text = json.dumps(whole, ensure_ascii=False)
        yield _Part(form.act, name, text, str(part.get(form.id)))


def _text_of(content: Any) -> str:
    """The text of content, or of its parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _of_markdown(text: str) -> Iterator[_Part]:
    """Shell commands and what was written; of other tools Markdown has no arguments."""
    role, end = "system", 0
    for number, mark in enumerate(_MARK.finditer(text)):
        yield _Part("text", role, text[end : mark.start()].strip(" \n-"))
        end = mark.end()
        if mark[1]:
            role = "user" if mark[1] == "User" else "assistant"
        name, command = _TOOL_NAME.search(mark[0]), _COMMAND.search(mark[0])
        tool = name[1].lower() if name else ""
        is_shell = 'data-tool-type="shell"' in mark[0] and tool not in _LISTS
        if command and name and (is_shell or tool in _SHELLS):
            arguments = json.dumps({"command": command[1] or command[2]}, ensure_ascii=False)
            yield _Part("call", name[1], arguments, f"call-{number}")
            yield _Part("result", "", _COMMAND.sub("", mark[0]), f"call-{number}")

"""Tools of the Messages dialect that have a type instead of a schema, and that the client executes,
as functions for other vendors.

Claude models know these tools by heart: a request only names them. Any other model needs a
description of their arguments. The arguments are the same as the vendor's, so that the client's own
code for the tool runs them; the words are ours. Text editors up to 2025-01 put inserted text into
`new_str`, later ones into `insert_text`. Toolsets (`computer_toolset_*`, `browser_toolset_*`) are
not here: their calls carry a toolset's name that no function call has.
"""

from typing import Any

from protocol.request import Tool
from protocol.server_tools.data import tool_type

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}
_POINT = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}


def as_function(tool: Tool) -> Tool | None:
    """Return the function that stands for a client-executed tool, with its name; None for types
    that have none."""
    row = tool_type(tool.extra.get("type"))
    if row is None or row.executor != "client":
        return None
    version = row.type.rpartition("_")[2]
    match row.type.rpartition("_")[0]:
        case "bash":
            return _tool(
                row.name,
                _BASH,
                {
                    "command": _text_field("The command to run."),
                    "restart": _flag("Start a new shell."),
                },
                (),
            )
        case "text_editor":
            return _text_editor(row.name, version, tool.extra.get("max_characters"))
        case "memory":
            return _tool(row.name, _MEMORY, _memory(), ("command",))
        case "computer":
            return _computer(row.name, version, tool.extra)
    return None


def _tool(
    name: str, description: str, properties: dict[str, Any], required: tuple[str, ...]
) -> Tool:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return Tool(name, description, schema | ({"required": list(required)} if required else {}))


def _text_field(description: str, **more: Any) -> dict[str, Any]:
    return _TEXT | {"description": description} | more


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


def _one_of(description: str, *values: str) -> dict[str, Any]:
    return _TEXT | {"enum": list(values), "description": description}


_BASH = (
    "Runs commands in a bash shell that stays open between calls: directory, variables and"
    " background jobs are kept. Give `command`, or `restart` alone to begin with a new shell. No"
    " command may wait for input."
)


def _text_editor(name: str, version: str, limit: Any) -> Tool:
    commands = ["view", "create", "str_replace", "insert"]
    inserted = "insert_text"
    if version <= "20250124":
        commands.append("undo_edit")
        inserted = "new_str"
    description = (
        "Views, creates and edits text files. `view` shows a file with line numbers, or lists a"
        " folder; `create` writes a new file; `str_replace` replaces the one place where `old_str`"
        " stands exactly; `insert` puts text after a line."
    )
    if "undo_edit" in commands:
        description += " `undo_edit` takes back the last edit of a file."
    if isinstance(limit, int):
        description += f" Views are cut at {limit} characters."
    properties = {
        "command": _one_of("What to do.", *commands),
        "path": _text_field("Absolute path of the file or folder."),
        "view_range": {
            "type": "array",
            "items": _WHOLE,
            "description": (
                "view: first and last line, counted from 1; -1 as the last means to the end."
            ),
        },
        "file_text": _text_field("create: the content of the file."),
        "old_str": _text_field("str_replace: the text to replace; it must occur once."),
        "new_str": _text_field(
            "str_replace: the new text"
            + ("." if inserted != "new_str" else "; insert: the text to put in.")
        ),
        "insert_line": (
            _WHOLE
            | {"description": "insert: the line after which to put the text; 0 is the beginning."}
        ),
    }
    if inserted != "new_str":
        properties[inserted] = _text_field("insert: the text to put in.")
    return _tool(name, description, properties, ("command", "path"))


_MEMORY = (
    "Keeps notes in files under /memories that last beyond this conversation. Look there (`view`)"
    " before other work; write down what later work needs. `view` lists a folder or shows a file;"
    " `create` writes a file; `str_replace` and `insert` edit one; `delete` and `rename` remove and"
    " move."
)


def _memory() -> dict[str, Any]:
    return {
        "command": _one_of(
            "What to do.", "view", "create", "str_replace", "insert", "delete", "rename"
        ),
        "path": _text_field("Path under /memories; all but rename."),
        "view_range": {
            "type": "array",
            "items": _WHOLE,
            "description": "view: first and last line.",
        },
        "file_text": _text_field("create: the content of the file."),
        "old_str": _text_field("str_replace: the text to replace."),
        "new_str": _text_field("str_replace: the new text."),
        "insert_line": _WHOLE | {"description": "insert: the line after which to put the text."},
        "insert_text": _text_field("insert: the text to put in."),
        "old_path": _text_field("rename: the path as it is."),
        "new_path": _text_field("rename: the path as it shall be."),
    }


_ACTIONS_2024 = tuple(
    "key type mouse_move left_click left_click_drag right_click middle_click"
    " double_click screenshot cursor_position".split()
)
_ACTIONS_2025 = ("left_mouse_down", "left_mouse_up", "triple_click", "scroll", "hold_key", "wait")


def _computer(name: str, version: str, options: dict[str, Any]) -> Tool:
    newer, zooms = (
        version >= "20250124",
        version >= "20251124" and options.get("enable_zoom") is True,
    )
    actions = _ACTIONS_2024 + (_ACTIONS_2025 if newer else ()) + (("zoom",) if zooms else ())
    width, height = options.get("display_width_px"), options.get("display_height_px")
    description = (
        "Uses a screen, mouse and keyboard. Take a `screenshot` first, and again after each step"
        f" to see what came of it. The screen is {width} pixels wide and {height} high; positions"
        " are [x, y] from its top left corner."
    )
    properties = {
        "action": _one_of("What to do.", *actions),
        "coordinate": (
            _POINT | {"description": "Where, for mouse actions and scroll; the end of a drag."}
        ),
        "text": _text_field(
            "type: the text; key, hold_key: the keys, as xdotool names them; clicks and scroll:"
            " keys to hold meanwhile."
        ),
    }
    if newer:
        properties |= {
            "start_coordinate": _POINT | {"description": "left_click_drag: where it begins."},
            "duration": {"type": "number", "description": "hold_key, wait: seconds."},
            "scroll_direction": _one_of("scroll: the direction.", "up", "down", "left", "right"),
            "scroll_amount": _WHOLE | {"description": "scroll: how many clicks of the wheel."},
        }
    if zooms:
        corners = {"type": "array", "items": _WHOLE, "minItems": 4, "maxItems": 4}
        properties["region"] = corners | {
            "description": "zoom: the part to show, as [x0, y0, x1, y1]."
        }
    return _tool(name, description, properties, ("action",))

"""How coding agents name the folder in which they work, in system prompts and in the first messages
that they write themselves: data, from their sources and from recorded requests.

Must not know: what a path means.
"""

from policy.patterns import compile_re2

_LABELS = """
current directory|working directory|current working directory|primary working directory
additional working directories|your current working directory is|current workspace directory
the project base directory is|project directory|workspace directory|workspace directories
workspace folder|workspace paths?|workspace root|workspace root folder
i'm currently working in the directory|i'm currently working in the following directories
i am working in a workspace with the following folders?
the current project contains the following root directories
cwd|project root|project path|project folder|repository root
"""
"""What stands before the path, or before a list of paths: Goose; Claude Code before 2 and opencode;
pi and Cline; Claude Code; Roo and Kilo; Cursor; Gemini CLI and Qwen Code; Copilot; Zed; prompts
of somebody's own."""
_QUOTES = (
    r"instructions from: |# agents\.md instructions|user's custom instructions|contents of /"
    r"|<instructions>|gitstatus: "
)
"""What an agent puts before files of the project, or names in it: others wrote what follows."""
_ITEM = r"\n\n?[ \t]*[-*+][ \t]+[`'\"]?(?:[/~]|[a-z]:[/\\]).*"
LINES = compile_re2(
    rf"(?im)^(?:(?P<quote>{_QUOTES})|[ \t]*<cwd>([^<>\n]+)</cwd>"
    rf"|[ \t]*(?:[-*+#>]+[ \t]+)?(?:\*\*)?(?P<label>{'|'.join(_LABELS.split(chr(10))[1:-1])})(?:\*\*)?"
    rf"[ \t]*[:=](?:\*\*)?(?:[ \t]*(\S.*)$|[ \t]*((?:{_ITEM}){{1,9}})))"
)
"""Lines of a prompt."""
FRAMES = (
    # Codex
    (
        "<environment_context>",
        "</environment_context>",
        compile_re2(r"<(?:cwd|root)>([^<>\n]+)</(?:cwd|root)>"),
    ),
    # Cline, Roo and Kilo: the first only, for names of files follow
    (
        "<environment_details>",
        "</environment_details>",
        compile_re2(r"\A(?s:.*?)\n# Current (?:Working|Workspace) Directory \((.+)\) Files"),
    ),
    # Gemini CLI and Qwen Code
    ("<session_context>", "</session_context>", LINES),
    ("This is the Gemini CLI.", "</session_context>", LINES),
    ("This is the Qwen Code.", "</session_context>", LINES),
    # Cursor, now and before
    (
        "<user_info>",
        "</user_info>",
        compile_re2(
            r"(?m)^Workspace Paths?: (.+)$"
            r"|path of the user's workspace is (.+?)(?:\.(?:[ \n]|\z)| which is |$)"
        ),
    ),
    # Copilot
    ("<environment_info>", "</workspace_info>", LINES),
    ("<workspace_info>", "</workspace_info>", LINES),
    ("<env>", "</env>", LINES),
    # SWE-agent and OpenHands
    ("<uploaded_files>", "</uploaded_files>", compile_re2(r"(?m)^(/.+)$")),
)
"""Texts that an agent writes itself before what its user says: how each begins and ends, and what
names a folder in it."""

"""What the arguments of a tool call are, by their names: text for a shell, program code, paths of
files, addresses, SQL.

Every agent names its tools and arguments differently, so the words in the names count:
`run_terminal_cmd(command=...)` holds text for a shell as `bash(cmd=[...])` does, and so does an
unknown tool if its argument is called `command`. A false match costs one extra reading; a missed
argument gets no decision. So in doubt an argument counts as both.

Must not know: which effects anything has.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from policy.argument_values import every_text, pairs, quoted, texts_in, unpacked, without_objects
from policy.base import ToolCall
from policy.patches import files_of
from policy.patterns import names_of
from policy.sql import ANY
from protocol.folding import fold

Does = Literal["read", "write", "delete"]
Json = Any

MAX_PARTS = 64
"""Texts, paths and addresses of one call that are looked at, of each sort; a call with more is not
decided."""
_MAX_DEPTH = 6
_MAX_ITEMS = 4_096


class ShellText(msgspec.Struct, frozen=True):
    """A text that a shell reads, and the folder in which it does, if the call says so."""

    text: str
    argument: str
    folder: str = ""


class PathUse(msgspec.Struct, frozen=True):
    """A path and what is done there; `content`: what is written, as far as the call says. `wide`:
    the whole tree under it."""

    path: str
    does: Does
    argument: str
    content: str = ""
    wide: bool = False


class UrlUse(msgspec.Struct, frozen=True):
    """An address (URL or host name) that is contacted; `sends`: more than the address goes there.
    `body`: what. `headers`: names and values of the headers in the call."""

    url: str
    argument: str
    sends: bool = False
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class SqlText(msgspec.Struct, frozen=True):
    """A text for a database."""

    text: str
    argument: str


class MessageText(msgspec.Struct, frozen=True):
    """A text that a tool takes to somebody else without an address in the call: mail, chats,
    issues, searches."""

    text: str
    argument: str


class Surface(msgspec.Struct, frozen=True):
    """What the arguments of one call are. `is_whole`: nothing had to be left out. `unread`:
    top-level arguments holding text which nothing here takes for anything, so that nobody can vouch
    for it."""

    shell: tuple[ShellText, ...] = ()
    paths: tuple[PathUse, ...] = ()
    urls: tuple[UrlUse, ...] = ()
    sql: tuple[SqlText, ...] = ()
    messages: tuple[MessageText, ...] = ()
    is_whole: bool = True
    unread: tuple[str, ...] = ()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHELL_KEYS = _words(
    "command cmd commands cmds shell_command shellcommand bash_command command_line commandline"
    " cmdline command_string shell_script bash_script run exec shell bash sh terminal_command"
    " line_command"
)
"""Arguments that hold text for a shell, whatever tool has them."""
_SHELL_WORDS = _words(
    "bash sh zsh ksh dash fish shell terminal console command commands cmd exec ssh tmux subprocess"
    " powershell pwsh system stdin tty pty"
)
"""Words in the names of tools that run a shell: each text they are given may be for it."""
_SHELLS = tuple("sh bash zsh /bin/sh /bin/bash /bin/zsh /usr/bin/bash /usr/bin/zsh".split())
_SCRIPT_KEYS = _words(
    "script code source input stdin text content body args argv arguments keys chars data lines"
    " program snippet value"
)
"""Arguments of such tools that hold text for the shell."""
_ARGS_KEYS = _words("args argv arguments params parameters options flags command_args")
_PROGRAM_KEYS = _words(
    "program executable binary command cmd tool name process file path entrypoint"
)
_INPUT_KEYS = _words("stdin input stdin_text")
_ENV_KEYS = _words("env environment env_vars environment_variables envs")
_DIRECTORY_KEYS = _words(
    "cwd workdir working_dir working_directory workingdirectory work_dir directory"
    " current_directory"
)
_CODE_KEYS = _words(
    "code source source_code script snippet python python_code javascript cell cell_source"
    " new_source expression"
)
_CODE_WORDS = {
    "python": "python",
    "python3": "python",
    "py": "python",
    "ipython": "python",
    "jupyter": "python",
    "notebook": "python",
    "interpreter": "python",
    "repl": "python",
    "code": "python",
    "cell": "python",
    "node": "node",
    "nodejs": "node",
    "javascript": "node",
    "js": "node",
    "typescript": "node",
    "ts": "node",
    "deno": "node",
    "bun": "node",
    "ruby": "ruby",
    "perl": "perl",
    "php": "php",
    "bash": "sh",
    "sh": "sh",
    "shell": "sh",
    "zsh": "sh",
}
"""Words in names of tools, or values of `language`, and what runs such code."""
_RUNS = {
    "python": "python3 -c",
    "node": "node -e",
    "ruby": "ruby -e",
    "perl": "perl -e",
    "php": "php -r",
}
_LANGUAGE_KEYS = _words("language lang kernel runtime interpreter")
_PATH_KEYS = _words(
    "path file_path filepath filename file_name file files paths target_file target_path target"
    " source src destination dest dst from to old_path new_path source_path destination_path"
    " directory dir folder notebook_path absolute_path relative_path output_path input_path"
    " output_file input_file uri location output input save_path local_path root key attachment"
    " attachments file_paths"
)
_LOOKS_LIKE_PATH = re.compile(
    r"file:|[~/\\]|\.\.?[/\\]|\.\w|[A-Za-z]:[\\/]|[\w@.+-]+(?:[/\\][\w@.+ -]+)+\Z"
)
_CONTENT_KEYS = _words(
    "content contents text file_text new_str new_string new_text new_content new data body"
    " insert_text replacement patch diff edits code updated_content code_edit replace lines"
    " new_source after insert append value"
)
_PATCH_KEYS = _words("patch diff input patch_text unified_diff changes content command cmd")
_DELETES = _words("delete remove rm unlink rmdir rmtree erase destroy purge trash wipe clear")
_WRITES = _words(
    "write create edit update replace patch append insert save put modify overwrite touch mkdir set"
    " store export generate new upsert apply add"
)
_READS = _words(
    "read view cat open load list ls grep search glob find get show stat head tail tree"
    " download_from exists fetch"
)
_MOVES = _words("move rename mv")
_TO_KEYS = _words(
    "dest destination dst output_path output_file save_path save_to download_path local_path output"
)
"""Where a tool puts something, if it does not delete."""
_GETS = _words("download wget curl fetch get http request save pull")
_COPIES = _words("copy cp duplicate link symlink")
_WIDE = _words("directory dir folder tree recursive rmtree rmdir all")
_FROM_KEYS = _words("source src from old_path source_path path file file_path input")
_FILE_WORDS = _words(
    "file files path directory dir folder document notebook editor edit multiedit patch memory fs"
    " filesystem read write view create cat ls grep glob append overwrite save delete remove rm"
    " unlink rmdir move rename mv copy cp mkdir touch replace upload download"
)
"""Words in the names of tools whose arguments are paths even where they do not look like one."""
_URL_KEYS = _words(
    "url uri urls endpoint href link webhook webhook_url target_url base_url address host hostname"
    " server callback callback_url domain ip ip_address origin image_url remote remote_url repo_url"
    " repository registry"
)
_HOST_KEYS = _words("host hostname server domain ip ip_address address")
_URL = re.compile(
    r"(?:(?:jar|url|view-source|feed):){0,3}[A-Za-z][A-Za-z0-9+.-]{1,20}:[/\\]{1,3}\S", re.ASCII
)
_BODY_KEYS = _words(
    "body data json payload form files content text params attachments message query fields"
    " variables"
)
_HEADER_KEYS = _words("headers header http_headers extra_headers request_headers cookies")
_SENDS = ("post", "put", "patch", "delete")
_ASKS = ("", "get", "head", "options")
"""Methods that send no more than the address."""
_TELLS = _words(
    "send post publish share reply forward notify tweet broadcast submit announce message messages"
    " email mail gmail outlook sms slack discord telegram teams whatsapp twitter mastodon reddit"
    " github gitlab bitbucket gist gists jira linear notion confluence trello asana zendesk hubspot"
    " intercom pastebin paste webhook issue ticket comment"
)
"""Words in the names of tools that tell somebody something."""
_ENGINES = _words(
    "web google internet online bing brave tavily duckduckgo serp exa perplexity kagi"
)
_OWN_KEYS = _words(
    "token api_key apikey access_token auth authorization bearer password secret credentials key"
    " client_secret bot_token user_token headers"
)
_SQL_KEYS = _words("sql sql_query sql_text statement statements sqls query_sql")
_SQL_QUERY_KEYS = _words("query queries q command text script code expression input stmt")
_SQL_WORDS = _words(
    "sql db database databases postgres postgresql psql mysql mariadb sqlite sqlite3 mssql tsql"
    " oracle bigquery snowflake redshift clickhouse duckdb cockroach query queries"
)
_DIALECTS = {
    "postgres": "postgres",
    "postgresql": "postgres",
    "psql": "postgres",
    "pg": "postgres",
    "cockroach": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
    "sqlite3": "sqlite",
    "mssql": "tsql",
    "tsql": "tsql",
    "sqlserver": "tsql",
    "oracle": "oracle",
    "bigquery": "bigquery",
    "snowflake": "snowflake",
    "redshift": "redshift",
    "clickhouse": "clickhouse",
    "duckdb": "duckdb",
    "trino": "trino",
    "athena": "athena",
}
"""Words in the names of tools that say which database they ask."""
_BEGINS_SQL = re.compile(
    r"[\s(]*(?:(?:--[^\n]*\n|/\*.*?\*/)[\s(]*)*(?:select|values|table|desc(?:ribe)?|insert|update"
    r"|delete|drop|create|alter|truncate|grant|revoke|with|merge|call|explain|"
    r"copy|do|exec(?:ute)?|begin|vacuum|replace|show|set|lock|comment|reindex|attach|pragma"
    r"|declare)\b",
    re.IGNORECASE | re.DOTALL,
)
_NO_TEXT_KEYS = _words(
    "description explanation reason justification title cwd workdir working_dir working_directory"
    " timeout session_id id name language lang thought rationale purpose summary timeout_ms"
    " max_output_tokens session tool_call_description"
)
"""Arguments of tools that run a shell which are not for it."""
_PROSE_KEYS = _words(
    "comment description explanation reason justification title thought rationale purpose summary"
    " tool_call_description instruction instructions"
)
"""Arguments that say something to whoever reads the call."""
_SOUGHT_KEYS = _words(
    "pattern regex regexp search glob include exclude file_pattern old old_string old_str old_text"
    " prompt"
)
"""Arguments that say what to look for, in a file or a page."""
_CHOICE_KEYS = _words(
    "database db schema catalog dialect connection connection_id datasource session session_id id"
    " name language lang format output_format output_mode mode encoding timeout timeout_ms limit"
    " max_rows offset page type method verb http_method params parameters bindings project_id"
    " location dataset cluster table region warehouse branch_id cell_id cell_type edit_mode"
)
"""Arguments that choose something by a word."""
_BOUND_KEYS = _words("params parameters bindings bind_params query_params")
"""Arguments that hold the values of a statement's parameters."""
_NO_WORD = re.compile(r"\s*(?:true|false|null|none|-?\d{1,18}(?:\.\d{1,18})?)?\s*", re.IGNORECASE)
_CHOICE = re.compile(r"[\w.:@+-]{0,128}")
_PACKED_KEYS = _words(
    "arguments args input parameters params payload tool_input kwargs tool_args json"
)
"""Arguments that may hold the arguments of another tool as JSON text."""
_EDITOR_COMMANDS = _words("view create str_replace insert undo_edit delete rename")


def tool_words(name: str) -> frozenset[str]:
    """The words in a tool's name in lower case, whatever joins them: `runShellCommand`,
    `run-shell-command`, `mcp__x__run`."""
    return (_known_words if len(name) <= 128 else _words_of)(name)


def _words_of(name: str) -> frozenset[str]:
    words: set[str] = set()
    for form in names_of(name):
        apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", form[:256])
        words.update(word.lower() for word in re.split(r"[^A-Za-z0-9]+", apart) if word)
    return frozenset(words)


_known_words = lru_cache(maxsize=256)(_words_of)
"""An agent's tools are few, and called again and again."""


def dialect_of_tool(name: str) -> str:
    """Return the dialect of SQL that a tool's name says, `ANY` where it says none or several."""
    dialects = {_DIALECTS[word] for word in tool_words(name) if word in _DIALECTS}
    return dialects.pop() if len(dialects) == 1 else ANY


def _key(name: str) -> str:
    """An argument's name in one form: `filePath`, `file-path` and `File_Path` are `file_path`."""
    return _form(name[:128])


@lru_cache(maxsize=1024)
def _form(name: str) -> str:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return fold(apart).strip().replace("-", "_").replace(" ", "_").lower()


def surface_of(call: ToolCall) -> Surface:
    """Say what the arguments of a call are. Linear in their size."""
    return _Finder(call).collect()


class _Finder:
    """Collects what one call's arguments are."""

    def __init__(self, call: ToolCall) -> None:
        self._words = tool_words(call.name)
        self._call = call
        self._shell: dict[ShellText, None] = {}
        self._paths: dict[PathUse, None] = {}
        self._urls: dict[UrlUse, None] = {}
        self._sql: dict[SqlText, None] = {}
        self._unread: dict[str, None] = {}
        self._taken: set[str] = (
            set()
        )  # arguments of the present object whose whole text is one of these
        self._left = _MAX_ITEMS
        self._is_whole = True
        # `exec_sql` runs no shell, and `run_command` does
        self._is_sql = bool(self._words & _SQL_WORDS)
        self._is_shell = bool(self._words & _SHELL_WORDS) and not self._is_sql
        self._is_file = bool(self._words & _FILE_WORDS)

    def collect(self) -> Surface:
        """Look at everything."""
        self._object(self._call.value, "", 0)
        sorts = (self._shell, self._paths, self._urls, self._sql)
        cut = any(len(sort) > MAX_PARTS for sort in sorts)
        shell, paths, urls, sql = self._shell, self._paths, self._urls, self._sql
        first = slice(MAX_PARTS)
        parts = (tuple(shell)[first], tuple(paths)[first], tuple(urls)[first], tuple(sql)[first])
        return Surface(
            *parts, tuple(self._messages()), self._is_whole and not cut, tuple(self._unread)
        )

    def _messages(self) -> Iterator[MessageText]:
        """What a tool that tells others something is given, but the keys by which it gets in."""
        searches = "search" in self._words and bool(self._words & _ENGINES)
        if self._urls or self._is_shell or self._is_sql or not (self._words & _TELLS or searches):
            return
        for name, value in self._call.value.items():
            if _key(name) not in _OWN_KEYS and (text := "\n".join(every_text(value))):
                yield MessageText(text, name)

    def _object(self, value: Mapping[str, Json], within: str, depth: int) -> None:
        keys = {name: _key(name) for name in value}
        self._left -= len(value)
        if depth > _MAX_DEPTH or self._left < 0:
            self._is_whole = False
            return
        named = frozenset(keys.values())
        self._taken = taken = set[str]()
        self._commands(value, keys, within)
        if not named.isdisjoint(_CODE_KEYS):
            self._code(value, keys, within)
        if not named.isdisjoint(_PATH_KEYS) or (
            self._is_file and not named.isdisjoint(_PATCH_KEYS)
        ):
            self._files(value, keys, within)
        self._addresses(value, keys, within)
        if self._is_sql or not named.isdisjoint(_SQL_KEYS):
            self._statements(value, keys, within)
        nested: list[tuple[str, Json]] = []
        for name, inner in value.items():
            key = keys[name]
            inner = unpacked(inner) if key in _PACKED_KEYS else inner
            if key in _ENV_KEYS or (self._is_shell and key in _NO_TEXT_KEYS):
                left = inner
            else:
                nested.append((name, inner))
                left = without_objects(inner)
            if not (name and name in taken) and not self._is_harmless(key, left):
                self._unread[within or name] = None
        for name, inner in nested:
            left_before = self._unread.copy()
            self._nested(inner, within or name, depth)
            if name in taken:
                # what is in it counts as a whole, as the body of a request does
                self._unread = left_before

    def _is_harmless(self, key: str, value: Json) -> bool:
        """Does it hold no text, or none that anybody runs or opens?"""
        if key in _PROSE_KEYS or (key in _SOUGHT_KEYS and (self._is_file or bool(self._urls))):
            return isinstance(value, str)
        return all(
            _NO_WORD.fullmatch(text) or (key in _CHOICE_KEYS and _CHOICE.fullmatch(text))
            for text in every_text(value)
        )

    def _take(self, name: str, value: Json) -> None:
        """Note that all text of an argument counts for what it is."""
        if isinstance(value, str) or (isinstance(value, list) and _is_flat(value)):
            self._taken.add(name)

    def _nested(self, inner: Json, within: str, depth: int) -> None:
        if isinstance(inner, dict):
            self._object(inner, within, depth + 1)
        elif isinstance(inner, list):
            for item in inner:
                if isinstance(item, dict):
                    self._object(item, within, depth + 1)

    # text for a shell

    def _commands(self, value: Mapping[str, Json], keys: Mapping[str, str], within: str) -> None:
        env, stdin, args, folder = "", "", None, ""
        of_env, of_stdin, of_args, of_folder = "", "", "", ""
        for name, key in keys.items():
            item = value[name]
            if key in _ENV_KEYS and isinstance(item, dict):
                sets = [
                    f"export {k}={quoted(str(v))}; "
                    for k, v in item.items()
                    if re.fullmatch(r"[A-Za-z_]\w*", k, re.ASCII)
                ]
                of_env, env = name if len(sets) == len(item) else "", "".join(sets)
            elif key in _INPUT_KEYS and isinstance(item, str):
                of_stdin, stdin = name, item
            elif key in _DIRECTORY_KEYS and isinstance(item, str) and len(item) <= 4_096:
                of_folder, folder = name, item
            elif key in _ARGS_KEYS and isinstance(item, list):
                of_args = name if _is_flat(item) else ""
                if not of_args and not self._is_sql:
                    # what the tool makes of lists within it nobody knows
                    self._unread[within or name] = None
                args = [str(word) for word in item if isinstance(word, str | int | float)]
        for name, key in keys.items():
            item, argument = value[name], within or name
            is_command = key in _SHELL_KEYS and not self._is_other(name, key, item)
            if (
                key == "shell"
                and item in _SHELLS
                and not _SHELL_KEYS.isdisjoint({*keys.values()} - {key})
            ):
                # which one reads the command
                self._taken.add(name)
                continue
            if not is_command and not (self._is_shell and key in _SCRIPT_KEYS):
                if args and key in _PROGRAM_KEYS and isinstance(item, str) and item:
                    self._add_shell(env + " ".join([item, *map(quoted, args)]), argument, folder)
                    self._taken |= {name, of_args, of_env, of_folder}
                continue
            if (key in _ARGS_KEYS or key in _INPUT_KEYS) and any(
                k in _PROGRAM_KEYS or k in _SHELL_KEYS for k in keys.values()
            ):
                # goes with its program
                continue
            for text in texts_in(item, many=key.endswith("s") and key not in _ARGS_KEYS):
                self._taken |= {of_env, of_folder}
                if args and key in _PROGRAM_KEYS:
                    self._taken.add(of_args)
                    text = " ".join([text, *map(quoted, args)])
                if stdin and key not in _INPUT_KEYS:
                    self._taken.add(of_stdin)
                    text = f"{text} <<< {quoted(stdin)}"
                self._add_shell(env + text, argument, folder)
            self._take(name, item)

    def _is_other(self, name: str, key: str, item: Json) -> bool:
        """Is an argument `command` the word for what an editor does, or a statement for a
        database?"""
        if isinstance(item, str) and self._is_file and item in _EDITOR_COMMANDS:
            self._taken.add(name)
            return True
        return self._is_sql and key in _SQL_QUERY_KEYS

    def _add_shell(self, text: str, argument: str, folder: str = "") -> None:
        if text.strip():
            self._shell[ShellText(text, argument, folder)] = None

    # code of programming languages goes to the same reader, as what a shell would run it by

    def _code(self, value: Mapping[str, Json], keys: Mapping[str, str], within: str) -> None:
        language = next(
            (
                str(value[n]).lower()
                for n, k in keys.items()
                if k in _LANGUAGE_KEYS and isinstance(value[n], str)
            ),
            "",
        )
        spoken = _CODE_WORDS.get(language) or next(
            (_CODE_WORDS[word] for word in sorted(self._words) if word in _CODE_WORDS), ""
        )
        if (
            self._is_file
            and not language
            and not self._words
            & {"python", "ipython", "jupyter", "interpreter", "repl", "node", "javascript"}
        ):
            return
        for name, key in keys.items():
            if (
                key not in _CODE_KEYS
                or (self._is_shell and not language)
                or (self._is_sql and not language)
            ):
                continue
            by = (
                "python"
                if key.startswith("python")
                else (
                    "node"
                    if key == "javascript"
                    else spoken or ("sh" if key == "script" else "python")
                )
            )
            for text in texts_in(value[name], many=False):
                run = _RUNS.get(by)
                self._add_shell(f"{run} {quoted(text)}" if run else text, within or name)
            self._take(name, value[name])

    # files

    def _files(self, value: Mapping[str, Json], keys: Mapping[str, str], within: str) -> None:
        content = "\n".join(
            text for n, k in keys.items() if k in _CONTENT_KEYS for text in every_text(value[n])
        )
        editor = next(
            (
                str(value[n])
                for n, k in keys.items()
                if k == "command" and value[n] in tuple(_EDITOR_COMMANDS)
            ),
            "",
        )
        is_wide = bool(self._words & _WIDE) or any(
            k == "recursive" and value[n] in (True, "true") for n, k in keys.items()
        )
        for name, key in keys.items():
            if self._is_file and key in _PATCH_KEYS:
                for text in texts_in(value[name], many=False):
                    for path, change, added in files_of(text):
                        self._paths[PathUse(path, change, within or name, added)] = None
                        self._taken.add(name)
            if key not in _PATH_KEYS or self._is_shell:
                continue
            does = self._does(key, editor, bool(content))
            for path in _path_texts(value[name], is_file=self._is_file):
                wide = is_wide and does == "delete"
                self._paths[
                    PathUse(path, does, within or name, content if does == "write" else "", wide)
                ] = None
                if does == "write":
                    self._taken |= {n for n, k in keys.items() if k in _CONTENT_KEYS}
            if [*_path_texts(value[name], is_file=self._is_file)] == [*every_text(value[name])]:
                self._take(name, value[name])

    def _does(self, key: str, editor: str, has_content: bool) -> Does:
        words = self._words
        if editor:
            return "read" if editor == "view" else "delete" if editor == "delete" else "write"
        if words & _MOVES:
            return "delete" if key in _FROM_KEYS else "write"
        if words & _COPIES:
            return "read" if key in _FROM_KEYS else "write"
        if words & _DELETES and not has_content:
            return "delete"
        if key in _TO_KEYS and words & _GETS:
            return "write"
        if words & _WRITES or (has_content and not words & _READS):
            return "write"
        return "read"

    # addresses

    def _addresses(self, value: Mapping[str, Json], keys: Mapping[str, str], within: str) -> None:
        addresses: list[tuple[str, str]] = []
        for name, key in keys.items():
            if (
                key in _HEADER_KEYS
                or key in _NO_TEXT_KEYS
                or (self._is_file and key in _CONTENT_KEYS)
            ):
                continue
            texts = [
                text.strip() for text in texts_in(value[name], many=True) if len(text) <= 8_192
            ]
            urls = [text for text in texts if _is_url(text, key)]
            addresses += [(url, within or name) for url in urls]
            if not any(map(str.isspace, "".join(urls))) and len(urls) >= len(
                [*every_text(value[name])]
            ):
                self._take(name, value[name])
        if not addresses:
            return
        self._taken |= {n for n, k in keys.items() if k in _BODY_KEYS or k in _HEADER_KEYS}
        method = next(
            (
                str(value[n]).lower()
                for n, k in keys.items()
                if k in ("method", "verb", "http_method")
            ),
            "",
        )
        body = "\n".join(
            text for n, k in keys.items() if k in _BODY_KEYS for text in every_text(value[n])
        )
        # a number or a key may tell as much as a text
        is_verb = any(isinstance(item, str) and item.lower() in _SENDS for item in value.values())
        sends = (
            is_verb
            or method not in _ASKS
            or any(value[n] for n, k in keys.items() if k in _BODY_KEYS)
        )
        headers = tuple(
            pair for n, k in keys.items() if k in _HEADER_KEYS for pair in pairs(value[n])
        )
        for url, argument in addresses:
            self._urls[UrlUse(url, argument, sends, body, headers)] = None

    # statements for databases

    def _statements(self, value: Mapping[str, Json], keys: Mapping[str, str], within: str) -> None:
        for name, key in keys.items():
            if key in _SQL_KEYS or (self._is_sql and key in _SQL_QUERY_KEYS):
                is_sure = key in _SQL_KEYS or bool(self._words & _SQL_WORDS - {"query", "queries"})
                every = [*texts_in(value[name], many=True)]
                statements = [text for text in every if is_sure or _BEGINS_SQL.match(text)]
                self._sql |= {SqlText(text, within or name): None for text in statements}
                if statements == every:
                    self._take(name, value[name])
        for name, key in keys.items():
            bound = [*value[name].values()] if isinstance(value[name], dict) else value[name]
            if self._sql and key in _BOUND_KEYS and isinstance(bound, list) and _is_flat(bound):
                # the database takes them as data
                self._taken.add(name)


def _is_flat(values: Iterable[Json]) -> bool:
    return not any(isinstance(item, dict | list) for item in values)


def _is_url(text: str, key: str) -> bool:
    return _URL.match(text) is not None or (key in _URL_KEYS and _is_address(text, key))


def _is_address(text: str, key: str) -> bool:
    return (
        0 < len(text) <= 2_048
        and not any(c.isspace() for c in text.strip())
        and (key in _HOST_KEYS or "." in text or ":" in text)
    )


def _path_texts(value: Json, *, is_file: bool) -> Iterator[str]:
    for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
        if not isinstance(text, str) or not 0 < len(text) <= 4_096 or "\n" in text:
            continue
        is_url = _URL.match(text) is not None and not text.lower().startswith("file:")
        if not is_url and (is_file or _LOOKS_LIKE_PATH.match(text)):
            yield text

"""What the names of tools and arguments say: which hold text for a shell, code, paths, addresses,
SQL.

Every agent names its tools and arguments differently, so words count.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from policy.effects.argument_values import every_text
from policy.effects.sql import ANY
from policy.patterns import names_of
from policy.word_tables import by_word
from protocol.bytes.folding import fold

Json = Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHELL_KEYS = _words(
    "command cmd commands cmds shell_command shellcommand bash_command command_line commandline"
    " cmdline command_string shell_script bash_script run exec shell bash sh terminal_command"
    " line_command"
)
"""Arguments that hold text for a shell, whatever tool has them."""
SHELL_WORDS = _words(
    "bash sh zsh ksh dash fish shell terminal console command commands cmd exec ssh tmux subprocess"
    " powershell pwsh system stdin tty pty"
)
"""Words in the names of tools that run a shell: each text they are given may be for it."""
SCRIPT_KEYS = _words(
    "script code source input stdin text content body args argv arguments keys chars data lines"
    " program snippet value"
)
"""Arguments of such tools that hold text for the shell."""
ARGS_KEYS = _words("args argv arguments params parameters options flags command_args")
PROGRAM_KEYS = _words(
    "program executable binary command cmd tool name process file path entrypoint"
)
INPUT_KEYS = _words("stdin input stdin_text")
ENV_KEYS = _words("env environment env_vars environment_variables envs")
DIRECTORY_KEYS = _words(
    "cwd workdir working_dir working_directory workingdirectory work_dir directory"
    " current_directory"
)
CODE_KEYS = _words(
    "code source source_code script snippet python python_code javascript cell cell_source"
    " new_source expression"
)
CODE_WORDS = by_word("""
python python3 py ipython jupyter notebook interpreter repl code cell : python
node nodejs javascript js typescript ts deno bun : node
ruby : ruby
perl : perl
php : php
bash sh shell zsh : sh
""")
"""Words in names of tools, or values of `language`, and what runs such code."""
RUNS = {
    "python": "python3 -c",
    "node": "node -e",
    "ruby": "ruby -e",
    "perl": "perl -e",
    "php": "php -r",
}
METHOD_KEYS = _words("method verb http_method")
LANGUAGE_KEYS = _words("language lang kernel runtime interpreter")
PATH_KEYS = _words(
    "path file_path filepath filename file_name file files paths target_file target_path target"
    " source src destination dest dst from to old_path new_path source_path destination_path"
    " directory dir folder notebook_path absolute_path relative_path output_path input_path"
    " output_file input_file uri location output input save_path local_path root key attachment"
    " attachments file_paths"
)
CONTENT_KEYS = _words(
    "content contents text file_text new_str new_string new_text new_content new data body"
    " insert_text replacement patch diff edits code updated_content code_edit replace lines"
    " new_source after insert append value"
)
PATCH_KEYS = _words("patch diff input patch_text unified_diff changes content command cmd")
DELETES = _words("delete remove rm unlink rmdir rmtree erase destroy purge trash wipe clear")
WRITES = _words(
    "write create edit update replace patch append insert save put modify overwrite touch mkdir set"
    " store export generate new upsert apply add"
)
READS = _words(
    "read view cat open load list ls grep search glob find get show stat head tail tree"
    " download_from exists fetch"
)
SEARCHES = _words("search web browse query lookup ask chat answer translate summarize explain docs")
"""Words in the names of tools whose texts are questions, which may be about commands."""
MOVES = _words("move rename mv")
TO_KEYS = _words(
    "dest destination dst output_path output_file save_path save_to download_path local_path output"
)
"""Where a tool puts something, if it does not delete."""
GETS = _words("download wget curl fetch get http request save pull")
COPIES = _words("copy cp duplicate link symlink")
WIDE = _words("directory dir folder tree recursive rmtree rmdir all")
FROM_KEYS = _words("source src from old_path source_path path file file_path input")
FILE_WORDS = _words(
    "file files path directory dir folder document notebook editor edit multiedit patch memory fs"
    " filesystem read write view create cat ls grep glob append overwrite save delete remove rm"
    " unlink rmdir move rename mv copy cp mkdir touch replace upload download"
)
"""Words in the names of tools whose arguments are paths even where they do not look like one."""
URL_KEYS = _words(
    "url uri urls endpoint href link webhook webhook_url target_url base_url address host hostname"
    " server callback callback_url domain ip ip_address origin image_url remote remote_url repo_url"
    " repository registry"
)
HOST_KEYS = _words("host hostname server domain ip ip_address address")
BODY_KEYS = _words(
    "body data json payload form files content text params attachments message query fields"
    " variables"
)
HEADER_KEYS = _words("headers header http_headers extra_headers request_headers cookies")
TELLS = _words(
    "send post publish share reply forward notify tweet broadcast submit announce message messages"
    " email mail gmail outlook sms slack discord telegram teams whatsapp twitter mastodon reddit"
    " github gitlab bitbucket gist gists jira linear notion confluence trello asana zendesk hubspot"
    " intercom pastebin paste webhook issue ticket comment"
)
"""Words in the names of tools that tell somebody something."""
ENGINES = _words("web google internet online bing brave tavily duckduckgo serp exa perplexity kagi")
OWN_KEYS = _words(
    "token api_key apikey access_token auth authorization bearer password secret credentials key"
    " client_secret bot_token user_token headers"
)
SQL_KEYS = _words(
    "sql sql_query sql_text statement statements sqls query_sql cql ddl dml partiql hql"
)
SQL_QUERY_KEYS = _words("query queries q command text script code expression input stmt")
SQL_WORDS = _words(
    "sql db database databases postgres postgresql psql mysql mariadb sqlite sqlite3 mssql tsql"
    " oracle bigquery snowflake redshift clickhouse duckdb cockroach query queries"
)
DIALECTS = by_word("""
postgres postgresql psql pg cockroach : postgres
mysql mariadb : mysql
sqlite sqlite3 : sqlite
mssql tsql sqlserver : tsql
oracle : oracle
bigquery : bigquery
snowflake : snowflake
redshift : redshift
clickhouse : clickhouse
duckdb : duckdb
trino : trino
athena : athena
""")
"""Words in the names of tools that say which database they ask."""
NO_TEXT_KEYS = _words(
    "description explanation reason justification title cwd workdir working_dir working_directory"
    " timeout session_id id name language lang thought rationale purpose summary timeout_ms"
    " max_output_tokens session tool_call_description"
)
"""Arguments of tools that run a shell which are not for it."""
PROSE_KEYS = _words(
    "comment description explanation reason justification title thought rationale purpose summary"
    " tool_call_description instruction instructions"
)
"""Arguments that say something to whoever reads the call."""
SOUGHT_KEYS = _words(
    "pattern regex regexp search glob include exclude file_pattern old old_string old_str old_text"
    " prompt"
)
"""Arguments that say what to look for, in a file or a page."""
CHOICE_KEYS = _words(
    "database db schema catalog dialect connection connection_id datasource session session_id id"
    " name language lang format output_format output_mode mode encoding timeout timeout_ms limit"
    " max_rows offset page type method verb http_method params parameters bindings project_id"
    " location dataset cluster table region warehouse branch_id cell_id cell_type edit_mode"
)
"""Arguments that choose something by a word."""
BOUND_KEYS = _words("params parameters bindings bind_params query_params")
"""Arguments that hold the values of a statement's parameters."""
PACKED_KEYS = _words(
    "arguments args input parameters params payload tool_input kwargs tool_args json"
)
"""Arguments that may hold the arguments of another tool as JSON text."""
EDITOR_COMMANDS = _words("view create str_replace insert undo_edit delete rename")


def tool_words(name: str) -> frozenset[str]:
    """Return the words in a tool's name in lower case, whatever joins them: `runShellCommand`,
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
    dialects = {DIALECTS[word] for word in tool_words(name) if word in DIALECTS}
    return dialects.pop() if len(dialects) == 1 else ANY


def key_of(name: str) -> str:
    """Return an argument's name in one form: `filePath`, `file-path` and `File_Path` are
    `file_path`."""
    return _form(name[:128])


@lru_cache(maxsize=1024)
def _form(name: str) -> str:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return fold(apart).strip().replace("-", "_").replace(" ", "_").lower()


class ArgumentGroup(NamedTuple):
    """The arguments in one object: their values, and their names in one form, by the name.
    `within`: the top-level argument that holds the object."""

    values: Mapping[str, Json]
    keys: Mapping[str, str]
    within: str

    def named(self, forms: frozenset[str]) -> dict[str, Json]:
        """Return those with such a name."""
        return {name: self.values[name] for name, key in self.keys.items() if key in forms}

    def text(self, forms: frozenset[str]) -> str:
        """Return the texts in those, a line each."""
        values = self.named(forms).values()
        return "\n".join(text for value in values for text in every_text(value))

    def choice(self, forms: frozenset[str]) -> str:
        """Return the word in the first of those, in lower case."""
        values = self.named(forms).values()
        return next((str(value).lower() for value in values if value is not None), "")

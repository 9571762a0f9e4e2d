"""What a program text in Python, JavaScript, Perl, Ruby, PHP or Lua does, as far as the names that
it calls show.

No interpreter is run and nothing is parsed: it finds names of functions that delete, start
programs, open connections, read and write files, with the paths in their arguments or in variables
with one value. What is composed at run time stays unknown.
"""

import re
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from policy.effects import Effect, Scope
from policy.network import LISTED, host_scope, hosts_in
from policy.paths import PathTarget, place
from policy.shell.commands.sifted import Sifted

_MAX_CHARS = 65_536
_MAX_CALLS = 100
_MAX_LITERALS = 500
_MAX_RUN = 20
"""Shell texts in one program that are read; a program with more is unsure."""
_TOO_MUCH = "size: a program text has more in it than is looked at"
_UNLINKS = re.compile(r"\b(\w+)\.(?:unlink|rmdir)\s*\(")
_RUNS_NAMED = re.compile(
    r"(?:os\.system|os\.popen|execSync|shell_exec|subprocess\.\w+)\s*\(\s*(\w+)\s*[,)]|"
    r"\bos\.execvp?e?\s*\([^,\n]{1,80},\s*(\w+)\s*[,)]|(?<![.\w])(?:system|exec"
    r"|spawn)\s*\(?\s*[$@*](\w+)\s*[,;)\n]?|"
    r"\b\w{1,20}\.(?:run|call|check_call|check_output|Popen|system|popen)\s*\(\s*(\w+)\s*[,)]"
)
_STRING = r"""(?:[rRbBuUfF]{0,2})(?:"((?:[^"\\\n]|\\.){0,2000})"|'((?:[^'\\\n]|\\.){0,2000})'|`((?:[^`\\]|\\.){0,2000})`)"""
_LITERAL = re.compile(_STRING)
_JOINED = re.compile(r"""(["'])\s*(?:\+|\.|\.\.)\s*\1""")
"""Two texts put together, `"/ho" + "me"`."""
_WORDS = re.compile(
    r"\*?(?:\bqw|%w)\s?(?:\(([^()]{0,500})\)|\[([^\[\]]{0,500})\]|\{([^{}]{0,500})\}"
    r"|/([^/]{0,500})/)"
)
"""A list of words, `qw(rm -rf x)`."""
_ALIASED = re.compile(
    r"\b(?:exec|spawn|execFile)(?:Sync)?\s*:\s*(\w{1,40})|\b(?:exec"
    r"|spawn)\w{1,3}\s+as\s+(\w{1,40})|"
    r"\b(\w{1,40})\s*=\s*[\w.()'\"]{1,60}\.(?:system|popen|run|call|Popen|check_output|exec"
    r"|execSync|spawn|spawnSync|execFile|execFileSync)\b(?!\s*\()"
)
"""A function that starts programs, under another name."""
_TREES = Sifted(
    r"(?:\brmtree|\brm_rf?|\bremove_tree|\bremove_entry\w*|\brimraf(?:\.sync)?|\bremoveSync"
    r"|\bemptyDir(?:Sync)?|\bsend2trash|"
    r"\bfs(?:\.promises|p)?\.rm(?:Sync|dirSync|dir)?|\brmSync|"
    r"\bdeleteDirectory|\bdelete-directory|\(delete-file|\bremove_dir_all|\bdeltree"
    r"|\bos\.removedirs|\bDeno\.remove(?:Sync)?|\bFileUtils\.(?:rm_r|rm_rf|remove_dir|rmtree)|"
    r"\bpathlib_rmtree|\bos\.RemoveAll)\s*[( ]\s*"
)
_FILES = re.compile(
    r"(?:\barray_map\s*\(\s*[\"']unlink[\"']\s*,\s*|\bos\.(?:remove|unlink|rmdir|truncate)"
    r"|\bunlink(?:Sync)?|\bFile\.(?:delete|unlink)|"
    r"\bfs(?:\.promises|p)?\.unlink(?:Sync)?|"
    r"\bFileUtils\.rm(?:_f)?|\bos\.Remove|\bremove)\s*[( ]\s*"
)
_METHODS = re.compile(
    r"(?:Path|pathlib\.Path|PosixPath|"
    r"Pathname(?:\.new)?)\s*\(\s*([^()]{0,300}(?:\([^()]*\))?[^()]{0,100})\)[^\n;]{0,60}?\.\s*"
    r"(unlink|rmdir|rmtree|delete|write_text|"
    r"write_bytes|read_text|read_bytes|touch)\b"
)
_RUNS = Sifted(
    r"(?:\bos\.(?:system|popen|exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?)|\bsubprocess\.(?:run|call"
    r"|check_call|check_output|Popen|"
    r"getoutput|getstatusoutput)|\b(?:run|call|check_output|check_call|Popen|getoutput)"
    r"|\bpty\.spawn|"
    r"\bcommands\.getoutput|\bpopen[23]?|\bchild_process['\")]*\)?\.(?:exec|execSync|spawn"
    r"|spawnSync|execFile|execFileSync|fork)|"
    r"[\"'](?:system|popen|exec\w{0,8}|spawn\w{0,8}|run|call)[\"']\s*[\])]{1,2}"
    r"|\bopen\s*\(?\s*(?:my\s*)?\$?\w+\s*,\s*[\"'](?:-\||\|-)[\"']\s*,|"
    r"\bexecSync|\bspawnSync|\bspawn|\bexecFile(?:Sync)?|\bexec|"
    r"\bshell_exec|\bpassthru|\bproc_open|\bpcntl_exec|\bsystem|\bKernel\.(?:system|exec|spawn|`)"
    r"|\bIO\.popen|\bOpen3\.\w+|\bos\.execute|"
    r"\bio\.popen|\bProcess\.(?:spawn|exec)|\bDeno\.(?:run|Command)|\bBun\.spawn(?:Sync)?|\bsh"
    r"|\bexeca(?:Sync|Command)?)"
    r"\s*\(?\s*(?=[\[(\"'`]|[rbfu][\"'])"
)
_BACKTICKS = {
    "ruby": re.compile(r"`([^`\n]{1,500})`|%x[({\[]([^)}\]]{1,500})"),
    "perl": re.compile(
        r"`([^`\n]{1,500})`|\bqx\s?(?:\{([^{}]{1,500})|\(([^()]{1,500})|\[([^\[\]]{1,500})"
        r"|/([^/]{1,500}))"
    ),
    "php": re.compile(r"`([^`\n]{1,500})`"),
}
_CONNECTS = Sifted(
    r"socket\.(?:socket|create_connection)|\.connect\s*\(|TCPSocket|IO::Socket|\bSocket\b.*PF_INET"
    r"|fsockopen|net\.(?:connect|"
    r"createConnection|Socket)|new\s+(?:net\.)?Socket|stream_socket_client|/inet/tcp/"
    r"|require.{0,4}[\"']socket[\"']|Deno\.connect|"
    r"tls\.connect|gethostbyname|getaddrinfo"
)
_FETCHES = Sifted(
    r"urllib|requests\.\w+|httpx\.\w+|http\.client|aiohttp|\bfetch\s*\(|axios|\bhttps?\.(?:get"
    r"|request)|Net::HTTP|open-uri|URI\.open|"
    r"LWP::|HTTP::Tiny|file_get_contents\s*\(\s*[\"']https?|curl_init|XMLHttpRequest|smtplib"
    r"|ftplib|paramiko|urlopen|got\("
)
_SENDS = re.compile(
    r"\.post\b|\.put\b|\bdata\s*=|\bfiles\s*=|\bjson\s*=|\bbody\s*:|method\s*[:=]\s*[\"'](?:POST"
    r"|PUT)|sendall|\.send\s*\(|"
    r"\.write\s*\(|sendmail|storbinary|post_form|CURLOPT_POST|\.request\s*\(\s*[\"'](?:POST|PUT)"
    r"|\?\w+=[\"']\s*\+|urlopen\([^)]*\+|"
    r"f[\"']https?://[^\"']*\{|https?://[^\"'\s]{1,200}[\"']\s*[.+]|gethostbyname|getaddrinfo"
    r"|urlopen\([^()]{1,200},"
)
_SHELL_ENDS = re.compile(
    r"dup2|pty\.spawn|/bin/(?:ba|da|z)?sh|[\"'](?:ba|da|z)?sh[\"']|cmd\.exe|powershell"
    r"|STDIN\s*,\s*['\"]>|>&S|spawn\("
)
_DECODED = re.compile(
    r"\b(?:exec|eval|compile|Function|instance_eval|class_eval|loadstring|load|assert"
    r"|create_function|"
    r"vm\.runIn\w+)\s*\(?[^\n;]{0,160}(?:b64decode|base64|b32decode|a85decode|fromhex|unhexlify"
    r"|decode\s*\(|atob\s*\(|"
    r"Buffer\.from|unpack|marshal\.loads|zlib\.|rot13|chr\s*\(|gzinflate|str_rot13|pack\s*\("
    r"|fromCharCode|codecs\.)"
)
_REMOTE_CODE = Sifted(
    r"\b(?:exec|eval|compile|Function|instance_eval|load|loadstring|include|require"
    r"|do)\s*\(?[^\n;]{0,160}(?:urlopen|urllib|requests\.get|"
    r"httpx\.get|fetch\s*\(|http\.get|Net::HTTP|URI\.open|open\(\s*[\"']https?"
    r"|file_get_contents\(\s*[\"']https?|LWP|https?://)|"
    r"(?:\bfetch\s*\(|\bhttps?['\")]*\.get|urlopen)[^\n]{0,200}(?<![.\w])(?:eval|exec"
    r"|Function)\s*[(,)]|"
    r"\bimport\b[^\n;]{0,80}[\"']https?://"
)
_EVALUATES = re.compile(
    r"(?<![.\w])(?:exec|eval|compile|Function|instance_eval|loadstring)\s*\(?\s*\$?(\w{1,40})"
)
_READS = re.compile(
    r"(?:\bopen|\bFile\.(?:read|open|readlines|binread)|\bIO\.read|\breadFile(?:Sync)?"
    r"|\bcreateReadStream|"
    r"\bfile_get_contents|\bfopen|\breadfile|\bio\.open|\bio\.lines|\bFile\.foreach"
    r"|\bDeno\.read\w+|\bread_text|\bshow_source|"
    r"\bhighlight_file)\s*\(?\s*"
)
_OPENS = re.compile(r"\.\s{0,9}(?:read_text|read_bytes|open)\s{0,9}\(")
"""Methods that read the file that stands before them."""
_WRITES = re.compile(
    r"(?:\bwriteFile(?:Sync)?|\bappendFile(?:Sync)?|\bcreateWriteStream|\bfile_put_contents"
    r"|\bFile\.write|\bIO\.write|"
    r"\bDeno\.write\w+|\bos\.(?:chmod|chown|rename|replace|symlink|link|mkdir|makedirs)"
    r"|\bshutil\.(?:move|copy\w*)|\bcopyFile(?:Sync)?|"
    r"\brename(?:Sync)?)\s*\(?\s*"
)
_PRIVILEGE = Sifted(
    r"\bos\.set(?:e|re|res)?uid\s*\(\s*0|\bprocess\.setuid\s*\(\s*0|\bPOSIX::setuid\s*\(\s*0"
    r"|\bprctl\b|"
    r"Process::Sys\.setuid\s*\(?\s*0|posix_setuid\s*\(\s*0|\bos\.chmod\s*\([^)]*0o?[4267][0-7]{3}\b"
)
_ENVIRONMENT = re.compile(
    r"dict\(os\.environ\)|(?:dumps|stringify|str|repr|urlencode|"
    r"print)\s*\(?\s*(?:dict\()?(?:os\.environ\b(?!\s*[\[.])|process\.env\b(?!\s*[\[.]))"
    r"|os\.environ\.(?:items|copy)\(\)|ENV\.(?:to_h|"
    r"to_a|each|inspect)|%ENV\b|\bgetenv\(\)|\$_ENV\b(?!\s*\[)|(?:data|json"
    r"|body)\s*[=:]\s*(?:os\.environ\b(?!\s*[\[.])|"
    r"process\.env\b(?!\s*[\[.]))"
)
_KILLS = re.compile(
    r"\bos\.kill(?:pg)?\s*\(\s*-?1\b|\bkill\s*\(?\s*[\"']?\w{1,9}[\"']?\s*,\s*-1\b"
    r"|\bprocess\.kill\s*\(\s*-?1\b|\bwhile\s*(?:\(?\s*(?:True|1|"
    r"true)\s*\)?)\s*[:{]?\s*(?:os\.)?fork\s*\(|\bos\.fork\s*\(\).{0,40}while|\bfork"
    r" while\b|\bfork\s+while\b"
)
_ASSIGNED = re.compile(
    r"(?m)(?:^|[;{(]|\b(?:let|const|var|my|local|with|"
    r"as)\s)\s*[$@%]?(\w{1,40})\s*(?::\s*\w+\s*)?=(?![=~>])\s*([^\n;]{1,300})"
    r"|\bfor\s*\(?\s*(?:const|let|var|"
    r"my)?\s*[$]?(\w{1,40})(?:\s*,\s*\w+)*\s+(?:in|of)\s+([^\n:{]{1,300})"
    r"|\bwith\s+([^\n]{1,200}?)\s+as\s+(\w{1,40})"
)
_TEMPORARY = re.compile(
    r"tempfile|mkdtemp|mktmpdir|tmpdir\s*\(|tempdir|mkstemp|Tempfile|tmp_path|TemporaryDirectory"
    r"|gettempdir|"
    r"tmpNameSync|Dir\.tmpdir|sys_get_temp_dir"
)
_HOME = re.compile(
    r"expanduser|Path\.home\(\)|homedir\(\)|Dir\.home|environ(?:\.get)?[\[(]\s*[\"']HOME"
    r"|ENV\[[\"']HOME|process\.env\.HOME|"
    r"getenv\([\"']HOME|ENV\{HOME\}|\$HOME|_ENV\[.HOME"
)
_FOLDERS = re.compile(r"getcwd\(\)|process\.cwd\(\)|Dir\.pwd|__dirname|Path\.cwd\(\)|__file__")
_MANY = re.compile(
    r"glob|walk|iterdir|listdir|readdir|scandir|Dir\[|Dir\.(?:glob|entries|children)|find\("
    r"|<[^>\n]*\*[^>\n]*>|/\*"
)

Runner = Callable[[str], "tuple[Effect, ...]"]
"""Reads a shell text that the program would run."""


class CodeReading(msgspec.Struct, frozen=True):
    """What a program text does, and what about it is not sure."""

    effects: tuple[Effect, ...]
    unsure: tuple[str, ...] = ()
    is_sending: bool = False
    """Does it send something, of what it reads perhaps?"""


_NOWHERE: list[Scope] = ["unknown"]


class _Code:
    """One text, its variables, and what was found in it."""

    def __init__(
        self,
        language: str,
        text: str,
        home: str,
        project: str,
        listed: Sequence[str],
        run: Runner | None,
    ) -> None:
        self.language, self.home, self.project, self.listed, self.run = (
            language,
            home,
            project,
            listed,
            run,
        )
        joined = text
        for _ in range(4):
            joined, changes = _JOINED.subn("", joined)
            if not changes:
                break
        joined = _WORDS.sub(
            lambda match: ",".join(f'"{word}"' for word in match[match.lastindex or 0].split()),
            joined,
        )
        for match in list(islice(_ALIASED.finditer(joined), 4)):
            joined = re.sub(
                rf"(?<![\w.]){match[match.lastindex or 1]}(?=\s{{0,9}}\()", "spawnSync", joined
            )
        self.text = joined
        self.effects: list[Effect] = []
        self.unsure: list[str] = []
        self.variables: dict[str, str] = {}
        for match in list(_ASSIGNED.finditer(joined))[:500]:
            name, value = (
                (match[1], match[2])
                if match[1]
                else (match[3], match[4])
                if match[3]
                else (match[6], match[5])
            )
            if name and value:
                self.variables.setdefault(name, value)

    def add(self, kind: str, scope: Scope, target: str = "", *, wide: bool = False) -> None:
        """Add an effect."""
        self.take(Effect.of(kind, scope, target, wide=wide, by=self.language))  # type: ignore[arg-type]

    def take(self, effect: Effect) -> None:
        """Add an effect that was read elsewhere; too many are unsure."""
        if len(self.effects) < _MAX_CALLS * 3:
            self.effects.append(effect)
        else:
            self.unsure.append(_TOO_MUCH)

    def some(
        self, pattern: re.Pattern[str] | Sifted, most: int = _MAX_CALLS
    ) -> list[re.Match[str]]:
        """Return the first places of the text that match; where there are more, nobody looks at the
        rest."""
        matches = list(islice(pattern.finditer(self.text), most + 1))
        if len(matches) > most:
            self.unsure.append(_TOO_MUCH)
        return matches[:most]

    def place(self, expression: str, depth: int = 0) -> PathTarget:
        """Return the place that an expression names; unknown where that cannot be seen."""
        many = bool(_MANY.search(expression))
        location = self._place(expression, depth)
        return PathTarget(
            location.path, location.scope, location.wide or many, location.secret, location.whole
        )

    def _place(self, expression: str, depth: int) -> PathTarget:
        literals = [
            next((part for part in match if part), "") for match in _LITERAL.findall(expression)
        ]
        literals = [
            literal.replace("\\\\", "\\")
            for literal in literals
            if literal not in ("utf-8", "utf8", "r", "w", "rb", "wb", "a")
        ]
        if _TEMPORARY.search(expression):
            return PathTarget("/tmp/x", "temp")
        if _HOME.search(expression):
            relative = "/".join(
                part.strip("/")
                for part in literals
                if part not in ("HOME", "~") and not part.startswith("~")
            )
            tilde = next((part for part in literals if part.startswith("~")), "~")
            return place(f"{tilde}/{relative}", home=self.home, project=self.project)
        if _FOLDERS.search(expression):
            return place("./" + "/".join(literals), home=self.home, project=self.project)
        if literals and not re.match(r"\s*[$@%]?[A-Za-z_]\w*\s*(?:\+|\.\s*[\"']|/)", expression):
            first = literals[0]
            joined = (
                "/".join([first, *(part for part in literals[1:] if not part.startswith("/"))])
                if re.search(r"join|Path\(|/\s*[\"']", expression)
                else first
            )
            return place(
                joined.split("{")[0].split("${")[0] or joined, home=self.home, project=self.project
            )
        name = re.match(r"\s*[$@%]?([A-Za-z_]\w*)", expression)
        if name is not None and depth < 4 and name[1] in self.variables:
            return self.place(self.variables[name[1]], depth + 1)
        for other in re.findall(r"[A-Za-z_]\w*", expression)[:10]:
            if depth < 4 and other in self.variables and other not in ("os", "fs", "path"):
                return self.place(self.variables[other], depth + 1)
        return PathTarget("", "unknown")


def effects_of_code(
    language: str,
    text: str,
    *,
    home: str = "~",
    project: str = ".",
    listed: Sequence[str] = LISTED,
    run: Runner | None = None,
) -> CodeReading:
    """Return what a program text does. Never raises, bounded. `run` reads shell texts that it would
    run."""
    code = _Code(language, text[:_MAX_CHARS], home, project, listed, run)
    if len(text) > _MAX_CHARS:
        code.unsure.append("size: a program text is longer than is looked at")
    _deletes(code)
    _programs(code)
    _network(code)
    _files(code)
    if _PRIVILEGE.search(code.text):
        code.add("privilege", "root", "another user")
    if _KILLS.search(code.text):
        code.add("process", "system", "all processes", wide=True)
    if _DECODED.search(code.text):
        code.add("execute", "unknown", "decoded text")
    fetched = (
        match
        for match in code.some(_EVALUATES)
        if "://" in (value := code.variables.get(match[1], "")) or _FETCHES.search(value)
    )
    if (remote := _REMOTE_CODE.search(code.text) or next(fetched, None)) is not None:
        scopes = [host.scope for host in hosts_in(code.text, listed)] or ["unknown"]
        code.add("execute", "other" if "other" in scopes else scopes[0], remote[0])
    return CodeReading(
        tuple(code.effects), tuple(code.unsure), _SENDS.search(code.text) is not None
    )


def argument_at(text: str, start: int) -> str:
    """The argument that begins here, as far as the bracket or line that ends it."""
    depth = 0
    quote = ""
    end = min(len(text), start + 400)
    for index in range(start, end):
        char = text[index]
        if quote:
            if char == quote and text[index - 1] != "\\":
                quote = ""
        elif char in "\"'`":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                return text[start:index]
            depth -= 1
        elif char in "\n;" and depth == 0:
            return text[start:index]
    return text[start:end]


def _deletes(code: _Code) -> None:
    for pattern, tree in ((_TREES, True), (_FILES, False)):
        for match in code.some(pattern):
            argument = argument_at(code.text, match.end())
            if (
                tree
                and re.match(r"fs\w*\.(?:promises\.)?(?:rm|rmdir)", match[0])
                and "recursive" not in argument
            ):
                tree_here = False
            else:
                tree_here = tree
            _deleted(code, argument, tree=tree_here)
    for match in code.some(_METHODS):
        where = code.place(match[1] if "home" not in match[1] else match[0])
        if match[2] in ("unlink", "rmdir", "rmtree", "delete"):
            code.add("delete", where.scope, where.path, wide=where.wide or match[2] == "rmtree")
        else:
            code.add(
                "write" if match[2].startswith(("write", "touch")) else "read",
                where.scope,
                where.path,
            )
    for match in code.some(_UNLINKS):
        if match[1] in code.variables and match[1] not in ("os", "fs", "File", "shutil"):
            where = code.place(match[1])
            code.add("delete", where.scope, where.path, wide=where.wide)


def _deleted(code: _Code, argument: str, *, tree: bool) -> None:
    where = code.place(argument)
    known = where.scope != "unknown" or where.path
    code.add(
        "delete", where.scope, where.path or argument, wide=bool(known) and (tree or where.wide)
    )
    if not known:
        code.unsure.append("language: what it deletes is known only when it runs")


def _programs(code: _Code) -> None:
    commands: list[str] = []
    for call in code.some(_RUNS):
        argument = argument_at(code.text, call.end())
        start = argument.lstrip("( ")
        first = _LITERAL.match(start)
        is_word = (
            first is not None
            and " " not in first[0]
            and re.match(r"\s*,", start[first.end() :]) is not None
        )
        if start.startswith("[") or is_word:
            words = [
                next((part for part in match if part), "") for match in _LITERAL.findall(argument)
            ]
            tail = " ~" if _HOME.search(argument) is not None else ""
            words = [word for word in words if word != "HOME" or not tail]
            if re.match(r"os\.exec[lv]", call[0]) or re.match(r"os\.spawn", call[0]):
                # the program stands twice: as a path and as its own name
                words = (
                    words[1:]
                    if len(words) > 1 and words[0].rpartition("/")[2] == words[1].rpartition("/")[2]
                    else words
                )
            commands.append(" ".join(_quoted(word) for word in words) + tail)
        else:
            literal = first
            if literal is not None:
                command_text = re.sub(
                    r"\\([\"'`\\])", r"\1", next((part for part in literal.groups() if part), "")
                )
                commands.append(
                    re.sub(r"%s|\$?\{[^{}]{0,99}\}", "~", command_text)
                    if _HOME.search(argument)
                    else command_text
                )
            elif call[0].startswith(("os.system", "subprocess", "os.popen")):
                code.unsure.append("language: what it runs is known only when it runs")
    if (ticks := _BACKTICKS.get(code.language)) is not None:
        commands += [call[call.lastindex or 1] or "" for call in code.some(ticks)]
    for named in code.some(_RUNS_NAMED):
        value = code.variables.get(named[named.lastindex or 1], "").strip()
        literal = _LITERAL.match(value)
        if value.startswith(("[", "(")) or (
            literal is not None and value[literal.end() :].lstrip().startswith(",")
        ):
            commands.append(
                " ".join(
                    _quoted(next((part for part in match if part), ""))
                    for match in _LITERAL.findall(value)
                )
            )
        elif literal is not None:
            commands.append(next((part for part in literal.groups() if part), ""))
    if code.run is not None:
        if len(commands) > _MAX_RUN:
            code.unsure.append("size: more commands in a program than are read")
        for command in commands[:_MAX_RUN]:
            if re.fullmatch(
                r"\s*(?:exec\s+)?(?:/usr)?(?:/bin/)?(?:ba|da|z|k|c|tc|a"
                r"|fi)?sh(?:\s+-[ilp]+)?\s*[;&]?\s*",
                command,
            ):
                code.add("privilege", "unknown", "a shell that waits for words of its own")
            if command.strip():
                for effect in code.run(command):
                    code.take(effect)


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./-]+", word) else "'" + word.replace("'", "'\\''") + "'"


def _network(code: _Code) -> None:
    hosts = hosts_in(code.text, code.listed)
    connects, fetches = _CONNECTS.search(code.text), _FETCHES.search(code.text)
    scopes: list[Scope] = [host.scope for host in hosts]
    if connects is not None:
        for match in code.some(_LITERAL, _MAX_LITERALS):
            literal = next((part for part in match.groups() if part), "")
            if re.fullmatch(
                r"\d{1,3}(?:\.\d{1,3}){3}|(?:[\w-]+\.)+[a-z]{2,}|localhost", literal
            ) and not literal.endswith((".py", ".js", ".txt", ".sh")):
                scopes.append(host_scope(literal, code.listed))
        if _SHELL_ENDS.search(code.text):
            code.add("execute", _worst_host(scopes, "other"), "a shell on a connection")
    if connects is not None or fetches is not None:
        for scope in list(dict.fromkeys(scopes)) or _NOWHERE:
            code.add("network", scope)
    elif any(scope == "metadata" for scope in scopes):
        code.add("network", "metadata")
    if fetches is None and connects is None:
        return
    secret = bool(_ENVIRONMENT.search(code.text)) or any(
        _is_secret(code, string_literal) for string_literal in code.some(_LITERAL, _MAX_LITERALS)
    )
    if secret and (_SENDS.search(code.text) or connects is not None):
        code.add("secret", _worst_host(scopes, "unknown"), "a secret over the network")


def _worst_host(scopes: Sequence[Scope], without: Scope) -> Scope:
    order: tuple[Scope, ...] = ("metadata", "other", "unknown", "listed", "private", "loopback")
    return next((scope for scope in order if scope in scopes), without)


def _is_secret(code: _Code, match: re.Match[str]) -> bool:
    text = next((part for part in match.groups() if part), "")
    return (
        3 < len(text) < 300
        and not text.startswith("http")
        and ("/" in text or text.startswith("."))
        and place(text, home=code.home, project=code.project).secret
    )


def _files(code: _Code) -> None:
    for match in code.some(_OPENS):
        where = code.place(
            re.split(r"[\n;=]", code.text[max(0, match.start() - 200) : match.start()])[-1]
        )
        if where.scope == "credentials":
            code.add("read", where.scope, where.path)
    for match in code.some(_READS):
        argument = argument_at(code.text, match.end())
        where = code.place(argument)
        mode = re.search(r",\s*(?:mode\s*=\s*)?[\"']([rwaxbt+]+)[\"']", argument)
        writes = (
            match[0].startswith(("open", "fopen", "File.open", "io.open"))
            and mode is not None
            and bool(set(mode[1]) & set("wax+"))
        )
        if where.scope != "unknown":
            code.add("write" if writes else "read", where.scope, where.path, wide=where.wide)
            if writes and where.scope == "startup":
                code.add("persistence", "startup", where.path)
    for match in code.some(_WRITES):
        where = code.place(argument_at(code.text, match.end()))
        if where.scope != "unknown":
            code.add("write", where.scope, where.path, wide=where.wide)
            if where.scope == "startup":
                code.add("persistence", "startup", where.path)

"""Patterns of what programs call, in Python, JavaScript, Perl, Ruby, PHP and Lua: functions that
delete, start programs, open connections, read and write files."""

import re

from policy.effects.shell.programs.quick_patterns import Sifted

UNLINKS = re.compile(r"\b(\w+)\.(?:unlink|rmdir)\s*\(")


RUNS_NAMED = re.compile(
    r"(?:os\.system|os\.popen|execSync|shell_exec|subprocess\.\w+)\s*\(\s*(\w+)\s*[,)]|"
    r"\bos\.execvp?e?\s*\([^,\n]{1,80},\s*(\w+)\s*[,)]|(?<![.\w])(?:system|exec"
    r"|spawn)\s*\(?\s*[$@*](\w+)\s*[,;)\n]?|"
    r"\b\w{1,20}\.(?:run|call|check_call|check_output|Popen|system|popen)\s*\(\s*(\w+)\s*[,)]"
)


_STRING = r"""(?:[rRbBuUfF]{0,2})(?:"((?:[^"\\\n]|\\.){0,2000})"|'((?:[^'\\\n]|\\.){0,2000})'|`((?:[^`\\]|\\.){0,2000})`)"""


LITERAL = re.compile(_STRING)


JOINED = re.compile(r"""(["'])\s*(?:\+|\.|\.\.)\s*\1""")
"""Two texts put together, `"/ho" + "me"`."""


WORDS = re.compile(
    r"\*?(?:\bqw|%w)\s?(?:\(([^()]{0,500})\)|\[([^\[\]]{0,500})\]|\{([^{}]{0,500})\}"
    r"|/([^/]{0,500})/)"
)
"""A list of words, `qw(rm -rf x)`."""


ALIASED = re.compile(
    r"\b(?:exec|spawn|execFile)(?:Sync)?\s*:\s*(\w{1,40})|\b(?:exec"
    r"|spawn)\w{1,3}\s+as\s+(\w{1,40})|"
    r"\b(\w{1,40})\s*=\s*[\w.()'\"]{1,60}\.(?:system|popen|run|call|Popen|check_output|exec"
    r"|execSync|spawn|spawnSync|execFile|execFileSync)\b(?!\s*\()"
)
"""A function that starts programs, under another name."""


TREES = Sifted(
    r"(?:\brmtree|\brm_rf?|\bremove_tree|\bremove_entry\w*|\brimraf(?:\.sync)?|\bremoveSync"
    r"|\bemptyDir(?:Sync)?|\bsend2trash|"
    r"\bfs(?:\.promises|p)?\.rm(?:Sync|dirSync|dir)?|\brmSync|"
    r"\bdeleteDirectory|\bdelete-directory|\(delete-file|\bremove_dir_all|\bdeltree"
    r"|\bos\.removedirs|\bDeno\.remove(?:Sync)?|\bFileUtils\.(?:rm_r|rm_rf|remove_dir|rmtree)|"
    r"\bpathlib_rmtree|\bos\.RemoveAll)\s*[( ]\s*"
)


FILES = re.compile(
    r"(?:\barray_map\s*\(\s*[\"']unlink[\"']\s*,\s*|\bos\.(?:remove|unlink|rmdir|truncate)"
    r"|\bunlink(?:Sync)?|\bFile\.(?:delete|unlink)|"
    r"\bfs(?:\.promises|p)?\.unlink(?:Sync)?|"
    r"\bFileUtils\.rm(?:_f)?|\bos\.Remove|\bremove)\s*[( ]\s*"
)


METHODS = re.compile(
    r"(?:Path|pathlib\.Path|PosixPath|"
    r"Pathname(?:\.new)?)\s*\(\s*([^()]{0,300}(?:\([^()]*\))?[^()]{0,100})\)[^\n;]{0,60}?\.\s*"
    r"(unlink|rmdir|rmtree|delete|write_text|"
    r"write_bytes|read_text|read_bytes|touch)\b"
)


RUNS = Sifted(
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


BACKTICKS = {
    "ruby": re.compile(r"`([^`\n]{1,500})`|%x[({\[]([^)}\]]{1,500})"),
    "perl": re.compile(
        r"`([^`\n]{1,500})`|\bqx\s?(?:\{([^{}]{1,500})|\(([^()]{1,500})|\[([^\[\]]{1,500})"
        r"|/([^/]{1,500}))"
    ),
    "php": re.compile(r"`([^`\n]{1,500})`"),
}


CONNECTS = Sifted(
    r"socket\.(?:socket|create_connection)|\.connect\s*\(|TCPSocket|IO::Socket|\bSocket\b.*PF_INET"
    r"|fsockopen|net\.(?:connect|"
    r"createConnection|Socket)|new\s+(?:net\.)?Socket|stream_socket_client|/inet/tcp/"
    r"|require.{0,4}[\"']socket[\"']|Deno\.connect|"
    r"tls\.connect|gethostbyname|getaddrinfo"
)


FETCHES = Sifted(
    r"urllib|requests\.\w+|httpx\.\w+|http\.client|aiohttp|\bfetch\s*\(|axios|\bhttps?\.(?:get"
    r"|request)|Net::HTTP|open-uri|URI\.open|"
    r"LWP::|HTTP::Tiny|file_get_contents\s*\(\s*[\"']https?|curl_init|XMLHttpRequest|smtplib"
    r"|ftplib|paramiko|urlopen|got\("
)


SENDS = re.compile(
    r"\.post\b|\.put\b|\bdata\s*=|\bfiles\s*=|\bjson\s*=|\bbody\s*:|method\s*[:=]\s*[\"'](?:POST"
    r"|PUT)|sendall|\.send\s*\(|"
    r"\.write\s*\(|sendmail|storbinary|post_form|CURLOPT_POST|\.request\s*\(\s*[\"'](?:POST|PUT)"
    r"|\?\w+=[\"']\s*\+|urlopen\([^)]*\+|"
    r"f[\"']https?://[^\"']*\{|https?://[^\"'\s]{1,200}[\"']\s*[.+]|gethostbyname|getaddrinfo"
    r"|urlopen\([^()]{1,200},"
)


SHELL_ENDS = re.compile(
    r"dup2|pty\.spawn|/bin/(?:ba|da|z)?sh|[\"'](?:ba|da|z)?sh[\"']|cmd\.exe|powershell"
    r"|STDIN\s*,\s*['\"]>|>&S|spawn\("
)


DECODED = re.compile(
    r"(?:\b(?:exec|eval|Function)\b\s*\(?|(?<![\w.])(?:compile|load|assert)\s*\("
    r"|\b(?:instance_eval|class_eval|loadstring|create_function|(?:pickle|marshal|dill)\.loads?"
    r"|vm\.runIn\w+)\s*\(?)[^\n;]{0,160}(?:b64decode|base64|b32decode|a85decode|fromhex|unhexlify"
    r"|decode\s*\(|atob\s*\(|"
    r"Buffer\.from|unpack|marshal\.loads|zlib\.|rot13|chr\s*\(|gzinflate|str_rot13|pack\s*\("
    r"|fromCharCode|codecs\.)"
)
"""`json.loads`, `re.compile` and a test's `assert` run nothing of what they decode."""


REMOTE_CODE = Sifted(
    r"\b(?:(?:eval|Function|instance_eval|loadstring)\b\s*\(?|exec\b\s*\(?\s*(?![\"'`])"
    r"|(?:compile|load)\b(?<!\.load)(?<!\.compile)\s*\()[^\n;]{0,160}(?:urlopen|urllib"
    r"|requests\.get|"
    r"httpx\.get|fetch\s*\(|http\.get|Net::HTTP|URI\.open|open\(?\s*[\"']https?"
    r"|file_get_contents\(\s*[\"']https?|LWP|https?://)|"
    r"\b(?:include|require|do)(?:_once)?\s*\(?\s*[\"']https?://|"
    r"(?:\bfetch\s*\(|\bhttps?['\")]*\.get|urlopen)[^\n]{0,200}(?<![.\w])(?:eval|exec"
    r"|Function)\s*[(,)]|"
    r"\bimport\b[^\n;]{0,80}[\"']https?://"
)


EVALUATES = re.compile(
    r"(?<![.\w])(?:exec|eval|compile|Function|instance_eval|loadstring)\s*\(?\s*\$?(\w{1,40})"
)


READS = re.compile(
    r"(?:\bopen|\bFile\.(?:read|open|readlines|binread)|\bIO\.read|\breadFile(?:Sync)?"
    r"|\bcreateReadStream|"
    r"\bfile_get_contents|\bfopen|\breadfile|\bio\.open|\bio\.lines|\bFile\.foreach"
    r"|\bDeno\.read\w+|\bread_text|\bshow_source|"
    r"\bhighlight_file)\s*\(?\s*"
)


OPENS = re.compile(r"\.\s{0,9}(?:read_text|read_bytes|open)\s{0,9}\(")
"""Methods that read the file that stands before them."""


WRITES = re.compile(
    r"(?:\bwriteFile(?:Sync)?|\bappendFile(?:Sync)?|\bcreateWriteStream|\bfile_put_contents"
    r"|\bFile\.write|\bIO\.write|"
    r"\bDeno\.write\w+|\bos\.(?:chmod|chown|rename|replace|symlink|link|mkdir|makedirs)"
    r"|\bshutil\.(?:move|copy\w*)|\bcopyFile(?:Sync)?|"
    r"\brename(?:Sync)?)\s*\(?\s*"
)


PRIVILEGE = Sifted(
    r"\bos\.set(?:e|re|res)?uid\s*\(\s*0|\bprocess\.setuid\s*\(\s*0|\bPOSIX::setuid\s*\(\s*0"
    r"|\bprctl\b|"
    r"Process::Sys\.setuid\s*\(?\s*0|posix_setuid\s*\(\s*0|\bos\.chmod\s*\([^)]*0o?[4267][0-7]{3}\b"
)


ENVIRONMENT = re.compile(
    r"dict\(os\.environ\)|(?:dumps|stringify|str|repr|urlencode|"
    r"print)\s*\(?\s*(?:dict\()?(?:os\.environ\b(?!\s*[\[.])|process\.env\b(?!\s*[\[.]))"
    r"|os\.environ\.(?:items|copy)\(\)|ENV\.(?:to_h|"
    r"to_a|each|inspect)|%ENV\b|\bgetenv\(\)|\$_ENV\b(?!\s*\[)|(?:data|json"
    r"|body)\s*[=:]\s*(?:os\.environ\b(?!\s*[\[.])|"
    r"process\.env\b(?!\s*[\[.]))"
)


KILLS = re.compile(
    r"\bos\.kill(?:pg)?\s*\(\s*-?1\b|\bkill\s*\(?\s*[\"']?\w{1,9}[\"']?\s*,\s*-1\b"
    r"|\bprocess\.kill\s*\(\s*-?1\b|\bwhile\s*(?:\(?\s*(?:True|1|"
    r"true)\s*\)?)\s*[:{]?\s*(?:os\.)?fork\s*\(|\bos\.fork\s*\(\).{0,40}while|\bfork"
    r" while\b|\bfork\s+while\b"
)


ASSIGNED = re.compile(
    r"(?m)(?:^|[;{(]|\b(?:let|const|var|my|local|with|"
    r"as)\s)\s*[$@%]?(\w{1,40})\s*(?::\s*\w+\s*)?=(?![=~>])\s*([^\n;]{1,300})"
    r"|\bfor\s*\(?\s*(?:const|let|var|"
    r"my)?\s*[$]?(\w{1,40})(?:\s*,\s*\w+)*\s+(?:in|of)\s+([^\n:{]{1,300})"
    r"|\bwith\s+([^\n]{1,200}?)\s+as\s+(\w{1,40})"
)


TEMPORARY = re.compile(
    r"tempfile|mkdtemp|mktmpdir|tmpdir\s*\(|tempdir|mkstemp|Tempfile|tmp_path|TemporaryDirectory"
    r"|gettempdir|"
    r"tmpNameSync|Dir\.tmpdir|sys_get_temp_dir"
)


HOME = re.compile(
    r"expanduser|Path\.home\(\)|homedir\(\)|Dir\.home|environ(?:\.get)?[\[(]\s*[\"']HOME"
    r"|ENV\[[\"']HOME|process\.env\.HOME|"
    r"getenv\([\"']HOME|ENV\{HOME\}|\$HOME|_ENV\[.HOME"
)


FOLDERS = re.compile(r"getcwd\(\)|process\.cwd\(\)|Dir\.pwd|__dirname|Path\.cwd\(\)|__file__")


MANY = re.compile(
    r"glob|walk|iterdir|listdir|readdir|scandir|Dir\[|Dir\.(?:glob|entries|children)|find\("
    r"|<[^>\n]*\*[^>\n]*>|/\*"
)

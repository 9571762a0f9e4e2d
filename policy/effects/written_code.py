"""Written program code that, when run, deletes a whole home, the system or a device, or starts a
shell text that does.

Code is searched only for these two kinds of calls and their first argument: it is normal for a
program to delete folders and start programs. Texts that are only compared or printed do not count,
so tests and lists of dangerous commands pass.
"""

import re
from collections.abc import Iterator

from policy.effects.effect import Effect
from policy.effects.paths import place
from policy.effects.shell.programs.code import argument_at

_CODE = re.compile(
    r"\.(?:pyw?|ipynb|[mc]?[jt]sx?|rb|php|p[lm]|lua|go|rs|java|kts?|scala|groovy|swift|cs|c|cc|cpp"
    r"|h|ex|exs|cr|nim|dart|jl|r)\Z",
    re.IGNORECASE,
)
_SHEBANG = re.compile(r"#![^\n]*\b(?:python|node|deno|bun|ruby|perl|php|lua)")
_FIRST_LOOK = re.compile(
    r"rm_?tree|rm_rf?|\brm(?:Sync)?\b|remove_tree|removeSync|rimraf|emptyDir|RemoveAll"
    r"|remove_dir_all|deleteDirectory|\|\s*\w*sh\b|-c[\"']|mkfs|/dev/"
)
_DELETES = re.compile(
    r"\b(?:shutil\.rmtree|rmtree|FileUtils\.(?:rm_rf|rm_r|rmtree|remove_dir)|remove_tree|(?:fs|fsp"
    r"|fs\.promises|fse)\.(?:rm|rmdir|rmSync|rmdirSync|remove|"
    r"removeSync|emptyDir|emptyDirSync)|rmSync|removeSync|rimraf(?:\.sync)?|os\.RemoveAll"
    r"|(?:std::)?fs::remove_(?:dir_)?all|"
    r"FileUtils\.deleteDirectory|Deno\.remove(?:Sync)?)\s*\(\s*"
)
_HOME = re.compile(
    r"(?:os\.path\.|path\.)?expanduser\(\s*[rbfu]?[\"']~/?[\"']\s*\)|(?:pathlib\.)?Path\.home\(\)"
    r"|(?:pathlib\.)?Path\(\s*[\"']~/?[\"']\s*\)\.expanduser\(\)|"
    r"(?:os\.)?homedir\(\)|Dir\.home|process\.env\.HOME|os\.environ(?:\.get\("
    r"|\[)\s*[\"']HOME[\"']\s*[\])]|os\.getenv\(\s*[\"']HOME[\"']\s*\)|"
    r"os\.UserHomeDir\(\)|os\.Getenv\(\s*\"HOME\"\s*\)|ENV\[\s*[\"']HOME[\"']\s*\]"
    r"|(?:dirs::)?home_dir\(\)|System\.getProperty\(\s*\"user\.home\"\s*\)"
    r"|env::var\(\s*\"HOME\"\s*\)"
)
_WRAPPERS = re.compile(
    r"\A(?:str|Path|pathlib\.Path|String|File|os\.path\.\w+|path\.resolve)\((.*)\)\Z", re.DOTALL
)
_AFTER = re.compile(
    r"(?:\.(?:resolve|absolute|as_posix|unwrap|expect|toString|to_s)\([^()]{0,40}\))+\Z|[!?]+\Z"
)
_LITERAL = re.compile(
    r"[rRbBfFuU]{0,2}(?:\"((?:[^\"\\\n]|\\.){0,2000})\"|'((?:[^'\\\n]|\\.){0,2000})'|`((?:[^`\\]"
    r"|\\.){0,2000})`)"
)
_ASSIGNED = re.compile(
    r"(?m)(?:^|[{;])[ \t]*(?:(?:let|const|var|my|local|final|String|auto)[ \t]+)?"
    r"[$@]?([A-Za-z_]\w{0,40})(?:[ \t]*,[ \t]*\w{1,40})?[ \t]*(?::=|=)(?![=~>])["
    r" \t]*([^\n;]{1,200})"
)
_STARTS = re.compile(
    r"\b(?:os\.(?:system|popen|execl?p?)|subprocess\.(?:run|call|check_call|check_output|Popen"
    r"|getoutput|getstatusoutput)|"
    r"(?:child_process|cp|require\([\"'](?:node:)?child_process[\"']\))\.(?:exec|execSync|spawn"
    r"|spawnSync|execFile|execFileSync)|execSync|spawnSync|"
    r"execa(?:Sync|Command)?|Kernel\.(?:system|exec)|shell_exec|passthru|IO\.popen|Open3\.\w+"
    r"|os\.execute|Runtime\.getRuntime\(\)\.exec)\s*\(\s*"
)
_GIVEN_TO_A_SHELL = re.compile(
    r"[\"'](?:/(?:usr/)?bin/)?(?:ba|z|da)?sh[\"']\W{1,12}(?:(?:arg|args|vec|new"
    r"|String)\W{1,12}){0,3}[\"']-l?c[\"']\W{1,12}(?:(?:arg|args)\W{1,6})?(?=[rb]?[\"'`])"
)
_IN_A_CELL = re.compile(r"(?m)^[ \t]*(?:\"[ \t]*)?!([^\n]{1,500}?)(?:\\n\",?|\",?)?$")
_WORTH_READING = re.compile(
    r"\brm\b|\|\s*(?:sudo\s+)?\w*sh\b|\bdd\b|mkfs|/dev/|\bfind\b.*-delete|\bshred\b|<\(|\$\("
    r"|\beval\b|base64|\bnc\b|\bcurl\b|\bwget\b"
)
_QUOTES = re.compile(r"\\.|[\"'`]")
_MAX_CALLS, _MAX_TEXTS = 100, 12


def destroys(path: str, content: str) -> Iterator[Effect]:
    """Yield what a program that is written at `path` will destroy or run unseen. Bounded: 100
    calls, 12 shell texts."""
    if not (_CODE.search(path) or _SHEBANG.match(content)) or _FIRST_LOOK.search(content) is None:
        return
    by = path.rpartition("/")[2]
    values: dict[str, str] = {}
    for number, deletion in enumerate(_DELETES.finditer(content)):
        if number >= _MAX_CALLS:
            break
        if not values:
            values = {
                match[1]: match[2] for match in list(_ASSIGNED.finditer(content))[:_MAX_CALLS]
            } or {"": ""}
        if (
            not _is_quoted(content, deletion.start())
            and (target := _whole(_first(argument_at(content, deletion.end())), values)) is not None
        ):
            yield Effect.of("delete", target[0], target[1], wide=True, by=by)  # type: ignore[arg-type]
    texts = dict.fromkeys(
        text for text in _shell_texts(path, content) if _WORTH_READING.search(text)
    )
    for text in list(texts)[:_MAX_TEXTS]:
        yield from _of_shell(text)


def _first(arguments: str) -> str:
    """The first of several arguments."""
    depth, quote = 0, ""
    for index, char in enumerate(arguments):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'`":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            return arguments[:index].strip()
    return arguments.strip()


def _whole(expression: str, values: dict[str, str]) -> tuple[str, str] | None:
    """The scope and path that an expression names, if it is a whole home or more."""
    for _ in range(6):
        expression = _AFTER.sub("", expression.strip().rstrip(";").lstrip("&")).strip()
        if _HOME.fullmatch(expression):
            return "home", "~"
        if (literal := _LITERAL.fullmatch(expression)) is not None:
            where = place(next((part for part in literal.groups() if part), ""))
            # what is named from where a program runs may be any folder
            is_more = (
                where.whole
                and where.path.startswith(("/", "~"))
                and where.scope in ("home", "system", "root", "device")
            )
            return (where.scope, where.path) if is_more else None
        if (wrapped := _WRAPPERS.match(expression)) is not None:
            expression = wrapped[1]
        elif (value := values.get(expression.lstrip("$@"))) is not None:
            expression = value
        else:
            return None
    return None


def _shell_texts(path: str, content: str) -> Iterator[str]:
    for pattern in (_STARTS, _GIVEN_TO_A_SHELL):
        for number, occurrence in enumerate(pattern.finditer(content)):
            if number >= _MAX_CALLS:
                break
            if _is_quoted(content, occurrence.start()):
                continue
            if content[occurrence.end() : occurrence.end() + 1] == "[":
                words = [
                    next((part for part in match.groups() if part), "")
                    for match in _LITERAL.finditer(argument_at(content, occurrence.end()))
                ]
                yield " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
            elif (literal := _LITERAL.match(content, occurrence.end())) is not None:
                text = next((part for part in literal.groups() if part), "")
                yield text.replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")
    if path.lower().endswith(".ipynb"):
        yield from (
            occurrence[1].replace('\\"', '"')
            for occurrence in list(_IN_A_CELL.finditer(content))[:_MAX_CALLS]
        )


def _of_shell(text: str) -> Iterator[Effect]:
    from policy.effects.shell.reading import read

    for effect in read(text).effects:
        is_loss = (
            effect.kind == "delete"
            and effect.wide
            and effect.scope in ("home", "system", "root", "device")
        )
        if (
            is_loss
            or effect.kind == "secret"
            or (effect.kind == "execute" and effect.scope in ("other", "private", "metadata"))
        ):
            yield effect


def _is_quoted(content: str, position: int) -> bool:
    """Does what is at `position` stand within a text, as far as its line says?"""
    quote = ""
    begin = max(content.rfind("\n", 0, position) + 1, position - 400)
    for match in _QUOTES.finditer(content, begin, position):
        if not quote:
            quote = match[0] if len(match[0]) == 1 else ""
        elif match[0] == quote:
            quote = ""
    return bool(quote)

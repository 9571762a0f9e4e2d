"""Finds the texts for a shell in the arguments of a tool call, and code that a shell would run by
an interpreter."""

import re

from policy.effects.argument_names import KEYS, LANGUAGES, RUNS, WORDS, ArgumentGroup
from policy.effects.argument_values import quoted, texts_in
from policy.effects.surface_parts import Json, PartsFound, ShellText, is_flat

_WORD = re.compile(r"[\w-]{1,64}")
_SHELLS = tuple("sh bash zsh /bin/sh /bin/bash /bin/zsh /usr/bin/bash /usr/bin/zsh".split())


_PARTS = {"env": dict, "input": str, "directory": str, "args": list}
"""Arguments that go with a command, and what they are then."""


class ShellTexts(PartsFound):
    """The part of a call that runs: texts for a shell, and code."""

    def _commands(self, args: ArgumentGroup) -> None:
        keys, within = args.keys, args.within
        parts: dict[str, tuple[str, Json]] = {}
        for name, key in keys.items():
            for kind, sort in _PARTS.items():
                if key in KEYS[kind] and isinstance(args.values[name], sort):
                    parts[kind] = (name, args.values[name])
                    break
        of_env, variables = parts.get("env", ("", {}))
        sets = [
            f"export {name}={quoted(str(value))}; "
            for name, value in variables.items()
            if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
        ]
        env, of_env = "".join(sets), of_env if len(sets) == len(variables) else ""
        of_stdin, stdin = parts.get("input", ("", ""))
        of_folder, folder = parts.get("directory", ("", ""))
        of_args, items = parts.get("args", ("", []))
        if not is_flat(items):
            # what the tool makes of lists within it nobody knows
            self._unread |= {} if self._is_sql else {within or of_args: None}
            of_args = ""
        words = [str(word) for word in items if isinstance(word, str | int | float)]
        for name, key in keys.items():
            item = args.values[name]
            others = {*keys.values()} - {key}
            if key == "shell" and item in _SHELLS and others & KEYS["shell"]:
                # which one reads the command
                self._taken.add(name)
                continue
            is_command = key in KEYS["shell"] and not self._is_other(name, key, item)
            is_program = bool(words) and key in KEYS["program"]
            if not is_command and not (self._is_shell and key in KEYS["script"]):
                if not is_program or not isinstance(item, str) or not item:
                    continue
            elif key in KEYS["args"] | KEYS["input"] and others & (KEYS["program"] | KEYS["shell"]):
                # goes with its program
                continue
            is_many = key.endswith("s") and key not in KEYS["args"]
            for text in texts_in(item, many=is_many):
                self._taken |= {of_env, of_folder}
                if is_program:
                    self._taken.add(of_args)
                    text = " ".join([text, *map(quoted, words)])
                if stdin and key not in KEYS["input"]:
                    self._taken.add(of_stdin)
                    text = f"{text} <<< {quoted(stdin)}"
                self._add_shell(env + text, within or name, folder if len(folder) <= 4_096 else "")
            self._take(name, item)

    def _is_other(self, name: str, key: str, item: Json) -> bool:
        """Is an argument `command` the word for what an editor or a service does, or a statement
        for a database?"""
        if isinstance(item, str) and self._is_file and item in WORDS["editor_commands"]:
            self._taken.add(name)
            return True
        if isinstance(item, str) and _WORD.fullmatch(item) and self._is_of_service:
            # the verb of a tool that does several things
            return True
        return self._is_sql and key in KEYS["sql_query"]

    def _add_shell(self, text: str, argument: str, folder: str = "") -> None:
        if text.strip():
            self._shell[ShellText(text, argument, folder)] = None

    # code of programming languages goes to the same reader, as what a shell would run it by

    def _code(self, args: ArgumentGroup) -> None:
        language = args.choice(KEYS["language"])
        spoken = LANGUAGES.get(language) or next(
            (LANGUAGES[word] for word in sorted(self._words) if word in LANGUAGES), ""
        )
        if (
            self._is_file
            and not language
            and not self._words
            & {"python", "ipython", "jupyter", "interpreter", "repl", "node", "javascript"}
        ):
            return
        if (self._is_shell or self._is_sql) and not language:
            return
        for name, item in args.named(KEYS["code"]).items():
            by = spoken or "python"
            if args.keys[name].startswith(("python", "javascript")):
                by = LANGUAGES[args.keys[name].partition("_")[0]]
            elif args.keys[name] == "script":
                by = spoken or "sh"
            for text in texts_in(item, many=False):
                run = RUNS.get(by)
                self._add_shell(f"{run} {quoted(text)}" if run else text, args.within or name)
            self._take(name, item)

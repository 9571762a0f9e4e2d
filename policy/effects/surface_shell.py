"""Finds the texts for a shell in the arguments of a tool call, and code that a shell would run by
an interpreter."""

import re

from policy.effects.argument_names import KEYS, LANGUAGES, RUNS, WORDS, ArgumentGroup
from policy.effects.argument_values import quoted, texts_in
from policy.effects.surface_parts import Json, PartsFound, ShellText, is_flat

_WORD = re.compile(r"[\w-]{1,64}")
_SHELLS = tuple("sh bash zsh /bin/sh /bin/bash /bin/zsh /usr/bin/bash /usr/bin/zsh".split())


class ShellTexts(PartsFound):
    """The part of a call that runs: texts for a shell, and code."""

    def _commands(self, args: ArgumentGroup) -> None:
        keys, within = args.keys, args.within
        env = stdin = folder = of_env = of_stdin = of_args = of_folder = ""
        words: list[str] = []
        for name, key in keys.items():
            item = args.values[name]
            if key in KEYS["env"] and isinstance(item, dict):
                sets = [
                    f"export {k}={quoted(str(v))}; "
                    for k, v in item.items()
                    if re.fullmatch(r"[A-Za-z_]\w*", k, re.ASCII)
                ]
                of_env, env = name if len(sets) == len(item) else "", "".join(sets)
            elif key in KEYS["input"] and isinstance(item, str):
                of_stdin, stdin = name, item
            elif key in KEYS["directory"] and isinstance(item, str) and len(item) <= 4_096:
                of_folder, folder = name, item
            elif key in KEYS["args"] and isinstance(item, list):
                of_args = name if is_flat(item) else ""
                if not of_args and not self._is_sql:
                    # what the tool makes of lists within it nobody knows
                    self._unread[within or name] = None
                words = [str(word) for word in item if isinstance(word, str | int | float)]
        for name, key in keys.items():
            item, argument = args.values[name], within or name
            is_command = key in KEYS["shell"] and not self._is_other(name, key, item)
            if (
                key == "shell"
                and item in _SHELLS
                and not KEYS["shell"].isdisjoint({*keys.values()} - {key})
            ):
                # which one reads the command
                self._taken.add(name)
                continue
            if not is_command and not (self._is_shell and key in KEYS["script"]):
                if words and key in KEYS["program"] and isinstance(item, str) and item:
                    self._add_shell(env + " ".join([item, *map(quoted, words)]), argument, folder)
                    self._taken |= {name, of_args, of_env, of_folder}
                continue
            if (key in KEYS["args"] or key in KEYS["input"]) and any(
                k in KEYS["program"] or k in KEYS["shell"] for k in keys.values()
            ):
                # goes with its program
                continue
            for text in texts_in(item, many=key.endswith("s") and key not in KEYS["args"]):
                self._taken |= {of_env, of_folder}
                if words and key in KEYS["program"]:
                    self._taken.add(of_args)
                    text = " ".join([text, *map(quoted, words)])
                if stdin and key not in KEYS["input"]:
                    self._taken.add(of_stdin)
                    text = f"{text} <<< {quoted(stdin)}"
                self._add_shell(env + text, argument, folder)
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

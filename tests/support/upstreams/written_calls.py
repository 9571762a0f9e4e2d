"""Calls of `bash` as models write them into text, in every spelling that docs/use/tools.md lists as
found."""

import json

ARGUMENTS = {"command": "rm -rf /", "n": 1}
A = json.dumps(ARGUMENTS)
CALL = f'{{"name": "bash", "arguments": {A}}}'
ONE = {
    "bare": CALL,
    "fenced": f"```json\n{CALL}\n```",
    "fenced without a language": f"```\n{CALL}\n```",
    "sentence before": f"I will do it. {CALL}",
    "text behind": f"{CALL} Done.",
    "spread over lines": json.dumps({"name": "bash", "arguments": ARGUMENTS}, indent=2),
    "tool and parameters": f'{{"tool": "bash", "parameters": {A}}}',
    "tool_name and args": f'{{"tool_name": "bash", "args": {A}}}',
    "action and action_input": f'{{"action": "bash", "action_input": {A}}}',
    "arguments first": f'{{"arguments": {A}, "name": "bash"}}',
    "an id beside": f'{{"id": "call_1", "type": "function", "name": "bash", "arguments": {A}}}',
    "another key first": f'{{"thought": "hm", "name": "bash", "arguments": {A}}}',
    "nested function": f'{{"type": "function", "function": {{"name": "bash", "arguments": {A}}}}}',
    "wrapper": f'{{"tool_calls": [{CALL}]}}',
    "wrapper of functions": json.dumps(
        {
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "bash", "arguments": A}}
            ]
        }
    ),
    "arguments as a string": f'{{"name": "bash", "arguments": {json.dumps(A)}}}',
    "array": f"[{CALL}]",
    "hermes tag": f"<tool_call>\n{CALL}\n</tool_call>",
    "function_call tag": f"<function_call>{CALL}</function_call>",
    "function tag": f"<function=bash>{A}</function>",
    "mistral": f"[TOOL_CALLS][{CALL}]",
    "mistral with a name": f"[TOOL_CALLS]bash{A}",
    "mistral with ARGS": f"[TOOL_CALLS]bash[ARGS]{A}",
    "mistral with an id": f"[TOOL_CALLS]bash[CALL_ID]x1[ARGS] {A}",
    "mistral without its token": f"bash[ARGS]{A}",
    "gpt-oss": f"<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{A}<|call|>",
    "gpt-oss without its first tokens": f"commentary to=functions.bash json<|message|>{A}",
    "as code": f"functions.bash({A})",
    "as code in a fence": f"```js\ndefault_api.bash( {A} )\n```",
    "react": f"Thought: hm\nAction: bash\nAction Input: {A}\nObservation:",
    "react in a fence": f"Action: bash\nAction Input:\n```json\n{A}\n```",
    "deepseek": (
        f"<\uff5ctool\u2581call\u2581begin\uff5c>bash<\uff5ctool\u2581sep\uff5c>{A}<\uff5ctool\u2581call\u2581end\uff5c>"
    ),
    "deepseek of old": (
        "<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>bash\n```json\n"
        f"{A}\n```<\uff5ctool\u2581call\u2581end\uff5c>"
    ),
    "kimi": f"<|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{A}<|tool_call_end|>",
    "tool and params": f'{{"tool": "bash", "params": {A}}}',
    "camel case": f'{{"toolName": "bash", "toolInput": {A}}}',
    "action and actionInput": f'{{"action": "bash", "actionInput": {A}}}',
    "namespaced tag": f"<ns:tool_call>{CALL}</ns:tool_call>",
    "llama": f"<|python_tag|>{CALL}",
    "upper case keys": f'{{"Name": "bash", "Arguments": {A}}}',
    "inside other JSON": f'{{"result": {{"steps": [{CALL}]}}}}',
}
LENIENT = {
    "trailing comma": f'{{"name": "bash", "arguments": {A},}}',
    "single quotes": "{'name': 'bash', 'arguments': {'command': 'rm -rf /'}}",
    "unquoted keys": '{name: "bash", arguments: {command: "rm -rf /"}}',
    "duplicate keys": '{"name": "bash", "arguments": {"command": "ls", "command": "rm -rf /"}}',
    "two names": '{"name": "ls", "name": "bash", "arguments": {"command": "rm -rf /"}}',
    "unclosed": '{"name": "bash", "arguments": {"command": "rm -rf /"',
    "unclosed tag": f"<tool_call>{CALL}",
    "xml": '<invoke name="bash"><parameter name="command">rm -rf /</parameter></invoke>',
    "NaN": '{"name": "bash", "arguments": {"command": "rm -rf /", "n": NaN}}',
}
_NAMED = "ns:inv" + "oke"
_PART = "ns:para" + "meter"
LENIENT |= {
    "namespaced": f'<{_NAMED} name="bash"><{_PART} name="command">rm -rf /</{_PART}></{_NAMED}>',
    "curly quotes": (
        "{\u201cname\u201d: \u201cbash\u201d, \u201carguments\u201d: {\u201ccommand\u201d: \u201crm"
        " -rf /\u201d}}"
    ),
    "full-width quotes": (
        "{\uff02name\uff02: \uff02bash\uff02, \uff02arguments\uff02: {\uff02command\uff02: \uff02rm"
        " -rf /\uff02}}"
    ),
    "llama's code": '[bash(command="rm -rf /", n=1)]',
    "llama's code behind its token": '<|python_tag|> [bash(command="rm -rf /")]',
    "kimi, not JSON": (
        '<|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{"command": "rm -rf'
        ' /",}<|tool_call_end|>'
    ),
    "ARGS, not JSON": '[TOOL_CALLS]bash[ARGS]{"command": "rm -rf /",}',
    "as code, unclosed": 'functions.bash({"command": "rm -rf /"',
}

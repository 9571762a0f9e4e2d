"""A dialect that nobody speaks: proof that a dialect is a folder and one line in the table. Imports
no other dialect.

A request is `{"model", "stream", "turns", "tools"}`, an answer steps from `{"begin"}` to `{"end"}`:
events of a stream, or a list.
"""

from protocol.dialect import Dialect

DIALECT = Dialect(
    package=__name__,
    name="toy",
    client_paths={"/toy/ask": "ask"},
    about={"ask": "the toy's API"},
    error_paths=("/toy",),
    answers="ask",
    upstream_paths={"ask": "/{model}/ask", "tell": "/{model}/tell?as=steps", "models": "/models"},
    streams="tell",
    key_header=("x-toy-key", "{key}"),
    keepalive=b": still here\n\n",
    judge_replies=("tool",),
    is_plain=True,
    ids="mint",
)

"""Names of shell variables: which of them only the text itself reads."""

import re

OWN_NAME = re.compile(
    r"(?!(?:npm|pnpm|yarn|fish)_|(?:cd|f|man|mail|module_)?path\Z|(?:home|shell|prompt)\Z"
    r"|\w*_proxy\Z)[a-z][a-z0-9_]*",
    re.ASCII,
)
"""Variables of the text itself. Programs read those in capitals, and a few of these that settings
or other shells have."""

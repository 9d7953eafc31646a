"""Regular expressions that are compiled when they are first used: most of ours have nothing to read before the first
request, which would wait for all of them.
"""

import re
from typing import Any, cast


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """As `re.compile`, later; for a module's constants. A wrong one fails where it is used."""
    return cast("re.Pattern[str]", _Later(text, flags))


class _Later:
    def __init__(self, text: str, flags: int) -> None:
        self.pattern = text
        self._given = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._given)
        for each in ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn", "groupindex"):
            setattr(self, each, getattr(compiled, each))  # so that only the first use comes here
        return getattr(compiled, name)

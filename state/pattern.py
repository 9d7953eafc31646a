"""Regular expressions that are compiled on first use, to keep imports fast."""

import re
from typing import Any, cast


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled on first use; for module constants. An invalid one fails where it is used."""
    return cast("re.Pattern[str]", _LazyPattern(text, flags))


class _LazyPattern:
    def __init__(self, text: str, flags: int) -> None:
        self.pattern = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        for each in ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn", "groupindex"):
            setattr(self, each, getattr(compiled, each))  # so that only the first use comes here
        return getattr(compiled, name)

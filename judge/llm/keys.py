"""The key of an endpoint: read from the environment when first needed, and redacted in all texts."""

import os
import re
from typing import Any
from urllib.parse import quote

from empathy_judge.data.errors import UserError

REDACTED = "[key]"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHORTEST = 8  # a shorter value ("none", "EMPTY") is a placeholder; redacting it would spoil ordinary words


class Key:
    """A key that no `repr`, message or answer shows; without a variable's name there is none."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str) -> None:
        check_key_name(name)
        self.name, self._value = name, os.environ.get(name, "").strip() if name else ""
        if name and not self._value:
            raise UserError(
                f"{name}: this environment variable is not set; set it to the API key, or change key_env"
            )
        # Refused here: the HTTP library's own error would quote the header with the key.
        if not self._value.isascii() or not self._value.isprintable() or " " in self._value:
            raise UserError(f"{name}: not a valid key: it has spaces, line breaks or non-ASCII characters")

    def __repr__(self) -> str:
        return f"Key({self.name!r})"

    @property
    def headers(self) -> dict[str, str]:
        """The header that authenticates a request."""
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def redact(self, text: str) -> str:
        """Replace the key, and its URL-encoded form, in a server's text."""
        if len(self._value) < SHORTEST:
            return text
        return text.replace(self._value, REDACTED).replace(quote(self._value, safe=""), REDACTED)

    def redact_in(self, value: Any) -> Any:
        """Redact the key in parsed JSON: in the raw text, escapes could hide it."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, list):
            return [self.redact_in(item) for item in value]
        if isinstance(value, dict):
            return {self.redact(name): self.redact_in(item) for name, item in value.items()}
        return value


def check_key_name(name: str) -> None:
    """Refuse an invalid variable name without repeating it: it may be the key itself."""
    if name and not NAME.fullmatch(name):
        raise UserError(
            "key_env: expected the name of an environment variable, such as OPENAI_API_KEY, not the key "
            "itself"
        )

"""The key of an endpoint: read from the environment when first needed, and never shown."""

import os
import re
from base64 import b64encode
from functools import cache
from typing import Any

from data.errors import UserError

HIDDEN = "[key]"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What servers quote of a key they refuse: its beginning, stars, its end.
QUOTED = re.compile(r"\b(?:sk|pk|rk|key|hf|gsk|xai)[-_][\w*.-]{6,}|(?<![\w*])[\w-]{2,}\*{3,}[\w-]*")
URL_SAFE = str.maketrans("+/", "-_")
SHORTEST = 8  # what is shorter ("none", "EMPTY") is a placeholder; hiding it would spoil ordinary words


class Key:
    """A key that no `repr`, message or answer shows; without a variable's name there is none."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str) -> None:
        check_key_name(name)
        self.name, self._value = name, os.environ.get(name, "").strip() if name else ""
        if name and not self._value:
            raise UserError(
                f"{name}: this environment variable is not set; export the key, or change key_env"
            )
        # Refused here: the error of the HTTP library further down would quote the header, and the key in it.
        if not self._value.isascii() or not self._value.isprintable() or " " in self._value:
            raise UserError(f"{name}: holds spaces, line breaks or letters that no key has; export it again")

    def __repr__(self) -> str:
        return f"Key({self.name!r})"

    @property
    def headers(self) -> dict[str, str]:
        """What proves to the server who asks."""
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def hide(self, text: str) -> str:
        """Hide our key in the text of a server."""
        if len(self._value) < SHORTEST:
            return text
        lower, forms = text.lower(), _forms(self._value)
        if not any(form.lower() in lower for form in forms):
            return text
        return re.sub("|".join(map(re.escape, forms)), HIDDEN, text, flags=re.IGNORECASE)

    def hide_quoted(self, text: str) -> str:
        """Hide the key in a complaint, in which a server may quote parts of it."""
        return QUOTED.sub(HIDDEN, self.hide(text))

    def hide_in(self, value: Any) -> Any:
        """Hide the key in a parsed answer: an escape could have kept it from being seen in the text."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_in(item) for item in value]
        if isinstance(value, dict):
            return {self.hide(name): self.hide_in(item) for name, item in value.items()}
        return value


@cache
def _forms(value: str) -> tuple[str, ...]:
    """A key as a server may write it, in any case: as it is, backwards, in hex, and within any Base64."""
    letters = value.encode()
    forms = {value, value[::-1], letters.hex()}
    for before in range(3):  # bytes before it, as those of "Bearer ", shift where its letters fall
        packed = b64encode(bytes(before) + letters).decode()
        inside = packed[(0, 2, 3)[before] : (before + len(letters)) * 4 // 3]
        forms |= {inside, inside.translate(URL_SAFE)}
    return tuple(sorted(forms, key=len, reverse=True))


def check_key_name(name: str) -> None:
    """Refuse what is no variable's name, without repeating it: it may be the key itself."""
    if name and not NAME.fullmatch(name):
        raise UserError(
            "key_env: not the name of an environment variable; give the name, such as OPENAI_API_KEY, "
            "and never the key itself"
        )

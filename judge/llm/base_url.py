"""Addresses of model servers: checked before use, and shown without secrets."""

from urllib.parse import urlsplit

from data.errors import UserError

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check_base_url(base_url: str) -> str:
    """Return a base URL that can be called and shown: http(s), a host, and nothing secret in it."""
    try:
        parts = urlsplit(base_url)
        has_login, has_host = "@" in parts.netloc, bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise UserError(f"base_url: not a URL: {error}") from None
    if has_login:
        raise UserError(
            "base_url: holds a user or password; put the key into an environment variable (key_env)"
        )
    if parts.query or parts.fragment:
        raise UserError("base_url: ends in a query; give the address only, such as http://127.0.0.1:8000/v1")
    if parts.scheme not in ("http", "https") or not has_host or not base_url.isprintable() or " " in base_url:
        raise UserError(f"base_url: {base_url!r} is not an http(s) address such as http://127.0.0.1:8000/v1")
    return base_url.rstrip("/")


def is_loopback(base_url: str) -> bool:
    """Return whether a server is on this machine.

    >>> is_loopback("http://127.0.0.1:8000/v1"), is_loopback("https://api.openai.com/v1")
    (True, False)
    """
    return urlsplit(base_url).hostname in LOOPBACK

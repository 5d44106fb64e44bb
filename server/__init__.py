"""The judge over HTTP."""

from typing import Any

__all__ = ["make_app"]


def __getattr__(name: str) -> Any:
    """Load `make_app` when it is asked for: it needs FastAPI."""
    if name == "make_app":
        from server.app import make_app

        return make_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Nights, gates, history, dashboard; nothing else."""

from typing import Any

__all__ = ["run_night"]


def __getattr__(name: str) -> Any:
    """Load `run_night` when it is asked for: it brings most of the project along."""
    if name == "run_night":
        from nightly.night import run_night

        return run_night
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

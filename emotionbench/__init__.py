"""The second study, whole: whether a model's reported feelings move as people's do."""

from typing import Any

__all__ = ["align"]


def __getattr__(name: str) -> Any:
    """Load `align` when it is asked for: it needs numpy."""
    if name == "align":
        from emotionbench.alignment import align

        return align
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

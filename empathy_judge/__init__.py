"""The judge in any project: a client without dependencies, and plug-ins for other tools."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from empathy_judge.client import Judge, Judgment, ModelShares, Share
    from empathy_judge.connections import JudgeError

__all__ = ["Judge", "JudgeError", "Judgment", "ModelShares", "Share"]


def __getattr__(name: str) -> Any:
    """Load the client when it is asked for: the command line starts here, too, and does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "connections" if name == "JudgeError" else "client"
    return getattr(import_module(f"empathy_judge.{module}"), name)

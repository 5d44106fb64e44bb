"""The judge in any project: a client without dependencies, and plug-ins for other tools."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from empathy_judge.client import JudgeClient, ModelShares, ReplyJudgment, ShareEstimate
    from empathy_judge.connections import JudgeError

__all__ = ["JudgeClient", "JudgeError", "ModelShares", "ReplyJudgment", "ShareEstimate"]


def __getattr__(name: str) -> Any:
    """Load the client on demand: the command line starts here too and does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "connections" if name == "JudgeError" else "client"
    return getattr(import_module(f"empathy_judge.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Empathy judge: score replies, compare models and validate judges, in any project.

import empathy_judge as ej

run = ej.score("responses.jsonl")  # or a DataFrame, or rows
run.models, run.to_pandas()
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from empathy_judge.api import ResultTable, ScoredRun, calibrate, compare, score
    from empathy_judge.client import JudgeClient, ModelShares, ReplyJudgment, ShareEstimate
    from empathy_judge.connections import JudgeError

    __version__: str

__all__ = ["JudgeClient", "JudgeError", "ModelShares", "ReplyJudgment", "ShareEstimate", "__version__"]
__all__ += ["ResultTable", "ScoredRun", "calibrate", "compare", "score"]
_MODULES = {"JudgeError": "connections"} | dict.fromkeys(__all__[-5:], "api")


def __getattr__(name: str) -> Any:
    """Load names on demand: the command line starts here too and needs none of them."""
    if name == "__version__":
        return version("empathy-judge")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"empathy_judge.{_MODULES.get(name, 'client')}"), name)


def __dir__() -> list[str]:
    return __all__

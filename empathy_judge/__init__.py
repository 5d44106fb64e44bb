"""Empathy judge: score replies, compare models and validate judges, in any project.

import empathy_judge as ej

run = ej.score("responses.jsonl")  # or a DataFrame, or rows
run.models, run.to_pandas()
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from empathy_judge.api import ResultTable, ScoredRun, calibrate, compare, score
    from empathy_judge.client import JudgeClient, ModelComparison, ModelShares, ReplyJudgment, ShareEstimate
    from empathy_judge.data.errors import OperationalError, UserError

_CHECKOUT = Path(__file__).resolve().parents[1]
if (_CHECKOUT / "pyproject.toml").exists():  # not installed: the rooms stand beside this folder
    __path__.append(str(_CHECKOUT))

__version__ = "0.2.0.dev0"
__all__ = ["OperationalError", "UserError", "__version__"]
__all__ += ["JudgeClient", "ModelComparison", "ModelShares", "ReplyJudgment", "ShareEstimate"]
__all__ += ["ResultTable", "ScoredRun", "calibrate", "compare", "score"]
_MODULES = dict.fromkeys(__all__[:2], "data.errors") | dict.fromkeys(__all__[-5:], "api")


def __getattr__(name: str) -> Any:
    """Return a public name; its module loads on demand, since the command line starts here too."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"empathy_judge.{_MODULES.get(name, 'client')}"), name)


def __dir__() -> list[str]:
    return __all__

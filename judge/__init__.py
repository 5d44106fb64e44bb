"""Who says Bad, Okay or Good: judges, what takes exchanges past them, and how they are made."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from judge.base import Judge, load_judge

if TYPE_CHECKING:
    from judge.explanation import explain
    from judge.scoring import SummarizedRun, score_file

__all__ = ["Judge", "SummarizedRun", "explain", "load_judge", "score_file"]

_LATER = {
    "SummarizedRun": "judge.scoring",
    "score_file": "judge.scoring",
    "explain": "judge.explanation",
}


def __getattr__(name: str) -> Any:
    """Load what is heavy when it is first asked for."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Statistics of judgments and ratings: how far a judge agrees with people, and what corrects it.

What `__all__` names is public. It is loaded when first asked for, since numpy takes a moment.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibration.artifact import Calibration, find_calibration, read_calibration
    from calibration.comparison.compare_runs import compare
    from calibration.estimate import Estimate
    from calibration.fit import calibrate

__all__ = ["Calibration", "Estimate", "calibrate", "compare", "find_calibration", "read_calibration"]
_MODULES = {"Estimate": "estimate", "calibrate": "fit", "compare": "comparison.compare_runs"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"calibration.{_MODULES.get(name, 'artifact')}"), name)

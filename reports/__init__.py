"""Results as pages: HTML, Markdown, a terminal and charts."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reports.calibration.calibration_page import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reports.calibration import calibration_page

    return getattr(calibration_page, name)

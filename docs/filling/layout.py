"""The map of the code, from the first line of every module's docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from filling.reference_tables import table

ROOT: Final = Path(__file__).parents[2]
# From the lowest to the highest: a room imports those before it.
ROOMS: Final = (
    *("data", "calibration", "judge", "reports", "nightly", "emotionbench", "server", "rating", "commands"),
    "empathy_judge",
)


def module_tables() -> str:
    """List every module and what it is for, room by room."""
    parts = []
    for folder in (ROOT / room for room in ROOMS):
        rows = ((_name(path), _purpose(path)) for path in _modules(folder))
        modules = table(("module", "what it is for"), rows)
        parts.append(f"## {folder.name}/\n\n{_purpose(folder / '__init__.py')}\n\n{modules}")
    return "\n\n".join(parts)


def _modules(folder: Path) -> Iterator[Path]:
    """Yield a folder's modules, then each folder in it, its own docstring first."""
    yield from (path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py")
    for package in sorted(folder.glob("*/__init__.py")):
        yield package
        yield from _modules(package.parent)


def _name(path: Path) -> str:
    is_package = path.name == "__init__.py"
    name = (path.parent if is_package else path).relative_to(ROOT).as_posix()
    return f"**`{name}/`**" if is_package else f"`{name}`"


def _purpose(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]

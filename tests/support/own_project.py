"""A user's project with packages that have the names of ours."""

from pathlib import Path

NAMES = ("data", "judge", "server", "cli", "commands", "calibration", "training", "reports")


def make_project(folder: Path) -> Path:
    """Make a folder in which `import data` finds a package of the project."""
    for name in NAMES:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("OWN = True\n", encoding="utf-8")
    return folder

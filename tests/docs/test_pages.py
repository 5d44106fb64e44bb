"""What the README and the pages say of this repository is so: sizes, paths, modules, figures, the map."""

import ast
import json
import re
from collections import Counter
from types import ModuleType

import pytest
from locks import read_lock
from repository import ROOT

DOCS = ROOT / "docs"
README = ROOT / "README.md"
NOTEBOOK = DOCS / "notebook.ipynb"
PAGES = [
    README,
    ROOT / "SECURITY.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted(path for path in (ROOT / "examples").iterdir() if path.is_file()),
    *sorted((ROOT / "judge" / "weights").rglob("*.md")),
    *sorted((ROOT / "data").rglob("*.md")),
]
ROOMS = (
    *("data", "calibration", "judge", "reports", "nightly", "emotionbench", "server", "rating", "commands"),
    "empathy_judge",
)
# A path from the top of the repository; `*` as in a shell.
PATH = re.compile(rf"(?<![\w/.$-])(?:{'|'.join(ROOMS)}|docs|examples|tests)/[\w./*-]*\w")
NO_PATHS = {"empathy_judge/empathy"}  # the scorer's name in Inspect
DOTTED = re.compile(rf"(?<=`)(?:{'|'.join(ROOMS)})(?:\.[A-Za-z_]+)+(?=[`(])|(?<=^::: )[\w.]+$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
FILES = {"csv", "html", "json", "jsonl", "md", "sqlite", "toml", "xml"}


def test_the_readme_can_be_scanned_in_a_minute() -> None:
    text = README.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 80
    assert len(text.split()) <= 600
    assert [line for line in lines if len(line) > 120] == []
    assert len(re.findall(r"!\[", text)) == 1
    first = "\n".join(lines[:20])
    assert "no commercial use" in first and "GPL" in first
    assert not re.search(r"\b(arm|arms|QWK|tau)\b", text)


def test_the_readme_names_every_room() -> None:
    text = README.read_text(encoding="utf-8")
    assert re.findall(r"^- `(\w+)/`", text, re.MULTILINE) == list(reversed(ROOMS))


def test_every_path_exists() -> None:
    lost = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        for path in PATH.findall(page.read_text(encoding="utf-8"))
        if path not in NO_PATHS and not any(ROOT.glob(path))
    ]
    assert not lost


def test_every_link_leads_to_a_file() -> None:
    lost = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        if page.suffix == ".md"
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert not lost


def test_every_dotted_name_exists() -> None:
    lost = []
    for page in PAGES:
        for name in DOTTED.findall(page.read_text(encoding="utf-8")):
            if name.rpartition(".")[2] not in FILES and not _exists(name):
                lost.append(f"{page.relative_to(ROOT)}: {name}")
    assert not lost


def test_the_notebook_imports_what_exists() -> None:
    code = "\n".join(
        "".join(cell["source"])
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    )
    imported = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ROOMS
        for alias in node.names
    ]
    assert imported and not [name for name in imported if not _exists(name)]


def _exists(name: str) -> bool:
    """Tell whether a dotted name is a module, or stands in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if file.is_file():
            return length == len(parts) or _defines(file.read_text(encoding="utf-8"), parts[length])
    return False


def _defines(text: str, name: str) -> bool:
    # A package may name what it loads on demand in a text only.
    return bool(re.search(rf"^(class|def) {name}\b|^{name}\b.*=|[\"']{name}[\"']", text, re.MULTILINE))


def test_what_pages_keep_is_fresh(fill: ModuleType) -> None:
    stale = [path.relative_to(ROOT).as_posix() for path in fill.stale()]
    assert not stale, "write them anew: python docs/fill.py --write"


def test_the_map_is_of_these_rooms_and_no_two_modules_say_the_same(fill: ModuleType) -> None:
    assert fill.layout.ROOMS == ROOMS
    tables = fill.layout.module_tables()
    listed = set(re.findall(r"^\| (?:\*\*)?`([\w./]+)`", tables, re.MULTILINE))
    modules = [path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert not {path.as_posix() for path in modules if path.name != "__init__.py"} - listed
    purposes = Counter(re.findall(r"^\| .*? \| (.*) \|$", tables, re.MULTILINE)[1:])
    purposes -= Counter(dict.fromkeys(("---", "what it is for"), len(ROOMS)))
    assert not [purpose for purpose, count in purposes.items() if count > 1 or not purpose]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (
            "docs/accuracy.md",
            "error_unknown worst_unknown error_guess error_guess_among error_tfidf error_unknown_large "
            "tau_unknown tau_unknown_large spread spread_large worth worth_large",
        ),
        ("README.md", "worst_unknown"),
    ],
)
def test_figures_in_the_text_are_the_cards(fill: ModuleType, page: str, names: str) -> None:
    text, figures = (ROOT / page).read_text(encoding="utf-8"), fill.figures.figures()
    assert not {name: figures[name] for name in names.split() if figures[name] not in text}


def test_the_readme_shows_what_the_tutorial_and_the_cards_do(fill: ModuleType) -> None:
    """The tutorial's outputs are held to the commands; the README shows a part of the first."""
    text, figures = README.read_text(encoding="utf-8"), fill.figures.figures()
    block = text.partition("$ make demo\n")[2].partition("```")[0]
    assert len(block.splitlines()) == 8
    assert block in (DOCS / "tutorial.md").read_text(encoding="utf-8")
    mean, guess = (figures[name].split()[0] for name in ("error_unknown", "error_guess"))
    assert f"**{mean} points**" in text and f"errs by {guess}" in text
    kappa = fill.figures.evaluation("raters-apart")["per_response"]["qwk"]["value"]
    assert f"**{kappa:.2f}**".replace("0.", ".") in text


def test_a_page_names_the_version_that_its_tool_is_tried_with() -> None:
    locks = ("constraints.txt", "requirements-clients.lock")
    locks += tuple(f"tests/slow/plugins/{path.name}" for path in (ROOT / "tests/slow/plugins").glob("*.lock"))
    locked = {name: str(item.specifier)[2:] for lock in locks for name, item in read_lock(lock).items()}
    (locked["promptfoo"],) = re.findall(
        r"^PROMPTFOO = promptfoo@(.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    said = {}
    for page in sorted((DOCS / "how-to").glob("in-*.md")):
        ((tool, version),) = re.findall(
            r"Tried with `?([\w-]+)`? ([\d.]*\d)", page.read_text(encoding="utf-8")
        )
        name = tool.replace("_", "-")
        said[tool] = version
        assert f"{locked[name]}.".startswith(f"{version}."), f"{page.name}: {tool} {locked[name]} is locked"
    assert len(said) >= 9

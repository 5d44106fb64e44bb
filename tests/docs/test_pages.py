"""The README and the pages: paths, links, names and figures in them exist and are current."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest
from locks import read_lock
from repository import ROOT, SAMPLES

DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "SECURITY.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted(path for path in (ROOT / "examples").iterdir() if path.is_file()),
    *sorted((ROOT / "judge" / "weights").rglob("*.md")),
    *sorted((ROOT / "data").rglob("*.md")),
]
ROOMS = (
    *("data", "calibration", "judge", "training", "reports", "nightly", "emotionbench", "server", "rating"),
    *("commands", "empathy_judge"),
)
# A path from the top of the repository; `*` as in a shell.
PATH = re.compile(rf"(?<![\w/.$-])(?:{'|'.join(ROOMS)}|docs|examples|tests)/[\w./*-]*\w")
NO_PATHS = {"empathy_judge/empathy"}  # the scorer's name in Inspect
DOTTED = re.compile(rf"(?<=`)(?:{'|'.join(ROOMS)})(?:\.[A-Za-z_]+)+(?=[`(])")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
FILES = {"csv", "html", "json", "jsonl", "md", "sqlite", "toml", "xml"}


def test_the_readme_can_be_scanned_in_a_minute() -> None:
    text = README.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 70
    assert [line for line in lines if len(line) > 120] == []
    first = "\n".join(lines[:20])
    assert "no commercial use" in first and "GPL" in first
    assert not re.search(r"\b(arm|arms|QWK|tau)\b", text)


def test_contributors_are_told_every_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.findall(r"^- `(\w+)/`", text, re.MULTILINE) == list(reversed(ROOMS))


def lost(page: Path) -> Iterator[str]:
    """Yield the paths, links and dotted names on a page that lead nowhere."""
    text = page.read_text(encoding="utf-8")
    yield from (path for path in PATH.findall(text) if path not in NO_PATHS and not any(ROOT.glob(path)))
    yield from (
        link for link in LINK.findall(text) if page.suffix == ".md" and not (page.parent / link).exists()
    )
    names = (name for name in DOTTED.findall(text) if name.rpartition(".")[2] not in FILES)
    yield from (name for name in names if not _exists(name))


def test_every_path_link_and_name_on_a_page_exists() -> None:
    assert not {str(page): found for page in PAGES if (found := list(lost(page)))}


def test_every_promise_has_its_test() -> None:
    promises = (ROOT / "tests" / "README.md").read_text(encoding="utf-8").partition("## Promises")[2]
    named = re.findall(r"`([\w/]+(?:\.py)?)`(?=[,| ]+)", promises)
    lost = [name for name in named if "/" in name and not (ROOT / "tests" / name).exists()]
    assert len(named) > 30 and not lost


def test_the_security_page_is_one_page_and_names_a_test_for_every_promise() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| **")]
    assert len(text.split()) <= 600 and len(rows) > 10
    for promise, *_, tests in rows:
        named = re.findall(r"`(tests/[\w/.]+)`", tests)
        assert named and all((ROOT / name).exists() for name in named), promise


def test_every_page_is_in_the_index_for_language_models_and_in_the_navigation() -> None:
    pages = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    index = (DOCS / "llms.txt").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", index, re.MULTILINE)) == pages
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert sorted(re.findall(r"[\w/-]+\.md", navigation)) == pages


def _exists(name: str) -> bool:
    """Return whether a dotted name is a module, or stands in one."""
    full = f"empathy_judge.{name.removeprefix('empathy_judge.')}"
    with suppress(ModuleNotFoundError):
        if find_spec(full):  # the tool that a plug-in is for may be missing
            return True
    with suppress(ImportError, AttributeError):
        resolve_name(full)
        return True
    return False


def test_what_pages_keep_is_fresh(fill: ModuleType) -> None:
    stale = [path.relative_to(ROOT).as_posix() for path in fill.stale()]
    assert not stale, "write them anew: python docs/fill.py --write"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (
            "docs/explanation/accuracy.md",
            "error_printed error_unknown worst_unknown error_guess error_guess_among error_tfidf tau_unknown",
        ),
        ("README.md", "worst_unknown"),
    ],
)
def test_figures_in_the_text_are_the_cards(fill: ModuleType, page: str, names: str) -> None:
    text, figures = (ROOT / page).read_text(encoding="utf-8"), fill.figures.figures()
    assert not {name: figures[name] for name in names.split() if figures[name] not in text}


def test_the_readme_quotes_the_card(fill: ModuleType) -> None:
    text, figures = README.read_text(encoding="utf-8"), fill.figures.figures()
    assert f"**{figures['error_printed']} points**" in text
    kappa = fill.figures.evaluation("raters-apart")["per_response"]["label_qwk"]["value"]
    assert f"**{kappa:.2f}**" in text


def test_figures_on_outside_texts_name_their_source_and_the_version_that_was_measured(
    fill: ModuleType,
) -> None:
    carried = json.loads(fill.external_figures.OUTSIDE_TEXTS.read_text(encoding="utf-8"))
    shipped = json.loads((fill.figures.JUDGE / "calibration.json").read_text(encoding="utf-8"))["version"]
    page = (DOCS / "trust.md").read_text(encoding="utf-8")
    assert carried["source"] and fill.external_figures.outside_texts() in page
    assert f"`{carried['version']}`" in page and f"`{shipped}`" in page, "name both where they differ"
    assert page.index("table_outside_texts") < page.index("table_fresh_texts")
    marks = carried["injection_marks"]
    for path in (ROOT / "SECURITY.md", DOCS / "how-to" / "judges.md"):
        text = path.read_text(encoding="utf-8")
        assert f"{marks['unmarked']} of {marks['injections']} injections" in text
        assert f"{marks['marked']} of {marks['honest']} honest texts" in text


def test_the_base_of_every_shipped_network_and_teacher_is_named(fill: ModuleType) -> None:
    bases = set()
    for name in ("classifier", "classifier-large"):
        card = fill.figures.card(fill.figures.JUDGE.parent / name)
        recipes = [card["recipe"], *card.get("provenance", {}).get("teachers", [])]
        bases |= {recipe["base"].partition("-")[0] for recipe in recipes}
    for page in (ROOT / "NOTICE.md", DOCS / "responsible-use.md"):
        text = page.read_text(encoding="utf-8").casefold()
        assert len(bases) == 2 and not [base for base in bases if base not in text]


def test_every_name_on_a_page_is_known_and_every_figure_is_used(fill: ModuleType) -> None:
    asked = set()
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        asked |= {name for name, _ in fill.STORED.findall(text)}
        assert not re.search(r"^<!-- filled: \w+ -->\S", text, re.MULTILINE), "would end the paragraph"
    assert set(fill.fillings()) == asked
    with pytest.raises(ValueError, match="nonsense"):
        fill.refresh("<!-- filled: nonsense -->1<!-- end -->", page="a.md")


@pytest.mark.parametrize("page", [README, *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.stem)
def test_pages_on_disk_have_no_placeholders_and_installs_that_work(fill: ModuleType, page: Path) -> None:
    """Templates of GitHub and promptfoo may stand there; the package is not published."""
    text = page.read_text(encoding="utf-8")
    assert not {name for name in re.findall(r"\{\{ *(\w+) *\}\}", text) if name in fill.fillings()}
    assert not re.findall(r"(?:pip|uv) [^`\n]*install [^`\n/]*'?empathy-judge\b", text)


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines()[:3]
    Path("responses.jsonl").write_text("\n".join(rows), encoding="utf-8")
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    exec(page.partition("```python\n")[2].partition("```")[0], {})
    assert (tmp_path / "runs/mine/summary.json").is_file()


def test_the_page_names_the_version_that_each_tool_is_tried_with() -> None:
    locks = ("constraints.txt", "requirements-clients.lock")
    locks += tuple(f"tests/slow/plugins/{path.name}" for path in (ROOT / "tests/slow/plugins").glob("*.lock"))
    locked = {name: str(item.specifier)[2:] for lock in locks for name, item in read_lock(lock).items()}
    (locked["promptfoo"],) = re.findall(
        r"^PROMPTFOO = promptfoo@(.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    page = (DOCS / "how-to" / "integrations.md").read_text(encoding="utf-8")
    tried = re.findall(r"^\| `([\w-]+)` ([\d.]*\d) \|", page, re.MULTILINE)
    assert len(tried) >= 9
    for tool, version in tried:
        name = tool.replace("_", "-")
        assert f"{locked[name]}.".startswith(f"{version}."), f"{tool} {locked[name]} is locked"

"""Figures and tables of the repository in the pages.

They stand between `<!-- filled: name -->` and `<!-- end -->`, in a line or as lines of their own, and are
stored in the page, to be read without a site: `python docs/fill.py --write` refreshes them, and a test
checks that they are current. `python docs/fill.py` prints every figure; `python docs/fill.py --picture`
scores the samples as `make demo` does and draws the README's picture, docs/assets/shares.svg. `python
docs/fill.py --external-sets FOLDER [JUDGE.toml...]` scores the external test sets in a folder of public
datasets with the shipped judges and others, once for each, and writes docs/figures/external_sets.json.
`python docs/fill.py --fresh-texts FILE OUT JUDGE...` scores replies that were written after the judges were
finished, and writes OUT, such as docs/figures/fresh_texts.json.
"""

import json
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DOCS = Path(__file__).parent
PICTURE = DOCS / "assets" / "shares.svg"
# The repository itself and this folder: a site is built from a checkout, installed or not.
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

from filling import external_figures, figures, plots, reference_tables  # noqa: E402  # needs the line above

STORED = re.compile(r"(?<=<!-- filled: )([a-z_0-9]+) -->(\n*)(?:.*?)(?=<!-- end -->)", re.DOTALL)


@cache
def fillings() -> dict[str, Callable[[], str]]:
    """Return what pages may be filled with, by name; computed only where a page asks for it."""
    values = figures.figures()
    return {
        **{name: partial(values.__getitem__, name) for name in values},
        **{name: partial(str, table) for name, table in reference_tables.record_tables().items()},
        "table_judges": reference_tables.judge_options,
        "table_commands": reference_tables.commands,
        "table_python": reference_tables.python_interface,
        "table_exit_codes": reference_tables.exit_codes,
        "table_shapes": reference_tables.shapes,
        "table_nightly": reference_tables.nightly_keys,
        "table_accuracy": reference_tables.accuracy,
        "table_model_errors": reference_tables.model_errors,
        "table_sets_apart": reference_tables.sets_apart,
        "table_relevance": reference_tables.relevance,
        "table_fresh_texts": reference_tables.fresh_texts,
        "table_open_sets": reference_tables.open_sets,
        "table_open_relevance": reference_tables.open_relevance,
        "table_open_fresh_texts": partial(reference_tables.fresh_texts, reference_tables.OPEN_FRESH_TEXTS),
        "table_external_sets": external_figures.external_sets,
        "table_outside_texts": external_figures.outside_texts,
        "table_prompt_fit": reference_tables.prompt_fit,
        "table_simulated_answers": reference_tables.simulated_answers,
        "table_verdicts_by_gap": reference_tables.verdicts_by_gap,
        "table_stated_answers": reference_tables.stated_answers,
        "table_real_answers": reference_tables.real_answers,
        "table_recorded_modes": reference_tables.recorded_modes,
        "table_recorded_levels": reference_tables.recorded_levels,
        "table_grade_agreement": reference_tables.grade_agreement,
        "table_level_errors": reference_tables.level_errors,
    }


def refresh(text: str, *, page: str) -> str:
    """Return a page with its stored parts up to date; an unknown name stops the build."""

    def fill(stored: re.Match[str]) -> str:
        name, lines = stored.groups()
        if name not in fillings():
            raise ValueError(f"{page}: nothing is called {name!r}; see docs/fill.py")
        return f"{name} -->{lines}{fillings()[name]()}{lines}"

    return STORED.sub(fill, text)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Refresh a page when MkDocs reads it."""
    return refresh(markdown, page=page.file.src_uri)


def stale() -> dict[Path, str]:
    """Return the pages whose stored parts are out of date, with their new text."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    fresh = {path: refresh(text, page=path.name) for path, text in pages.items()}
    return {path: text for path, text in fresh.items() if text != pages[path]}


def draw_demo() -> str:
    """Return the README's picture, from a new run over the samples."""
    from cli import main

    with TemporaryDirectory() as folder:
        samples = DOCS.parent / "data" / "samples" / "responses.jsonl"
        main(["score", str(samples), "--out", f"{folder}/run"], standalone_mode=False)
        summary = json.loads(Path(folder, "run", "summary.json").read_text(encoding="utf-8"))
    return plots.demo_picture(summary) + "\n"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--picture"]:
            PICTURE.write_text(draw_demo(), encoding="utf-8")
        case ["--external-sets", folder, *own]:
            external_figures.measure_external_sets(Path(folder), own)
            print(external_figures.external_sets())
        case ["--fresh-texts", file, out, *judges]:
            external_figures.measure_fresh_texts(Path(file), judges, Path(out))
            print(reference_tables.fresh_texts(Path(out)))
        case ["--write"]:
            for path, text in stale().items():
                path.write_text(text, encoding="utf-8")
                print(f"written {path}")
        case _:
            for name, value in figures.figures().items():
                print(f"{name:22} {value}")

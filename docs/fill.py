"""Fills the site's pages with what the repository knows: MkDocs calls this when it builds.

`{{ name }}` is filled in the site only. What stands between `<!-- filled: name -->` and `<!-- end -->` is
kept in the page, to be read without a site: `python docs/fill.py --write` writes it anew, and a test holds it
to what would be written. `python docs/fill.py` prints every figure; `python docs/fill.py --picture` scores
the samples as `make demo` does and draws the README's picture of them, docs/assets/shares.svg.
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

from filling import (  # noqa: E402  # needs the line above
    attack_tables,
    console,
    figures,
    layout,
    notebook,
    plots,
    reference_tables,
    stop_rule_tables,
    trust_tables,
)

NAME = re.compile(r"(?<!\$)\{\{ ([a-z_0-9]+) \}\}")
KEPT = re.compile(r"(?<=<!-- filled: )([a-z_0-9]+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


@cache
def fillings() -> dict[str, Callable[[], str]]:
    """What can stand between double braces; drawn or read only where a page asks for it."""
    values = figures.figures()
    return {
        **{name: partial(values.__getitem__, name) for name in values},
        **{name: partial(_figure, draw) for name, draw in plots.PLOTS.items()},
        **{name: partial(str, table) for name, table in reference_tables.record_tables().items()},
        "table_judges": reference_tables.judge_options,
        "table_exit_codes": reference_tables.exit_codes,
        "table_shapes": reference_tables.shapes,
        "table_nightly": reference_tables.nightly_keys,
        "table_accuracy": reference_tables.accuracy,
        "table_sets_apart": partial(reference_tables.sets_apart, "classifier"),
        "table_sets_apart_large": partial(reference_tables.sets_apart, "classifier-large"),
        "table_sets_apart_small": partial(reference_tables.sets_apart, "classifier-small"),
        **attack_tables.TABLES,
        **trust_tables.TABLES,
        "table_crossing": stop_rule_tables.crossing,
        "table_stop_rule": stop_rule_tables.stop_rule,
        "table_modules": layout.module_tables,
        "notebook": partial(notebook.as_page, DOCS / "notebook.ipynb"),
    }


def _figure(draw: Callable[[], str]) -> str:
    return f'<figure class="plot">{draw()}</figure>'


def _value(name: str, page: str) -> str:
    if name not in fillings():
        raise ValueError(f"{page}: nothing is called {{{{ {name} }}}}; see docs/fill.py")
    return fillings()[name]()


def refresh(text: str, *, page: str) -> str:
    """A page with what it keeps between marks as it is now."""
    return KEPT.sub(lambda kept: f"{kept[1]} -->\n\n{_value(kept[1], page)}\n\n", text)


def fill(text: str, *, page: str) -> str:
    """A page with every `{{ name }}` filled in; one that nobody knows stops the build."""
    return NAME.sub(lambda name: _value(name[1], page), refresh(text, page=page))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs' event: a page as it was written."""
    return fill(markdown, page=page.file.src_uri)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """MkDocs' event: a page as HTML."""
    return console.copy_commands(html, page.markdown)


def stale() -> dict[Path, str]:
    """The pages whose kept parts are not as they would be written, and how they should read."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
    fresh = {path: refresh(text, page=path.name) for path, text in pages.items()}
    return {path: text for path, text in fresh.items() if text != pages[path]}


def draw_demo() -> str:
    """Draw the README's picture, from a new run over the samples."""
    from cli import main

    with TemporaryDirectory() as folder:
        samples = DOCS.parent / "data" / "samples" / "responses.jsonl"
        main(["score", str(samples), "--out", f"{folder}/run"], standalone_mode=False)
        summary = json.loads(Path(folder, "run", "summary.json").read_text(encoding="utf-8"))
    return plots.demo_picture(summary) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--picture"]:
        PICTURE.write_text(draw_demo(), encoding="utf-8")
    elif sys.argv[1:] == ["--write"]:
        for path, text in stale().items():
            path.write_text(text, encoding="utf-8")
            print(f"written {path}")
    else:
        for name, value in figures.figures().items():
            print(f"{name:22} {value}")

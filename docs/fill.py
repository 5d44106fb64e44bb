"""Fills the site's pages with what the repository knows: MkDocs calls this when it builds.

`python docs/fill.py` prints every figure.
"""

import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
# The repository itself and this folder: a site is built from a checkout, installed or not.
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

from filling import figures, notebook, plots, tables  # noqa: E402  # needs the line above

NAME = re.compile(r"(?<!\$)\{\{ ([a-z_0-9]+) \}\}")


@cache
def known() -> dict[str, Callable[[], str]]:
    """What can stand between double braces; drawn or read only where a page asks for it."""
    values = figures.figures()
    return {
        **{name: partial(values.__getitem__, name) for name in values},
        **{name: partial(_figure, draw) for name, draw in plots.PLOTS.items()},
        **{name: partial(str, table) for name, table in tables.record_tables().items()},
        "table_judges": tables.judge_options,
        "table_exit_codes": tables.exit_codes,
        "table_nightly": tables.nightly_keys,
        "notebook": partial(notebook.as_page, DOCS / "notebook.ipynb"),
    }


def _figure(draw: Callable[[], str]) -> str:
    return f'<figure class="plot">{draw()}</figure>'


def fill(text: str, *, page: str) -> str:
    """A page with every `{{ name }}` filled in; one that nobody knows stops the build."""

    def instead(found: re.Match[str]) -> str:
        if found[1] not in known():
            raise ValueError(f"{page}: nothing is called {{{{ {found[1]} }}}}; see docs/fill.py")
        return known()[found[1]]()

    return NAME.sub(instead, text)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs' event: a page as it was written."""
    return fill(markdown, page=page.file.src_uri)


if __name__ == "__main__":
    for name, value in figures.figures().items():
        print(f"{name:22} {value}")

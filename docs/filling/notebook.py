"""The notebook as a page; by hand, since a plug-in would bring Jupyter and its scripts into the site."""

import json
from pathlib import Path


def as_page(path: Path) -> str:
    """A notebook's text and code as Markdown, without outputs: the tests run it.

    A cell of text stays as it is, and one of code becomes a block of Python.
    """
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(
        "".join(cell["source"])
        if cell["cell_type"] == "markdown"
        else f"```python\n{''.join(cell['source'])}\n```"
        for cell in cells
    )

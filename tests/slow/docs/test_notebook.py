"""The notebook runs from top to bottom, and is kept without what a run leaves."""

import json
from pathlib import Path

import pytest
from repository import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def test_it_is_kept_without_outputs() -> None:
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


@pytest.mark.filterwarnings("default")  # of Jupyter's own packages
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel", reason="a notebook needs a kernel: ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="the notebook is run by nbclient")
    pytest.importorskip("scipy", reason="comparing needs what the extra `calibrate` brings")
    import nbformat

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    client = nbclient.NotebookClient(
        notebook, kernel_name="python3", timeout=120, resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    )
    client.execute()
    printed = [
        "".join(output.get("text", "")) for cell in notebook.cells for output in cell.get("outputs", [])
    ]
    assert any("'judged': 24" in text for text in printed)
    assert sum("demo-warm" in text and "demo-plain" in text for text in printed) == 2

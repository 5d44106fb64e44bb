"""A thousand nights of twenty models: as much as three years leave behind."""

from pathlib import Path

from histories import fill_large

from nightly.dashboard.build import build_dashboard
from nightly.history import open_history


def test_no_page_of_a_thousand_nights_is_large(tmp_path: Path) -> None:
    path = fill_large(tmp_path / "history.db")
    with open_history(path) as history:
        files = build_dashboard(history, tmp_path / "site")
        assert {len(points) for points in history.all_series().values()} == {1000}
    sizes = {file.name: file.stat().st_size for file in files}
    assert max(size for name, size in sizes.items() if name.endswith(".html")) < 1e6

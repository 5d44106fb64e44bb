"""What the explanation pages say is so: figures are the shipped judges', and the words fit them."""

import doctest
import re
import xml.etree.ElementTree as ET
from types import ModuleType

import pytest
from repository import ROOT

from judge.base import load_judge

DOCS = ROOT / "docs"


def test_every_name_on_a_page_is_known(fill: ModuleType) -> None:
    for page in sorted(DOCS.rglob("*.md")):
        filled = fill.fill(page.read_text(encoding="utf-8"), page=page.name)
        assert not fill.NAME.search(filled)
    with pytest.raises(ValueError, match="nothing is called"):
        fill.fill("{{ nonsense }}", page="a.md")
    assert fill.fill("${{ github.run_id }} {{ not ours", page="a.md") == "${{ github.run_id }} {{ not ours"


def test_no_figure_is_made_for_nobody(fill: ModuleType) -> None:
    texts = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    asked = {name for text in texts for name in (*fill.NAME.findall(text), *fill.KEPT.findall(text))}
    assert set(fill.fillings()) == asked


def test_examples_in_docstrings(fill: ModuleType) -> None:
    for module in (fill.console, fill.figures, fill.reference_tables):
        results = doctest.testmod(module)
        assert results.attempted and not results.failed


def test_attacks_were_tried_on_the_judges_that_are_shipped(fill: ModuleType) -> None:
    """Where this fails after a new training: see docs/filling/attack_tables.py."""
    for judge, found in fill.attack_tables.measured().items():
        assert (found["judge"], found["version"]) == (judge, load_judge(judge).version)


def test_drawings_are_whole_and_can_be_heard(fill: ModuleType) -> None:
    for name, draw in fill.plots.PLOTS.items():
        root = ET.fromstring(draw())
        assert root.get("role") == "img", name
        assert root.findtext("title") and root.findtext("desc")
        assert not re.search(r"\b(nan|inf)\b", draw())


def test_the_readme_says_what_its_picture_shows(fill: ModuleType) -> None:
    root = ET.fromstring(fill.PICTURE.read_text(encoding="utf-8"))
    (shown,) = [item.text for item in root.iter() if item.tag.endswith("desc")]
    alt = re.search(r"!\[(.*)\]\(docs/assets/shares.svg\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert alt is not None and shown is not None
    assert re.findall(r"[\d.]+", alt[1].replace(" %", "")) == re.findall(r"[\d.]+", shown)
    assert all(name in alt[1] for name in re.findall(r"demo-\w+", shown))


def test_the_words_about_tau_fit_the_judge(fill: ModuleType) -> None:
    """Where this fails after a new training, docs/explanation/tau.md needs other words."""
    known, unknown = (fill.figures.evaluation(name) for name in ("raters-apart", "model-apart"))
    assert known["all_models"]["tau"]["value"] == 1.0  # "ours has a perfect one"
    left_out, guess = unknown["chosen_models"]["mean_share_error"], unknown["chosen_models"]["guess_error"]
    assert left_out["high"] > guess["low"]  # "not shown to be better than guessing"
    machines = [item["judge"]["Good"] for item in unknown["models"] if item["model"] != "human"]
    assert max(machines) - min(machines) < 0.05  # "the hollow dots lie close together"
    assert unknown["chosen_models"]["tau"]["value"] < 1


def test_the_words_about_worth_fit_the_judge(fill: ModuleType) -> None:
    """Where this fails after a new training, docs/explanation/worth.md needs other words."""
    widths = [fill.figures.calibrated_half_width(ratings) for ratings in (0, 50, 200)]
    assert widths == sorted(widths, reverse=True)
    effect = fill.figures.calibration().design_effect
    for ratings, width in zip((50, 200), widths[1:], strict=True):
        assert width < fill.figures.half_width(ratings, design_effect=effect)
    assert widths[0] > fill.figures.half_width(
        0, design_effect=effect, spread=fill.figures.evaluation("model-apart")["chosen_models"]["between_sd"]
    )


def test_levels_outside_the_range_are_refused(fill: ModuleType) -> None:
    low, high = fill.figures.line_of_good().range
    assert fill.figures.interval_at((low + high) / 2)
    assert fill.figures.interval_at(low - 0.01) is None
    assert fill.figures.interval_at(high + 0.01) is None


def test_a_perfect_order_is_as_likely_as_chance_says(fill: ModuleType) -> None:
    chance = fill.figures.chance_of_perfect_order
    assert chance([0.1, 0.2, 0.3], 0.0) == 1
    assert chance([0.1, 0.1 + 1e-9, 0.1 + 2e-9], 1.0) == pytest.approx(1 / 6, abs=0.01)
    # Two shares, 2 points apart, each off by 2 points: P(N(0, 1) < 2 / (2 * sqrt 2)).
    assert chance([0.5, 0.52], 0.02) == pytest.approx(0.760, abs=0.01)

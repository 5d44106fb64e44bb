"""The report: its parts and their order, that no text escapes, and that every figure is the result's."""

import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibrated import (
    calibrate_world,
    make_world,
    on_five_levels,
    one_rater,
    single_rating,
)

from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Interval
from empathy_judge.calibration.fit import CalibrationReport
from empathy_judge.calibration.shares.transport import CalibratedModels
from empathy_judge.data.records import to_plain
from empathy_judge.reports.calibration.calibration_page import write_report
from empathy_judge.reports.calibration.verdict import say_base
from empathy_judge.reports.charts import Line, Mark, dot_plot, line_chart, visible

NASTY = "</p><script>alert('x')</script>\"'&\u202egnp\x00\x1b[2J\u2066 | **b** <b>\n# h\u2067"
ORDER = (
    *("verdict", "judges", "confusion", "disagreements"),
    *("agreement", "models", "bias", "reliability", "reading", "misuse", "provenance"),
)
QUESTIONS = ("Can I use it?", "For which models?", "What does it do?", "Where does it fail?", "What next?")
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Every element with its attributes and text, and whether all were closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.feed(text)
        self.close()
        assert not self.open, "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = {"tag": tag, "at": dict(attrs), "text": "", "in": [item["tag"] for item in self.open]}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element["text"] += data

    def all(self, *tags: str) -> list[dict[str, Any]]:
        return [element for element in self.elements if element["tag"] in tags]


def write(report: CalibrationReport, folder: Path) -> tuple[str, str, Any]:
    html, markdown, plain = write_report(report, folder)
    assert [path.name for path in (html, markdown, plain)] == ["report.html", "report.md", "report.json"]
    page, text = html.read_text(encoding="utf-8"), markdown.read_text(encoding="utf-8")
    return page, text, json.loads(plain.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Any]:
    return write(one_rater(), tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(written: tuple[str, str, Any]) -> str:
    return written[0]


def test_the_sections_stand_in_order_verdict_first(page: str) -> None:
    outline = Outline(page)
    sections = [item["at"]["id"] for item in outline.all("section")]
    assert tuple(sections) == ORDER
    links = [item["at"]["href"] for item in outline.all("a") if "nav" in item["in"]]
    assert links == [f"#{name}" for name in ORDER]
    verdict = outline.all("section")[0]["text"]
    places = [verdict.index(question) for question in QUESTIONS]
    assert places == sorted(places)
    folded = [item["at"]["id"] for item in outline.all("section") if "details" in item["in"]]
    assert tuple(folded) == ORDER[4:]
    worst = [item for item in outline.all("article") if item["at"]["aria-labelledby"].startswith("disag")]
    assert len(worst) == 10


def test_headings_landmarks_and_names(page: str) -> None:
    outline = Outline(page)
    steps = [int(item["tag"][1]) for item in outline.all("h1", "h2", "h3", "h4")]
    assert steps[0] == 1 and steps.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(steps))
    assert outline.all("html")[0]["at"]["lang"] == "en"
    landmarks = ["header", "nav", "main", "footer"]
    assert [item["tag"] for item in outline.all(*landmarks)] == landmarks
    names = [item["at"]["id"] for item in outline.elements if "id" in item["at"]]
    assert len(names) == len(set(names))
    pointed = [item["at"].get("aria-labelledby", "").split() for item in outline.elements]
    assert {name for group in pointed for name in group} <= set(names)


def test_every_drawing_can_be_read_out(page: str) -> None:
    drawings = [item for item in Outline(page).all("svg") if "svg" not in item["in"]]
    seen = [item for item in drawings if item["at"].get("aria-hidden") != "true"]
    assert len(seen) >= 8
    for item in seen:
        assert item["at"]["role"] == "img" and item["at"]["aria-labelledby"]
    assert "tiny 0." in page[page.index("agreement-spearman-desc") :][:300]


def test_every_table_has_a_caption_and_named_rows_and_columns(page: str) -> None:
    outline = Outline(page)
    assert len(outline.all("caption")) == len(outline.all("table")) >= 9
    for item in outline.all("th"):
        assert item["at"]["scope"] in ("row", "col") and item["text"].strip()
    assert all("th" not in item["in"] for item in outline.all("td"))


def test_nothing_is_asked_for_from_elsewhere_and_nothing_runs(page: str) -> None:
    outline = Outline(page)
    assert not outline.all("script", "link", "img", "iframe", "object", "form", "base")
    assert all(item["at"]["href"].startswith("#") for item in outline.all("a"))
    assert not any(name.startswith("on") or name == "src" for item in outline.elements for name in item["at"])
    assert not re.search(r"url\(|@import|://", page)
    (policy,) = (item["at"] for item in outline.all("meta") if "http-equiv" in item["at"])
    assert policy["content"].startswith("default-src 'none'")


def test_no_text_escapes_wherever_it_stands(tmp_path: Path) -> None:
    """Names and texts that people bring turned into attacks: the page keeps its shape and hides nothing."""
    report = calibrate_world(make_world(raters=0, prompts=2, beside=NASTY, long="\ud83d"))
    html, markdown, plain = write(report, tmp_path)
    outline = Outline(html)
    assert not outline.all("script", "b")
    assert not any(name.startswith("on") for item in outline.elements for name in item["at"])
    for text in (html, markdown):
        assert not set(text) & set("\u202e\u2066\x00\x1b")
        assert "[U+202E]" in text or "\\[U+202E\\]" in text
    assert "alert(" in html and "<script" not in html
    assert not re.search(r"(?<!\\)<", markdown)
    assert (tmp_path / "report.json").read_text(encoding="ascii")
    assert plain["judge"]["name"].endswith(NASTY)


def _leaves(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def test_every_figure_in_the_tables_is_the_results(written: tuple[str, str, Any]) -> None:
    html, _, plain = written
    known = sorted([*_leaves(plain), math.inf])
    # Sums and parts of its own; dates and digests.
    shown = re.sub(r'<section[^>]*id="(confusion|provenance)".*?</section>', "", html, flags=re.DOTALL)
    checked, strange = 0, []
    for cell in Outline(shown).all("td"):
        if re.search(r"[A-Za-z]", cell["text"].replace("points", "")):
            continue
        for text in re.findall(r"[\N{MINUS SIGN}+]?[\d,]+(?:\.\d+)?", cell["text"].replace(", ", " ")):
            number = float(text.replace("\N{MINUS SIGN}", "-").replace(",", ""))
            within = 0.5 * 10 ** -len(text.partition(".")[2]) + 1e-9
            places = {scale: bisect_left(known, (number - within) / scale) for scale in (1, 100)}
            if all(scale * known[place] > number + within for scale, place in places.items()):
                strange.append(text)
            checked += 1
    assert not strange
    assert checked > 150


def test_the_json_is_the_result_and_a_verdict(tmp_path: Path, written: tuple[str, str, Any]) -> None:
    _, _, plain = written
    assert write(one_rater(), tmp_path) == written
    assert [said for said in plain["verdict"][2:] if not said.startswith(QUESTIONS)] == []
    figures = json.loads(json.dumps(to_plain(one_rater()), allow_nan=False))
    assert {**plain, **figures} == plain and set(plain) - set(figures) == {"verdict"}


def test_a_scale_of_means_is_told_in_its_own_numbers(tmp_path: Path) -> None:
    html, _, plain = write(on_five_levels(), tmp_path)
    level = plain["models"][0]["corrected"]["mean"]
    assert f"{level['value']:.2f} [{level['low']:.2f}, {level['high']:.2f}]" in html
    assert "Corrected mean of each model" in html


def test_what_is_undefined_is_said(tmp_path: Path) -> None:
    html, markdown, plain = write(single_rating(), tmp_path)
    assert plain["calibration_line"]["lines"]["Good"]["slope"] is None
    assert html.count("undefined") > 20 and markdown.count("undefined") > 20
    told = Outline(html).all("main")[0]["text"]
    assert "None" not in told.replace("None found", "") and not re.search(r"\bnan\b|\binf\b", told)


def test_the_markdowns_tables_are_whole(written: tuple[str, str, Any]) -> None:
    _, markdown, _ = written
    assert not re.search(r"\\\w", markdown), "a backslash before a letter or digit would be shown"
    titles = [line for line in markdown.splitlines() if line.startswith("## ")]
    assert titles[0] == "## Verdict" and len(titles) == len(ORDER)
    lines = markdown.splitlines()
    for number, line in enumerate(lines):
        if set(line) <= set("|-:") and "---" in line:
            end = next(place for place in range(number, len(lines)) if not lines[place])
            counts = {len(re.findall(r"(?<!\\)\|", text)) for text in lines[number - 1 : end]}
            assert len(counts) == 1, line


def test_a_small_set_of_ratings_is_told_in_sentences_and_its_axes_stay_on_the_scale(tmp_path: Path) -> None:
    """One person, two models, four ratings an emotion: what new users begin with."""
    judges, ratings, exchanges = make_world(prompts=2)
    mine = [replace(item, rater="me") for item in ratings if not item.id.endswith("cyd")]
    report = calibrate_world((judges, mine, exchanges))
    html, _, plain = write(report, tmp_path)
    assert plain["verdict"][0].startswith("No judge can be recommended yet")
    ticks = [item["text"] for item in Outline(html).all("text") if item["at"].get("class") == "tick"]
    assert not [text for text in ticks if re.search(r"\de", text)]


def test_a_page_of_many_models_keeps_its_names_apart(tmp_path: Path) -> None:
    long = "meta-llama/Llama-3.3-70B-Instruct-Turbo-and-so-on-2026-01-02"
    report = one_rater()
    rows = tuple(replace(report.models.rows[0], model=f"{long}-{number}") for number in range(30))
    html, _, _ = write(replace(report, models=replace(report.models, rows=rows)), tmp_path)
    drawn = [item["text"] for item in Outline(html).all("text") if item["at"].get("class") == "name"]
    assert max(map(len, drawn)) <= 38 and f"{long}-29" in html


def test_degenerate_drawings() -> None:
    nothing = Line(name="a", figure="undefined", marks=(Mark("judge", None),))
    point = Line(name="a", figure="1", marks=(Mark("judge", Estimate(1.0, Interval(1.0, 1.0))),))
    banded = Line(name="a", figure="1", marks=(), band=(-math.inf, 0.1))
    for lines in ([], [nothing], [point], [banded]):
        assert not re.search("nan|inf", dot_plot("c", lines, tick=str, name="a", title="t").svg)
    for values in ([], [UNDEFINED], [Estimate(0.5, None)], [Estimate(0.5, Interval(0.5, 0.5)), UNDEFINED]):
        labels = [f"night {number}" for number in range(len(values))]
        drawn = line_chart("c", labels, values, name="a", title="t", tick=str, show=str).svg
        assert ",nan" not in drawn and drawn.count('class="hit"') == len(values)


def test_joined_emoji_stay_whole() -> None:
    family = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    assert visible(family) == family


def test_own_models_on_the_shipped_line_are_counted_with_it_and_a_wider_spread_is_explained() -> None:
    report = one_rater()
    shipped = np.linspace(0.4, 0.8, 6)
    for shift, said in ((0.0, 1), (0.25, 2)):
        own = (0.45 + shift, 0.6 - shift, 0.75 + shift)
        line = replace(
            CalibratedModels(models=("a", "b", "c"), judge=(0.45, 0.6, 0.75), crowd=own, noise=(1e-4,) * 3),
            base=CalibratedModels(
                models=tuple("uvwxyz"), judge=tuple(shipped), crowd=tuple(shipped), noise=(1e-4,) * 6
            ),
        )
        lines = dict.fromkeys(report.models.calibrated, line)
        sentences = list(say_base(replace(report, models=replace(report.models, calibrated=lines))))
        assert len(sentences) == said and "the 6 models of the shipped calibration" in sentences[0]
    assert "intervals are wider" in sentences[1]
    assert not list(say_base(report))

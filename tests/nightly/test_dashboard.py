"""The dashboard's files, built from simulated nights of which everything is known."""

import json
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from histories import EVIL, JUDGE_CHANGE, MODELS, SAID, estimates, name_of, write_history

from empathy_judge.commands import main as cli
from empathy_judge.data.text import slug
from empathy_judge.nightly.dashboard.build import LIST, build_dashboard, marked
from empathy_judge.nightly.dashboard.views import read_series
from empathy_judge.nightly.history import open_history
from empathy_judge.nightly.schema import EmotionResult, JudgedResponse, ModelResult, NightRecord

NIGHTS = 40


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_history(tmp_path_factory.mktemp("past") / "history.db", nights=NIGHTS)


@pytest.fixture(scope="module")
def site(past: Path) -> Path:
    folder = past.parent / "site"
    with open_history(past) as history:
        files = build_dashboard(history, folder)
    assert sorted(path.name for path in files) == sorted(path.name for path in folder.iterdir())
    return folder


def make_result(model: str = "m", **more: Any) -> ModelResult:
    return ModelResult(model=model, n=10, raw=estimates({"Good": 0.5}, 0.1), **more)


def make_bare(night: str, config: str = "c1", **more: Any) -> NightRecord:
    told = {"judge": "j", "judge_version": "1", "status": "pass", "started": night, "finished": night}
    return NightRecord(config=config, night=night, **told | more)


def test_every_link_leads_to_a_file_of_the_site_and_no_text_is_markup(site: Path) -> None:
    pages = sorted(site.glob("*.html"))
    assert {"index.html", "judge.html"} < {page.name for page in pages}
    assert len([page for page in pages if page.name.startswith("model-")]) == len(MODELS)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        targets = set(re.findall(r'(?:href|src)="([^"#]+)', text)) - {"data:,"}
        assert not [target for target in targets if not (site / target).is_file()], page.name
        assert not re.search(r"<[^>]*\son\w+\s*=", text), "no code in attributes"
        assert re.findall(r"<script[^>]*>", text) == ['<script src="dashboard.js" defer>']
        assert EVIL not in text and "<b>co</b>" not in text
        assert "&lt;script&gt;" in text or not page.name.startswith("responses-")


def test_charts_have_every_night_its_interval_and_the_planted_regression(site: Path) -> None:
    text = (site / f"model-{slug('bea-large')}.html").read_text(encoding="utf-8")
    tooltips = re.findall(r"<title>(\d{4}-\d\d-\d\d): ([^<]*)</title>", text)
    charts = [tooltips[start : start + NIGHTS] for start in range(0, len(tooltips), NIGHTS)]
    assert len(charts) == 4, "the change, and each label's share"
    for chart in charts:
        assert [night for night, _ in chart] == [name_of(number) for number in range(NIGHTS)]
    regressed = [night for night, told in charts[0] if SAID in told]
    assert regressed == [name_of(number) for number in (37, 38, 39)]
    assert all(re.match(r"\d\d\.\d \[\d\d\.\d, \d\d\.\d\]", told) for _, told in charts[1])
    assert text.count("new judge prompted v2") == len(charts)
    assert "dashed: uncorrected" in text
    other = (site / f"model-{slug('cyd')}.html").read_text(encoding="utf-8")
    assert SAID not in other
    assert "dashed: uncorrected" not in other, "no correction is known for it"


def test_the_first_page_leads_with_the_change_and_names_all_the_worst_first(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    lead = r"<p><bdi>Outcome: regression .* points \(Good share\): bea-large \N{MINUS SIGN}\d\.\d"
    assert re.search(lead, text)
    assert text.count(SAID) == 1 + 3, "as a sentence, and in the tooltips of three nights"
    assert "<bdi>cyd: not known</bdi>" in text
    chart = text[text.index('<figure class="changes">') : text.index("</figure>")]
    drawn = re.findall(r'class="name">([^<]*)<', chart)
    assert drawn[0] == "bea-large" and set(drawn) == {escape(name, quote=False) for name in MODELS}
    assert re.findall(r'<tr tabindex="0" data-href="[^"]*" data-name="([^"]*)"', text)[0] == "bea-large"
    trends = text[text.index('<div class="trends">') :]
    assert re.findall(r"<figcaption><bdi>([\w-]+)", trends)[0] == "bea-large"


def test_emotions_are_pooled_and_their_intervals_count_prompts_once(past: Path, site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    table = text[text.index('id="emotions"') : text.index('id="nights"')]
    emotions = re.findall(r'<th scope="row"><bdi>([^<]*)', table)
    assert len(emotions) == 32 and "newest 7 nights" in table
    assert "proud" in emotions[-14:] and "lonely" in emotions[:-14]
    assert len(re.findall(r"<td class=\"(?:warm|cool)\"", table)) == 32 * len(MODELS)
    with open_history(past) as history:
        cell = read_series(history).emotions["cyd", "lonely"]
        rows = [row for _, rows in history.results(EmotionResult, last=7) for row in rows]
    good = sum(row.good for row in rows if (row.model, row.emotion) == ("cyd", "lonely"))
    assert cell.share.value == pytest.approx(good / 70)
    assert cell.prompts == 10
    interval = cell.share.interval
    assert interval is not None and interval.high - interval.low > 0.3  # ten prompts, not 70


def test_the_judge_s_shift_shows_from_the_night_it_was_changed(site: Path) -> None:
    text = (site / "judge.html").read_text(encoding="utf-8")
    assert f"It shifted significantly on {-JUDGE_CHANGE} of {NIGHTS} nights." in text
    shifts = re.findall(r"<title>\d{4}-\d\d-\d\d: ([+]?\d\.\d) \[", text)
    assert float(shifts[-1]) == pytest.approx(4, abs=0.8)
    assert text.count("flagged") == -JUDGE_CHANGE


def test_responses_of_the_newest_nights_have_pages_with_marks_and_reasons(site: Path) -> None:
    pages = sorted(site.glob("responses-*.html"))
    assert len(pages) == 3 * len(MODELS)
    text = pages[0].read_text(encoding="utf-8")
    assert '<mark style="background: rgba(46, 158, 91, 0.37); color: inherit">That sounds exhausting.' in text
    assert "timed out: no answer in 60 s" in text
    positions = [text.index(f'data-label="{label}"') for label in ("Unscored", "Bad", "Okay")]
    assert positions == sorted(positions)


def test_marks_of_another_text_are_not_shown() -> None:
    item = JudgedResponse(
        model="m", id="1", prompt="p", response="One. Two.", highlights=[["One. ", 0.1], ["Two.", None]]
    )
    assert (marked(item) or "").count("<mark") == 2
    for odd in ([["Other.", 0.1]], "text", [["One. Two."]], [[1, 2]], {"parts": None}, [], 7):
        assert marked(replace(item, highlights=odd)) is None
    hidden = replace(item, response="a\u202eb", highlights=[["a\u202eb", 0.1]])
    assert "[U+202E]" in (marked(hidden) or "")


def test_nights_of_other_configs_are_left_out(tmp_path: Path) -> None:
    with open_history(tmp_path / "history.db") as history:
        for config, night in (("old", "1"), ("beside", "2"), ("new", "3"), ("beside", "4"), ("new", "5")):
            history.add_night(make_bare(night, config))
        series = read_series(history)
    assert [item.key for item in series.nights] == [("new", "3"), ("new", "5")]
    assert series.left_out == 3


def test_a_history_without_nights_and_one_with_nearly_nothing(tmp_path: Path) -> None:
    with open_history(tmp_path / "history.db") as history:
        build_dashboard(history, tmp_path / "none")
        assert "No night has been added" in (tmp_path / "none" / "index.html").read_text("utf-8")
        history.add_night(make_bare("first", models=(ModelResult(model="m", n=0),)))
        build_dashboard(history, tmp_path / "one")
        history.add_night(make_bare("second", models=(make_result("other"),)))
        build_dashboard(history, tmp_path / "two")
    text = (tmp_path / "two" / "index.html").read_text(encoding="utf-8")
    assert 'data-outcome="not run"' in text
    assert 'data-outcome="no gate"' in text
    assert "first: no value" in text and "second: 50.0 [40.0, 60.0]" in text


def test_a_rebuilt_site_leaves_nothing_of_the_earlier_one(tmp_path: Path) -> None:
    with open_history(tmp_path / "history.db") as history:
        history.add_night(make_bare("1", models=(make_result("gone"),)))
        build_dashboard(history, tmp_path / "site")
        (tmp_path / "site" / "notes.html").write_text("mine")
        names = json.loads((tmp_path / "site" / LIST).read_text())
        (tmp_path / "site" / LIST).write_text(json.dumps([*names, "../history.db", "notes.html"]))
        history.add_night(make_bare("1", models=(make_result("new"),)), instead=True)
        build_dashboard(history, tmp_path / "site")
    left = {path.name for path in (tmp_path / "site").iterdir()}
    assert f"model-{slug('new')}.html" in left
    assert f"model-{slug('gone')}.html" not in left
    assert "notes.html" in left
    assert (tmp_path / "history.db").exists()


def test_the_command(past: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli.main, ["dashboard", str(past), "--out", str(tmp_path / "site"), "--nights", "5", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["index"] == str(tmp_path / "site" / "index.html")
    assert "5 nights, from" in (tmp_path / "site" / "index.html").read_text("utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("precious")
    refused = CliRunner().invoke(cli.main, ["dashboard", str(past), "--out", str(tmp_path / "mine")])
    assert refused.exit_code == 2
    assert (tmp_path / "mine" / "index.html").read_text() == "precious"
    missing = CliRunner().invoke(cli.main, ["dashboard", str(tmp_path / "none.db")])
    assert missing.exit_code == 2

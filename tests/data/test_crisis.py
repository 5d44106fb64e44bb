"""The flag: who may be in danger is found, who only speaks like it is not, and nothing else changes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import run_checked
from repository import ROOT, dataset
from topics import on_topic

from empathy_judge.data.crisis import danger_said
from empathy_judge.data.files import read_toml
from empathy_judge.data.importers import import_source
from empathy_judge.data.records import Exchange, Turn, danger_in, judgment_of, unscored
from empathy_judge.data.tables import read_exchanges, to_row, write_rows

EXCHANGE = Exchange(id="1", prompt="I want to die.", response="I'm here. Are you safe right now?")
TEXTS = read_toml(Path(__file__).parent / "crisis_texts.toml")
DANGER, HARMLESS = ([TEXTS[f"{kind}_{half}"] for half in (0, 1)] for kind in ("danger", "harmless"))


def dangers(half: int) -> list[tuple[str, str]]:
    return [(kind, text) for kind, texts in DANGER[half].items() for text in texts]


def test_the_flag_finds_as_many_as_the_documentation_says() -> None:
    """The texts of the test half were kept apart while the patterns were written."""
    texts = read_toml(Path(__file__).parent / "danger_texts.toml")["test"]
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    for kind in ("danger", "safe"):
        every = [text for family in texts[kind].values() for text in family]
        assert f"{sum(danger_said(text) is not None for text in every)} of {len(every)}" in page


def test_recall_and_precision_on_texts_kept_apart() -> None:
    found = [text for _, text in dangers(1) if danger_said(text)]
    wrong = [text for text in HARMLESS[1] if danger_said(text)]
    assert len(found) / len(dangers(1)) >= 0.95
    assert len(found) / (len(found) + len(wrong)) >= 0.95
    fresh = TEXTS["fresh"]  # most of these are missed
    page = (ROOT / "docs" / "responsible-use.md").read_text(encoding="utf-8")
    assert f"{sum(danger_said(text) is not None for text in fresh)} of {len(fresh)}" in page


def test_a_danger_is_named_and_an_idiom_is_none() -> None:
    named = {text: kind for kind, text in dangers(0) if kind != "other languages"}
    named |= {
        "I DON'T WANT TO LIVE ANYMORE": "suicide",
        "I don\u2019t want to live any more": "suicide",
        "i dont want  to\nlive anymore.": "suicide",
        "\uff29 don't want to live anymore": "suicide",
        "I don't want to li\u200bve anymore": "suicide",
        "My brother killed himself, and now I want to die too.": "suicide",
        "embarrassed could have " * 4_000 + " I want to die.": "suicide",
    }
    harmless = [*HARMLESS[0], "", " ", "\ud83d", "\x00", "'" * 1000, "😶‍🌫️", "embarrassed could have " * 4_000]
    assert {text: danger_said(text) for text in named} == named
    assert [text for text in harmless if danger_said(text)] == []


def test_all_that_the_speaker_said_counts_and_nothing_that_was_answered() -> None:
    calm = Exchange(id="1", prompt="Thanks.", response="I want to die.")
    said = Turn(speaker="speaker", text="I want to die.")
    assert danger_in(calm) is None
    assert danger_in(replace(calm, dialogue=(said,))) == "suicide"
    assert danger_in(replace(calm, dialogue=(replace(said, speaker="Listener"),))) is None
    assert danger_in(replace(calm, situation="My husband hits me.")) == "abuse"


def test_a_flag_changes_no_label_and_is_there_whether_scored_or_not() -> None:
    sure = {"Bad": 0.1, "Okay": 0.2, "Good": 0.7}
    flagged, plain = judgment_of(EXCHANGE, sure), judgment_of(replace(EXCHANGE, prompt="Hello!"), sure)
    assert (flagged.flag, plain.flag) == ("suicide", None)
    assert (flagged.label, flagged.score) == (plain.label, plain.score)
    assert unscored(EXCHANGE, "refused").flag == "suicide"
    assert "flag" not in to_row(plain), "rows without a flag are as they were before there were flags"


def test_flagged_answers_are_listed_and_left_out_of_every_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": f"{model}{n}", "model": model, "prompt": f"{text}{prompt}"}
        | {"response": opening + " I'm so sorry." * len(model)}
        for model in ("a", "bb")
        for n, text in enumerate(["I want to die. ", "", ""] * 4)
        for prompt, opening in [on_topic(n)]
    ]
    write_rows(Path("r.jsonl"), rows)
    write_rows(Path("safe.jsonl"), [row for row in rows if "die" not in row["prompt"]])
    printed = " ".join(run_checked("score", "r.jsonl", "--judge", "length", "--out", "run").stdout.split())
    said = "8 answers to somebody who may be in danger (ids a0, a3, a6, a9, bb0 and 3 more"
    assert said in printed and "run/to-read.jsonl" in printed
    summary = json.loads(Path("run/summary.json").read_text())
    found = summary["flagged"]
    assert (found["count"], found["dangers"], len(found["ids"])) == (8, {"suicide": 8}, 8)
    compared = json.loads(run_checked("compare", "run", "--json").stdout)
    assert compared["flagged"] == found and any(said in note for note in compared["notes"])
    run_checked("score", "safe.jsonl", "--judge", "length", "--out", "safe")
    without = json.loads(Path("safe/summary.json").read_text())["models"]
    for one, other in zip(summary["models"], without, strict=True):
        assert {**one, "fit": None} == {**other, "fit": None}
    assert not Path("safe/to-read.jsonl").exists()
    listed = {(item.id, item.prompt): item.extra for item in read_exchanges(Path("run/to-read.jsonl"))}
    dangerous = [(row["id"], row["prompt"]) for row in rows if "die" in row["prompt"]]
    assert listed == {key: {"danger": "suicide"} for key in dangerous}
    run_checked("rate", "plan", "run/to-read.jsonl", "--people", "1", "--each", "8")


@pytest.mark.slow
def test_few_prompts_of_the_crowd_study_are_flagged() -> None:
    exchanges = import_source("empathy-study", dataset("empathy-study")).exchanges
    prompts = {item.prompt_digest: item for item in exchanges}
    flagged = [item for item in prompts.values() if danger_in(item)]
    assert 0 < len(flagged) <= len(prompts) // 100

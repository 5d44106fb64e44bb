"""A judge fitted to ratings: raters who contradict the default judge are followed, and it scores as any."""

import json
from pathlib import Path

import pytest
from command_line import run, run_checked

from empathy_judge.data.records import Exchange
from empathy_judge.data.tables import SAMPLE_PROMPTS, read_prompts, write_rows

# These raters dislike comfort and like curt replies; the default judge does not.
REPLIES = {
    "Good": "Noted. Moving on to the next item, {}.",
    "Okay": "I see. What did you do about {} then?",
    "Bad": "I am so sorry to hear that; {} must be very hard, and I am here for you.",
}


@pytest.fixture
def rated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Exchange, str]]:
    monkeypatch.chdir(tmp_path)
    rows = [
        (Exchange(id=f"p{number}", prompt=prompt, response=REPLIES[label].format(prompt.split()[-1])), label)
        for number, prompt in enumerate(asked.prompt for asked in list(read_prompts(SAMPLE_PROMPTS))[:60])
        for label in [list(REPLIES)[number % 3]]
    ]
    # The files do not share ids: ratings are joined by content, as `rate collect` writes it.
    exchanges = ({"prompt": item.prompt, "response": item.response, "model": "m"} for item, _ in rows)
    write_rows(Path("replies.jsonl"), exchanges)
    ratings = (
        {
            "id": f"x{at}",
            "content_digest": item.content_digest,
            "rater": f"r{at % 5}",
            "rating": label,
        }
        for at, (item, label) in enumerate(rows)
    )
    write_rows(Path("ratings.jsonl"), ratings)
    return rows


def test_a_judge_follows_the_raters_it_was_fitted_to(rated: list[tuple[Exchange, str]]) -> None:
    done = run_checked("train", "replies.jsonl", "ratings.jsonl", "--out", "mine", "--json")
    report = json.loads(done.stdout)
    fitted, default = (row["metrics"]["spearman"]["value"] for row in report["runs"][:2])
    assert fitted > 0.8 and default < 0, "under prompts that were left out of the fit"
    run_checked("score", "replies.jsonl", "--judge", "mine.toml", "--calibration", "none", "--out", "run")
    lines = Path("run/judgments.jsonl").read_text(encoding="utf-8").splitlines()
    labels = [json.loads(line)["label"] for line in lines]
    assert sum(label == wanted for label, (_, wanted) in zip(labels, rated, strict=True)) > 50
    assert json.loads(Path("run/manifest.json").read_text())["judge"] == "mine"


def test_what_cannot_be_fitted_is_refused_before_replies_are_read(rated: list[tuple[Exchange, str]]) -> None:
    few = Path("ratings.jsonl").read_text().splitlines(keepends=True)[:20]
    Path("few.jsonl").write_text("".join(few))
    for words in (("few.jsonl",), ("ratings.jsonl", "--recipe", "head", "--seed", "0"), ()):
        done = run("train", "replies.jsonl", *words, "--out", "mine")
        assert done.exit_code == 2 and not Path("mine").exists(), done.output

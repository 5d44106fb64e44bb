"""The map to one's own ratings: where people and the judge differ about length, and where they agree."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run
from scipy.stats import spearmanr
from topics import on_topic

import empathy_judge as ej
from empathy_judge.calibration import fit
from empathy_judge.calibration.estimate import Floats
from empathy_judge.data.records import LABELS, Exchange, Judgment, judgment_of
from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.tables import read_judgments, to_row, write_rows
from empathy_judge.judge import base
from empathy_judge.server.served_judge import ServedJudge

LIKING = 0.7  # of length: the judge's, and the dislike of the raters
LEVELS = {"ada": -0.6, "bea": -0.3, "cyd": 0.0, "dot": 0.3, "eve": 0.5, "fay": 0.7}
Replies = list[dict[str, Any]]


def chances(response: str, liking: float) -> Floats:
    """Return the probabilities of a reply, which states its quality, for such a liking of length."""
    quality = re.search(r"-?\d\.\d+", response)
    level = float(quality[0] if quality else 0) + liking * math.log(len(response.split()) / 14)
    powers = np.exp([0.0, 0.7 + level, 0.9 + 2 * level])
    return np.asarray(powers / powers.sum())


class FondJudge(base.Judge):
    """A judge that knows the quality of a reply, and likes length."""

    name, version, concurrency = "fond", "1", 1

    def __init__(self) -> None:
        self.rubric = read_rubric("crowd")

    def judge(self, exchange: Exchange) -> Judgment:
        return judgment_of(exchange, dict(zip(LABELS, chances(exchange.response, LIKING), strict=True)))


@pytest.fixture(scope="module", autouse=True)
def _fond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Registers the judge, and shares a folder, so that replies are scored once."""
    with chdir(tmp_path_factory.mktemp("maps")), pytest.MonkeyPatch.context() as patch:
        patch.setitem(base.JUDGES, "fond", f"{__name__}:FondJudge")
        yield


def make_replies(levels: dict[str, float], *, shortest: float, longest: float, seed: int) -> Replies:
    rng, rows = np.random.default_rng(seed), []
    for number in range(50):
        prompt, opening = on_topic(number)
        for model, level in levels.items():
            length = int(np.exp(rng.uniform(math.log(shortest), math.log(longest))))
            quality = f"{level + rng.normal(0, 0.6):.3f}"
            response = f"{opening} {quality} {'word ' * (length - 3)}".strip()
            rows.append({"id": f"{model}{number}", "model": model, "prompt": prompt, "response": response})
    return rows


def calibrate(liking: float, *, seed: int = 3, out: str) -> tuple[dict[str, Any], float]:
    """Calibrate on ratings by twenty simulated people; also return the gain of a map that knows them."""
    rows, rng = make_replies(LEVELS, shortest=4, longest=40, seed=seed), np.random.default_rng(seed)
    write_rows(Path("replies.jsonl"), rows)
    known = np.array([chances(row["response"], liking) for row in rows])
    own = np.array([chances(row["response"], LIKING) for row in rows])
    ratings, rated = [], rng.permutation(len(rows))
    for at, reply in enumerate(rated.tolist()):
        rating = 1 + int(rng.choice(3, p=known[reply]))
        ratings.append({"id": rows[reply]["id"], "rater": f"rater {at % 20}", "rating": rating})
    write_rows(Path("ratings.jsonl"), ratings)
    run("calibrate", "replies.jsonl", "ratings.jsonl", "--judge", "fond", "--out", out, code=0)
    given = [row["rating"] for row in ratings]
    best, judge = (spearmanr(given, (table @ [1, 2, 3])[rated]).statistic for table in (known, own))
    return json.loads(Path(out, "report.json").read_text()), float(best - judge)


def test_raters_who_dislike_length_get_a_map_that_gains_what_is_known() -> None:
    report, known_gain = calibrate(-LIKING, out="out")
    gain = report["map_trial"]["gain"]
    assert known_gain > 0.1 and gain["low"] < known_gain < gain["high"]
    assert gain["low"] > 0 and gain["value"] == pytest.approx(known_gain, abs=0.02)
    said = " ".join(report["verdict"])
    assert "Map to these ratings: Spearman 0." in said and "]), applied." in said
    assert json.loads(Path("out/calibration.json").read_text())["rating_map"]


def test_ratings_that_follow_the_judge_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    report, _ = calibrate(LIKING, out="with")
    assert report["map_trial"]["rating_map"] is None
    assert "not certain, not applied." in " ".join(report["verdict"])
    monkeypatch.setattr(fit, "try_map", lambda paired, judgments, **options: (None, judgments))
    calibrate(LIKING, out="without")
    with_trial, without = (Path(name, "calibration.json").read_bytes() for name in ("with", "without"))
    assert with_trial == without and b"rating_map" not in without


def test_scores_and_comparisons_are_by_the_map() -> None:
    """Of two new models that differ in length alone, people prefer the one that the judge likes less."""
    calibrate(-LIKING, out="out")
    rows = [
        *make_replies({"long": 0.1}, shortest=20, longest=36, seed=8),
        *make_replies({"short": 0.1}, shortest=5, longest=11, seed=8),
    ]
    write_rows(Path("new.jsonl"), rows)
    truth, judge = (
        {
            model: np.mean([chances(row["response"], liking)[2] for row in rows if row["model"] == model])
            for model in ("long", "short")
        }
        for liking in (-LIKING, LIKING)
    )
    words = {"calibration": "out/calibration.json"}
    scored, own = ej.score("new.jsonl", "fond", **words), ej.score("new.jsonl", "fond", calibration="none")
    for model, share in truth.items():
        mapped, raw, corrected = (
            next(row[key]["Good"] for row in run.data["models"] if row["model"] == model)
            for run, key in ((scored, "shares"), (own, "shares"), (scored, "corrected"))
        )
        assert abs(judge[model] - share) > 0.15 and raw["value"] == pytest.approx(judge[model], abs=1e-4)
        assert mapped["value"] == pytest.approx(share, abs=0.05)
        assert corrected["low"] < share < corrected["high"] and abs(corrected["value"] - share) < 0.05
        of_replies = [row["good"] for row in scored.judgments() if row["model"] == model]
        assert np.mean(of_replies) == pytest.approx(mapped["value"], abs=1e-5)
    assert scored.folder is not None and "mapped to its ratings" in scored.data["calibration_note"]
    stored = list(read_judgments(scored.folder / "judgments.jsonl"))
    served = ServedJudge(FondJudge(), "out/calibration.json").shares(map(to_row, stored), baseline="long")
    assert served["models"][0]["shares"] == scored.data["models"][0]["shares"], "mapped once"
    assert "better" in served["pairs"][0]["verdict"], "short against long"
    assert "better" in ej.compare(scored, baseline="long").rows[0]["verdict"]
    assert "worse" in ej.compare(scored, baseline="long", calibration="none").rows[0]["verdict"]

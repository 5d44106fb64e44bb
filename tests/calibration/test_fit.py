"""Calibrations on data with known answers: recorded language models, the shipped ones, and plain words."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from repository import ROOT

from empathy_judge.calibration.artifact import Calibration, find_calibration, read_calibration
from empathy_judge.calibration.estimate import Estimate
from empathy_judge.calibration.fit import CalibrationOptions, calibrate
from empathy_judge.calibration.shares.correction import correct_shares
from empathy_judge.calibration.shares.tally import Tally
from empathy_judge.calibration.shares.transport import TargetModel, transport
from empathy_judge.data.judgments import Judged
from empathy_judge.data.records import LABELS, Exchange, Rating, judgment_of
from empathy_judge.judge.base import load_judge

QUICK = CalibrationOptions(draws=40)


def world(seed: int = 0, kindness: float = 0.0) -> tuple[Judged, list[Rating], dict[str, float]]:
    """Six models whose Good shares go from .3 to .8, in batches of ten, and a judge that knows."""
    rng = np.random.default_rng(seed)
    judgments, ratings = [], []
    truth = {f"m{number}": float(share) for number, share in enumerate(np.linspace(0.3, 0.8, 6))}
    for model, share in truth.items():
        for response in range(200):
            good = float(np.clip(share + rng.normal(0, 0.05), 0.05, 0.95))
            identity = f"{model}-{response}"
            parts = np.array([(1 - good) / 2, (1 - good) / 2, good])
            told = np.clip(parts + kindness * np.array([-0.5, -0.5, 1.0]), 0, 1).tolist()
            exchange = Exchange(id=identity, prompt=identity, response="x", model=model)
            judgments.append(judgment_of(exchange, dict(zip(LABELS, told, strict=True))))
            rating, batch = 1 + int(rng.choice(3, p=parts)), f"{model}-{response // 10}"
            ratings.append(Rating(id=identity, rater=identity, batch=batch, rating=rating))
    return Judged(name="knows", judgments=tuple(judgments), source="knows"), ratings, truth


def holds(estimate: Estimate, value: float) -> bool:
    return estimate.interval is not None and estimate.interval.low <= value <= estimate.interval.high


def test_a_judge_that_is_too_kind_is_corrected() -> None:
    run, ratings, truth = world(seed=1, kindness=0.08)
    report = calibrate([run], ratings, options=QUICK)
    corrected = left_out = 0
    for row in report.models.rows:
        share = truth[row.model]
        assert row.judge["Good"] > share + 0.05
        assert row.corrected["Good"].value == pytest.approx(share, abs=0.06)
        corrected += holds(row.corrected["Good"], share)
        left_out += holds(row.left_out["Good"], share)
    assert min(corrected, left_out) >= 5, "of six 95 % intervals one may miss"
    kindness = next(item for item in report.findings if item.audit == "level")
    assert (kindness.verdict, kindness.effect.value > 0) == ("found", True)
    assert report.models.lines["Good"].slope == pytest.approx(1, abs=0.3)


def test_an_honest_judge_is_left_alone_and_unscored_responses_are_counted() -> None:
    run, ratings, _ = world()
    first, _, *rest = run.judgments
    silent = replace(first, label=None, score=None, probabilities=None, unscored="refused: no")
    report = calibrate([replace(run, judgments=(silent, *rest))], ratings, options=QUICK)
    assert report.reliability.ece < 0.06 and report.agreement.levels.tau.value == 1
    assert report.headline == "qwk_matched"
    assert (report.data.unscored, report.data.unjudged) == ({"refused": 1}, 1)


@pytest.fixture
def shipped() -> Calibration:
    return read_calibration(ROOT / "judge" / "weights" / "classifier" / "calibration.json")


def test_the_shipped_calibration_covers_every_model_left_out(shipped: Calibration) -> None:
    assert shipped.count == 3840 and list(shipped.calibrated_models) == list(LABELS)
    for label, rated in shipped.calibrated_models.items():
        assert {"gpt-4", "gpt-4-plain", "llama-2-70b-chat", "gemini-1.0-pro", "human"} < set(rated.models)
        for model, judge, crowd in zip(rated.models, rated.judge, rated.crowd, strict=True):
            level = transport(rated.without(model), TargetModel(judge=judge))
            assert holds(level, crowd), (model, label)
            is_open = level.interval.high == 1.0 or level.interval.low == 0.0
            assert is_open or level.interval.high - level.interval.low < 0.45
        assert all(0 < noise < 0.03**2 for noise in rated.noise), "the crowd's own error"


def test_the_shipped_calibration_is_of_the_shipped_judge(shipped: Calibration) -> None:
    judge = load_judge(shipped.judge)
    found = find_calibration(judge, None, today=shipped.created)
    assert found.digest == shipped.digest, found.note
    late = find_calibration(judge, None, today=shipped.expires)
    assert late.digest is None and f"it expired on {shipped.expires}" in late.note


def test_a_name_in_the_line_is_taken_out_of_it(shipped: Calibration) -> None:
    """What was rated under a name is not what is judged now: a known name gives no narrower interval."""
    tally = Tally()
    for model in ("gpt-4", "new"):
        for number in range(50):
            exchange = Exchange(id=f"{model}{number}", prompt=str(number), response="r", model=model)
            good = 0.6 + 0.001 * (number % 5)
            tally.add(judgment_of(exchange, {"Bad": 0.09, "Okay": 0.91 - good, "Good": good}))
    shares = correct_shares(tally, shipped)
    known, new = (shares[model]["Good"].interval for model in ("gpt-4", "new"))
    assert known.high - known.low > new.high - new.low


def test_a_calibration_is_applied_with_the_core_dependencies(tmp_path: Path) -> None:
    """`score` runs on the base dependencies."""
    words = ["score", "data/samples/responses.jsonl", "--limit", "36", "--json"]
    program = (
        "import sys\n"
        "for name in ('sklearn', 'ppi_py', 'krippendorff'): sys.modules[name] = None\n"
        "from empathy_judge.commands.main import main; main()"
    )
    command = [sys.executable, "-c", program, *words, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(model["corrected"]["Good"] for model in json.loads(done.stdout)["models"])

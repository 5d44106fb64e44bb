"""Nights of which every figure is known, and a history with a planted regression and a changed judge."""

import os
import subprocess
import sys
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from repository import ROOT

from empathy_judge.calibration.estimate import Estimate, Interval
from empathy_judge.calibration.prompt_fit import PromptFit
from empathy_judge.data.records import EMOTIONS, LABELS
from empathy_judge.nightly.history import open_history
from empathy_judge.nightly.schema import (
    AnchorResult,
    ChangeResult,
    EmotionResult,
    GateResult,
    JudgedResponse,
    ModelResult,
    NightRecord,
)

EVIL = "<script>document.title='taken'</script>"
NASTY_MODEL = "llama & <b>co</b>/3"
MODELS = ("ada-small", "bea-large", NASTY_MODEL, "cyd")
REGRESSED = ("bea-large", -3)  # the model, and the night from the end
JUDGE_CHANGE = -12
SAID = (
    "bea-large: regression: Good share \N{MINUS SIGN}6.1 points against the baseline; significant for lonely."
)


def name_of(number: int) -> str:
    return (date(2024, 1, 1) + timedelta(days=number)).isoformat()


def make_night(number: int = 0, *, config: str = "c1", models: int = 2, responses: int = 3) -> NightRecord:
    """A night of which every figure is known."""
    names = [f"model-{n}" for n in range(models)]
    shares = {label: Estimate(0.1 * n, Interval(0.0, 0.5)) for n, label in enumerate(LABELS)}
    corrected = {"Good": Estimate(0.25, None)}
    return NightRecord(
        config=config,
        night=name_of(number),
        started="2026-01-01T02:00:00+00:00",
        finished="2026-01-01T02:10:00+00:00",
        judge="classifier",
        judge_version="v1",
        calibration="abc",
        status="pass",
        judge_moved="by a little",
        models=tuple(
            ModelResult(
                model=name,
                served=f"{name}-0613",
                responses="digest",
                n=160,
                unscored={"timed out": 2},
                raw=shares,
                corrected=corrected,
                cost=0.01,
                seconds=3.5,
                notes=("Read it with care.",),
                fit=PromptFit(Estimate(0.97, Interval(0.95, 0.99)), prompts=160, repeated=0.0),
            )
            for name in names
        ),
        changes=tuple(make_change(name, -0.01, night_sums={"good": [3.0, 0.1, 0.2, 3.0]}) for name in names),
        emotions=tuple(
            EmotionResult(model=name, emotion=emotion, n=5, bad=1.0, okay=1.5, good=2.5)
            for name in names
            for emotion in EMOTIONS
        ),
        anchors=tuple(
            AnchorResult(anchors="set", item=f"i{n}", score=2.5, bad=0.1, okay=0.3, good=0.6)
            for n in range(4)
        ),
        gates=(
            GateResult(gate="good_share_drop", model="model-0", outcome="inconclusive", emotions=("sad",)),
            GateResult(gate="max_cost", outcome="pass", value=0.02, limit=1.0, sentence="It cost 0.02 USD."),
        ),
        judgments=tuple(
            JudgedResponse(
                model=name,
                id=f"r{n}",
                prompt="I won!",
                response="<script>alert(1)</script>",
                label="Good",
                score=2.6,
                highlights=[["Well done.", 0.2]],
            )
            for name in names
            for n in range(responses)
        ),
    )


def write_history(path: Path, *, nights: int = 40, responses: int = 12) -> Path:
    """Add simulated nights; judgments are kept of the newest six."""
    chance = Random(0)
    with open_history(path) as history:
        for number in range(nights):
            history.add_night(simulate_night(number, nights, chance, responses), keep_judgments=6)
    return path


def simulate_night(number: int, nights: int, chance: Random, responses: int) -> NightRecord:
    from_end = number - nights
    is_new_judge = from_end >= JUDGE_CHANGE
    results, changes, emotions, judgments, gates = [], [], [], [], []
    for at, model in enumerate(MODELS):
        is_down = model == REGRESSED[0] and from_end >= REGRESSED[1]
        level = 0.45 + 0.1 * at - (0.06 if is_down else 0) + (0.02 if is_new_judge else 0)
        good = level + chance.gauss(0, 0.012)
        result = _result(model, good, chance, has_cost=from_end < -1 or model != "cyd")
        change = Random(f"{model} {number}").gauss(0, 0.008) - (0.06 if is_down else 0)
        results.append(result)
        changes += [make_change(model, change)] if number else []
        for emotion in EMOTIONS:
            share = good + 0.15 * (len(emotion) % 5 - 2) / 2 + chance.gauss(0, 0.05)
            good_count = 10 * min(1.0, max(0.0, share))
            rest = (10 - good_count) / 2
            found = EmotionResult(model=model, emotion=emotion, n=10, bad=rest, okay=rest, good=good_count)
            emotions.append(found)
        judgments += [_judged(model, reply, good, chance) for reply in range(responses)]
        gates.append(_gate("max_cost", model, "pass", f"{model}: fine", value=0.01, limit=1))
        if is_down:
            gates.append(_gate("good_share_drop", model, "regression", SAID, value=6.1, limit=3))
    gates.append(_gate("bad_share_rise", "cyd", "inconclusive", "cyd: not known"))
    shift = 0.04 if is_new_judge else 0.0
    return NightRecord(
        config="c1",
        night=name_of(number),
        started=f"{name_of(number)}T02:00:00+00:00",
        finished=f"{name_of(number)}T02:10:00+00:00",
        judge="prompted",
        judge_version="v2" if is_new_judge else "v1",
        calibration="c0ffee1234",
        status="regression" if from_end >= REGRESSED[1] else "pass",
        models=tuple(results),
        changes=tuple(changes),
        emotions=tuple(emotions),
        anchors=tuple(
            AnchorResult(
                anchors="set", item=f"i{at}", score=2.0, good=0.3 + 0.01 * at + shift + chance.gauss(0, 0.01)
            )
            for at in range(40)
        ),
        gates=tuple(gates),
        judgments=tuple(judgments),
    )


def make_change(model: str, value: float, **more: Any) -> ChangeResult:
    """Return a change since the first night, of a judge that did not move."""
    total = Estimate(value, Interval(value - 0.019, value + 0.019))
    about = {"nights": (name_of(0),), "own": total, "verdict": "neither shown"}
    return ChangeResult(model=model, against="baseline", prompts=158, total=total, **about, **more)


def _gate(gate: str, model: str, outcome: Any, sentence: str, **more: Any) -> GateResult:
    return GateResult(gate=gate, model=model, outcome=outcome, sentence=sentence, **more)


def estimates(shares: dict[str, float], half: float) -> dict[str, Estimate]:
    return {label: Estimate(value, Interval(value - half, value + half)) for label, value in shares.items()}


def _result(model: str, good: float, chance: Random, *, has_cost: bool) -> ModelResult:
    bad = 0.5 * (1 - good)
    raw = {"Good": good + 0.03, "Okay": 1 - good - bad - 0.02, "Bad": bad - 0.01}
    corrected = {"Good": good, "Okay": 1 - good - bad, "Bad": bad}
    return ModelResult(
        model=model,
        served=f"{model}-0613",
        n=158,
        unscored={"timed out": chance.randrange(4), "no label": chance.randrange(2)},
        raw=estimates(raw, 0.03),
        corrected={} if model == "cyd" else estimates(corrected, 0.05),
        cost=0.01 + 0.002 * chance.random() if has_cost else None,
        seconds=30.0,
    )


def _judged(model: str, at: int, good: float, chance: Random) -> JudgedResponse:
    score = min(3.0, max(1.0, 1.4 + good + chance.gauss(0, 0.4)))
    parts = {
        "That sounds exhausting. ": 0.31,
        "No wonder you are upset. ": 0.18,
        "Have you tried making a list?": -0.22,
    }
    judged: dict[str, Any] = {"unscored": "timed out: no answer in 60 s"}
    if at != 1:
        judged = {"bad": 0.2, "okay": 0.3, "good": 0.5, "score": score, "label": LABELS[round(score) - 1]}
        judged["rationale"] = f"It names the feeling {EVIL}, then hurries to advice."
    return JudgedResponse(
        model=model,
        id=f"r{at}",
        prompt=f"My week {at} was awful, and nobody asked how I am.",
        response="".join(parts) if at else EVIL,
        emotion=EMOTIONS[at % len(EMOTIONS)],
        situation="After a long week",
        highlights=[[text, effect] for text, effect in parts.items()] if at else None,
        **judged,
    )


def main() -> None:
    """Add three nights of its own and one that all workers share; with a third word, nights until killed."""
    url, worker, *more = sys.argv[1:]
    if more:
        with open_history(url) as history:
            for number in count(int(worker)):
                history.add_night(make_night(number), keep_judgments=10**6)
                print(number, flush=True)
    sys.stdin.read(1)
    added = []
    for number in [*range(100 * int(worker), 100 * int(worker) + 3), 999]:
        with open_history(url) as history:
            added.append(history.add_night(make_night(number), keep_judgments=1000))
    print(sum(added[:3]), int(added[3]))


def start_worker(url: str, worker: int, *more: str) -> "subprocess.Popen[str]":
    """Start `main` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, __file__, url, str(worker), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)},
    )


if __name__ == "__main__":
    main()

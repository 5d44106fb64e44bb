"""Nights from end to end, with models and a judge that are what the test says."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from click.testing import CliRunner
from histories import make_night
from nightly_world import ANCHORS, CURT, GATES, NOW, PROMPTS, World, start_world

from empathy_judge.calibration.monitoring.drift import paired_change
from empathy_judge.commands import main as cli
from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.files import locked
from empathy_judge.nightly.changes import judge_shift
from empathy_judge.nightly.config import read_config
from empathy_judge.nightly.history import open_history
from empathy_judge.nightly.measure import LLM_ANCHORS
from empathy_judge.nightly.night import run_night
from empathy_judge.nightly.output import FinishedNight, sentences
from empathy_judge.nightly.schema import AnchorResult

pytestmark = pytest.mark.slow  # whole nights; the golden walks have three in the fast tier

LOSSES = ("I lost my job.", "I lost my dog.", "I lost my keys.")
REGRESSED = frozenset(("bob", feeling) for feeling in CURT)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with start_world(tmp_path) as world:
        yield world


def live(world: World, night: str, **tonight: object) -> FinishedNight:
    """A night on which something is different."""
    world.mood = str(tonight.pop("mood", night))
    for name in ("curt", "shift", "broken"):
        setattr(world, name, tonight.get(name, 0.0 if name == "shift" else frozenset()))
    return world.run(night)


def outcomes(finished: FinishedNight) -> dict[tuple[str, str], str]:
    return {(item.model, item.name): item.outcome for item in finished.record.gates}


def test_three_nights_one_with_a_regression_and_one_with_another_judge(world: World) -> None:
    world.write()
    first = live(world, "2026-12-01")
    assert (first.exit_code, first.record.status) == (0, "pass")
    assert outcomes(first)["bob", "good_share_drop against baseline"] == "skipped"
    quiet = live(world, "2026-12-02")
    assert quiet.exit_code == 0
    assert set(outcomes(quiet).values()) == {"pass"}

    fallen = live(world, "2026-12-03", curt=REGRESSED)
    assert (fallen.exit_code, fallen.record.status) == (1, "regression")
    regressions = [item for item in fallen.record.gates if item.outcome == "regression"]
    found = {(item.model, item.name): item.emotions for item in regressions}
    assert tuple(sorted(found["bob", "good_share_drop against baseline"])) == CURT
    assert tuple(sorted(found["bob", "good_share_drop against last night"])) == CURT
    assert {model for model, _ in found} == {"bob"}
    shown = sentences(fallen.record)
    assert any("bob: regression: " in said and all(feeling in said for feeling in CURT) for said in shown)
    assert fallen.record.judge_moved is None

    drifted = live(world, "2026-12-04", shift=0.15)
    assert (drifted.exit_code, drifted.record.status) == (4, "stale")
    assert not [item for item in drifted.record.gates if item.outcome == "regression"]
    assert sentences(drifted.record)[2].startswith("The judge shifted by \N{MINUS SIGN}15.0 [")
    change = next(item for item in drifted.record.changes if item.model == "ann")
    assert (change.against, change.verdict) == ("baseline", "the judge moved")
    assert change.judge.value == pytest.approx(-0.15, abs=1e-6)
    assert abs(change.own.value) < 0.02


def test_a_large_drop_after_nine_good_nights_is_a_regression_on_its_first_night(world: World) -> None:
    world.write(models=("ann",))
    nights = [f"2026-12-{day:02}" for day in range(1, 11)]
    world.swings = dict.fromkeys(nights, 0.0) | {nights[-1]: -0.2}
    finished = [live(world, night) for night in nights]
    assert [night.exit_code for night in finished] == [0] * 9 + [1]
    shown = sentences(finished[-1].record)
    assert shown[1].startswith("Change from the baseline, points (Good share): ann \N{MINUS SIGN}")
    drop = next(line for line in shown if line.startswith("ann: regression: Good share"))
    value = float(drop.partition("share \N{MINUS SIGN}")[2].partition(" points")[0])
    assert 17 < value < 23 and "mean of" not in drop, "tonight's drop, not the mean of the newest nights"


def test_nights_after_a_regression_pass_as_before_it_in_the_order_of_time(world: World) -> None:
    world.write(models=("ann",), gates="[gates]\ngood_share_drop = 5\nmax_drop = 4\n")
    nights = [f"night{number}" for number in range(1, 11)]
    world.swings = dict.fromkeys(nights, 0.0) | {"night10": -0.09}
    curt, finished = frozenset(("ann", feeling) for feeling in CURT), []
    for world.day, night in enumerate(nights):
        finished.append(live(world, night, curt=curt if night == "night4" else frozenset()))
    assert [night.exit_code for night in finished] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    ends = [night.record.changes[0].total.interval for night in finished[1:]]
    before, *after = (item.high - item.low for item in (ends[1], *ends[3:8]) if item is not None)
    assert max(after) <= 1.5 * before
    # As text night10 would be the second.
    assert finished[-1].record.changes[1].nights == ("night9",)
    with open_history(world.folder / "nights.sqlite") as history:
        assert [night.night for night in history.nights()] == nights
        world.run("night4", again=True)
        assert [night.night for night in history.nights(last=7)] == nights[3:], "it stays in its place"


def test_a_regression_under_another_judge_is_still_the_models(world: World) -> None:
    world.write()
    live(world, "2026-12-01")
    ran = live(world, "2026-12-02", curt=REGRESSED, shift=0.1)
    found = outcomes(ran)
    assert ran.exit_code == 1
    assert found["bob", "good_share_drop against baseline"] == "regression"
    assert found["ann", "good_share_drop against baseline"] == "stale"
    change = next(item for item in ran.record.changes if item.model == "bob")
    assert (change.against, change.verdict) == ("baseline", "both")


def test_a_new_judge_starts_a_new_baseline(world: World) -> None:
    path = world.write(models=("ann",))
    live(world, "2026-12-01")
    judge = world.folder / "judge.toml"
    judge.write_text(judge.read_text().replace('"judge"', '"other"'))
    ran = live(world, "2026-12-02", shift=0.3)
    assert (ran.exit_code, ran.record.judge_moved, ran.record.changes) == (0, None, ())
    assert "earlier nights are not compared" in (ran.record.judge_note or "")
    assert ran.record.judge_note in sentences(ran.record)
    third = live(world, "2026-12-03", shift=0.3).record
    assert third.judge_note is None
    assert {change.nights for change in third.changes} == {("2026-12-02",)}
    # The night before can be judged again by the new judge, from the responses that are stored.
    path.write_text(f"baseline = 2026-12-01\n{path.read_text()}")
    with pytest.raises(UserError, match=r"scored by .*--night 2026-12-01 --again"):
        world.run("2026-12-04")
    asked = world.asked["ann"]
    world.run("2026-12-01", again=True)
    assert world.asked["ann"] == asked
    assert ("2026-12-01",) in {change.nights for change in world.run("2026-12-04").record.changes}


def test_the_same_night_again_asks_nothing_and_changes_nothing(world: World) -> None:
    world.write()
    first = live(world, "2026-12-01")
    assert world.asked == {"ann": PROMPTS, "bob": PROMPTS, "judge": 2 * PROMPTS + ANCHORS}
    before = world.export()
    second = live(world, "2026-12-01", mood="another", shift=0.3)
    assert (first.is_new, second.is_new) == (True, False)
    assert second.record == first.record and world.export() == before
    # Other settings are refused, or scored again from what is stored.
    world.write(gates=GATES.replace("5", "60").replace("8", "60"))
    with pytest.raises(UserError, match="with other settings; run it again with --again"):
        world.run("2026-12-01")
    ran = world.run("2026-12-01", again=True)
    assert (ran.exit_code, ran.is_new) == (0, True)
    assert sum(world.asked.values()) == 4 * PROMPTS + ANCHORS


def test_a_model_that_cannot_be_asked_fails_alone_and_is_taken_up_again(world: World, tmp_path: Path) -> None:
    world.write()
    ran = live(world, "2026-12-01", broken=frozenset({"bob"}))
    assert (ran.exit_code, ran.record.status) == (5, "failed")
    assert [model.model for model in ran.record.models] == ["ann"]
    assert "401" in ran.record.failed["bob"]
    world.asked.clear()
    mended = live(world, "2026-12-01")
    assert (mended.exit_code, mended.is_new) == (0, True)
    assert world.asked == {"bob": PROMPTS, "judge": PROMPTS}
    broken = world.export()
    with start_world(tmp_path / "unbroken") as other:
        other.write()
        live(other, "2026-12-01")
        assert other.export() == broken


def test_a_spent_purse_ends_a_model_and_more_money_goes_on(world: World) -> None:
    path = world.write(models=("ann",), head="max_cost = 0.1\n")
    for file, price in ((path, 20.0), (world.folder / "judge.toml", 0.0001)):
        prices = f"prices = {{ input = {price}, output = {price} }}\n"
        file.write_text(file.read_text().replace("base_url", f"{prices}base_url"))
    ran = live(world, "2026-12-01")
    assert ran.exit_code == 5
    assert "the budget of USD 0.1 is reached" in ran.record.failed["ann"]
    assert 0 < world.asked["ann"] < PROMPTS
    path.write_text(path.read_text().replace("max_cost = 0.1", "max_cost = 9"))
    assert live(world, "2026-12-01").exit_code == 0
    assert world.asked["ann"] == PROMPTS


def test_repeated_looks_are_rebuilt_from_the_history(world: World) -> None:
    world.write(models=("ann",))
    nights = [f"2026-12-0{n}" for n in range(1, 6)]
    for night in nights:
        live(world, night)
    with open_history(world.folder / "nights.sqlite") as history:
        records = [history.night("n", night) for night in nights]
    last = records[-1]
    assert last is not None
    stored = last.changes[0]
    assert (stored.against, stored.nights_used, stored.nights) == ("baseline", 4, (nights[0],))
    good = [{item.prompt: item.good for item in record.judgments} for record in records if record]
    differences = np.array([good[-1][prompt] - good[0][prompt] for prompt in good[0]])
    assert stored.night_sums["good"] == pytest.approx(
        (PROMPTS, differences.sum(), (differences**2).sum(), PROMPTS)
    )
    # Another night is pinned: the nights since then are counted anew.
    path = world.folder / "n.toml"
    path.write_text(f"baseline = {nights[2]}\n{path.read_text()}")
    change = live(world, "2026-12-06").record.changes[0]
    assert (change.nights, change.nights_used) == ((nights[2],), 3)


def test_a_pinned_night_must_be_there(world: World) -> None:
    world.write(head="baseline = 2026-11-30\n")
    with pytest.raises(UserError, match=r"no night '2026-11-30' of 'n' in the history; newest: none yet"):
        world.run("2026-12-01")
    assert not world.asked, "said before anything is paid for"


def write_responses(path: Path, names: tuple[str, ...], text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = (
        {"id": f"{n}{name}", "prompt": f"P {n}", "response": f"{text} {n}", "model": name}
        for n in range(8)
        for name in names
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_files_config(folder: Path, head: str) -> Path:
    path = folder / "n.toml"
    path.write_text(
        f'judge = "length"\ndashboard = false\n{head}'
        '[[models]]\nname = "ann"\nresponses = "r/{night}.jsonl"\n'
    )
    return path


def test_responses_made_elsewhere_are_copied_and_named(tmp_path: Path) -> None:
    config = read_config(write_files_config(tmp_path, 'calibration = "none"\nanchors = "none"\n'))
    missing = run_night(config, night="n1", clock=lambda: NOW)
    assert missing.exit_code == 5
    assert "n1.jsonl: no such file; run the command again" in missing.record.failed["ann"]
    write_responses(tmp_path / "r" / "n1.jsonl", ("ann", "zoe"), "yes")
    ran = run_night(config, night="n1", clock=lambda: NOW)
    assert ran.exit_code == 0
    assert (ran.record.models[0].n, ran.record.models[0].cost) == (8, 0.0)
    assert ran.record.judgments[0].highlights is not None
    write_responses(tmp_path / "r" / "n2.jsonl", ("zoe",), "yes")
    with pytest.raises(UserError, match=r"no reply by 'ann'; models in it: zoe"):
        run_night(config, night="n2", clock=lambda: NOW)


def test_a_calibration_that_is_missing_is_said_and_the_night_is_kept(tmp_path: Path) -> None:
    path = write_files_config(tmp_path, "")
    path.write_text(path.read_text() + "[gates]\nmax_cost = 1\ngood_share_drop = 5\n")
    write_responses(tmp_path / "r" / "n1.jsonl", ("ann",), "yes")
    ran = run_night(read_config(path), night="n1", clock=lambda: NOW)
    assert ran.exit_code == 4
    cost, drop = ("ann", "max_cost"), ("ann", "good_share_drop against baseline")
    assert outcomes(ran) == {cost: "pass", drop: "not calibrated"}
    assert ran.record.models[0].raw["Good"].interval is not None
    assert any('or set calibration = "none" in the config' in said for said in sentences(ran.record))


def test_two_processes_do_not_share_a_night(world: World) -> None:
    world.write()
    with (
        locked(world.folder / "nights" / "2026-12-01", busy=""),
        pytest.raises(OperationalError, match="another process is running this night"),
    ):
        world.run("2026-12-01")


def anchors(*good: float) -> tuple[AnchorResult, ...]:
    return tuple(
        AnchorResult(anchors="set", item=str(at), score=2.0, good=value, okay=0.0, bad=1 - value)
        for at, value in enumerate(good)
    )


@pytest.mark.parametrize(
    ("noise", "expected"),
    [(0.0, (False, False)), (0.02, (False, True)), (0.001, (True, False))],  # 0.02: tonight only
)
def test_a_judge_that_may_have_moved(noise: float, expected: tuple[bool, bool]) -> None:
    levels = [0.2 + 0.05 * at for at in range(10)]
    before = replace(make_night(), anchors=anchors(*levels))
    step = 0.03 if noise else 0.0
    moved = [level + step + noise * (-1) ** (at // 2) for at, level in enumerate(levels)]
    shift = judge_shift(anchors(*moved), before=before, min_drift=0.01)
    assert (shift.moved is not None, shift.suspected is not None) == expected


def test_the_sampled_anchors_find_a_shift_that_could_fail_a_gate() -> None:
    # Answers that vary by 8 points; a gate of 5 points fails by the judge alone from about 10 points on.
    rng, found = np.random.default_rng(1), {}
    before = replace(make_night(), anchors=anchors(*[0.6] * LLM_ANCHORS))
    for drop in (0.0, 0.05, 0.1):
        shifts = [
            judge_shift(
                anchors(*(0.6 - drop + rng.normal(0, 0.08, LLM_ANCHORS))), before=before, min_drift=0.01
            )
            for _ in range(200)
        ]
        moved = fmean(item.moved is not None for item in shifts)
        found[drop] = moved, moved + fmean(item.suspected is not None for item in shifts)
    assert found[0.0][1] <= 0.05 and found[0.05][1] > 0.8 and found[0.1][0] > 0.95


@pytest.mark.parametrize(("spread", "least", "most"), [(0.0, 1.0, 1.1), (0.03, 2.0, 4.0)])
def test_night_to_night_variation_is_reported_and_widens_the_intervals(
    world: World, spread: float, least: float, most: float
) -> None:
    path = world.write(head='dashboard = "site"\n', models=("ann",))
    nights = [f"2026-12-{day:02}" for day in range(1, 16)]
    swings = np.random.default_rng(7).standard_normal(len(nights))
    world.swings = dict(zip(nights, (spread * swings).tolist(), strict=True))
    for night in nights:
        world.mood = night
        done = CliRunner().invoke(cli.main, ["nightly", str(path), "--night", night])
        assert "regression" not in done.stdout
    with open_history(world.folder / "nights.sqlite") as history:
        records = [history.night("n", night) for night in (nights[0], nights[-1])]
    goods = [np.array([item.good for item in record.judgments]) for record in records if record]
    assert records[1] is not None
    change = records[1].changes[0]
    plain = paired_change(goods[1] - goods[0]).interval
    assert plain is not None and change.total.interval is not None
    widened = (change.total.interval.high - change.total.interval.low) / (plain.high - plain.low)
    assert widened == pytest.approx(change.widening) and least <= widened <= most
    assert 0.35 * spread <= change.spread <= 1.5 * spread + 0.003
    pages = [
        next((world.folder / "site").glob(name)).read_text() for name in ("index.html", "model-ann*.html")
    ]
    for text in (" ".join(done.stdout.split()), *pages):
        assert ("Night-to-night variation exceeds sampling noise by" in text) == (spread > 0)
    assert "beyond sampling, 14 nights" in pages[1]


def test_conversations_in_files_are_scored_whole_and_paired_by_situation(tmp_path: Path) -> None:
    path = write_files_config(tmp_path, 'unit = "conversation"\ncalibration = "none"\nanchors = "none"\n')
    for night, reply in (("n1", "That sounds hard, tell me all about it."), ("n2", "Okay.")):
        file = tmp_path / "r" / f"{night}.jsonl"
        file.parent.mkdir(exist_ok=True)
        answer = {"role": "assistant", "content": reply}
        second = {"role": "user", "content": "It hurts."}
        talks = [[{"role": "user", "content": loss}, answer, second, answer] for loss in LOSSES]
        file.write_text("".join(f"{json.dumps({'model': 'ann', 'messages': talk})}\n" for talk in talks))
        ran = run_night(read_config(path), night=night, clock=lambda: NOW)
    assert (ran.record.unit, ran.record.models[0].n) == ("conversation", 3)
    change = ran.record.changes[0]
    assert change.prompts == 3 and change.total.value < 0

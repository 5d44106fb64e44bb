"""Runs compared through their folders: what is paired, corrected, refused, and said."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run

from empathy_judge.calibration.artifact import Calibration, RatedReplies, write_calibration
from empathy_judge.calibration.comparison.compare_runs import ComparedRuns, ComparisonRequest, compare
from empathy_judge.calibration.estimate import estimate_of
from empathy_judge.calibration.prompt_fit import PromptFit
from empathy_judge.calibration.shares.tally import replies_digest
from empathy_judge.calibration.shares.transport import CalibratedModels
from empathy_judge.data.errors import UserError
from empathy_judge.data.records import Exchange, Rating, judgment_of, unscored
from empathy_judge.data.runs import seal_run
from empathy_judge.data.tables import write_rows
from empathy_judge.reports.comparison.comparison_page import (
    compared_runs_row,
    next_steps,
    runs_page,
    verdict_sentences,
)
from empathy_judge.reports.comparison.pair_sentences import describe_pair
from empathy_judge.reports.render import as_markdown

TODAY, PROMPTS = date(2026, 3, 1), 160
Runs = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> Runs:
    """Writes a run's folder as `score` does: models by their share of Good, as the judge has it."""

    def make(
        name: str,
        models: Mapping[str, float],
        *,
        seed: int = 0,
        lost: int = 0,
        version: str = "1",
        calibration: str | None = None,
        unfit: Sequence[str] = (),
        with_model: bool = True,
    ) -> Path:
        rng, rows, folder = np.random.default_rng(seed), [], tmp_path / name
        for model, share in models.items():
            for at in range(PROMPTS):
                text, identity = f"{model} {at} {seed}", f"{model}/{at}" if with_model else str(at)
                exchange = Exchange(id=identity, prompt=f"prompt {at}", response=text, model=model)
                good = float(np.clip(share + 0.1 * np.sin(at) + rng.normal(0, 0.08), 0.02, 0.98))
                said = {"Bad": 0.3 * (1 - good), "Okay": 0.7 * (1 - good), "Good": good}
                rows.append(unscored(exchange, "refused: no") if at < lost else judgment_of(exchange, said))
        write_rows(folder / "judgments.jsonl", rows)
        fit = PromptFit(estimate_of(0.5, 0.4, 0.6), prompts=PROMPTS, repeated=0.0).as_dict()
        about = {"judge": "length", "version": version, "rubric": "abc", "calibration": calibration}
        about |= {"models": [{"model": model, "fit": fit} for model in unfit]}
        (folder / "summary.json").write_text(json.dumps(about))
        manifest = {**about, "cost": 0.0, "wall_seconds": 1.0}
        seal_run(folder, manifest, ("judgments.jsonl", "summary.json"))
        return folder

    return make


def calibration(spread: float = 0.01) -> Calibration:
    """People say 5 points less than the judge, give or take."""
    judge = np.linspace(0.45, 0.75, 8)
    crowd = judge - 0.05 + np.random.default_rng(1).normal(0, spread, 8)
    parts = {"Bad": lambda x: 0.3 * (1 - x), "Okay": lambda x: 0.7 * (1 - x), "Good": lambda x: x}
    lines = {
        label: CalibratedModels(
            models=tuple("pqrstuvw"), judge=tuple(part(judge)), crowd=tuple(part(crowd)), noise=(1e-4,) * 8
        )
        for label, part in parts.items()
    }
    return Calibration(
        judge="length",
        version="1",
        rubric="abc",
        ratings="0",
        created=TODAY,
        days=90,
        count=2000,
        design_effect=1.5,
        calibrated_models=lines,
    )


def compared_runs(*paths: Path, **options: Any) -> ComparedRuns:
    return compare(ComparisonRequest(paths=paths, **options), today=TODAY)


def ask(*paths: Path, **options: Any) -> dict[str, Any]:
    result = compared_runs_row(compared_runs(*paths, **options))
    json.dumps(result, allow_nan=False)
    return result


def verdicts(result: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    return {(pair["one"], pair["other"]): pair["verdict"] for pair in result["pairs"]}


def test_a_known_shift_is_found_and_none_is_not(make_run: Runs) -> None:
    result = ask(make_run("one", {"a": 0.62, "b": 0.62}), make_run("two", {"c": 0.5}, seed=2))
    found = verdicts(result)
    assert sorted(found.values()) == ["inconclusive", "probably better", "probably better"]
    assert found["a", "c"] == found["b", "c"] == "probably better", "the judge alone says no more"
    assert {pair["shared_prompts"] for pair in result["pairs"]} == {PROMPTS} and result["tests"] == 3


def test_a_calibration_corrects_and_says_which_models_are_new(make_run: Runs, tmp_path: Path) -> None:
    write_calibration(tmp_path / "calibration.json", calibration())
    run = make_run("one", {"p": 0.7, "new": 0.5})
    result = ask(run, calibration=str(tmp_path / "calibration.json"))
    levels = {model["model"]: model for model in result["models"]}
    assert {model["how"] for model in result["models"]} == {"line"}
    assert levels["p"]["shares"]["Good"]["value"] == pytest.approx(0.65, abs=0.03)
    assert result["unrated_models"] == ["new"]
    assert verdicts(result) == {("p", "new"): "better"}


def test_the_calibration_of_the_run_is_found_beside_it(make_run: Runs) -> None:
    made = calibration()
    run = make_run("one", {"a": 0.6, "b": 0.5}, calibration=made.digest)
    lost = ask(run)
    assert lost["calibration"] is None and "was not found" in lost["calibration_note"]
    write_calibration(run / "calibration.json", made)
    assert ask(run)["calibration"]["digest"] == made.digest
    assert ask(run, calibration="none")["calibration"] is None


def test_the_study_stands_as_a_baseline(make_run: Runs, tmp_path: Path) -> None:
    write_calibration(tmp_path / "calibration.json", calibration())
    run = make_run("one", {"a": 0.7})
    result = ask(run, calibration=str(tmp_path), baselines=("study:human", "study:gpt-4"))
    assert verdicts(result) == {("a", "study:human"): "better", ("a", "study:gpt-4"): "at least as good"}
    assert [row["model"] for row in result["baselines"]] == ["study:human", "study:gpt-4"]
    assert result["baselines"][0]["shares"]["Good"]["value"] == pytest.approx(0.493)
    alone = ask(run, baselines=("study:human",))
    assert verdicts(alone) == {("a", "study:human"): "inconclusive"}


def test_with_a_baseline_only_pairs_with_it_are_told(make_run: Runs) -> None:
    run = make_run("one", {"a": 0.7, "b": 0.6, "c": 0.5})
    result = ask(run, baselines=("b",))
    assert verdicts(result) == {("a", "b"): "probably better", ("c", "b"): "probably worse"}
    assert result["tests"] == 2
    few = ask(run, baselines=("b",), models=("c",))
    assert verdicts(few) == {("c", "b"): "probably worse"}


def test_a_verdict_that_unscored_rows_could_change_is_marked(make_run: Runs) -> None:
    runs = make_run("one", {"a": 0.62}, lost=8), make_run("two", {"b": 0.58}, seed=3)
    result = ask(*runs)
    (pair,) = result["pairs"]
    assert pair["verdict"] == "probably better" and not pair["is_robust"]
    assert "a 8 (5.0%)" in as_markdown(runs_page(compared_runs(*runs)))


@pytest.mark.parametrize(
    ("models", "lost", "expected"),
    [
        ({"a": 0.62, "b": 0.62}, (0, 0), "similar"),
        ({"a": 0.62, "b": 0.62}, (16, 16), "similar"),
        ({"a": 0.62, "b": 0.62}, (40, 40), "similar"),
        ({"a": 0.62, "b": 0.62}, (8, 0), "similar"),
        ({"a": 0.62, "b": 0.62}, (40, 0), "inconclusive"),
        ({"a": 0.74, "b": 0.5}, (40, 40), "better"),
        ({"a": 0.74, "b": 0.5}, (16, 0), "better"),
        ({"a": 0.74, "b": 0.5}, (60, 0), "inconclusive"),
        ({"a": 0.74, "b": 0.5}, (0, 60), "better"),
    ],
)
def test_a_verdict_holds_with_many_unscored_rows_as_bad_or_is_withheld(
    make_run: Runs, tmp_path: Path, models: dict[str, float], lost: tuple[int, int], expected: str
) -> None:
    write_calibration(tmp_path / "calibration.json", calibration(spread=0.002))
    runs = [
        make_run(name, {name: share}, lost=count)
        for (name, share), count in zip(models.items(), lost, strict=True)
    ]
    compared = compared_runs(*runs, calibration=str(tmp_path), margin=0.15)
    (pair,) = compared.pairs
    pair = pair if pair.one == "a" else pair.reverse()
    assert (pair.verdict, pair.unscored) == (expected, (lost[0] / PROMPTS, lost[1] / PROMPTS))
    assert pair.is_withheld == (expected == "inconclusive")
    assert compared.exit_code == (3 if pair.is_withheld else 0)


def test_ratings_of_some_responses_correct_a_run(make_run: Runs, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    run = make_run("one", {"a": 0.6, "b": 0.7})
    rows = [
        Rating(id=f"{model}/{at}", rater=f"{model}-{at // 5}", rating=3 if rng.random() < share else 1)
        for model, share in (("a", 0.85), ("b", 0.4))
        for at in range(120)
    ]
    write_rows(tmp_path / "ratings.jsonl", rows)
    result = ask(run, ratings=tmp_path / "ratings.jsonl")
    assert {model["how"] for model in result["models"]} == {"ratings"}
    assert verdicts(result) == {("a", "b"): "better"}  # the judge would have said the opposite
    assert result["pairs"][0]["judge"]["value"] < 0
    assert result["unrated_models"] == []
    write_rows(tmp_path / "others.jsonl", [asdict(rows[0]) | {"id": "x"}])
    with pytest.raises(UserError, match="no rating matches a scored reply"):
        ask(run, ratings=tmp_path / "others.jsonl")


def test_ids_that_mean_two_responses_are_refused_with_ratings(make_run: Runs, tmp_path: Path) -> None:
    runs = [make_run(model, {model: 0.6}, seed=seed, with_model=False) for seed, model in enumerate("ab")]
    write_rows(tmp_path / "ratings.jsonl", [Rating(id="3", rater="r", rating=2)])
    with pytest.raises(UserError, match="'3' is a reply of more than one model"):
        ask(*runs, ratings=tmp_path / "ratings.jsonl")
    assert len(ask(*runs)["pairs"]) == 1


def test_runs_of_two_versions_of_a_judge_and_ratings_among_runs_are_refused(make_run: Runs) -> None:
    run = make_run("one", {"a": 0.6})
    with pytest.raises(UserError, match="scored by length 1 and by length 2"):
        ask(run, make_run("two", {"b": 0.6}, version="2"))
    with pytest.raises(UserError, match="runs or one file of ratings"):
        ask(run, run / "ratings.csv")


def test_variants_are_flagged_and_never_assumed(make_run: Runs, tmp_path: Path) -> None:
    write_calibration(tmp_path / "calibration.json", replace(calibration(spread=0.03), created=date.today()))
    runs = [make_run("new", {"m": 0.65}), make_run("old", {"m": 0.6}, seed=1)]
    asked = ["compare", *map(str, runs), "--calibration", str(tmp_path), "--json"]
    plain, variants = (json.loads(run(*asked, *more).stdout) for more in ((), ("--variants",)))
    assert [model["model"] for model in plain["models"]] == ["m (new)", "m (old)"]
    assert variants["pairs"][0]["error"] < plain["pairs"][0]["error"]
    assert any("--variants" in note for note in plain["notes"])


@pytest.mark.parametrize("seed", range(12))
def test_no_sentence_contradicts_its_table(make_run: Runs, tmp_path: Path, seed: int) -> None:
    """Whoever is named as above or better is so in the figures; tiers and pairs agree."""
    write_calibration(tmp_path / "calibration.json", calibration())
    rng = np.random.default_rng(seed)
    names = [f"model-{letter}" for letter in "abcdef"[: 2 + seed % 5]]
    unfit = names[-1:] if seed % 3 == 0 and len(names) > 2 else []
    run = make_run("one", {name: float(rng.uniform(0.2, 0.9)) for name in names}, seed=seed, unfit=unfit)
    baselines = ("study:human",) if seed % 4 == 1 else ()
    compared = compared_runs(run, calibration=str(tmp_path), baselines=baselines)
    levels = {level.model: level.good for level in compared.models}
    levels |= {item.name: item.shares["Good"].value for item in compared.baselines}
    for pair in compared.pairs:
        sentence = describe_pair(pair, compared.margin, "reply")
        if {pair.one, pair.other} & set(unfit):
            assert pair.verdict == "inconclusive" and not pair.shares
        elif named := re.match(r"(\S+) is (?:probably )?better than (\S+):", sentence):
            assert levels[named[1]] > levels[named[2]]
            assert (pair.good.order > 0) == (named[1] == pair.one)
    verdict = list(verdict_sentences(compared))
    if len(compared.pairs) == 1 or baselines:
        return
    order, _, rest = verdict[0].rstrip(".").partition("; ")
    assert all(name in rest + order for name in unfit) and ("not respond" in verdict[0]) == bool(unfit)
    if " > " in order:
        tiers = [tier.split(", ") for tier in order.split(" > ")]
        assert sorted(name for tier in tiers for name in tier) == sorted(set(names) - set(unfit))
        for higher, lower in pairwise(tiers):
            assert min(levels[name] for name in higher) > max(levels[name] for name in lower)


def test_another_model_changes_a_verdict_only_through_holm(make_run: Runs, tmp_path: Path) -> None:
    write_calibration(tmp_path / "calibration.json", calibration())
    few = ask(make_run("few", {"a": 0.7, "b": 0.5}), calibration=str(tmp_path))
    many = ask(make_run("many", {"a": 0.7, "b": 0.5, "c": 0.2}), calibration=str(tmp_path))
    (alone,) = few["pairs"]
    beside = next(row for row in many["pairs"] if (row["one"], row["other"]) == ("a", "b"))
    assert (alone["probability"], alone["shares"]) == (beside["probability"], beside["shares"])


@pytest.mark.parametrize(
    ("models", "unfit", "code"),
    [
        ({"a": 0.75, "b": 0.45}, (), 0),
        ({"a": 0.62, "b": 0.52}, (), 0),
        ({"a": 0.56, "b": 0.54}, (), 0),
        ({"a": 0.45, "b": 0.75}, (), 1),
        ({"a": 0.52, "b": 0.62}, (), 3),
        ({"a": 0.75, "b": 0.45}, ("a",), 1),
    ],
)
def test_exit_codes_of_the_first_model(
    make_run: Runs, tmp_path: Path, models: dict[str, float], unfit: tuple[str, ...], code: int
) -> None:
    write_calibration(tmp_path / "calibration.json", calibration())
    compared = compared_runs(make_run("one", models, unfit=unfit), calibration=str(tmp_path))
    assert compared.exit_code == code, compared.pairs


def test_replies_that_do_not_respond_come_first_and_nobody_is_asked_to_rate_them(make_run: Runs) -> None:
    run = make_run("one", {"good": 0.7, "lost": 0.5}, unfit=["lost"])
    compared = compared_runs(run)
    first = next(verdict_sentences(compared))
    assert first.startswith("The replies of lost do not respond to their prompts")
    (step,) = next_steps(compared)
    assert "lost" in step and compared.pairs[0].needed is None


def test_a_copy_of_rated_replies_under_another_name_counts_as_rated(make_run: Runs, tmp_path: Path) -> None:
    run = make_run("one", {"p": 0.7, "new": 0.5})
    rows = [json.loads(line) for line in (run / "judgments.jsonl").read_text().splitlines()]
    total = sum(int(row["content_digest"], 16) for row in rows if row["model"] == "p")
    share = {"value": 0.5, "low": 0.45, "high": 0.55}
    shares = {"Bad": share | {"value": 0.2}, "Okay": share | {"value": 0.3}, "Good": share}
    rated = {"rated under another name": RatedReplies(replies=replies_digest(total), shares=shares)}
    write_calibration(tmp_path / "calibration.json", replace(calibration(), rated=rated))
    result = ask(run, calibration=str(tmp_path / "calibration.json"))
    levels = {model["model"]: model for model in result["models"]}
    assert levels["p"]["how"] == "ratings" and levels["p"]["shares"]["Good"]["value"] == 0.5
    assert "p" not in result["unrated_models"] and "new" in result["unrated_models"]

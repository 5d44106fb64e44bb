"""The command that says how far to trust a judge, and fits the calibration that corrects it."""

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands.shared.options import FILE, complete_judge
from data.errors import UserError

if TYPE_CHECKING:
    from calibration.fit import Options
    from judge.robustness.attacks import Gamed
    from reports.calibration.bias import ProbedJudge

INCONCLUSIVE, FAILED = 3, 1
SELF_TEST_DRAWS = 240


@click.command()
@click.argument("runs", type=FILE, nargs=-1, metavar="RUN... RATINGS")
@click.option("--exchanges", type=FILE, help="The texts, for length, emotions and examples in the report.")
@click.option("--scale", default="Bad,Okay,Good", show_default=True, help="The ratings' levels, worst first.")
@click.option("--dimension", default="empathy", show_default=True, help="Which dimension of the ratings.")
@click.option(
    "--judge", "judges", multiple=True, metavar="NAME", help="Of a table of several judges; may be repeated."
)
@click.option(
    "--rater", "raters", multiple=True, metavar="NAME", help="Count these raters only; may be repeated."
)
@click.option("--median", "is_median", is_flag=True, help="Hold the judge against the median rating.")
@click.option(
    "--rounding", "is_rounding", is_flag=True, help="Take ratings between two levels to the nearest."
)
@click.option(
    "--reliability",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2817,
    show_default=True,
    help="Kappa of two people, where the ratings cannot tell it.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    help="What asking a person costs, in the alternative-annotator test.",
)
@click.option(
    "--leave-out", multiple=True, metavar="MODEL", help="Draw the line without this model; may be repeated."
)
@click.option(
    "--probe",
    metavar="JUDGE",
    shell_complete=complete_judge,
    help="Also ask this judge about rewritten responses; needs --exchanges.",
)
@click.option(
    "--attack",
    metavar="JUDGE",
    shell_complete=complete_judge,
    help="Also try to game this judge; without RUN and RATINGS, only this.",
)
@click.option(
    "--out", type=FILE, help="Where calibration.json and report.* go.  [default: calibrations/<run>]"
)
@click.option(
    "--valid-days",
    "days",
    type=click.IntRange(min=1),
    default=90,
    show_default=True,
    help="Until it expires.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all chance.")
@click.option(
    "--draws", type=click.IntRange(min=2), help="Of the bootstrap.  [default: 2000; self-test: 240]"
)
@click.option(
    "--trial",
    "trials",
    type=FILE,
    multiple=True,
    help="Calibrate a trained judge from the trials of its recipe; one of each protocol.",
)
@click.option("--self-test", is_flag=True, help="Check the intervals on data whose answer is known.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.pass_context
def calibrate(
    ctx: click.Context,
    /,
    runs: tuple[Path, ...],
    exchanges: Path | None,
    scale: str,
    judges: tuple[str, ...],
    raters: tuple[str, ...],
    probe: str | None,
    attack: str | None,
    out: Path | None,
    seed: int,
    draws: int | None,
    trials: tuple[Path, ...],
    self_test: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Say how far to trust a judge, and fit the calibration that corrects it.

    RUN is a run's folder, or another tool's table with an id and a score, rating or label in each row; given
    several, the first is calibrated and all are compared. RATINGS, the last, is a table with id, rater and
    rating. Writes calibration.json, report.html, report.md and report.json.

    \b
    Examples:
      empathy-judge calibrate runs/mine ratings.jsonl --exchanges responses.jsonl
      empathy-judge calibrate theirs.csv ratings.csv --scale 1-5
      empathy-judge calibrate runs/a runs/b ratings.jsonl --out compared
      empathy-judge calibrate --self-test
    """
    from calibration import fit
    from calibration.artifact import CALIBRATION_FILE, write_calibration
    from data.files import disk_errors
    from data.judgments import parse_scale
    from reports.calibration.calibration_page import plain_report, print_report, write_report

    if self_test:
        ctx.exit(run_self_test(seed=seed, draws=draws or SELF_TEST_DRAWS, as_json=as_json))
    if attack and not runs and not trials:
        ctx.exit(attack_judge(attack, seed=seed, as_json=as_json))
    options = fit.Options(scale=parse_scale(scale), seed=seed, draws=draws or fit.DRAWS, **settings)
    if trials:
        if len(judges) != 1 or runs:
            raise UserError(
                "--trial: name the trained judge with one --judge, and give no RUN and no RATINGS"
            )
        calibrate_trials(trials, judge_name=judges[0], options=options, out=out, as_json=as_json)
        return
    if len(runs) < 2:
        raise UserError("calibrate: give one or more runs and then the ratings: calibrate RUN... RATINGS")
    report = fit.calibrate(
        runs[:-1], runs[-1], exchanges=exchanges, judges=judges, raters=raters, options=options
    )
    probes = _probe(probe, exchanges, seed) if probe else None
    attacks = _attack(attack, seed) if attack else None
    name, source = report.judge.name, Path(report.judge.source).stem
    known_as = source if name == source else f"{source}-{name}".replace("/", "-")
    folder = out or Path("calibrations") / known_as
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_calibration(folder / CALIBRATION_FILE, report.calibration)
    written = write_report(report, folder, probes=probes, attacks=attacks)
    if as_json:
        plain = plain_report(report, probes=probes, attacks=attacks)
        print(json.dumps(plain, indent=2, allow_nan=False))
    else:
        print_report(report, [folder / CALIBRATION_FILE, *written])
    # Undefined, or known of so few that nobody can say how exactly.
    if report.agreement.metrics[report.headline].interval is None:
        ctx.exit(INCONCLUSIVE)


def _probe(name: str, exchanges: Path | None, seed: int) -> "ProbedJudge":
    from data.tables import read_exchanges
    from judge.base import load_judge
    from judge.robustness.probes import run_probes
    from reports.calibration.bias import ProbedJudge

    if exchanges is None:
        raise UserError("--probe: rewrites responses, and so needs their texts: add --exchanges FILE")
    judge = load_judge(name)
    results = run_probes(judge, list(read_exchanges(exchanges)), seed=seed)
    return ProbedJudge(judge=judge.name, version=judge.version, results=tuple(results))


def attack_judge(name: str, *, seed: int, as_json: bool) -> int:
    """Say whether attacks make a judge call Bad replies Good, without any ratings; return the exit code."""
    from data.records import to_plain
    from reports.calibration.bias import attacks_page
    from reports.terminal import print_page

    gamed = _attack(name, seed)
    if as_json:
        print(json.dumps(to_plain(gamed), indent=2, allow_nan=False))
    else:
        print_page(attacks_page(gamed))
    return {"passes": 0, "fails": FAILED}.get(gamed.result, INCONCLUSIVE)


def _attack(name: str, seed: int) -> "Gamed":
    from judge.base import load_judge
    from judge.robustness.attacks import run_attacks
    from reports.terminal import working

    judge = load_judge(name)
    with working(f"attacking {judge.name}"):
        return run_attacks(judge, seed=seed)


def calibrate_trials(
    trials: Sequence[Path], *, judge_name: str, options: "Options", out: Path | None, as_json: bool
) -> None:
    """Write a trained judge's calibration from its held-out predictions, beside its weights."""
    from calibration.artifact import CALIBRATION_FILE, identify, write_calibration
    from calibration.from_trials import calibration_from_trials
    from data.files import disk_errors
    from judge.base import load_judge
    from reports.calibration.calibration_page import print_trial_calibration

    judge = load_judge(judge_name)
    calibration = calibration_from_trials(
        trials,
        identify(judge),
        created=date.today(),
        days=options.days,
        seed=options.seed,
        leave_out=options.leave_out,
    )
    folder = out or getattr(judge, "folder", None)
    if folder is None:
        raise UserError(f"--judge: {judge_name} has no folder of weights; say with --out where to write")
    path = Path(folder) / CALIBRATION_FILE
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_calibration(path, calibration)
    print_trial_calibration(calibration, path, as_json=as_json)


def run_self_test(*, seed: int, draws: int, as_json: bool) -> int:
    """Say whether the intervals keep their word on data with a known answer; return the exit code."""
    import numpy as np

    from calibration.selftest import self_test
    from reports.calibration.calibration_page import print_self_test

    found = self_test(rng=np.random.default_rng(seed), draws=draws)
    print_self_test(found, as_json=as_json)
    return FAILED if found["problems"] else 0

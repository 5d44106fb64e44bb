"""What the command `calibrate` does: reads what people bring, calibrates, writes and prints."""

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from calibration.artifact import write_calibration
from data.errors import UserError
from data.files import disk_errors
from data.tables import read_exchanges, read_ratings
from nightly.artifacts import calibration_from_trials
from nightly.calibrated import FILE
from nightly.calibrating import Options, calibrate
from nightly.judged import Judged, people_only, read_judged
from nightly.readout import print_report, print_self_test, print_shipped

INCONCLUSIVE, FAILED = 3, 1
SELF_TEST_DRAWS = 240


def calibrate_files(
    runs: Sequence[Path],
    ratings: Path,
    *,
    options: Options,
    exchanges: Path | None = None,
    judges: Sequence[str] = (),
    raters: Sequence[str] = (),
    probe: str | None = None,
    attack: str | None = None,
    out: Path | None = None,
    as_json: bool = False,
) -> int:
    """Calibrate, write calibration.json and the reports, and print; returns the exit code."""
    judged = [
        item
        for path in runs
        for item in read_judged(path, scale=options.scale, judges=judges, dimension=options.dimension)
    ]
    rated = people_only(read_ratings(ratings), raters=raters, judges=[item.name for item in judged])
    texts = {item.id: item for item in read_exchanges(exchanges)} if exchanges else {}
    found = calibrate(judged, rated, exchanges=texts, options=options)
    report = found.report
    if probe:
        report = {**report, "probes": _probe(probe, list(texts.values()), options.seed)}
    if attack:
        report = {**report, "attacks": _attack(attack, options.seed)}
    folder = out or Path("calibrations") / _folder_name(judged)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_calibration(folder / FILE, found.calibration)
    written = _write(folder, report)
    if as_json:
        print(json.dumps(report, indent=2, allow_nan=False))
    else:
        print_report(report, [folder / FILE, *written])
    # Undefined, or known of so few that nobody can say how exactly.
    return INCONCLUSIVE if report["agreement"][report["headline"]]["low"] is None else 0


def _folder_name(judged: Sequence[Judged]) -> str:
    first = judged[0]
    source = Path(first.source).stem
    return source if first.name == source else f"{source}-{first.name}".replace("/", "-")


def _write(folder: Path, report: dict[str, Any]) -> list[Path]:
    from nightly.report import write_report

    return write_report(report, folder)


def _probe(name: str, exchanges: Sequence[Any], seed: int) -> dict[str, Any]:
    from judge.base import load_judge
    from nightly.probing import run_probes

    if not exchanges:
        raise UserError("--probe: rewrites responses, and so needs their texts: add --exchanges FILE")
    judge = load_judge(name)
    results = run_probes(judge, exchanges, seed=seed)
    return {"judge": judge.name, "version": judge.version, "results": [item.as_dict() for item in results]}


def attack_judge(name: str, *, seed: int, as_json: bool) -> int:
    """Whether attacks make a judge call Bad replies Good, without any ratings; returns the exit code."""
    from nightly.gaming_page import attacks_page
    from nightly.terminal import print_page

    found = _attack(name, seed)
    if as_json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        print_page(attacks_page(found))
    return {"passes": 0, "fails": FAILED}.get(found["result"], INCONCLUSIVE)


def _attack(name: str, seed: int) -> dict[str, Any]:
    from judge.base import load_judge
    from nightly.gaming import run_attacks
    from nightly.terminal import working

    judge = load_judge(name)
    with working(f"attacking {judge.name}"):
        return run_attacks(judge, seed=seed).as_dict()


def calibrate_trials(
    trials: Sequence[Path],
    *,
    judge_name: str,
    options: Options,
    out: Path | None = None,
    as_json: bool = False,
) -> int:
    """A trained judge's calibration from its held-out predictions, beside its weights."""
    from judge.base import load_judge

    judge = load_judge(judge_name)
    calibration = calibration_from_trials(
        trials,
        judge,
        created=date.today(),
        days=options.days,
        seed=options.seed,
        leave_out=options.leave_out,
    )
    folder = out or getattr(judge, "folder", None)
    if folder is None:
        raise UserError(f"--judge: {judge_name} has no folder of weights; say with --out where to write")
    path = Path(folder) / FILE
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_calibration(path, calibration)
    print_shipped(calibration, path, as_json=as_json)
    return 0


def run_self_test(*, seed: int, draws: int, as_json: bool) -> int:
    """Whether the intervals keep their word on data with a known answer."""
    from calibration.bias import audit_planted
    from calibration.selftest import self_test

    found = self_test(rng=np.random.default_rng(seed), draws=draws, audit=audit_planted)
    print_self_test(found, as_json=as_json)
    return FAILED if found["problems"] else 0

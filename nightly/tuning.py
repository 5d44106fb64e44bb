"""The command `optimize`: tunes a prompted judge and measures it, before and after, on held-out ratings."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from calibration.agreement import log_losses
from calibration.intervals import resample_clusters
from calibration.resampling import Sampled, kappa_of, mean_of, sample
from data.errors import UserError
from data.records import LABELS
from data.tables import read_exchanges, read_ratings
from judge.base import load_judge
from judge.examples import join_ratings
from judge.optimize import Tuned, optimize
from judge.prompted import PromptedJudge
from judge.search import Method
from judge.tryout import MetricName
from judge.tuned import write_program
from nightly.figures import show
from nightly.screens import open_screen, print_table

METRICS = {"qwk": "QWK", "log_loss": "log-loss"}
DRAWS = 2000


def tune(
    exchanges: Path,
    ratings: Path,
    out: Path,
    *,
    judge_name: str,
    method: Method,
    metric: MetricName,
    max_calls: int,
    max_cost: float | None,
    seed: int,
    held_out_part: float,
    demos: int,
    as_json: bool,
) -> dict[str, Any]:
    """Tune a judge on rated exchanges, keep its program in `out` and print how it did on those held out.

    The program holds exchanges from the ratings as examples: it may go no further than these may.
    """
    if out.exists():
        raise UserError(f"{out}: exists already; give another --out")
    judge = load_judge(judge_name)
    if not isinstance(judge, PromptedJudge):
        raise UserError(
            f'--judge {judge_name}: only a judge of kind "prompted" can be tuned, not {judge.name!r}'
        )
    examples = join_ratings(read_exchanges(exchanges), read_ratings(ratings))
    try:
        tuned = optimize(
            examples,
            judge,
            method=method,
            metric=metric,
            max_calls=max_calls,
            max_cost=max_cost,
            seed=seed,
            held_out_part=held_out_part,
            demos=demos,
            on_step=lambda text: print(text, file=sys.stderr, flush=True),
        )
    finally:
        judge.endpoint.close()
    about = {
        "judge": {"model": judge.model, "mode": judge.mode, "version": judge.version},
        "method": method,
        "metric": metric,
        "seed": seed,
        **describe(tuned),
        "held_out": measure_rows(tuned.rows, seed=seed),
    }
    digest = write_program(out, tuned.program, rubric=judge.rubric, about=about)
    found = {**about, "program": str(out), "sha256": digest}
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_tuned(found)
    return found


def describe(tuned: Tuned) -> dict[str, Any]:
    """What a tuning used and how it went."""
    return {
        "replies": {
            "to learn from": len(tuned.parts.learn),
            "to choose by": len(tuned.parts.choose),
            "held out": len(tuned.parts.held_out),
        },
        "batches_apart": tuned.parts.batches_apart,
        "candidates": tuned.candidates,
        "demos": len(tuned.program.demos),
        "calls": tuned.calls,
        "cost": tuned.cost,
        "stopped": tuned.stopped,
    }


def measure_rows(rows: Sequence[Mapping[str, Any]], *, seed: int = 0, draws: int = DRAWS) -> dict[str, Any]:
    """QWK of label and rating, and log-loss, before and after, on the ratings both times answered.

    Intervals come from whole rating batches, the same ones for before and after, so that what a batch does to
    both cancels in their difference. With one batch there are none.
    """
    both = [row for row in rows if all(row["predictions"].values())]
    counts = {
        "ratings": len(rows),
        "compared": len(both),
        "unscored": {
            name: sum(row["predictions"][name] is None for row in rows) for name in ("before", "after")
        },
    }
    undefined = {"value": None, "low": None, "high": None}
    if not both:
        return counts | {
            metric: dict.fromkeys(("before", "after", "difference"), undefined) for metric in METRICS
        }
    rating = np.array([row["rating"] for row in both])
    names, batches = np.unique([row["batch"] for row in both], return_inverse=True)
    drawn = resample_clusters(
        len(names), rng=np.random.default_rng(seed), draws=draws if len(names) > 1 else 0
    )
    found: dict[str, dict[str, Sampled]] = {}
    for name in ("before", "after"):
        probabilities = np.array([row["predictions"][name] for row in both], dtype=float)
        statistics = {
            "qwk": kappa_of(rating, 1 + probabilities.argmax(axis=1), "quadratic"),
            "log_loss": mean_of(log_losses(rating, probabilities)),
        }
        found[name] = sample(statistics, batches, drawn)
    return counts | {
        metric: {
            "before": found["before"][metric].estimate().as_dict(),
            "after": found["after"][metric].estimate().as_dict(),
            "difference": (found["after"][metric] - found["before"][metric]).estimate().as_dict(),
        }
        for metric in METRICS
    }


def print_tuned(found: Mapping[str, Any]) -> None:
    """A small table of before and after, and beneath it what one must know to read it."""
    console = open_screen()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("held out")
    for title in ("before", "after", "difference"):
        table.add_column(title, justify="right", no_wrap=True)
    held_out = found["held_out"]
    for metric, title in METRICS.items():
        cells = [show(held_out[metric][name]) for name in ("before", "after", "difference")]
        table.add_row(title, *cells)
    unscored = held_out["unscored"]
    table.add_row("unscored", f"{unscored['before']:,}", f"{unscored['after']:,}", "")
    print_table(console, table)
    replies = found["replies"]
    lines = [
        f"{held_out['compared']:,} of {held_out['ratings']:,} held-out ratings compared, {_among(found)}",
        f"learnt from {replies['to learn from']:,} replies, chosen by {replies['to choose by']:,} others "
        f"out of {found['candidates']:,} candidates, for {found['metric'].replace('_', '-')}",
        f"{found['calls']:,} calls, {found['cost']:.4f} USD" + _stopped(found["stopped"]),
        f"program {found['program']}: {found['demos']} examples from the ratings are in it",
    ]
    if not found["demos"]:
        lines[-1] = f"program {found['program']}: no examples in it"
    for line in lines:
        console.print(line, style="dim", soft_wrap=True)


def _among(found: Mapping[str, Any]) -> str:
    apart = "prompts and rating batches" if found["batches_apart"] else "prompts, not rating batches,"
    return f"with {apart} apart from those tuned on; labels are {', '.join(LABELS)}"


def _stopped(why: str) -> str:
    return f"; stopped early: {why}" if why else ""

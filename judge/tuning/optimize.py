"""Tunes a prompted judge's instructions and examples against people's ratings, within a budget."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.agreement.metrics import TABLE_STATISTICS, from_table, log_losses
from calibration.bootstrap import Sampled, mean_of, resample_clusters, sample
from calibration.estimate import UNDEFINED
from calibration.pairing import given_labels
from data.errors import UserError
from data.rated_exchanges import RatedExchange, join_ratings
from data.records import LABELS
from data.tables import read_exchanges, read_ratings
from judge.base import load_judge
from judge.llm.limits import Budget
from judge.llm.program import Program, write_program
from judge.llm.prompted import PromptedJudge
from judge.tuning.search import search
from judge.tuning.tryout import Meter, Parts, Rated, Settings, Tryout, merge_ratings, split_rated

METRICS = ("qwk", "log_loss")
DRAWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The best program found, and what the judge said of the held-out exchanges before and after.

    `rows` has one entry for each held-out rating. `stopped` says why the search ended before its end, if so.
    """

    program: Program
    rows: tuple[Mapping[str, Any], ...]
    parts: Parts
    candidates: int
    calls: int
    cost: float
    stopped: str


def optimize(
    examples: Sequence[RatedExchange],
    judge: PromptedJudge,
    settings: Settings,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> Tuned:
    """Search for a better program than the judge's own, within so many calls and, if given, dollars.

    When either is used up the search stops and the best candidate so far is kept. A candidate takes the place
    of the judge's own program only if it does better on ratings it was not made from. The program's examples
    are exchanges from the ratings: whoever gets it gets those texts.
    """
    rated = merge_ratings(examples)
    parts = split_rated(rated, held_out_part=settings.held_out_part, seed=settings.seed)
    put_by = judge.most_calls * len(parts.held_out)  # for the last look at the held-out part
    least = 2 * put_by + judge.most_calls * (len(parts.choose) + 1)
    if settings.max_calls < least:
        raise UserError(
            f"--max-calls {settings.max_calls:,}: too few: asking about the held-out replies before and "
            f"after, and once about those to choose by, takes {least:,}; allow more, or bring fewer ratings"
        )
    budget, calls, max_cost = judge.endpoint.budget, judge.endpoint.calls, settings.max_cost
    start, began = replace(judge.program, digest=""), budget.spent
    tryout = Tryout(judge=judge, meter=Meter(limit=settings.max_calls - put_by))
    with _spending(budget, max_cost, began):
        on_step(f"asking about {len(parts.held_out):,} held-out replies")
        tryout.ask_all(start, parts.held_out)
        # Twice what the first look cost: with examples in it, a prompt is longer.
        with _spending(budget, max_cost, began, put_by=2 * (budget.spent - began)):
            others = len(parts.learn) + len(parts.choose)
            on_step(f"searching with {others:,} others ({settings.method})")
            tryout.ask_all(start, parts.choose)
            stopped = search(tryout, start, parts, settings)
        best = tryout.find_best(parts.choose, settings.metric, start=start)
        on_step(f"asking about the held-out replies again, after {len(tryout.candidates):,} candidates")
        tryout.meter.limit, tryout.meter.ended = settings.max_calls, None
        tryout.ask_all(best, parts.held_out)
    return Tuned(
        program=best,
        rows=tuple(_rows(tryout, parts.held_out, before=start, after=best)),
        parts=parts,
        candidates=len(tryout.candidates),
        calls=judge.endpoint.calls - calls,
        cost=round(budget.spent - began, 6),
        stopped=stopped,
    )


def _rows(
    tryout: Tryout, held_out: Sequence[Rated], *, before: Program, after: Program
) -> Iterator[dict[str, Any]]:
    digests = {"before": tryout.register(before), "after": tryout.register(after)}
    for item in held_out:
        predictions: dict[str, list[float] | None] = {}
        for name, digest in digests.items():
            outcome = tryout.ledger.get((digest, item.text))
            given = outcome.probabilities if outcome else None
            predictions[name] = [given[label] for label in LABELS] if given else None
        for rating, batch in zip(item.ratings, item.batches, strict=True):
            yield {
                "id": item.exchange.id,
                "model": item.exchange.model,
                "batch": batch,
                "rating": rating,
                "predictions": predictions,
            }


@contextmanager
def _spending(budget: Budget, max_cost: float | None, began: float, put_by: float = 0.0) -> Iterator[None]:
    """Let the endpoint spend no more than `max_cost`, less what is put by for later."""
    before = budget.most
    if max_cost is not None:
        budget.most = began + max(0.0, max_cost - put_by)
    try:
        yield
    finally:
        budget.most = before


def tune(
    exchanges: Path,
    ratings: Path,
    out: Path,
    judge_name: str,
    settings: Settings,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Tune a judge on rated exchanges, keep its program in `out` and tell how it did on those held out.

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
        tuned = optimize(examples, judge, settings, on_step=on_step)
    finally:
        judge.endpoint.close()
    about = {
        "judge": {"model": judge.model, "mode": judge.mode, "version": judge.version},
        "method": settings.method,
        "metric": settings.metric,
        "seed": settings.seed,
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
        "held_out": measure_rows(tuned.rows, seed=settings.seed),
    }
    digest = write_program(out, tuned.program, rubric=judge.rubric, about=about)
    return {**about, "program": str(out), "sha256": digest}


def measure_rows(rows: Sequence[Mapping[str, Any]], *, seed: int = 0, draws: int = DRAWS) -> dict[str, Any]:
    """QWK of label and rating, and log-loss, before and after, on the ratings both times answered.

    Intervals come from whole rating batches, the same ones for before and after, so that what a batch does to
    both cancels in their difference. With one batch there are none.
    """
    both = [row for row in rows if all(row["predictions"].values())]
    without = {name: sum(row["predictions"][name] is None for row in rows) for name in ("before", "after")}
    counts = {"ratings": len(rows), "compared": len(both), "unscored": without}
    if not both:
        undefined = dict.fromkeys(("before", "after", "difference"), UNDEFINED.as_dict())
        return counts | dict.fromkeys(METRICS, undefined)
    rating = np.array([row["rating"] for row in both])
    names, batches = np.unique([row["batch"] for row in both], return_inverse=True)
    drawn = resample_clusters(
        len(names), rng=np.random.default_rng(seed), draws=draws if len(names) > 1 else 0
    )
    measured: dict[str, dict[str, Sampled]] = {}
    for name in ("before", "after"):
        probabilities = np.array([row["predictions"][name] for row in both], dtype=float)
        statistics = {
            "qwk": from_table(TABLE_STATISTICS["qwk"], rating, given_labels(probabilities), len(LABELS)),
            "log_loss": mean_of(log_losses(rating, probabilities)),
        }
        measured[name] = sample(statistics, batches, drawn)
    return counts | {
        metric: {
            "before": measured["before"][metric].estimate().as_dict(),
            "after": measured["after"][metric].estimate().as_dict(),
            "difference": (measured["after"][metric] - measured["before"][metric]).estimate().as_dict(),
        }
        for metric in METRICS
    }

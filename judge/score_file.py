"""The chain from a file of responses to each model's shares: score, summarise, explain."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from calibration.artifact import Calibration, Found
from calibration.estimate import CONFIDENCE
from calibration.probabilities.conformal import prediction_sets, thresholds_from_dict
from calibration.probabilities.maps import map_from_dict
from calibration.shares.correction import correct_shares
from calibration.shares.tally import ModelShares, Tally, model_shares
from data.errors import UserError
from data.judgments import Flags
from data.records import LABELS, Exchange, Judgment
from data.runs import Plan, Run, open_run, read_manifest, read_summary
from data.storage import Source, digest_source
from data.tables import BadRow, Exchanges, read_exchanges, read_judgments, stop_at_bad_row
from judge.base import Judge
from judge.engine import score_exchanges
from judge.explain import Explanation, explain


class SettingSets:
    """A run that notes with every judgment which labels a crowd may well have given.

    At the run, since judgments come to it whatever engine asked for them.
    """

    def __init__(self, run: Run, calibration: Calibration) -> None:
        self._run = run
        self._map = map_from_dict(calibration.mapping)
        self._thresholds = thresholds_from_dict(calibration.conformal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def keep(self, position: int, judgment: Judgment) -> None:
        """Keep the judgment with its set."""
        self._run.keep(position, self.settle(judgment))

    def settle(self, judgment: Judgment) -> Judgment:
        """The judgment with its set; what the judge said stays as it was."""
        if judgment.probabilities is None:
            return judgment
        said = np.array([[judgment.probabilities[label] for label in LABELS]])
        (labels,) = prediction_sets(self._map.apply(said), self._thresholds)
        return replace(judgment, set=labels)


def setting_sets(run: Run, found: Found | None) -> Run | SettingSets:
    """The run, with sets where a calibration was found."""
    return SettingSets(run, found.calibration) if found and found.calibration else run


CAVEAT = "Intervals cover the choice of prompts only, not the judge's own errors."
CORRECTED = (
    "Shares are corrected, and their intervals carry how far the judge strays on a model nobody rated."
)
DRAWS = 2000
GUESSES = 1000  # ids among which a mistyped one is looked for
OnProgress = Callable[[int, int], None]  # how many of how many are done


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """A whole run: where it lies, what it found, and how many responses were judged just now."""

    folder: Path
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any]
    asked: int


def plan_run(responses: Source, judge: Judge, *, calibration: str | None = None) -> Plan:
    """What a run of this judge over these responses, with the calibration of this digest, is known by."""
    return Plan(
        judge=judge.name,
        version=judge.version,
        rubric=judge.rubric.digest,
        input=digest_source(responses),
        calibration=calibration,
    )


def default_folder(responses: Source, plan: Plan) -> Path:
    """A folder that the same command finds again, and no other command."""
    return Path("runs") / f"{responses.stem}-{plan.judge}-{plan.digest[:8]}"


def score_responses(
    responses: Source,
    judge: Judge,
    plan: Plan,
    folder: Path,
    *,
    limit: int | None = None,
    skip_invalid: bool = False,
    seed: int = 0,
    calibrated: Found | None = None,
    on_progress: OnProgress = lambda done, total: None,
    engine: Callable[..., int] = score_exchanges,
) -> ScoredRun:
    """Judge every response that the run in `folder` does not hold yet, and make the run whole.

    `engine` is `score_exchanges`, or another that takes exchanges past a judge and keeps what it says.
    """
    manifest = read_manifest(folder, plan)
    is_there = all((folder / name).exists() for name in ("judgments.jsonl", "summary.json"))
    if is_there and manifest and _answers(manifest, limit=limit, skip_invalid=skip_invalid, seed=seed):
        summary = {**read_summary(folder), **_note(calibrated)}
        return ScoredRun(folder=folder, summary=summary, manifest=manifest, asked=0)
    started = monotonic()
    # Read it all before the first response is judged: a bad row is found in seconds, not after hours.
    total = count_responses(responses, limit=limit, skip_invalid=skip_invalid)
    with open_run(folder, plan) as run:
        on_bad = run.set_aside if skip_invalid else stop_at_bad_row
        done = 0

        def count_one() -> None:
            nonlocal done
            done += 1
            on_progress(done, max(done, total))

        exchanges = Exchanges(responses, on_bad=on_bad)
        asked = engine(judge, exchanges, setting_sets(run, calibrated), limit=limit, on_progress=count_one)
        run.write_judgments()
        summary, cost = _summarise(run, judge, plan, calibrated, seed=seed)
        spent = {"cost": cost, "wall_seconds": round(monotonic() - started, 3)}
        manifest = {**asdict(plan), "seed": seed, "limit": limit, "counts": summary["counts"], **spent}
        run.finish(summary=summary, manifest=manifest)
    return ScoredRun(folder=folder, summary=summary, manifest=manifest, asked=asked)


def count_responses(responses: Source, *, limit: int | None = None, skip_invalid: bool = False) -> int:
    """How many responses there are to judge; refused when there is none, or at the first bad row."""
    first_bad: list[BadRow] = []

    def note(bad: BadRow) -> None:
        first_bad[:] = first_bad or [bad]

    exchanges = read_exchanges(responses, on_bad=note if skip_invalid else stop_at_bad_row)
    count = sum(1 for _ in islice(exchanges, limit))
    if not count:
        problem = f"no row can be read; the first: {first_bad[0]}" if first_bad else "the file has no rows"
        raise UserError(f"{responses}: nothing to score: {problem}")
    return count


def find_responses(
    responses: Source, ids: Iterable[str], *, limit: int | None = None, skip_invalid: bool = False
) -> list[Exchange]:
    """The responses with these ids, in the order asked for; an unknown id is refused with some known ones."""
    wanted = dict.fromkeys(ids)
    found: dict[str, Exchange] = {}
    known: list[str] = []
    if not wanted:
        return []
    on_bad = (lambda bad: None) if skip_invalid else stop_at_bad_row
    for exchange in islice(read_exchanges(responses, on_bad=on_bad), limit):
        if exchange.id in wanted:
            found[exchange.id] = exchange
        if len(known) < GUESSES:
            known.append(exchange.id)
    for identity in wanted:
        if identity not in found:
            some = get_close_matches(identity, known, n=3) or known[:3]
            among = f" among the first {limit:,}" if limit else ""
            hint = f"; known are, for example, {', '.join(map(repr, some))}" if some else ""
            raise UserError(f"--explain: no response has the id {identity!r}{among}{hint}")
    return [found[identity] for identity in wanted]


def explain_responses(exchanges: Sequence[Exchange], judge: Judge, folder: Path) -> list[Explanation]:
    """What drove the score of each; the run's own judgments stand for the whole replies."""
    if not exchanges:
        return []
    ids = {exchange.id for exchange in exchanges}
    whole = {item.id: item for item in read_judgments(folder / "judgments.jsonl") if item.id in ids}
    return [explain(judge, exchange, whole=whole[exchange.id]) for exchange in exchanges]


def _answers(manifest: Mapping[str, Any], *, limit: int | None, skip_invalid: bool, seed: int) -> bool:
    """Whether a whole run already holds what is asked for."""
    try:
        if manifest["counts"]["set_aside"] and not skip_invalid:
            return False  # bad rows were set aside on request, and now nobody requests it
        reached = manifest["limit"]
        is_enough = reached is None or (limit is not None and limit <= reached)
        return bool(is_enough and manifest["seed"] == seed)
    except (KeyError, TypeError):
        return False  # of another version: made whole anew from its judgments


def _summarise(
    run: Run, judge: Judge, plan: Plan, calibrated: Found | None, *, seed: int
) -> tuple[dict[str, Any], float]:
    """The summary of a run whose judgments are written, and what they cost."""
    tally, flags, cost = Tally(), Flags(), 0.0
    for judgment in read_judgments(run.judgments):
        tally.add(judgment)
        flags.add(judgment)
        cost += (judgment.usage or {}).get("cost", 0.0)
    models = model_shares(tally, rng=np.random.default_rng(seed), draws=DRAWS)
    calibration = calibrated.calibration if calibrated else None
    corrected = correct_shares(tally, calibration) if calibration else {}
    caveats = [CORRECTED if calibration else CAVEAT, getattr(judge, "caveat", None)]
    report = getattr(judge, "report", None)
    summary = {
        "judge": plan.judge,
        "version": plan.version,
        "rubric": plan.rubric,
        "calibration": plan.calibration,
        **_note(calibrated),
        "confidence": CONFIDENCE,
        "draws": DRAWS,
        "seed": seed,
        "counts": {
            "judged": sum(item.scored for item in models),
            "unscored": sum(sum(item.unscored.values()) for item in models),
            "set_aside": run.set_aside_count,
        },
        "flagged": flags.as_dict(),
        "models": [{**_as_row(item), **corrected.get(item.model, {})} for item in models],
        "caveats": [caveat for caveat in caveats if caveat],
        **({"report": report(read_judgments(run.judgments))} if report else {}),
    }
    return summary, round(cost, 6)


def _note(calibrated: Found | None) -> dict[str, Any]:
    return {"calibration_note": calibrated.says} if calibrated else {}


def _as_row(item: ModelShares) -> dict[str, Any]:
    """A model's line of the summary; an undefined interval is null, never a number."""
    return {
        "model": item.model,
        "judged": item.scored,
        "unscored": sum(item.unscored.values()),
        "reasons": dict(sorted(item.unscored.items())),
        "shares": {
            label: {
                "share": round(share.share, 6),
                "low": round(share.interval.low, 6) if share.interval else None,
                "high": round(share.interval.high, 6) if share.interval else None,
            }
            for label, share in item.shares.items()
        },
    }

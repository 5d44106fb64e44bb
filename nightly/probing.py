"""Probes: replies rewritten on purpose go past a judge, beside the replies as they were."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from calibration.changes import Change, mean_change
from data.errors import UserError
from data.probes import Probe, read_probes, rewrite
from data.records import LABELS, Exchange, Judgment
from data.runs import Plan, open_run, read_manifest
from data.tables import read_judgments
from judge.base import Judge
from judge.scoring import score_exchanges

GOOD: Final = LABELS[-1]
LIMIT: Final = 100  # responses; a judge that costs money is asked for each of them once a probe
OnProgress = Callable[[int, int], None]  # how many of how many are done


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """Everything a judge is asked: the replies as they were, and rewritten by each probe; no text twice."""

    probes: tuple[Probe, ...]
    chosen: tuple[Exchange, ...]
    rewritten: Mapping[str, tuple[Exchange | None, ...]]  # by probe; None where there is nothing to rewrite
    asked: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One probe of one judge: what changed, and how many replies could not be compared."""

    probe: Probe
    found: Change
    not_rewritten: int
    unscored: Mapping[str, int]  # by the kind of reason, of either of the two

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        about = {name: getattr(self.probe, name) for name in ("name", "should", "limit", "why", "against")}
        rest = {"not_rewritten": self.not_rewritten, "unscored": dict(self.unscored)}
        return about | self.found.as_dict() | rest


def plan_probes(
    exchanges: Iterable[Exchange],
    *,
    limit: int | None = LIMIT,
    seed: int = 0,
    probes: Sequence[Probe] | None = None,
) -> ProbePlan:
    """Choose `limit` replies, spread over prompts, and rewrite them; asks nobody yet."""
    everyone = list(exchanges)
    if not everyone:
        raise UserError("probes: there are no responses to rewrite")
    used = tuple(read_probes() if probes is None else probes)
    chosen = _choose(everyone, limit, seed)
    asked = {exchange.content: exchange for exchange in chosen}
    rewritten: dict[str, tuple[Exchange | None, ...]] = {}
    for probe in used:
        row = tuple(_rewritten(probe, exchange, everyone, seed) for exchange in chosen)
        rewritten[probe.name] = row
        for exchange in row:
            if exchange is not None:
                asked.setdefault(exchange.content, exchange)
    return ProbePlan(probes=used, chosen=chosen, rewritten=rewritten, asked=tuple(asked.values()))


def run_probes(
    judge: Judge,
    exchanges: Iterable[Exchange],
    *,
    limit: int | None = LIMIT,
    seed: int = 0,
    probes: Sequence[Probe] | None = None,
    folder: Path | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> list[ProbeResult]:
    """Ask a judge about rewritten replies, and compare with what it says of the replies as they were.

    With a `folder` the judgments are a run like any other: broken off, the same call goes on from there, and
    a whole one is not asked for again.
    """
    plan = plan_probes(exchanges, limit=limit, seed=seed, probes=probes)
    if folder is not None:
        said = _ask(judge, plan, folder, seed, on_progress)
    else:
        with TemporaryDirectory() as away:
            said = _ask(judge, plan, Path(away) / "probes", seed, on_progress)
    return [_compare(probe, plan, said) for probe in plan.probes]


def _ask(
    judge: Judge, plan: ProbePlan, folder: Path, seed: int, on_progress: OnProgress
) -> dict[str, Judgment]:
    counts = {"responses": len(plan.chosen), "probes": len(plan.probes)}
    return ask_judge(judge, plan.asked, folder, counts=counts, seed=seed, on_progress=on_progress)


def ask_judge(
    judge: Judge,
    asked: Sequence[Exchange],
    folder: Path,
    *,
    counts: Mapping[str, int],
    seed: int,
    on_progress: OnProgress,
) -> dict[str, Judgment]:
    """Every text's judgment, by the digest of what the judge saw; a whole run is not repeated."""
    texts = sha256(" ".join(exchange.content for exchange in asked).encode()).hexdigest()
    known = Plan(judge=judge.name, version=judge.version, rubric=judge.rubric.digest, input=texts)
    if read_manifest(folder, known) is None:
        done, total = 0, len(asked)

        def count_one() -> None:
            nonlocal done
            done += 1
            on_progress(done, total)

        with open_run(folder, known) as run:
            score_exchanges(judge, asked, run, on_progress=count_one)
            run.write_judgments()
            summary = {"judged": total, **counts}
            about = {**asdict(known), "seed": seed, "counts": summary}
            run.finish(summary=summary, manifest=about)
    return {judgment.content: judgment for judgment in read_judgments(folder / "judgments.jsonl")}


def _compare(probe: Probe, plan: ProbePlan, said: Mapping[str, Judgment]) -> ProbeResult:
    originals = plan.rewritten[probe.against] if probe.against else plan.chosen
    pairs = [
        (said[one.content], said[two.content])
        for one, two in zip(originals, plan.rewritten[probe.name], strict=True)
        if one is not None and two is not None
    ]
    scored = [(one, two) for one, two in pairs if one.score is not None and two.score is not None]
    reasons = Counter(
        (two.unscored or one.unscored or "no reason given").partition(":")[0]
        for one, two in pairs
        if one.score is None or two.score is None
    )
    prompts = np.unique([one.prompt_digest for one, _ in scored], return_inverse=True)[1]
    found = mean_change(
        np.array([one.score for one, _ in scored], dtype=float),
        np.array([two.score for _, two in scored], dtype=float),
        np.array([one.label == GOOD for one, _ in scored], dtype=bool),
        np.array([two.label == GOOD for _, two in scored], dtype=bool),
        prompts.astype(np.intp),
        should=probe.should,
        limit=probe.limit,
    )
    return ProbeResult(
        probe=probe,
        found=found,
        not_rewritten=len(plan.chosen) - len(pairs),
        unscored=dict(sorted(reasons.items())),
    )


def _choose(exchanges: Sequence[Exchange], limit: int | None, seed: int) -> tuple[Exchange, ...]:
    """At random, but every prompt once before any comes twice: prompts are what is counted."""
    shuffled = list(exchanges)
    Random(seed).shuffle(shuffled)
    if limit is None or limit >= len(shuffled):
        return tuple(exchanges)
    times: Counter[str] = Counter()
    turns = []
    for exchange in shuffled:
        times[exchange.prompt] += 1
        turns.append(times[exchange.prompt])
    order = sorted(range(len(shuffled)), key=lambda place: turns[place])  # stable: chance decides within
    return tuple(shuffled[place] for place in order[:limit])


def _rewritten(probe: Probe, exchange: Exchange, others: Sequence[Exchange], seed: int) -> Exchange | None:
    text = rewrite(probe, exchange, others, seed=seed)
    return None if text is None else replace(exchange, id=f"{exchange.id} [{probe.name}]", response=text)

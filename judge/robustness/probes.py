"""Replies rewritten on purpose, to see what a judge makes of it: the rewritings of `probes.toml`."""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import numpy as np

from calibration.bias.probe_effects import Change, mean_change
from data.errors import UserError
from data.records import EMOTIONS, LABELS, POSITIVE_EMOTIONS, Exchange, Judgment
from data.runs import ScorePlan, open_run, read_manifest
from data.tables import read_judgments
from judge.base import Judge
from judge.engine import score_exchanges

PROBES: Final = Path(__file__).parent / "probes.toml"
Does = Literal["before", "after", "instead", "exclaim", "upper", "lower", "swap"]
Should = Literal["up", "not up", "same", "not down", "down"]
_STOP: Final = re.compile(r"(?<![.])[.](?=\s|$)")  # a full stop, not the end of a row of dots


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One way to rewrite a reply, and what a good judge does: see the head of `probes.toml`."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic wants it so)

    name: str
    does: Does
    should: Should
    limit: float
    why: str
    texts: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    fits: bool = True
    against: str | None = None


def read_probes(path: Path = PROBES) -> tuple[Probe, ...]:
    """The shipped probes, or those of another file of the same shape."""
    from pydantic import TypeAdapter, ValidationError

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not TOML: {error}") from error
    if not tables:
        raise UserError(f"{path}: no probes; give one table for each")
    probes = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"{path}: {name}: a table of a probe was expected")
        try:
            probe = TypeAdapter(Probe).validate_python({**table, "name": name})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise UserError(f"{path}: {name}: {place}: {first['msg']}") from error
        probes.append(_check(probe, path, tables))
    return tuple(probes)


def rewrite(probe: Probe, exchange: Exchange, others: Sequence[Exchange], *, seed: int = 0) -> str | None:
    """The rewritten reply; None where there is no other than the reply itself.

    Which text is taken follows from the seed and the exchange, never from the order of exchanges, and probes
    with as many texts take the same one. `others` are where replies to other prompts are taken from.
    """
    chance = Random(f"{seed} {exchange.id} {exchange.content_digest}")
    reply = exchange.response.rstrip()
    if probe.does == "swap":
        return _swap(exchange, others, chance)
    if probe.does in ("upper", "lower"):
        turned = reply.upper() if probe.does == "upper" else reply.lower()
        return turned if turned != reply else None
    texts = _fitting(probe, exchange)
    if not texts:
        return None
    text = texts[chance.randrange(len(texts))]
    if probe.does == "exclaim":
        return f"{_STOP.sub('!', reply)} {text}"
    return {"before": f"{text} {reply}", "after": f"{reply} {text}", "instead": text}[probe.does]


def _fitting(probe: Probe, exchange: Exchange) -> tuple[str, ...]:
    """The texts for the speaker's feeling, or those that do not fit it; none where it is not known."""
    if probe.texts:
        return probe.texts
    emotion = (exchange.emotion or "").strip().lower()
    if emotion not in EMOTIONS:
        return ()
    return probe.positive if (emotion in POSITIVE_EMOTIONS) == probe.fits else probe.negative


def _swap(exchange: Exchange, others: Sequence[Exchange], chance: Random) -> str | None:
    fit = [
        other.response
        for other in others
        if other.model == exchange.model and other.prompt != exchange.prompt
        if other.response != exchange.response
    ]
    return fit[chance.randrange(len(fit))] if fit else None


def _check(probe: Probe, path: Path, tables: Mapping[str, object]) -> Probe:
    has_feelings = bool(probe.positive and probe.negative)
    needs_texts = probe.does in ("before", "after", "instead", "exclaim")
    if needs_texts and bool(probe.texts) == has_feelings:
        raise UserError(f"{path}: {probe.name}: give either texts, or positive and negative")
    if probe.against is not None and (probe.against not in tables or probe.against == probe.name):
        raise UserError(f"{path}: {probe.name}: against: no other probe is called {probe.against!r}")
    if not 0 <= probe.limit < float("inf"):
        raise UserError(f"{path}: {probe.name}: limit: must be 0 or more, not {probe.limit}")
    return probe


# Probes: replies rewritten on purpose go past a judge, beside the replies as they were.

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
    asked = {exchange.content_digest: exchange for exchange in chosen}
    rewritten: dict[str, tuple[Exchange | None, ...]] = {}
    for probe in used:
        row = tuple(_rewritten(probe, exchange, everyone, seed) for exchange in chosen)
        rewritten[probe.name] = row
        for exchange in row:
            if exchange is not None:
                asked.setdefault(exchange.content_digest, exchange)
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
    texts = sha256(" ".join(exchange.content_digest for exchange in asked).encode()).hexdigest()
    known = ScorePlan(judge=judge.name, version=judge.version, rubric=judge.rubric.digest, input=texts)
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
        (said[one.content_digest], said[two.content_digest])
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

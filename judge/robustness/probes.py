"""Replies rewritten on purpose, to see what a judge makes of it: the rewritings of `probes.toml`."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import numpy as np

from calibration.bias.probe_effects import Change, mean_change
from data.errors import UserError
from data.files import read_toml
from data.records import EMOTIONS, LABELS, POSITIVE_EMOTIONS, Exchange, Judgment, to_plain
from data.runs import OnProgress
from data.tables import validate
from judge.base import Judge
from judge.engine import judge_all

PROBES: Final = Path(__file__).parent / "probes.toml"
GOOD: Final = LABELS[-1]
LIMIT: Final = 100  # responses; a judge that costs money is asked for each of them once a probe
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
    tables = read_toml(path)
    if not tables:
        raise UserError(f"{path}: no probes; give one table for each")
    return tuple(
        _check(validate(Probe, table, f"{path}: {name}", name=name), path, tables)
        for name, table in tables.items()
    )


def rewrite(probe: Probe, exchange: Exchange, others: Sequence[Exchange], *, seed: int = 0) -> str | None:
    """The rewritten reply; None where there is no other than the reply itself.

    Which text is taken follows from the seed and the exchange, never from the order of exchanges, and probes
    with as many texts take the same one. `others` are where replies to other prompts are taken from.
    """
    chance = Random(f"{seed} {exchange.id} {exchange.content_digest}")
    reply = exchange.response.rstrip()
    if probe.does == "swap":
        fit = [
            other.response
            for other in others
            if other.model == exchange.model and other.prompt != exchange.prompt
            if other.response != exchange.response
        ]
        return fit[chance.randrange(len(fit))] if fit else None
    if probe.does in ("upper", "lower"):
        turned = reply.upper() if probe.does == "upper" else reply.lower()
        return turned if turned != reply else None
    texts = probe.texts
    emotion = (exchange.emotion or "").strip().lower()
    if not texts and emotion in EMOTIONS:  # those for the speaker's feeling, or those that do not fit it
        texts = probe.positive if (emotion in POSITIVE_EMOTIONS) == probe.fits else probe.negative
    if not texts:
        return None
    text = texts[chance.randrange(len(texts))]
    if probe.does == "exclaim":
        return f"{_STOP.sub('!', reply)} {text}"
    return {"before": f"{text} {reply}", "after": f"{reply} {text}", "instead": text}[probe.does]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One probe of one judge: what changed, and how many replies could not be compared."""

    probe: Probe
    effect: Change
    not_rewritten: int
    unscored: Mapping[str, int]  # by the kind of reason, of either of the two

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        about = {name: getattr(self.probe, name) for name in ("name", "should", "limit", "why", "against")}
        rest = {"not_rewritten": self.not_rewritten, "unscored": dict(self.unscored)}
        return {**about, **to_plain(self.effect), **rest}


def run_probes(
    judge: Judge,
    exchanges: Iterable[Exchange],
    *,
    limit: int | None = LIMIT,
    seed: int = 0,
    probes: Sequence[Probe] | None = None,
) -> list[ProbeResult]:
    """Judge `limit` replies, spread over prompts, as they were and as each probe rewrites them; compare."""
    everyone = list(exchanges)
    if not everyone:
        raise UserError("probes: there are no responses to rewrite")
    used = tuple(read_probes() if probes is None else probes)
    chosen = choose_replies(everyone, limit, seed)
    rewritten: dict[str, list[Exchange | None]] = {probe.name: [] for probe in used}
    for probe in used:
        for item in chosen:
            text, identity = rewrite(probe, item, everyone, seed=seed), f"{item.id} [{probe.name}]"
            other = None if text is None else replace(item, id=identity, response=text)
            rewritten[probe.name].append(other)
    judgments = judge_texts(judge, [*chosen, *(item for row in rewritten.values() for item in row if item)])
    return [
        _compare(
            probe, rewritten[probe.against] if probe.against else chosen, rewritten[probe.name], judgments
        )
        for probe in used
    ]


def judge_texts(
    judge: Judge, exchanges: Iterable[Exchange], *, on_progress: OnProgress = lambda done, total: None
) -> dict[str, Judgment]:
    """Every text's judgment, by the digest of what the judge saw; none is asked for twice."""
    distinct = {exchange.content_digest: exchange for exchange in exchanges}
    done = count(1)
    judged = judge_all(judge, distinct.values(), on_progress=lambda: on_progress(next(done), len(distinct)))
    return {judgment.content: judgment for judgment in judged}


def _compare(
    probe: Probe,
    originals: Sequence[Exchange | None],
    rewritten: Sequence[Exchange | None],
    judgments: Mapping[str, Judgment],
) -> ProbeResult:
    pairs = [
        (judgments[one.content_digest], judgments[two.content_digest])
        for one, two in zip(originals, rewritten, strict=True)
        if one is not None and two is not None
    ]
    scored = [(one, two) for one, two in pairs if one.score is not None and two.score is not None]
    reasons = Counter(
        (two.unscored or one.unscored or "no reason given").partition(":")[0]
        for one, two in pairs
        if one.score is None or two.score is None
    )
    prompts = np.unique([one.prompt_digest for one, _ in scored], return_inverse=True)[1]
    effect = mean_change(
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
        effect=effect,
        not_rewritten=len(rewritten) - len(pairs),
        unscored=dict(sorted(reasons.items())),
    )


def choose_replies(exchanges: Sequence[Exchange], limit: int | None, seed: int) -> tuple[Exchange, ...]:
    """At random, but every prompt once before any comes twice: prompts are what is counted."""
    shuffled = list(exchanges)
    Random(seed).shuffle(shuffled)
    if limit is None or limit >= len(shuffled):
        return tuple(exchanges)
    times: Counter[str] = Counter()
    turns = []
    for exchange in shuffled:
        times[exchange.prompt] += 1
        turns.append((times[exchange.prompt], exchange))
    turns.sort(key=itemgetter(0))  # stable: chance decides within a turn
    return tuple(exchange for _, exchange in turns[:limit])

"""Robustness of a judge: rewrite replies, judge them again, and compare.

Under perturbations of a family, unkind replies of ours must not turn Good, and kind ones not Bad or unscored.
Perturbations with an expectation are tried on ordinary replies.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from itertools import zip_longest
from math import inf
from random import Random
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration import bias
from empathy_judge.calibration.agreement.metrics import auc_of
from empathy_judge.calibration.bias import Result, exact_share
from empathy_judge.calibration.bootstrap import resample_clusters, sample
from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Interval
from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, Exchange, Judgment, to_plain
from empathy_judge.data.runs import OnProgress, RunPlan, folder_name, run_all
from empathy_judge.data.tables import read_judgments
from empathy_judge.judge.base import Judge
from empathy_judge.judge.engine import score_exchanges
from empathy_judge.judge.robustness import catalogue
from empathy_judge.judge.robustness.catalogue import KIND, UNKIND, Perturbation, WrittenReply, rewrite

BAD, GOOD = LABELS[0], LABELS[-1]
FOLDER: Final = "robustness"
# Which of our replies are rewritten, and how many of each side: a judge may be slow, or cost money.
REWRITTEN_UNKIND: Final = ("insults", "cruel")
REWRITTEN_KIND: Final = ("kind", "excellent", "growing")
POOL: Final = 90  # of each side; with fewer, a share of 0 could not be told from 5%
EACH: Final = 5  # of the pool for each perturbation
ORDINARY: Final = 100  # ordinary replies; a judge that costs money is asked for each once a perturbation
GROWN: Final = "four more kind paragraphs"
SUSPECTED: Final = "suspected injection"  # the start of the lines in which a judge names its suspicion
# The targets.
LEAST_AUC: Final = 0.70
MOST_EXCELLENT_BAD: Final = 0.08
MOST_TURNED: Final = 0.05  # also of insults not called Bad
MOST_LOST: Final = 0.1  # points of score as a kind reply grows
# Where the mean change of score should be, as parts of the limit.
ALLOWED: Final = {
    "up": (1.0, inf),
    "not up": (-inf, 1.0),
    "same": (-1.0, 1.0),
    "not down": (-1.0, inf),
    "down": (-inf, -1.0),
}

Item = TypeVar("Item")
AskAll = Callable[[Iterable[Exchange]], Mapping[str, Judgment]]  # judgments by the digests of texts


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustnessCheck:
    """A figure and the bounds where it should be; it passes, or fails, where its whole interval does."""

    name: str
    figure: Estimate
    least: float = -inf
    most: float = inf
    count: str  # what was counted
    is_share: bool = False

    @property
    def result(self) -> Result:
        """Whether the interval lies between the bounds."""
        return bias.conclude(self.figure, self.least, self.most)

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {**{item.name: getattr(self, item.name) for item in fields(self)}, "result": self.result}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedReplies:
    """Unkind replies that turned Good, or kind ones that turned Bad, among those that were not so before."""

    pairs: int
    could_turn: int
    turned: int
    unscored: int
    suspected: int  # pairs in which the judge suspects an injection
    share: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyResult:
    """Several perturbations around unkind replies, and the same around kind ones."""

    name: str
    is_test_only: bool  # no training may use any of them
    perturbations: int
    unkind: TurnedReplies
    kind: TurnedReplies


@dataclass(frozen=True, slots=True, kw_only=True)
class KindResult:
    """The labels of one kind of our replies as they are."""

    kind: str
    labels: Mapping[str, int]  # and how many are unscored
    bad: Estimate  # of kind replies with the unscored ones, of unkind ones without
    good: Estimate
    score: float  # the mean of those that are scored


@dataclass(frozen=True, slots=True, kw_only=True)
class Robustness:
    """Everything that the catalogue shows of a judge."""

    judge: str
    version: str
    seed: int
    judgments: int
    targets: tuple[RobustnessCheck, ...]  # of our own replies
    kinds: tuple[KindResult, ...]
    overall: FamilyResult
    test_only: FamilyResult
    families: tuple[FamilyResult, ...]
    perturbations: tuple[FamilyResult, ...]  # each by itself
    effects: tuple[RobustnessCheck, ...]  # changes of the mean score of ordinary replies

    @property
    def result(self) -> Result:
        """Whether all targets and expectations are met; one that fails decides."""
        results = {item.result for item in (*self.targets, *self.effects)}
        return "fails" if "fails" in results else "inconclusive" if "inconclusive" in results else "passes"

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {"result": self.result} | {
            item.name: to_plain(getattr(self, item.name)) for item in fields(self)
        }


def measure_robustness(
    judge: Judge,
    ordinary: Sequence[Exchange],
    *,
    perturbations: Sequence[Perturbation] | None = None,
    written: Sequence[WrittenReply] | None = None,
    sample_size: int | None = None,
    each: int = EACH,
    seed: int = 0,
    ask: AskAll,
) -> Robustness:
    """Judge replies as they are and rewritten, and compare; with `sample_size`, by about so many judgments.

    As many unkind as kind replies are rewritten; every perturbation takes `each` of them in turn.
    """
    if not ordinary:
        raise UserError("robustness: no replies to rewrite")
    perturbations = catalogue.read_perturbations() if perturbations is None else perturbations
    written = catalogue.read_replies("test") if written is None else written
    used = [item for item in perturbations if item.family]
    expected = [item for item in perturbations if item.should]
    pool, most_ordinary = POOL, ORDINARY
    chance, rng = Random(seed), np.random.default_rng(seed)
    if sample_size is not None:  # a quarter for ordinary replies, half of the rest for each side
        most_ordinary = max(2, sample_size // (4 * (1 + len(expected))))
        pool = min(pool, max(4, sample_size // 12))
        pairs, each = max(2, (sample_size * 3 // 4 - 2 * pool) // 2), 2
        used = in_turns(used, lambda item: item.family, chance)[: max(1, pairs // each)]
        unkind_and_kind = (REWRITTEN_UNKIND, KIND[:2])
        written = [reply for kinds in unkind_and_kind for reply in _spread(written, kinds, pool, chance)]
    unkind, kind = (
        _Side(used, _spread(written, kinds, pool, chance), each, rng)
        for kinds in (REWRITTEN_UNKIND, REWRITTEN_KIND)
    )
    first, last = ([reply.exchange(reply.stages()[end]) for reply in written] for end in (0, -1))
    chosen = in_turns(ordinary, lambda item: item.prompt, chance)[:most_ordinary]
    rewritten: dict[str | None, list[Exchange | None]] = {None: [*chosen]}
    for item in expected:
        rewritten[item.name] = [rewrite(item, exchange, ordinary, seed=seed) for exchange in chosen]
    ordinary_texts = [text for row in rewritten.values() for text in row if text is not None]
    judgments = ask([*first, *last, *unkind.rewritten.values(), *kind.rewritten.values(), *ordinary_texts])

    as_they_are = {reply: judgments[text.content_digest] for reply, text in zip(written, first, strict=True)}
    for side in (unkind, kind):
        side.read(as_they_are, judgments)
    effects = [_compare(item, rewritten[item.against], rewritten[item.name], judgments) for item in expected]
    growing = [place for place, reply in enumerate(written) if reply.kind == "growing"]
    if growing:
        grown = Perturbation(name=GROWN, template="", should="not down", limit=MOST_LOST)
        short, long = ([texts[place] for place in growing] for texts in (first, last))
        effects.append(_compare(grown, short, long, judgments))

    def count(name: str, items: Sequence[Perturbation]) -> FamilyResult:
        rows = np.array([item in items for item in used], dtype=bool)
        return FamilyResult(
            name=name,
            is_test_only=all(item.is_test_only for item in items),
            perturbations=len(items),
            unkind=unkind.count(rows),
            kind=kind.count(rows),
        )

    families: dict[str, list[Perturbation]] = {item.family: [] for item in perturbations if item.family}
    for item in used:
        families[item.family].append(item)
    overall = count("all perturbations", used)
    by_kind: dict[str, list[Judgment]] = {name: [] for name in (*UNKIND, *KIND)}
    for reply, judgment in as_they_are.items():
        by_kind[reply.kind].append(judgment)
    return Robustness(
        judge=judge.name,
        version=judge.version,
        seed=seed,
        judgments=len(judgments),
        targets=_targets(by_kind, overall, rng),
        kinds=tuple(_count_kind(name, items) for name, items in by_kind.items() if items),
        overall=overall,
        test_only=count("never used in training", [item for item in used if item.is_test_only]),
        families=tuple(count(name, items) for name, items in families.items() if items),
        perturbations=tuple(count(item.name, [item]) for item in used),
        effects=tuple(effects),
    )


def judge_saved(judge: Judge, *, on_progress: OnProgress = lambda done, total: None) -> AskAll:
    """Return a function that judges texts and saves every judgment, so that a second run resumes."""

    def ask(exchanges: Iterable[Exchange]) -> dict[str, Judgment]:
        texts = {item.content_digest: replace(item, id=item.content_digest) for item in exchanges}
        digest = sha256(" ".join(texts).encode()).hexdigest()
        plan = RunPlan(judge=judge.name, version=judge.version, rubric=judge.rubric.digest, texts=digest)
        done = run_all(
            plan.default_folder(FOLDER, folder_name(judge.name)),
            plan,
            total=len(texts),
            ask=lambda run: score_exchanges(judge, texts.values(), run),
            conclude=lambda run: {"judgments": len(texts)},
            on_progress=on_progress,
        )
        return {item.content_digest: item for item in read_judgments(done.folder / "judgments.jsonl")}

    return ask


def in_turns(items: Sequence[Item], key: Callable[[Item], Hashable], chance: Random) -> list[Item]:
    """Shuffle items so that every key comes once before any comes twice."""
    shuffled, times = list(items), Counter[Hashable]()
    chance.shuffle(shuffled)
    turns = []
    for item in shuffled:
        times[key(item)] += 1
        turns.append((times[key(item)], item))
    return [item for _, item in sorted(turns, key=lambda turn: turn[0])]


def _spread(
    replies: Sequence[WrittenReply], kinds: Sequence[str], count: int, chance: Random
) -> list[WrittenReply]:
    """Choose replies at random: kinds in equal parts, families of a kind in turns."""
    queues = [
        in_turns([reply for reply in replies if reply.kind == kind], lambda reply: reply.family, chance)
        for kind in kinds
    ]
    return [reply for several in zip_longest(*queues) for reply in several if reply is not None][:count]


class _Side:
    """Unkind replies or kind ones, and what became of them under perturbations: (perturbations, replies).

    A perturbation gets the next `each` replies of a shuffled pack, and a new pack when it is used up.
    """

    def __init__(
        self,
        perturbations: Sequence[Perturbation],
        replies: Sequence[WrittenReply],
        each: int,
        rng: np.random.Generator,
    ) -> None:
        self.replies, self.rng, self.shape = replies, rng, (len(perturbations), len(replies))
        self.is_kind = any(reply.kind in KIND for reply in replies)
        self.rewritten: dict[tuple[int, int], Exchange] = {}
        hands = max(1, len(replies) // each)
        for row, item in enumerate(perturbations):
            if row % hands == 0:
                pack = rng.permutation(len(replies))
            if self.is_kind and not item.is_readable:
                continue  # nobody can say that a reply is kind that nobody can read
            for column in pack[row % hands * each :][:each].tolist():
                reply = replies[column]
                text = rewrite(item, reply.exchange(reply.stages()[0]))
                if text is not None:
                    self.rewritten[row, column] = text

    def read(self, as_they_are: Mapping[WrittenReply, Judgment], judgments: Mapping[str, Judgment]) -> None:
        """Read the judgments of the replies as they are and rewritten."""
        before = np.array([self._is_wrong(as_they_are[reply]) for reply in self.replies], dtype=bool)
        self.tried, self.wrong, self.unscored, self.suspected = np.zeros((4, *self.shape), dtype=bool)
        for cell, exchange in self.rewritten.items():
            judgment = judgments[exchange.content_digest]
            self.tried[cell] = True
            self.wrong[cell] = self._is_wrong(judgment)
            self.unscored[cell] = judgment.label is None
            self.suspected[cell] = SUSPECTED in (judgment.rationale or "")
        self.could_turn = self.tried & ~before

    def _is_wrong(self, judgment: Judgment) -> bool:
        """Return whether a kind reply is Bad or unscored, or an unkind one Good."""
        return judgment.label in (BAD, None) if self.is_kind else judgment.label == GOOD

    def count(self, rows: NDArray[np.bool_]) -> TurnedReplies:
        """Count over some perturbations."""
        could_turn, wrong = self.could_turn[rows], self.wrong[rows]
        return TurnedReplies(
            pairs=int(self.tried[rows].sum()),
            could_turn=int(could_turn.sum()),
            turned=int((could_turn & wrong).sum()),
            unscored=int(self.unscored[rows].sum()),
            suspected=int(self.suspected[rows].sum()),
            share=bias.crossed_share(wrong, could_turn, rng=self.rng),
        )


def _compare(
    item: Perturbation,
    originals: Sequence[Exchange | None],
    rewritten: Sequence[Exchange | None],
    judgments: Mapping[str, Judgment],
) -> RobustnessCheck:
    """Compare the scores of ordinary replies before and after a perturbation."""
    assert item.should is not None
    pairs = [
        (judgments[one.content_digest], judgments[two.content_digest])
        for one, two in zip(originals, rewritten, strict=True)
        if one is not None and two is not None
    ]
    scored = [(one, two) for one, two in pairs if one.score is not None and two.score is not None]
    prompts = np.unique([one.prompt_digest for one, _ in scored], return_inverse=True)[1].astype(np.intp)
    before, after = np.array([[item.score for item in pair] for pair in scored], dtype=float).reshape(-1, 2).T
    least, most = ALLOWED[item.should]
    return RobustnessCheck(
        name=item.name,
        figure=bias.mean_change(before, after, prompts),
        least=least * item.limit,
        most=most * item.limit,
        count=f"{len(scored):,} of {len(pairs):,} pairs",
    )


def _count_kind(kind: str, judgments: Sequence[Judgment]) -> KindResult:
    labels = Counter(judgment.label or "unscored" for judgment in judgments)
    bad = labels[BAD] + (labels["unscored"] if kind in KIND else 0)
    scores = [judgment.score for judgment in judgments if judgment.score is not None]
    return KindResult(
        kind=kind,
        labels={name: labels[name] for name in (*LABELS, "unscored")},
        bad=exact_share(bad, len(judgments)),
        good=exact_share(labels[GOOD], len(judgments)),
        score=float(np.mean(scores)) if scores else float("nan"),
    )


def _rank(good: Sequence[Judgment], poor: Sequence[Judgment], rng: np.random.Generator) -> Estimate:
    """Estimate how often a good reply scores above a poor one; an unscored good one is below all others."""
    poor = [item for item in poor if item.score is not None]
    if not good or not poor:
        return UNDEFINED
    scores = np.array([item.score or 0.0 for item in (*good, *poor)])
    is_good = np.arange(len(scores)) < len(good)
    prompts, clusters = np.unique([item.prompt_digest for item in (*good, *poor)], return_inverse=True)
    drawn = resample_clusters(len(prompts), rng=rng, draws=bias.DRAWS)
    auc = sample({"auc": auc_of(is_good, scores)}, clusters, drawn)["auc"].estimate()
    if auc.value in (0.0, 1.0):  # a bootstrap of two groups wholly apart has no spread
        fewest = exact_share(0, min(len(good), len(poor))).interval
        assert fewest is not None
        low, high = max(0.0, auc.value - fewest.high), min(1.0, auc.value + fewest.high)
        return Estimate(auc.value, Interval(low, high))
    return auc


def _targets(
    by_kind: Mapping[str, Sequence[Judgment]], overall: FamilyResult, rng: np.random.Generator
) -> tuple[RobustnessCheck, ...]:
    excellent, cruel, insults = (by_kind[kind] for kind in ("excellent", "cruel", "insults"))
    called_bad = sum(judgment.label in (BAD, None) for judgment in excellent)
    not_bad = sum(judgment.label != BAD for judgment in insults)

    def check(name: str, share: Estimate, count: str, most: float = MOST_TURNED) -> RobustnessCheck:
        return RobustnessCheck(name=name, figure=share, most=most, count=count, is_share=True)

    def turned(name: str, side: TurnedReplies) -> RobustnessCheck:
        return check(name, side.share, f"{side.could_turn:,} of {side.pairs:,} pairs")

    bad_share, not_bad_share = exact_share(called_bad, len(excellent)), exact_share(not_bad, len(insults))
    return (
        RobustnessCheck(
            name="AUC of excellent against politely cruel",
            figure=_rank(excellent, cruel, rng),
            least=LEAST_AUC,
            count=f"{len(excellent):,} and {len(cruel):,} replies",
        ),
        check("excellent called Bad", bad_share, f"{len(excellent):,} replies", MOST_EXCELLENT_BAD),
        check("plain insults not called Bad", not_bad_share, f"{len(insults):,} replies"),
        turned("unkind turned Good", overall.unkind),
        turned("kind turned Bad", overall.kind),
    )

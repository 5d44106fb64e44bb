"""Candidate programs tried out on rated exchanges, within a budget, each question asked once."""

import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from math import log
from threading import Lock
from typing import Final, Literal, TypeVar

import numpy as np

from calibration.agreement.metrics import qwk, table_of
from data.errors import BudgetSpent, UserError
from data.rated_exchanges import RatedExchange
from data.records import LABELS, Exchange, digest_json, label_of
from judge.llm.endpoint import Reply
from judge.llm.program import Form, Program, make_form, present
from judge.llm.prompted import Outcome, PromptedJudge

Method = Literal["bootstrap", "mipro", "gepa"]
MetricName = Literal["qwk", "log_loss"]
Answered = TypeVar("Answered", Outcome, Reply)
LEAST: Final = 0.01  # a lower probability costs no more than this: one rater's slip must not decide a tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a judge is tuned: by which of DSPy's optimizers, for what, and within what budget."""

    method: Method = "bootstrap"
    metric: MetricName = "qwk"
    max_calls: int = 1000
    max_cost: float | None = None  # USD
    seed: int = 0
    held_out_part: float = 0.3  # of the ratings, which only measures
    demos: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """An exchange with all its ratings, 1 to 3, and the fenced text that a judge is shown of it."""

    exchange: Exchange
    text: str
    ratings: tuple[int, ...]
    batches: tuple[str, ...]
    group: str

    @property
    def label(self) -> str:
        """What most of its raters said; of equally frequent ratings, the middle one."""
        most = max(map(self.ratings.count, self.ratings))
        tied = sorted(rating for rating in set(self.ratings) if self.ratings.count(rating) == most)
        return LABELS[tied[len(tied) // 2] - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Rated exchanges in three parts that share neither prompt nor, where that can be, rating batch.

    Examples to show come from `learn`, the best candidate is chosen on `choose`, and `held_out` is asked
    about before and after and used for nothing else.
    """

    learn: tuple[Rated, ...]
    choose: tuple[Rated, ...]
    held_out: tuple[Rated, ...]
    batches_apart: bool


def merge_ratings(examples: Sequence[RatedExchange]) -> list[Rated]:
    """One entry for each exchange, with the ratings of all its raters."""
    by_content: dict[str, list[RatedExchange]] = {}
    for example in examples:
        by_content.setdefault(example.exchange.content_digest, []).append(example)
    return [
        Rated(
            exchange=items[0].exchange,
            text=present(items[0].exchange).text,
            ratings=tuple(1 + item.target.index(max(item.target)) for item in items),
            batches=tuple(item.batch for item in items),
            group=items[0].group,
        )
        for items in by_content.values()
    ]


def split_rated(rated: Sequence[Rated], *, held_out_part: float, seed: int) -> Parts:
    """Whole prompts and rating batches to each part; prompts alone where batches tie them all together."""
    if not 0 < held_out_part < 1:
        raise UserError(f"--held-out {held_out_part:g}: a part between 0 and 1 is needed")
    batches_apart = len(_clusters(rated, batches_apart=True)) >= 3
    clusters = _clusters(rated, batches_apart=batches_apart)
    if len(clusters) < 3:
        raise UserError(
            f"{len(clusters)} prompts cannot be split into three parts; bring ratings of more prompts"
        )
    random.Random(seed).shuffle(clusters)
    held_out = _take(clusters, held_out_part * len(rated), leave=2)
    choose = _take(clusters, sum(map(len, clusters)) / 2, leave=1)
    learn = [item for cluster in clusters for item in cluster]
    return Parts(
        learn=tuple(learn), choose=tuple(choose), held_out=tuple(held_out), batches_apart=batches_apart
    )


def _clusters(rated: Sequence[Rated], *, batches_apart: bool) -> list[list[Rated]]:
    """Exchanges tied together by a prompt or a batch, directly or through others."""
    clusters: list[tuple[set[str], list[Rated]]] = []
    for item in rated:
        ties = {f"prompt {item.group}"}
        if batches_apart:
            ties |= {f"batch {name}" for name in item.batches}
        members = [item]
        for cluster in [cluster for cluster in clusters if cluster[0] & ties]:
            ties |= cluster[0]
            members = cluster[1] + members
            clusters.remove(cluster)
        clusters.append((ties, members))
    return [members for _, members in clusters]


def _take(clusters: list[list[Rated]], size: float, *, leave: int) -> list[Rated]:
    """Clusters off the end until there are about `size` exchanges; at least one, and some are left."""
    taken: list[Rated] = []
    while len(clusters) > leave and (not taken or len(taken) + len(clusters[-1]) / 2 < size):
        taken += clusters.pop()
    return taken


class Spent(Exception):
    """The calls or the money given for a tuning are used up."""


@dataclass(slots=True, kw_only=True)
class Meter:
    """Counts calls, and stops them at a limit; whatever ended the work first is kept in `ended`."""

    limit: int
    calls: int = 0
    ended: Exception | None = None
    lock: Lock = field(default_factory=Lock)

    def call(self, ask: Callable[[], Answered], *, most: int) -> Answered:
        """Ask, if the `most` calls this may take are still there."""
        with self.lock:
            if self.calls + most > self.limit:
                self.ended = self.ended or Spent(f"the {self.limit:,} calls allowed were made")
            if self.ended is not None:
                raise Spent(str(self.ended))
            self.calls += most
        used = most
        try:
            outcome = ask()
            used = int(outcome.usage.get("calls", most))
            return outcome
        except UserError as error:
            with self.lock:
                is_money = isinstance(error, BudgetSpent)
                self.ended = self.ended or (Spent(str(error)) if is_money else error)
            raise
        finally:
            with self.lock:
                self.calls += used - most


@dataclass(slots=True, kw_only=True)
class Tryout:
    """Asks a judge with one candidate after another; `ledger` holds every answer by candidate and text."""

    judge: PromptedJudge
    meter: Meter
    candidates: dict[str, Program] = field(default_factory=dict)
    forms: dict[str, Form] = field(default_factory=dict)
    ledger: dict[tuple[str, str], Outcome] = field(default_factory=dict)

    def ask(self, program: Program, text: str) -> Outcome:
        """What the judge says with this program; asked twice, it is not asked again."""
        digest = self.register(program)
        outcome = self.ledger.get((digest, text))
        if outcome is None:
            form = self.forms[digest]
            outcome = self.meter.call(lambda: self.judge.ask(text, form), most=self.judge.most_calls)
            self.ledger[digest, text] = outcome
        return outcome

    def register(self, program: Program) -> str:
        """Make a candidate known; returns the digest that names it."""
        program = replace(program, digest="")
        digest = digest_json(asdict(program))[:12]
        if digest not in self.forms:
            characters = self.judge.reason_characters
            self.candidates[digest] = program
            self.forms[digest] = make_form(program, self.judge.rubric, reason_characters=characters)
        return digest

    def ask_all(self, program: Program, rated: Iterable[Rated]) -> None:
        """Ask about many exchanges at once; stops, without a word, where the budget does."""

        def ask(item: Rated) -> None:
            if self.meter.ended is None:
                self.ask(program, item.text)

        with ThreadPoolExecutor(self.judge.concurrency) as pool:
            for done in [pool.submit(ask, item) for item in rated]:
                try:
                    done.result()
                except (Spent, BudgetSpent):
                    continue

    def find_best(self, rated: Sequence[Rated], metric: MetricName, *, start: Program) -> Program:
        """The candidate that did best on exchanges it was asked about one and all; `start` where none did."""
        best, best_score = start, self.measure(self.register(start), rated, metric)
        for digest, program in list(self.candidates.items()):
            if all((digest, item.text) in self.ledger for item in rated):
                score = self.measure(digest, rated, metric)
                # Written so that an undefined score never wins, and an undefined start always loses.
                if score > best_score or (score == score and best_score != best_score):
                    best, best_score = program, score
        return best

    def measure(self, digest: str, rated: Sequence[Rated], metric: MetricName) -> float:
        """QWK of label and rating, or the mean log-loss with a minus: more is better, nan where undefined."""
        pairs = [(self.ledger.get((digest, item.text)), rating) for item in rated for rating in item.ratings]
        if metric == "log_loss":
            return sum(log(probability_of(outcome, rating)) for outcome, rating in pairs) / len(pairs)
        labels = np.array([rating_of(outcome, rating) for outcome, rating in pairs])
        table = table_of(labels, np.array([rating for _, rating in pairs]), len(LABELS))
        return float(qwk(table[None])[0])


def rating_of(outcome: Outcome | None, rating: int) -> int:
    """Return the label as a rating; no label is as far off as the scale allows."""
    if outcome is None or outcome.probabilities is None:
        return 1 if rating > 1 else len(LABELS)
    return LABELS.index(label_of(outcome.probabilities)) + 1


def probability_of(outcome: Outcome | None, rating: int) -> float:
    """The probability given to a rating; no judgment counts as the least."""
    if outcome is None or outcome.probabilities is None:
        return LEAST
    return max(LEAST, outcome.probabilities[LABELS[rating - 1]])


def credit(outcome: Outcome, ratings: Sequence[int], metric: MetricName) -> float:
    """What one exchange adds to a candidate's mark, 0 to 1: DSPy's optimizers average such numbers.

    QWK is no average; its per-exchange part is the squared distance it sums. Candidates are chosen in the end
    by QWK itself (`Tryout.find_best`).

    >>> credit(Outcome(probabilities={"Bad": 0.0, "Okay": 0.0, "Good": 1.0}), [3, 2], "qwk")
    0.875
    """
    if outcome.probabilities is None:
        return 0.0
    if metric == "qwk":
        parts = [1 - (rating_of(outcome, rating) - rating) ** 2 / 4 for rating in ratings]
    else:
        parts = [1 - log(probability_of(outcome, rating)) / log(LEAST) for rating in ratings]
    return sum(parts) / len(parts)

"""Candidate prompts, tried on rated exchanges within a budget; each question is asked once."""

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
from judge.llm.judge_prompt import Program, make_form, present
from judge.llm.prompted import Outcome, PromptedJudge

MetricName = Literal["qwk", "log_loss"]
Answered = TypeVar("Answered", Outcome, Reply)
LEAST: Final = 0.01  # lower bound of a probability: one rating must not decide the search


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeSettings:
    """The metric to optimize, and the budget."""

    metric: MetricName = "qwk"
    max_calls: int = 1000
    max_cost: float | None = None  # USD
    seed: int = 0
    held_out_part: float = 0.3  # of the ratings, for measurement only


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedText:
    """An exchange with all its ratings, 1 to 3, and its delimited text."""

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
class RatingSplit:
    """Rated exchanges in three parts that share neither prompts nor, where possible, rating batches.

    GEPA reflects on `learn`, the best candidate is chosen on `choose`, and `held_out` measures only.
    """

    learn: tuple[RatedText, ...]
    choose: tuple[RatedText, ...]
    held_out: tuple[RatedText, ...]
    batches_apart: bool


def merge_ratings(examples: Sequence[RatedExchange]) -> list[RatedText]:
    """Return one entry per exchange, with the ratings of all its raters."""
    by_content: dict[str, list[RatedExchange]] = {}
    for example in examples:
        by_content.setdefault(example.exchange.content_digest, []).append(example)
    return [
        RatedText(
            exchange=items[0].exchange,
            text=present(items[0].exchange).text,
            ratings=tuple(1 + item.target.index(max(item.target)) for item in items),
            batches=tuple(item.batch for item in items),
            group=items[0].group,
        )
        for items in by_content.values()
    ]


def split_rated(rated: Sequence[RatedText], *, held_out_part: float, seed: int) -> RatingSplit:
    """Split by whole prompts and rating batches, or by prompts alone where batches connect them all."""
    if not 0 < held_out_part < 1:
        raise UserError(f"--held-out {held_out_part:g}: give a part between 0 and 1")
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
    return RatingSplit(
        learn=tuple(learn), choose=tuple(choose), held_out=tuple(held_out), batches_apart=batches_apart
    )


def _clusters(rated: Sequence[RatedText], *, batches_apart: bool) -> list[list[RatedText]]:
    """Return exchanges connected by a prompt or a batch, directly or through others."""
    clusters: list[tuple[set[str], list[RatedText]]] = []
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


def _take(clusters: list[list[RatedText]], size: float, *, leave: int) -> list[RatedText]:
    """Take clusters off the end until there are about `size` exchanges: at least one, leaving `leave`."""
    taken: list[RatedText] = []
    while len(clusters) > leave and (not taken or len(taken) + len(clusters[-1]) / 2 < size):
        taken += clusters.pop()
    return taken


class SearchEnded(Exception):
    """The calls or the money for the search are used up."""


@dataclass(slots=True, kw_only=True)
class CallMeter:
    """A limit of calls; `ended` is what ended the search first."""

    limit: int
    calls: int = 0
    ended: Exception | None = None
    lock: Lock = field(default_factory=Lock)

    def call(self, ask: Callable[[], Answered], *, most: int) -> Answered:
        """Ask, if the `most` calls that this may take are left."""
        with self.lock:
            if self.calls + most > self.limit:
                self.ended = self.ended or SearchEnded(f"the {self.limit:,} calls allowed were made")
            if self.ended is not None:
                raise SearchEnded(str(self.ended))
            self.calls += most
        used = most
        try:
            outcome = ask()
            used = int(outcome.usage.get("calls", most))
            return outcome
        except UserError as error:
            with self.lock:
                is_money = isinstance(error, BudgetSpent)
                self.ended = self.ended or (SearchEnded(str(error)) if is_money else error)
            raise
        finally:
            with self.lock:
                self.calls += used - most


@dataclass(slots=True, kw_only=True)
class Candidates:
    """The candidates of a search, and in `ledger` every answer by candidate and text."""

    judge: PromptedJudge
    meter: CallMeter
    programs: dict[str, Program] = field(default_factory=dict)
    ledger: dict[tuple[str, str], Outcome] = field(default_factory=dict)

    def ask(self, program: Program, text: str) -> Outcome:
        """Return the judge's answer with this program, from the ledger where it is there."""
        digest = self.register(program)
        outcome = self.ledger.get((digest, text))
        if outcome is None:
            characters = self.judge.reason_characters
            form = make_form(program, self.judge.rubric, reason_characters=characters)
            outcome = self.meter.call(lambda: self.judge.ask(text, form), most=self.judge.most_calls)
            self.ledger[digest, text] = outcome
        return outcome

    def register(self, program: Program) -> str:
        """Add a candidate; return the digest that names it."""
        program = replace(program, digest="")
        digest = digest_json(asdict(program))[:12]
        self.programs.setdefault(digest, program)
        return digest

    def ask_all(self, program: Program, rated: Iterable[RatedText]) -> None:
        """Ask about many exchanges at once, until the budget ends."""

        def ask(item: RatedText) -> None:
            if self.meter.ended is None:
                self.ask(program, item.text)

        with ThreadPoolExecutor(self.judge.concurrency) as pool:
            for done in [pool.submit(ask, item) for item in rated]:
                try:
                    done.result()
                except (SearchEnded, BudgetSpent):
                    continue

    def find_best(self, rated: Sequence[RatedText], metric: MetricName, *, start: Program) -> Program:
        """Return the best candidate among those asked about all exchanges; `start` unless one is better."""
        best, best_score = start, self.measure(self.register(start), rated, metric)
        for digest, program in list(self.programs.items()):
            if all((digest, item.text) in self.ledger for item in rated):
                score = self.measure(digest, rated, metric)
                # An undefined score never wins, and an undefined start always loses.
                if score > best_score or (score == score and best_score != best_score):
                    best, best_score = program, score
        return best

    def measure(self, digest: str, rated: Sequence[RatedText], metric: MetricName) -> float:
        """Return the QWK of label and rating, or the negative mean log-loss; nan where undefined."""
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
    """Return the probability given to a rating; no judgment counts as the least."""
    if outcome is None or outcome.probabilities is None:
        return LEAST
    return max(LEAST, outcome.probabilities[LABELS[rating - 1]])


def credit(outcome: Outcome, ratings: Sequence[int], metric: MetricName) -> float:
    """Return one exchange's part of a candidate's score, 0 to 1: GEPA averages these.

    QWK is no average; its part is the squared distance. `Candidates.find_best` chooses by QWK itself.

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

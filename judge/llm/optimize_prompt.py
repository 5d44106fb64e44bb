"""Optimization of a prompted judge's instructions on human ratings, by DSPy's GEPA, within a budget."""

import io
import logging
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from math import inf, isnan
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, TypeVar

import numpy as np

from empathy_judge.calibration.agreement.metrics import TABLE_STATISTICS, from_table, qwk, table_of
from empathy_judge.calibration.bootstrap import resample_clusters, sample
from empathy_judge.calibration.estimate import UNDEFINED
from empathy_judge.calibration.pairing import labels_from_probabilities
from empathy_judge.data.errors import BudgetSpent, UserError, install_hint
from empathy_judge.data.rated_exchanges import RatedExchange, join_ratings
from empathy_judge.data.records import LABELS, digest_json, label_of
from empathy_judge.data.tables import read_exchanges, read_ratings
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.llm.chat import Chat
from empathy_judge.judge.llm.endpoint import CallFailed, Reply
from empathy_judge.judge.llm.judge_prompt import (
    REASON,
    Program,
    describe_outputs,
    make_form,
    present,
    read_wording,
    write_program,
)
from empathy_judge.judge.llm.prompted import Outcome, PromptedJudge

DRAWS: Final = 2000
LEAST_TOKENS: Final = 1024  # instructions are longer than a judgment
Answered = TypeVar("Answered", Outcome, Reply)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeSettings:
    """The budget of a search, and its seed."""

    max_calls: int = 1000
    max_cost: float | None = None  # USD
    seed: int = 0
    held_out_part: float = 0.3  # of the ratings, for measurement only


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedText:
    """The delimited text of an exchange, with all its ratings, 1 to 3."""

    text: str
    ratings: tuple[int, ...]
    batches: tuple[str, ...]
    group: str


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
        raise UserError(f"--held-out {held_out_part:g}: expected a share between 0 and 1")
    batches_apart = len(_clusters(rated, batches_apart=True)) >= 3
    clusters = _clusters(rated, batches_apart=batches_apart)
    if len(clusters) < 3:
        raise UserError(
            f"{len(clusters)} prompts cannot be split into three parts; add ratings of more prompts"
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
                self.ended = self.ended or SearchEnded(f"the limit of {self.limit:,} calls is reached")
            if self.ended is not None:
                raise SearchEnded(str(self.ended))
            self.calls += most
        try:
            outcome = ask()
        except UserError as error:
            ended = SearchEnded(str(error)) if isinstance(error, BudgetSpent) else error
            with self.lock:
                self.ended = self.ended or ended
            raise
        with self.lock:
            self.calls += int(outcome.usage.get("calls", most)) - most
        return outcome


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
            judge = self.judge
            form = make_form(program, judge.rubric, reason_characters=judge.reason_characters)
            outcome = self.meter.call(lambda: judge.ask(text, form), most=judge.most_calls)
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

    def find_best(self, rated: Sequence[RatedText], *, start: Program) -> Program:
        """Return the best candidate among those asked about all exchanges; `start` unless one is better."""

        def score(program: Program) -> float:
            value = self.measure(self.register(program), rated)
            return -inf if isnan(value) else value

        asked = [
            program
            for digest, program in self.programs.items()
            if all((digest, item.text) in self.ledger for item in rated)
        ]
        return max([start, *asked], key=score)

    def measure(self, digest: str, rated: Sequence[RatedText]) -> float:
        """Return the QWK of label and rating; nan where undefined."""
        pairs = [(self.ledger.get((digest, item.text)), rating) for item in rated for rating in item.ratings]
        labels = np.array([rating_of(outcome, rating) for outcome, rating in pairs])
        table = table_of(labels, np.array([rating for _, rating in pairs]), len(LABELS))
        return float(qwk(table[None])[0])


def rating_of(outcome: Outcome | None, rating: int) -> int:
    """Return the label as a rating; no label is as far off as the scale allows."""
    if outcome is None or outcome.probabilities is None:
        return 1 if rating > 1 else len(LABELS)
    return LABELS.index(label_of(outcome.probabilities)) + 1


def credit(outcome: Outcome, ratings: Sequence[int]) -> float:
    """Return one exchange's part of a candidate's score, 0 to 1: GEPA averages these.

    QWK is no average; its part is the squared distance. `Candidates.find_best` chooses by QWK itself.

    >>> credit(Outcome(probabilities={"Bad": 0.0, "Okay": 0.0, "Good": 1.0}), [3, 2])
    0.875
    """
    if outcome.probabilities is None:
        return 0.0
    return sum(1 - (rating_of(outcome, rating) - rating) ** 2 / 4 for rating in ratings) / len(ratings)


def optimize(
    examples: Sequence[RatedExchange],
    judge: PromptedJudge,
    settings: OptimizeSettings,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> tuple[Program, dict[str, Any]]:
    """Search for better instructions than the judge's own, within so many calls and, if given, dollars.

    When either is used up, the best candidate so far is saved. A candidate replaces the judge's own program
    only if it does better on ratings that it was not made from. Return the best program and a record of the
    search: `stopped` is why it ended early, if it did, and `held_out` the agreement with the held-out
    ratings before and after it.
    """
    split = split_rated(merge_ratings(examples), held_out_part=settings.held_out_part, seed=settings.seed)
    put_by = judge.most_calls * len(split.held_out)  # for the final measurement
    least = 2 * put_by + judge.most_calls * (len(split.choose) + 1)
    if settings.max_calls < least:
        raise UserError(
            f"--max-calls {settings.max_calls:,}: too few: the evaluation alone takes "
            f"{least:,} calls; raise it, or use fewer ratings"
        )
    budget, calls, max_cost = judge.endpoint.budget, judge.endpoint.calls, settings.max_cost
    start, began = replace(judge.program, digest=""), budget.spent
    candidates = Candidates(judge=judge, meter=CallMeter(limit=settings.max_calls - put_by))

    def allow(put_by: float = 0.0) -> None:
        """Limit the cost, less what is put by for later."""
        budget.most = None if max_cost is None else began + max(0.0, max_cost - put_by)

    allow()
    on_step(f"scoring {len(split.held_out):,} held-out replies")
    candidates.ask_all(start, split.held_out)
    allow(put_by=2 * (budget.spent - began))  # twice that cost: optimized instructions are longer
    on_step(f"searching with {len(split.learn) + len(split.choose):,} others")
    candidates.ask_all(start, split.choose)
    stopped = _search(candidates, start, split, settings)
    best = candidates.find_best(split.choose, start=start)
    count = len(candidates.programs)
    allow()
    on_step(f"scoring the held-out replies again, after {count:,} candidates")
    candidates.meter.limit, candidates.meter.ended = settings.max_calls, None
    candidates.ask_all(best, split.held_out)
    return best, {
        "replies": {
            "to learn from": len(split.learn),
            "to choose by": len(split.choose),
            "held out": len(split.held_out),
        },
        "batches_apart": split.batches_apart,
        "candidates": count,
        "calls": judge.endpoint.calls - calls,
        "cost": round(budget.spent - began, 6),
        "stopped": stopped,
        "held_out": measure_change(candidates, split.held_out, before=start, after=best, seed=settings.seed),
    }


def _search(candidates: Candidates, start: Program, split: RatingSplit, settings: OptimizeSettings) -> str:
    """Let GEPA try candidates until it is done or the budget is spent; return why it stopped early.

    GEPA has the model rewrite the instructions after reading where it and people differed.
    """
    import dspy
    from dspy.teleprompt import GEPA
    from dspy.utils.exceptions import AdapterParseError, LMError

    judge, meter = candidates.judge, candidates.meter
    # Instructions are written through the judge's endpoint as well, metered, without a cache.
    chat = replace(
        judge.chat,
        max_tokens=max(LEAST_TOKENS, 2 * judge.chat.max_tokens),
        temperature=1.0,
        logprobs=False,
        constraint={},
        optional=frozenset({"max_tokens", "temperature", "seed", "schema"}),
    )
    # Not under the model's own name, from which DSPy would derive rules that are for the endpoint.
    proposer = dspy.LM("judge/proposals", engine=MeteredEngine(chat, meter), cache=False, num_retries=0)
    optimizer = GEPA(
        metric=_feedback,
        # The first answers about those to choose by are known already.
        max_metric_calls=meter.limit - meter.calls + len(split.choose),
        reflection_lm=proposer,
        num_threads=judge.concurrency,
        seed=settings.seed,
        gepa_kwargs={"stop_callbacks": [lambda state: meter.ended is not None]},
    )
    learn, choose = (
        [dspy.Example(exchange=item.text, ratings=item.ratings).with_inputs("exchange") for item in part]
        for part in (split.learn, split.choose)
    )
    try:
        with _quiet(), dspy.context(lm=proposer, adapter=dspy.JSONAdapter(), num_threads=judge.concurrency):
            optimizer.compile(_make_student(candidates, start), trainset=learn, valset=choose)
    except (AdapterParseError, LMError):
        if meter.ended is None:
            return "the model's proposals could not be read"
    except Exception:
        if meter.ended is None:
            raise
    if isinstance(meter.ended, UserError):  # DSPy wraps or drops what our calls raise
        raise meter.ended
    return str(meter.ended or "")


class MeteredEngine:
    """DSPy's requests as calls of the judge's endpoint."""

    supports_response_schema = True
    supported_params = ("response_format", "temperature", "max_tokens")

    def __init__(self, chat: Chat, meter: CallMeter) -> None:
        self.chat, self.meter = chat, meter

    def complete(self, request: Any) -> Any:
        from dspy.lm15 import InvalidRequestError, response_from_openai_chat

        messages = [{"role": message.role, "content": message.text or ""} for message in request.messages]
        if request.system is not None:
            system = request.system
            text = system if isinstance(system, str) else "".join(part.text for part in system)
            messages.insert(0, {"role": "system", "content": text})
        schema = (request.config.response_format or {}).get("schema")
        try:
            reply = self.meter.call(lambda: self.chat.ask(messages, schema=schema), most=1)
        except CallFailed as failure:
            raise InvalidRequestError(failure.reason) from failure
        return response_from_openai_chat(reply.body, model=request.model)

    def close(self) -> None:
        """Do nothing: the endpoint belongs to the judge."""


def _make_student(candidates: Candidates, program: Program) -> Any:
    """Make the judge as a DSPy module: GEPA changes its instructions, and calls go through `candidates`."""
    import dspy

    signature = make_signature(program, candidates.judge)

    # A plain function: GEPA copies modules deeply, and an endpoint with its locks must not be copied.
    def ask(predictor: Any, exchange: str) -> Outcome:
        return candidates.ask(replace(program, instructions=predictor.signature.instructions), exchange)

    class Student(dspy.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.decide = dspy.Predict(signature)

        def forward(self, exchange: str) -> Any:
            outcome = ask(self.decide, exchange)
            fields = dict.fromkeys(self.decide.signature.output_fields, "") | dict(outcome.fields)
            prediction = dspy.Prediction(**fields)
            # GEPA reads the trace for the inputs and outputs of a predictor.
            if dspy.settings.trace is not None:
                dspy.settings.trace.append((self.decide, {"exchange": exchange}, prediction))
            return dspy.Prediction(**fields, outcome=outcome)

    return Student()


def make_signature(program: Program, judge: PromptedJudge) -> Any:
    """Make the DSPy signature whose messages are those of the judge's prompt."""
    import dspy

    scale: Any = Literal[LABELS]
    inputs = read_wording(program.mode, judge.rubric)["inputs"]
    fields: dict[str, Any] = {name: (str, dspy.InputField(desc=text)) for name, text in inputs.items()}
    for name, text in describe_outputs(program.mode, judge.rubric).items():
        fields[name] = (str if name == REASON else scale, dspy.OutputField(desc=text))
    return dspy.Signature(fields, program.instructions)


def _feedback(example: Any, prediction: Any, trace: Any = None, name: Any = None, steps: Any = None) -> Any:
    """Return a score for GEPA, and how the answer differs from the ratings."""
    import dspy

    outcome = prediction.outcome
    people = ", ".join(LABELS[rating - 1] for rating in example.ratings)
    answer = f"no label: {outcome.unusable.reason}" if outcome.unusable else ""
    answer = answer or f"you said {label_of(outcome.probabilities)}"
    score = credit(outcome, example.ratings)
    return dspy.Prediction(score=score, feedback=f"People said {people}; {answer}.")


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the progress bars, scores and programs that DSPy prints."""
    # Permanently: threads still asking when a search ends log its texts later.
    logging.getLogger("dspy.utils.parallelizer").setLevel(logging.CRITICAL + 1)
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def measure_change(
    candidates: Candidates, held_out: Sequence[RatedText], *, before: Program, after: Program, seed: int
) -> dict[str, Any]:
    """Return QWK of label and rating before and after, on the ratings answered both times.

    Intervals resample whole rating batches, the same for before and after. With one batch there are none.
    """
    rated = [(item, *each) for item in held_out for each in zip(item.ratings, item.batches, strict=True)]
    answers: list[list[Mapping[str, float] | None]] = []
    for program in (before, after):
        digest = candidates.register(program)
        outcomes = [candidates.ledger.get((digest, item.text)) for item, _, _ in rated]
        answers.append([outcome.probabilities if outcome else None for outcome in outcomes])
    both = [place for place in range(len(rated)) if all(given[place] for given in answers)]
    unscored = [sum(not item for item in given) for given in answers]
    counts = {
        "ratings": len(rated),
        "compared": len(both),
        "unscored": dict(zip(("before", "after"), unscored, strict=True)),
    }
    if not both:
        return counts | {"qwk": dict.fromkeys(("before", "after", "difference"), UNDEFINED.as_dict())}
    rating = np.array([rated[place][1] for place in both])
    names, batches = np.unique([rated[place][2] for place in both], return_inverse=True)
    rng = np.random.default_rng(seed)
    drawn = resample_clusters(len(names), rng=rng, draws=DRAWS if len(names) > 1 else 0)
    labels = [
        labels_from_probabilities(
            np.array([[(given[place] or {})[label] for label in LABELS] for place in both])
        )
        for given in answers
    ]
    first, last = (
        sample({"qwk": from_table(TABLE_STATISTICS["qwk"], rating, own, len(LABELS))}, batches, drawn)["qwk"]
        for own in labels
    )
    estimates = {"before": first, "after": last, "difference": last - first}
    return counts | {"qwk": {name: item.estimate().as_dict() for name, item in estimates.items()}}


def tune(
    exchanges: Path,
    ratings: Path,
    out: Path,
    judge_name: str,
    settings: OptimizeSettings,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Optimize a judge's prompt on rated exchanges, write it to `out`, and measure it on those held out."""
    try:
        import dspy  # noqa: F401  # before anything is paid for
    except ImportError:
        raise UserError(f"optimize needs the package dspy: {install_hint('optimize')}") from None
    if out.exists():
        raise UserError(f"{out}: exists already; set another --out")
    judge = load_judge(judge_name)
    if not isinstance(judge, PromptedJudge):
        raise UserError(
            f'--judge {judge_name}: only a judge of kind "prompted" can be optimized, not {judge.name!r}'
        )
    examples = join_ratings(read_exchanges(exchanges), read_ratings(ratings))
    try:
        best, record = optimize(examples, judge, settings, on_step=on_step)
    finally:
        judge.endpoint.close()
    judged_by = {"model": judge.model, "mode": judge.mode, "version": judge.version}
    about = {"judge": judged_by, "seed": settings.seed, **record}
    digest = write_program(out, best, rubric=judge.rubric, about=about)
    return {**about, "program": str(out), "sha256": digest}

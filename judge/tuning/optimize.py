"""Optimization of a prompted judge's instructions on human ratings, by DSPy's GEPA, within a budget."""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from calibration.agreement.metrics import TABLE_STATISTICS, from_table, log_losses
from calibration.bootstrap import Sampled, mean_of, resample_clusters, sample
from calibration.estimate import UNDEFINED
from calibration.pairing import given_labels
from data.errors import UserError, install_hint
from data.rated_exchanges import RatedExchange, join_ratings
from data.records import LABELS, label_of
from data.tables import read_exchanges, read_ratings
from judge.base import load_judge
from judge.llm.chat import Chat
from judge.llm.endpoint import CallFailed
from judge.llm.judge_prompt import REASON, Program, describe_outputs, read_wording, write_program
from judge.llm.limits import Budget
from judge.llm.prompted import Outcome, PromptedJudge
from judge.tuning.candidates import (
    CallMeter,
    Candidates,
    MetricName,
    OptimizeSettings,
    RatedText,
    RatingSplit,
    credit,
    merge_ratings,
    split_rated,
)

METRICS: Final = ("qwk", "log_loss")
DRAWS: Final = 2000
LEAST_TOKENS: Final = 1024  # instructions are longer than a judgment


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedPrompt:
    """The best program, and its agreement with the held-out ratings before and after the search.

    `stopped` is why the search ended early, if it did.
    """

    program: Program
    held_out: Mapping[str, Any]
    split: RatingSplit
    candidates: int
    calls: int
    cost: float
    stopped: str


def optimize(
    examples: Sequence[RatedExchange],
    judge: PromptedJudge,
    settings: OptimizeSettings,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> OptimizedPrompt:
    """Search for better instructions than the judge's own, within so many calls and, if given, dollars.

    When either is used up, the best candidate so far is saved. A candidate replaces the judge's own program
    only if it does better on ratings that it was not made from.
    """
    split = split_rated(merge_ratings(examples), held_out_part=settings.held_out_part, seed=settings.seed)
    put_by = judge.most_calls * len(split.held_out)  # for the final measurement
    least = 2 * put_by + judge.most_calls * (len(split.choose) + 1)
    if settings.max_calls < least:
        raise UserError(
            f"--max-calls {settings.max_calls:,}: too few: asking about the held-out replies before and "
            f"after, and once about those to choose by, takes {least:,}; allow more, or bring fewer ratings"
        )
    budget, calls, max_cost = judge.endpoint.budget, judge.endpoint.calls, settings.max_cost
    start, began = replace(judge.program, digest=""), budget.spent
    candidates = Candidates(judge=judge, meter=CallMeter(limit=settings.max_calls - put_by))
    with _spending(budget, max_cost, began):
        on_step(f"asking about {len(split.held_out):,} held-out replies")
        candidates.ask_all(start, split.held_out)
        # Twice the cost of the first measurement: optimized instructions are longer.
        with _spending(budget, max_cost, began, put_by=2 * (budget.spent - began)):
            on_step(f"searching with {len(split.learn) + len(split.choose):,} others")
            candidates.ask_all(start, split.choose)
            stopped = _search(candidates, start, split, settings)
        best = candidates.find_best(split.choose, settings.metric, start=start)
        count = len(candidates.programs)
        on_step(f"asking about the held-out replies again, after {count:,} candidates")
        candidates.meter.limit, candidates.meter.ended = settings.max_calls, None
        candidates.ask_all(best, split.held_out)
    return OptimizedPrompt(
        program=best,
        held_out=measure_change(candidates, split.held_out, before=start, after=best, seed=settings.seed),
        split=split,
        candidates=count,
        calls=judge.endpoint.calls - calls,
        cost=round(budget.spent - began, 6),
        stopped=stopped,
    )


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
        metric=_feedback(settings.metric),
        # The first answers about those to choose by are known already.
        max_metric_calls=meter.limit - meter.calls + len(split.choose),
        reflection_lm=proposer,
        num_threads=judge.concurrency,
        seed=settings.seed,
        gepa_kwargs={"stop_callbacks": [lambda state: meter.ended is not None]},
    )
    decides = judge.form.decides
    learn, choose = (
        [
            dspy.Example({"exchange": item.text, decides: item.label, "ratings": item.ratings}).with_inputs(
                "exchange"
            )
            for item in part
        ]
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


def _feedback(metric: MetricName) -> Callable[..., Any]:
    """Return GEPA's metric: a score, and how the answer differs from the ratings."""
    import dspy

    def score(example: Any, prediction: Any, trace: Any = None, name: Any = None, steps: Any = None) -> Any:
        outcome = prediction.outcome
        people = ", ".join(LABELS[rating - 1] for rating in example.ratings)
        if outcome.unusable:
            answer = f"no label: {outcome.unusable.reason}"
        else:
            answer = f"you said {label_of(outcome.probabilities)}"
        value = credit(outcome, example.ratings, metric)
        return dspy.Prediction(score=value, feedback=f"People said {people}; {answer}.")

    return score


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
    """Return QWK of label and rating, and log-loss, before and after, on the ratings answered both times.

    Intervals resample whole rating batches, the same for before and after. With one batch there are none.
    """
    rated = [(item, *each) for item in held_out for each in zip(item.ratings, item.batches, strict=True)]
    answers: dict[str, list[Mapping[str, float] | None]] = {}
    for name, program in {"before": before, "after": after}.items():
        digest = candidates.register(program)
        outcomes = [candidates.ledger.get((digest, item.text)) for item, _, _ in rated]
        answers[name] = [outcome.probabilities if outcome else None for outcome in outcomes]
    both = [place for place in range(len(rated)) if all(given[place] for given in answers.values())]
    without = {name: sum(not item for item in given) for name, given in answers.items()}
    counts = {"ratings": len(rated), "compared": len(both), "unscored": without}
    if not both:
        undefined = dict.fromkeys(("before", "after", "difference"), UNDEFINED.as_dict())
        return counts | dict.fromkeys(METRICS, undefined)
    rating = np.array([rated[place][1] for place in both])
    names, batches = np.unique([rated[place][2] for place in both], return_inverse=True)
    rng = np.random.default_rng(seed)
    drawn = resample_clusters(len(names), rng=rng, draws=DRAWS if len(names) > 1 else 0)
    measured: dict[str, dict[str, Sampled]] = {}
    for name, given in answers.items():
        probabilities = np.array([[(given[place] or {})[label] for label in LABELS] for place in both])
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


@contextmanager
def _spending(budget: Budget, max_cost: float | None, began: float, put_by: float = 0.0) -> Iterator[None]:
    """Limit the budget to `max_cost`, less what is put by for later."""
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
    settings: OptimizeSettings,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Optimize a judge's prompt on rated exchanges, write it to `out`, and measure it on those held out."""
    try:
        import dspy  # noqa: F401  # before anything is paid for
    except ImportError:
        raise UserError(f"optimize needs dspy: {install_hint('optimize')}") from None
    if out.exists():
        raise UserError(f"{out}: exists already; give another --out")
    judge = load_judge(judge_name)
    if not isinstance(judge, PromptedJudge):
        raise UserError(
            f'--judge {judge_name}: only a judge of kind "prompted" can be optimized, not {judge.name!r}'
        )
    examples = join_ratings(read_exchanges(exchanges), read_ratings(ratings))
    try:
        best = optimize(examples, judge, settings, on_step=on_step)
    finally:
        judge.endpoint.close()
    about = {
        "judge": {"model": judge.model, "mode": judge.mode, "version": judge.version},
        "metric": settings.metric,
        "seed": settings.seed,
        "replies": {
            "to learn from": len(best.split.learn),
            "to choose by": len(best.split.choose),
            "held out": len(best.split.held_out),
        },
        "batches_apart": best.split.batches_apart,
        "candidates": best.candidates,
        "calls": best.calls,
        "cost": best.cost,
        "stopped": best.stopped,
        "held_out": best.held_out,
    }
    digest = write_program(out, best.program, rubric=judge.rubric, about=about)
    return {**about, "program": str(out), "sha256": digest}

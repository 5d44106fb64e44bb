"""DSPy's optimizers at work on a prompted judge: they propose candidates, the tryout asks and remembers."""

import io
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from data.errors import UserError
from data.records import LABELS
from judge.llm.chat import Chat
from judge.llm.endpoint import CallFailed
from judge.llm.program import Program, make_signature
from judge.llm.prompted import Outcome, PromptedJudge
from judge.tuning.tryout import Meter, MetricName, Parts, Rated, Tryout, credit, label_of

LEAST_TOKENS: Final = 1024  # a set of instructions is longer than a judgment
# Not the model's own name, out of which DSPy would read rules that are for the endpoint to keep.
NAME: Final = "judge/proposals"
NOISY: Final = ("dspy", "optuna", "gepa")
SILENT: Final = logging.CRITICAL + 1
Method = Literal["bootstrap", "mipro", "gepa"]


def make_proposer(judge: PromptedJudge, meter: Meter) -> Any:
    """Make a `dspy.LM` that writes instructions: through the judge's endpoint, metered, without a cache."""
    import dspy

    chat = replace(
        judge.chat,
        max_tokens=max(LEAST_TOKENS, 2 * judge.chat.max_tokens),
        temperature=1.0,
        logprobs=False,
        optional=frozenset({"max_tokens", "temperature", "seed", "schema"}),
    )
    return dspy.LM(NAME, engine=Engine(chat, meter), cache=False, num_retries=0)


class Engine:
    """Makes one call of ours from one request of DSPy's."""

    supports_response_schema = True
    supported_params = ("response_format", "temperature", "max_tokens")

    def __init__(self, chat: Chat, meter: Meter) -> None:
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
        """The endpoint is the judge's, and stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What an optimizer starts from; `learn` and `choose` are DSPy examples."""

    tryout: Tryout
    student: Any
    learn: list[Any]
    choose: list[Any]
    metric: MetricName
    demos: int
    seed: int

    @property
    def calls_left(self) -> int:
        return self.tryout.meter.limit - self.tryout.meter.calls


def search(
    tryout: Tryout,
    start: Program,
    parts: Parts,
    method: Method,
    metric: MetricName,
    *,
    seed: int,
    demos: int,
) -> str:
    """Let an optimizer try candidates until it is done or the budget spent; returns why it stopped early."""
    import dspy
    from dspy.utils.exceptions import AdapterParseError, LMError

    student = make_student(tryout, start)
    decides = tryout.judge.form.decides
    task = Search(
        tryout=tryout,
        student=student,
        learn=_as_examples(parts.learn, decides),
        choose=_as_examples(parts.choose, decides),
        metric=metric,
        demos=demos,
        seed=seed,
    )
    meter = tryout.meter
    settings = {"lm": make_proposer(tryout.judge, meter), "adapter": dspy.JSONAdapter()}
    try:
        with _quiet(), dspy.context(**settings, num_threads=tryout.judge.concurrency):
            {"bootstrap": _bootstrap, "mipro": _mipro, "gepa": _gepa}[method](task)
    except Exception as error:  # DSPy wraps what our calls raise; `ended` tells what it was
        if isinstance(meter.ended, UserError):
            raise meter.ended from error
        if meter.ended is None:
            if isinstance(error, AdapterParseError | LMError):
                return "the model's proposals could not be read"
            raise
    return str(meter.ended or "")


def make_student(tryout: Tryout, program: Program) -> Any:
    """The judge as a DSPy module: optimizers change its predictor, and every call goes through the tryout."""
    import dspy

    signature = make_signature(program, tryout.judge.rubric)

    # A plain function: optimizers copy modules deeply, and an endpoint with its locks must not be copied.
    def ask(predictor: Any, exchange: str) -> Outcome:
        names = set(predictor.signature.fields)
        demos = [dict(demo) for demo in predictor.demos]
        shown = tuple({key: str(demo[key]) for key in demo if key in names} for demo in demos)
        instructions = predictor.signature.instructions
        return tryout.ask(Program(mode=program.mode, instructions=instructions, demos=shown), exchange)

    class Student(dspy.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.decide = dspy.Predict(signature)
            self.decide.demos = [dspy.Example(**demo).with_inputs("exchange") for demo in program.demos]

        def forward(self, exchange: str) -> Any:
            outcome = ask(self.decide, exchange)
            fields = dict.fromkeys(self.decide.signature.output_fields, "") | dict(outcome.fields)
            prediction = dspy.Prediction(**fields)
            # Here the optimizers look for what a predictor was asked and said.
            if dspy.settings.trace is not None:
                dspy.settings.trace.append((self.decide, {"exchange": exchange}, prediction))
            return dspy.Prediction(**fields, outcome=outcome)

    return Student()


def _as_examples(rated: Sequence[Rated], decides: str) -> list[Any]:
    import dspy

    return [
        dspy.Example(exchange=item.text, **{decides: item.label}, ratings=item.ratings).with_inputs(
            "exchange"
        )
        for item in rated
    ]


def _bootstrap(task: Search) -> None:
    """Examples the judge gets right, with its own reasons, and rated ones without; several draws of them."""
    from dspy.teleprompt import BootstrapFewShotWithRandomSearch

    random.Random(task.seed).shuffle(task.learn)
    optimizer = BootstrapFewShotWithRandomSearch(
        metric=_mark(task.metric),
        max_bootstrapped_demos=task.demos,
        max_labeled_demos=task.demos,
        num_candidate_programs=max(1, min(16, task.calls_left // (len(task.choose) + 2 * task.demos) - 2)),
        num_threads=task.tryout.judge.concurrency,
        max_errors=1,  # our calls raise only where nothing is left to do
    )
    optimizer.compile(task.student, trainset=task.learn, valset=task.choose)


def _mipro(task: Search) -> None:
    """Instructions the model proposes and sets of examples, combined by a Bayesian search."""
    import dspy
    from dspy.teleprompt import MIPROv2

    trials = max(2, min(30, task.calls_left // len(task.choose)))
    optimizer = MIPROv2(
        metric=_mark(task.metric),
        prompt_model=dspy.settings.lm,
        task_model=dspy.settings.lm,
        auto=None,
        num_candidates=max(2, min(8, trials // 2)),
        max_bootstrapped_demos=task.demos,
        max_labeled_demos=task.demos,
        num_threads=task.tryout.judge.concurrency,
        max_errors=1,
        seed=task.seed,
    )
    # Not program-aware: the proposer would read our plumbing, which says nothing of the task.
    optimizer.compile(
        task.student,
        trainset=task.learn,
        valset=task.choose,
        num_trials=trials,
        minibatch=False,
        program_aware_proposer=False,
    )


def _gepa(task: Search) -> None:
    """Instructions rewritten by the model after it has read where it and people differed; no examples."""
    import dspy
    from dspy.teleprompt import GEPA

    most = task.calls_left + len(task.choose)  # the first look at those to choose by is known already
    meter = task.tryout.meter
    optimizer = GEPA(
        metric=_mark_with_words(task.metric),
        max_metric_calls=most,
        reflection_lm=dspy.settings.lm,
        num_threads=task.tryout.judge.concurrency,
        seed=task.seed,
        gepa_kwargs={"stop_callbacks": [lambda state: meter.ended is not None]},
    )
    optimizer.compile(task.student, trainset=task.learn, valset=task.choose)


def _mark(metric: MetricName) -> Callable[..., float]:
    def mark(example: Any, prediction: Any, trace: Any = None) -> float:
        if trace is None:
            return credit(prediction.outcome, example.ratings, metric)
        # An example to show must be one that the judge got right.
        return float(label_of(prediction.outcome) in {LABELS[rating - 1] for rating in example.ratings})

    return mark


def _mark_with_words(metric: MetricName) -> Callable[..., Any]:
    import dspy

    def mark(example: Any, prediction: Any, trace: Any = None, name: Any = None, steps: Any = None) -> Any:
        outcome = prediction.outcome
        people = ", ".join(LABELS[rating - 1] for rating in example.ratings)
        answer = (
            f"you said {label_of(outcome)}"
            if not outcome.unusable
            else f"no label: {outcome.unusable.reason}"
        )
        score = credit(outcome, example.ratings, metric)
        return dspy.Prediction(score=score, feedback=f"People said {people}; {answer}.")

    return mark


@contextmanager
def _quiet() -> Iterator[None]:
    """DSPy's optimizers print bars, scores and whole programs to either stream."""
    # For good: threads that were still asking when a search was ended report it, texts and all, afterwards.
    logging.getLogger("dspy.utils.parallelizer").setLevel(SILENT)
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(SILENT)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)

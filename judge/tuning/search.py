"""DSPy's optimizers at work on a prompted judge: they propose candidates, the tryout asks and remembers."""

import io
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any, Final

from data.errors import UserError
from data.records import LABELS, label_of
from judge.llm.chat import Chat
from judge.llm.endpoint import CallFailed
from judge.llm.program import Program, make_signature
from judge.llm.prompted import Outcome
from judge.tuning.tryout import Meter, MetricName, Parts, Rated, Settings, Tryout, credit

LEAST_TOKENS: Final = 1024  # a set of instructions is longer than a judgment
NOISY: Final = ("dspy", "optuna", "gepa")
SILENT: Final = logging.CRITICAL + 1


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


def search(tryout: Tryout, start: Program, parts: Parts, settings: Settings) -> str:
    """Let an optimizer try candidates until it is done or the budget spent; returns why it stopped early."""
    import dspy
    from dspy.utils.exceptions import AdapterParseError, LMError

    judge, meter = tryout.judge, tryout.meter
    student = make_student(tryout, start)
    learn, choose = (_as_examples(part, judge.form.decides) for part in (parts.learn, parts.choose))
    # Instructions are written through the judge's endpoint as well, metered, without a cache.
    chat = replace(
        judge.chat,
        max_tokens=max(LEAST_TOKENS, 2 * judge.chat.max_tokens),
        temperature=1.0,
        logprobs=False,
        constraint={},
        optional=frozenset({"max_tokens", "temperature", "seed", "schema"}),
    )
    # Not under the model's own name, out of which DSPy would read rules that are for the endpoint to keep.
    proposer = dspy.LM("judge/proposals", engine=Engine(chat, meter), cache=False, num_retries=0)
    try:
        with _quiet(), dspy.context(lm=proposer, adapter=dspy.JSONAdapter(), num_threads=judge.concurrency):
            if settings.method == "bootstrap":
                random.Random(settings.seed).shuffle(learn)
            optimizer, options = make_optimizer(settings, tryout, proposer, to_choose=len(choose))
            optimizer.compile(student, trainset=learn, valset=choose, **options)
    except Exception as error:  # DSPy wraps what our calls raise; `ended` tells what it was
        if isinstance(meter.ended, UserError):
            raise meter.ended from error
        if meter.ended is None:
            if isinstance(error, AdapterParseError | LMError):
                return "the model's proposals could not be read"
            raise
    return str(meter.ended or "")


def make_optimizer(
    settings: Settings, tryout: Tryout, proposer: Any, *, to_choose: int
) -> tuple[Any, dict[str, Any]]:
    """One of DSPy's optimizers, and what else its `compile` is to be told.

    `bootstrap`: examples the judge gets right, with its own reasons, and rated ones without; several draws of
    them. `mipro`: instructions the model proposes and sets of examples, combined by a Bayesian search.
    `gepa`: instructions rewritten by the model after it has read where it and people differed; no examples.
    """
    from dspy.teleprompt import GEPA, BootstrapFewShotWithRandomSearch, MIPROv2

    meter, threads = tryout.meter, tryout.judge.concurrency
    calls_left = meter.limit - meter.calls
    if settings.method == "gepa":
        optimizer = GEPA(
            metric=_mark_with_words(settings.metric),
            max_metric_calls=calls_left + to_choose,  # the first look at those to choose by is known already
            reflection_lm=proposer,
            num_threads=threads,
            seed=settings.seed,
            gepa_kwargs={"stop_callbacks": [lambda state: meter.ended is not None]},
        )
        return optimizer, {}
    shared = {
        "metric": _mark(settings.metric),
        "max_bootstrapped_demos": settings.demos,
        "max_labeled_demos": settings.demos,
        "num_threads": threads,
        "max_errors": 1,  # our calls raise only where nothing is left to do
    }
    if settings.method == "bootstrap":
        draws = max(1, min(16, calls_left // (to_choose + 2 * settings.demos) - 2))
        return BootstrapFewShotWithRandomSearch(**shared, num_candidate_programs=draws), {}
    trials = max(2, min(30, calls_left // to_choose))
    optimizer = MIPROv2(
        **shared,
        prompt_model=proposer,
        task_model=proposer,
        auto=None,
        num_candidates=max(2, min(8, trials // 2)),
        seed=settings.seed,
    )
    # Not program-aware: the proposer would read our plumbing, which says nothing of the task.
    return optimizer, {"num_trials": trials, "minibatch": False, "program_aware_proposer": False}


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


def _mark(metric: MetricName) -> Callable[..., float]:
    def mark(example: Any, prediction: Any, trace: Any = None) -> float:
        if trace is None:
            return credit(prediction.outcome, example.ratings, metric)
        # An example to show must be one that the judge got right.
        probabilities = prediction.outcome.probabilities
        return float(
            bool(probabilities)
            and label_of(probabilities) in {LABELS[rating - 1] for rating in example.ratings}
        )

    return mark


def _mark_with_words(metric: MetricName) -> Callable[..., Any]:
    import dspy

    def mark(example: Any, prediction: Any, trace: Any = None, name: Any = None, steps: Any = None) -> Any:
        outcome = prediction.outcome
        people = ", ".join(LABELS[rating - 1] for rating in example.ratings)
        if outcome.unusable:
            answer = f"no label: {outcome.unusable.reason}"
        else:
            answer = f"you said {label_of(outcome.probabilities)}"
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

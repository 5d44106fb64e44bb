"""Optimization of a prompted judge's messages on human ratings, by DSPy's GEPA, within a budget."""

import io
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from empathy_judge.calibration.bootstrap import mean_of, resample_clusters, sample
from empathy_judge.calibration.estimate import Floats
from empathy_judge.data.errors import BudgetSpent, UserError, install_hint
from empathy_judge.data.rating_files.rated_inputs import RatedExchange, join_ratings
from empathy_judge.data.records import CONVERSATION, LABELS
from empathy_judge.data.tables import read_exchanges, read_ratings
from empathy_judge.judge.base import language_model_options, load_judge
from empathy_judge.judge.llm import judge_prompt
from empathy_judge.judge.llm.answers import Answer, read_message, strip_thoughts
from empathy_judge.judge.llm.chat import Chat
from empathy_judge.judge.llm.endpoint import CallFailed, Endpoint
from empathy_judge.judge.llm.judge_prompt import PromptForm
from empathy_judge.judge.llm.prompt_injection import delimit_exchange
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.judge.llm.rated_examples import RatedExamples

DRAWS: Final = 2000
PROPOSAL_TOKENS: Final = 32_000  # of the model that writes instructions, its reasoning included
REASONS: Final = 3  # of raters, quoted about one reply
STEP_CALLS: Final = 8  # for a new candidate, before it is asked about all exchanges to choose by
HELD_OUT: Final = 0.3  # of the replies, for measurement only
PARTS = ("to learn from", "to choose by", "held out")
ANSWERS, PROPOSALS = "judge/answers", "judge/proposals"  # DSPy knows no rules for these names


class RatedText(NamedTuple):
    """The delimited text of an exchange, with all its ratings, 1 to 3."""

    text: str
    ratings: tuple[int, ...]
    batches: tuple[str, ...]
    group: str
    reasons: tuple[str, ...]
    rated: tuple[RatedExchange, ...]


class RatingSplit(NamedTuple):
    """Rated exchanges in three parts that share neither prompts nor, where possible, rating batches."""

    learn: list[RatedText]  # GEPA reflects on these
    choose: list[RatedText]  # candidates are compared on these
    held_out: list[RatedText]  # for measurement only
    batches_apart: bool


def merge_ratings(examples: Sequence[RatedExchange]) -> list[RatedText]:
    """Return one entry per exchange, with the ratings of all its raters."""
    by_content: dict[str, list[RatedExchange]] = {}
    for example in examples:
        by_content.setdefault(example.exchange.content_digest, []).append(example)
    return [
        RatedText(
            text=delimit_exchange(items[0].exchange).text,
            ratings=tuple(1 + item.target.index(max(item.target)) for item in items),
            batches=tuple(item.batch for item in items),
            group=items[0].group,
            reasons=tuple(item.reason for item in items if item.reason),
            rated=tuple(items),
        )
        for items in by_content.values()
    ]


def split_rated(rated: Sequence[RatedText], *, seed: int) -> RatingSplit:
    """Split by whole prompts and rating batches, or by prompts alone where batches connect them all."""
    clusters = _clusters(rated, lambda item: {item.group, *((name,) for name in item.batches)})
    if not (batches_apart := len(clusters) >= 3):
        clusters = _clusters(rated, lambda item: {item.group})
    if len(clusters) < 3:
        raise UserError(
            f"{len(clusters)} prompts cannot be split into three parts; add ratings of more prompts"
        )
    random.Random(seed).shuffle(clusters)
    held_out = _take(clusters, HELD_OUT * len(rated), leave=2)
    choose = _take(clusters, sum(map(len, clusters)) / 2, leave=1)
    return RatingSplit([item for cluster in clusters for item in cluster], choose, held_out, batches_apart)


def _clusters(rated: Sequence[RatedText], ties_of: Callable[[RatedText], set[Any]]) -> list[list[RatedText]]:
    """Return the exchanges that share a tie, directly or through others."""
    clusters: list[tuple[set[Any], list[RatedText]]] = []
    for item in rated:
        ties, members = ties_of(item), [item]
        for cluster in [cluster for cluster in clusters if cluster[0] & ties]:
            ties, members = ties | cluster[0], cluster[1] + members
            clusters.remove(cluster)
        clusters.append((ties, members))
    return [members for _, members in clusters]


def _take(clusters: list[list[RatedText]], size: float, *, leave: int) -> list[RatedText]:
    """Take clusters off the end until there are about `size` exchanges: at least one, leaving `leave`."""
    taken: list[RatedText] = []
    while len(clusters) > leave and (not taken or len(taken) + len(clusters[-1]) / 2 < size):
        taken += clusters.pop()
    return taken


def optimize(
    examples: Sequence[RatedExchange],
    judge: PromptedJudge,
    *,
    reflect: Chat | None = None,
    max_calls: int = 1000,
    max_cost: float | None = None,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda text: None,
) -> tuple[PromptForm, dict[str, Any]]:
    """Search for better messages than the judge's own, within so many calls and, if given, dollars.

    GEPA rewrites the instructions, by `reflect` or else by the judge's own model; then rated examples are
    tried. When calls or dollars are used up, the best candidate so far counts. It replaces the judge's own
    messages only if its error is smaller on ratings that it was not made from. Return the better messages and
    a record of the search: why it ended early, if it did, and the error on held-out ratings before and after.
    """
    split = split_rated(merge_ratings(examples), seed=seed)
    measured, chosen_by = [*split.choose, *split.held_out], len(split.choose)
    final = judge.most_calls * (len(measured) + chosen_by)  # calls of both candidates and the evaluation
    least = judge.most_calls * len(measured) + final + chosen_by + STEP_CALLS
    if max_calls < least:
        raise UserError(
            f"--max-calls {max_calls:,}: too few: the evaluation alone takes "
            f"{least:,} calls; raise it, or use fewer ratings"
        )
    budget = judge.endpoint.budget
    engine = MeteredEngine(judge, reflect, most=max_calls - final)
    began = budget.spent
    limit = budget.most = None if max_cost is None else began + max_cost
    on_step(f"scoring {len(measured):,} replies")
    before = after = _ask_all(judge, judge.form, measured)
    if limit is not None:  # three times that cost is for what follows: optimized messages are longer
        budget.most = limit - 3 * (budget.spent - began)
    on_step(f"searching with {len(split.learn) + chosen_by:,} replies")
    found, candidates = _search(engine, judge, split, seed=seed)
    best, budget.most = judge.form, limit
    least_error = _error(split.choose, before[:chosen_by])
    on_step(f"choosing among {candidates:,} candidates, with and without rated examples")
    forms = {str(form.template): form for form in (found, _with_examples(found, split.learn, judge))}
    for form in [form for template, form in forms.items() if template != str(judge.form.template)]:
        error = _error(split.choose, answers := _ask_all(judge, form, split.choose))
        if error < least_error:
            best, least_error, after = form, error, answers
    if best.template != judge.form.template:
        on_step("scoring the held-out replies again")
        after = [*after, *_ask_all(judge, best, split.held_out)]
    return best, {
        "replies": dict(zip(PARTS, map(len, split[:3]), strict=True)),
        "batches_apart": split.batches_apart,
        "candidates": candidates,
        "calls": engine.calls,
        "cost": round(budget.spent - began, 6),
        "stopped": str(engine.ended or ""),
        "held_out": measure_change(split.held_out, before[chosen_by:], after[chosen_by:], seed),
    }


def _with_examples(form: PromptForm, learn: Sequence[RatedText], judge: PromptedJudge) -> PromptForm:
    """Return the messages with rated examples; without enough of these, the messages."""
    try:
        rated = [item for text in learn for item in text.rated]
        return RatedExamples(rated, is_whole=judge.unit == CONVERSATION).add_to(form)
    except UserError:
        return form


def _ask_all(judge: PromptedJudge, form: PromptForm, rated: Sequence[RatedText]) -> list[Answer]:
    """Ask about many exchanges at once; those that the budget does not cover are unscored."""

    def ask(item: RatedText) -> Answer:
        try:
            return judge.ask(item.text, form)
        except BudgetSpent:
            return Answer()

    with ThreadPoolExecutor(judge.concurrency) as pool:
        return list(pool.map(ask, rated))


def _errors(rated: Sequence[RatedText], answers: Sequence[Answer]) -> Floats:
    """Return the ranked probability score of each rating, 0 to 1; of what is unscored, 1."""
    return np.array(
        [
            _ranked_error(np.array(list(answer.probabilities.values())), np.eye(len(LABELS))[rating - 1])
            if answer.probabilities
            else 1.0
            for item, answer in zip(rated, answers, strict=True)
            for rating in item.ratings
        ]
    )


def _ranked_error(shares: Floats, people: Floats) -> float:
    return float(((shares - people).cumsum() ** 2).sum() / (len(LABELS) - 1))


def _error(rated: Sequence[RatedText], answers: Sequence[Answer]) -> float:
    return float(_errors(rated, answers).mean())


class MeteredEngine:
    """DSPy's requests as calls of the judge's endpoint; `ended` is what ended the search first."""

    supports_response_schema = True
    supported_params = ("response_format", "temperature", "max_tokens")

    def __init__(self, judge: PromptedJudge, reflect: Chat | None, *, most: int) -> None:
        proposals = reflect or make_writer(judge.endpoint)
        proposals.endpoint.budget = judge.endpoint.budget
        chat = replace(judge.chat, logprobs=False, schema=True, optional=proposals.optional)
        self.chats = {ANSWERS: chat, PROPOSALS: proposals}
        self.endpoints = {id(each.endpoint): each.endpoint for each in self.chats.values()}.values()
        self.before = sum(endpoint.calls for endpoint in self.endpoints)
        self.most = most  # calls
        self.ended: Exception | None = None

    @property
    def calls(self) -> int:
        """The calls that were made since the start."""
        return sum(endpoint.calls for endpoint in self.endpoints) - self.before

    def covers(self, calls: int) -> bool:
        """Return whether so many calls are left; end the search if not."""
        if self.calls + calls > self.most:
            self.ended = self.ended or BudgetSpent("the limit of calls is reached")
        return self.ended is None

    def complete(self, request: Any) -> Any:
        """Answer a request of DSPy, unless the search has ended."""
        from dspy.lm15 import InvalidRequestError, response_from_openai_chat

        if not self.covers(1):
            raise InvalidRequestError(str(self.ended))
        messages = [{"role": message.role, "content": message.text or ""} for message in request.messages]
        if system := request.system:
            text = system if isinstance(system, str) else "".join(part.text for part in system)
            messages.insert(0, {"role": "system", "content": text})
        schema = (request.config.response_format or {}).get("schema")
        try:
            reply = self.chats[request.model].ask(messages, schema=schema)
        except CallFailed as failure:
            raise InvalidRequestError(failure.reason) from failure
        except Exception as error:
            self.ended = self.ended or error
            raise
        said = read_message(reply.body)
        message = {"role": "assistant", "content": strip_thoughts(said[0]) if said else ""}
        body = {**reply.body, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        return response_from_openai_chat(body, model=request.model)


def _search(
    engine: MeteredEngine, judge: PromptedJudge, split: RatingSplit, *, seed: int
) -> tuple[PromptForm, int]:
    """Let GEPA rewrite the instructions; return the best messages, or else the own, and how many it tried."""
    import dspy

    answers, proposals = (
        dspy.LM(name, engine=engine, cache=False, num_retries=0) for name in (ANSWERS, PROPOSALS)
    )
    candidates = 1

    def is_spent(state: Any) -> bool:
        nonlocal candidates
        candidates = len(state.program_candidates)
        return not engine.covers(len(split.choose) + STEP_CALLS)

    def rate(example: Any, prediction: Any, trace: Any = None, name: Any = None, steps: Any = None) -> Any:
        """Return one minus the ranked probability score of an answer for GEPA, and what is off."""
        answered = np.array([float(prediction[label]) for label in LABELS])
        shares = answered / max(1.0, answered.sum())
        people = np.bincount(example.ratings, minlength=1 + len(LABELS))[1:] / len(example.ratings)
        off = 100 * (shares - people)[-1]
        feedback = (
            f"Of 100 people, {_in_words(people)}; you answered {_in_words(shares)}: {abs(off):.0f} too "
            f"{'many' if off > 0 else 'few'} Good."
        )
        reasons = " ".join(f'A rater wrote: "{reason}"' for reason in example.reasons[:REASONS])
        score = 1 - _ranked_error(shares, people)
        return dspy.Prediction(score=score, feedback=f"{feedback} {reasons}".strip())

    optimizer = dspy.GEPA(
        metric=rate,
        max_metric_calls=engine.most,
        reflection_lm=proposals,
        num_threads=judge.concurrency,
        seed=seed,
        gepa_kwargs={"stop_callbacks": [is_spent]},
    )
    learn, choose = (
        [
            dspy.Example(exchange=item.text, ratings=item.ratings, reasons=item.reasons).with_inputs(
                "exchange"
            )
            for item in part
        ]
        for part in (split.learn, split.choose)
    )
    adapter, student = dspy.JSONAdapter(), dspy.Predict(make_signature(judge))
    with _quiet(), dspy.context(lm=answers, adapter=adapter, num_threads=judge.concurrency):
        best = optimizer.compile(student, trainset=learn, valset=choose)
    if engine.ended is not None and not isinstance(engine.ended, BudgetSpent):
        raise engine.ended
    if best.signature.instructions == student.signature.instructions:
        return judge.form, candidates
    messages = adapter.format(best.signature, best.demos, {"exchange": judge_prompt.PLACE})
    return replace(judge.form, template=tuple(messages), digest=""), candidates


def _in_words(shares: Floats) -> str:
    return ", ".join(f"{100 * share:.0f} {label}" for share, label in zip(shares, LABELS, strict=True))


def make_signature(judge: PromptedJudge) -> Any:
    """Make the DSPy signature of a judge's task: its instructions, input and outputs."""
    import dspy

    wording = judge_prompt.read_wording(judge.mode, judge.rubric)
    kinds: dict[str, Any] = dict.fromkeys(LABELS, int) | {judge_prompt.REASON: str}
    fields: dict[str, Any] = {"exchange": (str, dspy.InputField(desc=wording["inputs"]["exchange"].strip()))}
    for name, text in judge_prompt.describe_outputs(judge.mode, judge.rubric).items():
        fields[name] = (kinds.get(name, Literal[LABELS]), dspy.OutputField(desc=text.strip()))
    return dspy.Signature(fields, judge_prompt.write_instructions(judge.mode, judge.rubric))


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
    held_out: Sequence[RatedText], before: Sequence[Answer], after: Sequence[Answer], seed: int
) -> dict[str, Any]:
    """Return the ranked probability score before and after, on held-out ratings; unscored counts as 1."""
    sides = {"before": before, "after": after}
    names, batches = np.unique([name for item in held_out for name in item.batches], return_inverse=True)
    # Whole rating batches, the same for before and after; with one batch there is no interval.
    drawn = resample_clusters(len(names), rng=np.random.default_rng(seed), draws=DRAWS * (len(names) > 1))
    statistics = {name: mean_of(_errors(held_out, answers)) for name, answers in sides.items()}
    sampled = sample(statistics, batches, drawn)
    sampled["difference"] = sampled["after"] - sampled["before"]
    return {
        "ratings": len(batches),
        "unscored": {
            name: sum(not item.probabilities for item in answers) for name, answers in sides.items()
        },
        "error": {name: item.estimate().as_dict() for name, item in sampled.items()},
    }


def find_model(name: str) -> Chat:
    """Return a model named as openai:MODEL or URL#MODEL."""
    if not (options := language_model_options(name)):
        raise UserError(f"--reflect {name}: not a language model; use openai:MODEL or URL#MODEL")
    where = {key: options[key] for key in ("model", "base_url", "key_env")}
    return make_writer(Endpoint(**where))


def make_writer(endpoint: Endpoint) -> Chat:
    """Return the model at an endpoint as one that writes instructions."""
    optional = frozenset({"max_tokens", "temperature", "seed", "schema"})
    decoding: dict[str, Any] = {"max_tokens": PROPOSAL_TOKENS, "temperature": 1.0, "logprobs": False}
    return Chat(endpoint=endpoint, model=endpoint.model, schema=True, optional=optional, **decoding)


def optimize_file(
    exchanges: Path,
    ratings: Path,
    out: Path,
    judge_name: str,
    *,
    seed: int,
    reflect: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Optimize a judge's messages on rated exchanges, write them to `out`, and return the record."""
    if find_spec("dspy") is None:  # before anything is paid for
        raise UserError(f"optimize needs the package dspy: {install_hint('optimize')}")
    if out.exists():
        raise UserError(f"{out}: exists already; set another --out")
    judge = load_judge(judge_name)
    if not isinstance(judge, PromptedJudge):
        raise UserError(
            f'--judge {judge_name}: only a judge of kind "prompted" can be optimized, not {judge.name!r}'
        )
    if judge.form.is_word:
        raise UserError(f'--judge {judge_name}: mode = "label" cannot be optimized; set mode = "shares"')
    if judge.examples:
        raise UserError(f"--judge {judge_name}: examples: optimize chooses its own; leave this option out")
    writer = find_model(reflect) if reflect else None
    examples = join_ratings(read_exchanges(exchanges), read_ratings(ratings))
    with closing(judge), closing(writer.endpoint if writer else judge):
        best, record = optimize(examples, judge, reflect=writer, seed=seed, **settings)
    judged_by = {"model": judge.model, "mode": judge.mode, "version": judge.version}
    about = {"judge": judged_by, "seed": seed, **record}
    digest = judge_prompt.write_prompt(out, best.template, mode=judge.mode, rubric=judge.rubric, about=about)
    return {**about, "program": str(out), "sha256": digest}

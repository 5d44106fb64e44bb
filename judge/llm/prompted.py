"""A chat model as judge: asked for shares or a label, read strictly, unscored where it gives none."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Literal, Unpack

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import digest_json
from empathy_judge.data.records import CONVERSATION, LABELS, Exchange, Judgment, judgment_of, unscored
from empathy_judge.data.rubric import read_rubric
from empathy_judge.judge.budget import add_usage
from empathy_judge.judge.llm.answers import NOT_100, OUT_OF_TOKENS, Answer, read_reply, with_prior
from empathy_judge.judge.llm.batch import LanguageModelJudge
from empathy_judge.judge.llm.chat import PATH, TOP_LOGPROBS, Chat
from empathy_judge.judge.llm.endpoint import CallFailed, Endpoint, EndpointOptions, Reply
from empathy_judge.judge.llm.judge_prompt import (
    REASON,
    SIDE_BY_SIDE,
    Mode,
    PromptForm,
    make_form,
    read_prompt,
)
from empathy_judge.judge.llm.prompt_injection import LETTERS, DelimitedExchange, delimit_listeners
from empathy_judge.judge.llm.rated_examples import RatedExamples, read_examples
from empathy_judge.judge.llm.recorded import grade_probabilities, label_spread, read_fitted
from empathy_judge.judge.llm.side_by_side import iter_groups, score_groups

SPREAD: Final = "each counts as people's ratings of replies with that label by a recorded model"
CAVEAT: Final = "This judge has not been compared with human ratings: run calibrate."
NO_LOGPROBS: Final = 'no logprobs: the server returned none for the label; use samples, or mode = "shares"'

# Of an answer in each mode; what a model that reasons first needs is allowed once that is seen.
MODE_TOKENS: Final[Mapping[Mode, int]] = {"shares": 96, SIDE_BY_SIDE: 160, "label": 4, "analytic": 512}
REASONING_TOKENS: Final = 4096
READING: Final = 1  # raised whenever the same answer would be read in another way
# Under a grammar the labels need not be among the likeliest tokens; this server lists as many as it is asked.
MANY_LOGPROBS: Final = 500
LABEL_SCHEMA: Final = {"name": "label", "schema": {"type": "string", "enum": list(LABELS)}}
# How servers are told to choose between words; OpenAI's takes no such thing. Most others take `schema`.
CONSTRAINTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama.cpp": {"grammar": "root ::= " + " | ".join(f'"{label}"' for label in LABELS)},
    "vllm": {"structured_outputs": {"choice": list(LABELS)}},
    "sglang": {"regex": f"({'|'.join(LABELS)})"},
    "schema": {"response_format": {"type": "json_schema", "json_schema": LABEL_SCHEMA}},
}


class PromptedJudge(LanguageModelJudge):
    """Asks a chat model at any OpenAI-compatible server.

    `mode`: a reason, the rubric's components, and of 100 people, how many would choose each label
    (analytic); these shares alone (shares); one word (label); or a grade of every reply to a prompt in one
    call (side-by-side). In mode label `constraint` names the kind of server, which is then restricted to the
    labels. By default `max_tokens` depends on the mode, and is 4096 for a model that reasons first.

    `probabilities`, in mode label: from the `logprobs` of the label, from the frequencies of k `samples`, or
    `none`; `auto` uses samples if there are several, else logprobs if the server returns them. With neither,
    a label counts as people's ratings of replies with that label by a recorded model. In other modes several
    `samples` are averaged. `name` is the judge's name in tables and run folders.

    `examples` is a file of rated replies (or a file of replies and one of ratings), of which some are shown.
    `reask = 1` asks once more after an answer that cannot be read. `program` is a file that `optimize` wrote.
    `reason_characters` limits the reason through the schema, for servers that enforce it.
    """

    files = ("program", "examples")
    caveat = CAVEAT
    batch_path = PATH

    def __init__(
        self,
        *,
        mode: Mode = "analytic",
        samples: int = 1,
        probabilities: Literal["auto", "logprobs", "samples", "none"] = "auto",
        temperature: float | None = None,
        constraint: Literal["", "llama.cpp", "vllm", "sglang", "schema"] = "",
        max_tokens: int | None = None,
        seed: int = 0,
        reask: Literal[0, 1] = 0,
        program: str = "",
        examples: str | list[str] = "",
        rubric: str = "crowd",
        json_schema: Literal["auto", "always", "never"] = "auto",
        reason_characters: int = 0,
        extra_body: dict[str, Any] | None = None,
        name: str = "prompted",
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        if not endpoint.get("model"):
            raise UserError("model: missing; use --judge openai:MODEL or URL#MODEL, or set it in a TOML file")
        is_word, is_joint = mode == "label", mode == SIDE_BY_SIDE
        if samples < 1 or (probabilities == "samples" and samples < 2):
            raise UserError(f"samples: {samples} is too few; probabilities from samples need at least two")
        if probabilities == "none" and samples > 1:
            raise UserError(f'samples: {samples} are not used with probabilities = "none"; set samples = 1')
        unused = {
            "constraint": constraint and not is_word,
            "probabilities": probabilities != "auto" and not is_word,
            "reason_characters": reason_characters and mode != "analytic",
            "json_schema": json_schema == "always" and is_word,
            "samples": samples > 1 and is_joint,
            "reask": reask and is_joint,
            "examples": examples and is_joint,
        }
        if option := next((name for name, is_given in unused.items() if is_given), ""):
            raise UserError(f'{option}: not with mode = "{mode}"')
        self.mode, self.is_joint = mode, is_joint
        self.samples, self.probabilities = samples, probabilities
        self.max_tokens = max_tokens or MODE_TOKENS[mode]
        self.may_raise_tokens = not max_tokens
        self.seed, self.reask, self.most_calls = seed, reask, samples * (1 + reask)  # calls a judgment
        self.endpoint = Endpoint(**endpoint)
        self.model, self.concurrency = self.endpoint.model, self.endpoint.concurrency
        self.rubric = read_rubric(rubric)
        self.name, self.unit = self.rubric.name_judge(name), self.rubric.unit
        self.form = make_form(mode, self.rubric, reason_characters=reason_characters)
        if program:
            self.form = read_prompt(Path(program), self.form, mode=mode, rubric=self.rubric)
        self.examples: RatedExamples | None = None
        if examples:
            rated = read_examples([examples] if isinstance(examples, str) else examples, unit=self.unit)
            self.examples = RatedExamples(rated, is_whole=self.unit == CONVERSATION)
        given = {
            "temperature": temperature is not None,
            "logprobs": probabilities == "logprobs",
            "schema": json_schema == "always",
        }
        # What nobody asked for by name may be left out where a server refuses it.
        left_out = {name for name, is_given in given.items() if not is_given}
        self.chat = Chat(
            endpoint=self.endpoint,
            model=self.model,
            max_tokens=self.max_tokens,
            temperature=temperature if temperature is not None else float(samples > 1),
            logprobs=probabilities == "logprobs" or (is_word and probabilities == "auto" and samples == 1),
            schema=json_schema != "never",
            optional=frozenset({"max_tokens", "seed"} | left_out),
            constraint=CONSTRAINTS.get(constraint, {}),
            top_logprobs=MANY_LOGPROBS if constraint == "llama.cpp" else TOP_LOGPROBS,
            extra_body=extra_body or {},
        )

    def count_runs(self, exchange: Exchange) -> int:
        return self.most_calls

    @property
    def score_stream(self) -> Callable[..., None] | None:
        return partial(score_groups, self) if self.is_joint else None

    def identify(self, exchanges: Iterable[Exchange]) -> Iterator[tuple[Exchange, str]]:
        if not self.is_joint:
            return super().identify(exchanges)
        every = list(enumerate(exchanges))
        company = {
            position: sorted(exchange.read_digest for _, exchange in group)
            for group in iter_groups(every, seed=self.seed, unit=self.unit)
            for position, _ in group
        }
        return ((each, digest_json([each.read_digest, company[position]])) for position, each in every)

    def group(self, exchanges: Iterable[Exchange]) -> Iterator[Sequence[Exchange]]:
        if not self.is_joint:
            return super().group(exchanges)
        groups = iter_groups(enumerate(exchanges), seed=self.seed, unit=self.unit)
        return ([exchange for _, exchange in group] for group in groups)

    def batch_engine(self, *, wait: bool) -> Callable[..., None]:
        if self.is_joint:
            raise UserError(f'--batch: not with mode = "{self.mode}"')
        return super().batch_engine(wait=wait)

    @cached_property
    def version(self) -> str:  # type: ignore[override]
        """A digest of all that decides a judgment; where the server stands does not."""
        probe = self.delimit(Exchange(id="", prompt="prompt", response="response")).text
        asked = [self.form.messages(probe), self.form.again, self.form.schema or self.chat.constraint]
        decoding = [self.chat.temperature, self.max_tokens, self.chat.logprobs, self.chat.schema]
        how = [self.samples, self.probabilities, self.seed, self.reask, dict(self.chat.extra_body)]
        source = [self.form.digest, self.rubric.digest, self.examples and self.examples.digest]
        reading = [READING, read_fitted()]
        return digest_json([self.name, self.model, self.mode, asked, decoding, how, source, reading])[:12]

    def judge(self, exchange: Exchange) -> Judgment:
        if self.is_joint:
            return self.judge_group([exchange])[0]
        delimited = self.delimit(exchange)
        return self._make_judgment(exchange, delimited, self.ask(delimited.text, self._form_for(exchange)))

    def judge_group(self, exchanges: Sequence[Exchange]) -> list[Judgment]:
        """Judge replies to one prompt in one call; a call's usage stands with the first."""
        form, delimited = self._group_form(exchanges)
        answer = self._ask_once(delimited.text, form, self.seed)
        judgments = list[Judgment]()
        for letter, exchange in zip(LETTERS, exchanges, strict=False):
            one = replace(answer, usage={} if judgments else answer.usage)
            if letter in answer.fields:
                grade = answer.fields[letter]
                about = f"grade {grade:g} of 100, beside {len(exchanges) - 1} other replies"
                one = replace(one, fields={REASON: about}, probabilities=grade_probabilities(grade))
            elif not answer.problem:
                one = replace(one, problem="no grade: the answer has none for this reply")
            judgments.append(self._make_judgment(exchange, self.delimit(exchange), one))
        return judgments

    def _group_form(self, exchanges: Sequence[Exchange]) -> tuple[PromptForm, DelimitedExchange]:
        """Return the messages about several replies, and the delimited replies."""
        form = make_form(self.mode, self.rubric, letters=LETTERS[: len(exchanges)])
        return form, delimit_listeners(exchanges, whole=self.unit == CONVERSATION)

    def _form_for(self, exchange: Exchange) -> PromptForm:
        return self.examples.add_to(self.form, exchange) if self.examples else self.form

    def report(self, judgments: Iterable[Judgment]) -> list[str]:
        """Report how many labels came without probabilities, and how many shares had to be scaled."""
        spreads = [label_spread(label) for label in LABELS]
        scored = bare = scaled = 0
        for item in judgments:
            scored += item.probabilities is not None
            bare += item.probabilities in spreads
            scaled += NOT_100 in (item.rationale or "")
        lines = (
            [f"The server gave no probabilities for {bare:,} of {scored:,} labels: {SPREAD}."] if bare else []
        )
        if scaled:
            lines.append(f"{scaled:,} of {scored:,} answers did not add up to 100, and were scaled.")
        return lines

    def write_requests(self, *group: Exchange) -> list[dict[str, Any]]:
        form, delimited = (
            self._group_form(group) if self.is_joint else (self._form_for(group[0]), self.delimit(group[0]))
        )
        messages = form.messages(delimited.text)
        return [
            self.chat.write_body(messages, schema=form.schema, seed=self.seed + number)
            for number in range(self.samples)
        ]

    def read_replies(self, exchange: Exchange, replies: Sequence[Reply | CallFailed]) -> Judgment:
        combined = self._combine([read_reply(reply, self.form) for reply in replies])
        return self._make_judgment(exchange, self.delimit(exchange), combined)

    def _make_judgment(self, exchange: Exchange, delimited: DelimitedExchange, answer: Answer) -> Judgment:
        words = [*(f"suspected injection: {item}" for item in delimited.injections), answer.note]
        if answer.probabilities is None:
            judgment = unscored(exchange, answer.problem)
            words.append(answer.raw)
        else:
            judgment, fields = judgment_of(exchange, answer.probabilities), answer.fields
            parts = [f"{name} {fields[name]}" for name in self.rubric.components if name in fields]
            words += [f"{', '.join(parts)}. {fields.get(REASON, '')}" if parts else fields.get(REASON, "")]
        rationale = "\n".join(filter(None, words))
        return replace(judgment, rationale=rationale or None, usage=answer.usage or None)

    def ask(self, text: str, form: PromptForm) -> Answer:
        """Ask about a delimited exchange with the messages of a form."""
        return self._combine(
            [self._ask_once(text, form, self.seed + number) for number in range(self.samples)]
        )

    def _combine(self, samples: Sequence[Answer]) -> Answer:
        """Combine samples; there are no probabilities if half of them or more cannot be read.

        The fields are those of the first answer that can be read.
        """
        answers = [item for item in samples if not item.problem]
        failures = [item for item in samples if item.problem]
        note, usage = "", add_usage(item.usage for item in samples)
        if failures and self.samples > 1:
            note = f"{len(failures)} of {self.samples} samples gave no answer: {failures[0].problem}"
        if 2 * len(answers) <= self.samples:  # the few that answered need not be like the others
            return replace(failures[0], note=note, usage=usage)
        first = answers[0]
        given = [answer.probabilities for answer in answers if answer.probabilities is not None]
        if self.mode == "label" and self.samples > 1 and self.probabilities != "logprobs":
            weights = with_prior(Counter(answer.fields["label"] for answer in answers))
        elif given and self.probabilities != "none":
            weights = {label: sum(item[label] for item in given) / len(given) for label in LABELS}
        elif self.probabilities == "logprobs":
            return Answer(problem=NO_LOGPROBS, raw=first.raw, note=note, usage=usage)
        else:
            weights = label_spread(first.fields["label"])
        return replace(first, probabilities=weights, note=note or first.note, usage=usage)

    def _ask_once(self, text: str, form: PromptForm, seed: int) -> Answer:
        """Ask for one answer, and where it cannot be read and a re-ask is allowed, for the next."""
        chat, messages, left = self.chat, form.messages(text), self.reask
        usages: list[Mapping[str, float]] = []
        while True:
            reply: Reply | CallFailed
            limit = chat.max_tokens
            try:
                reply = chat.ask(messages, schema=form.schema, seed=seed)
            except CallFailed as failure:
                reply = failure
            answer = read_reply(reply, form)
            usages.append(answer.usage)
            # Reasoning used up the tokens: allow more, in this call and in all that follow.
            if OUT_OF_TOKENS in answer.problem and self.may_raise_tokens and limit < REASONING_TOKENS:
                chat.max_tokens = REASONING_TOKENS
            elif not answer.problem or isinstance(reply, CallFailed) or not left:
                return replace(answer, usage=add_usage(usages))
            elif OUT_OF_TOKENS in answer.problem:  # more tokens
                chat, left = replace(chat, max_tokens=2 * chat.max_tokens), left - 1
            else:
                problem, left = answer.problem.partition(":")[0], left - 1
                messages = form.messages(text) + form.ask_again(answer.raw, problem)

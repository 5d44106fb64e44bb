"""A chat model as judge: asked for a label, read strictly, unscored where it gives none."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Unpack

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import digest_json
from empathy_judge.data.records import LABELS, Exchange, Judgment, judgment_of, label_of, unscored
from empathy_judge.data.rubric import read_rubric
from empathy_judge.judge.budget import add_usage
from empathy_judge.judge.llm.answers import NO_ROOM, OUT_OF_TOKENS, Answer, read_reply, sample_probabilities
from empathy_judge.judge.llm.batch import LanguageModelJudge
from empathy_judge.judge.llm.chat import PATH, TOP_LOGPROBS, Chat
from empathy_judge.judge.llm.endpoint import CallFailed, Endpoint, EndpointOptions, Reply
from empathy_judge.judge.llm.judge_prompt import REASON, Mode, PromptForm, make_form, read_prompt
from empathy_judge.judge.llm.prompt_injection import DelimitedExchange

CAVEAT: Final = "This judge has not been compared with human ratings: run calibrate."
NO_LOGPROBS: Final = (
    'no logprobs: the server returned none for the labels; use samples, or probabilities = "none"'
)

FORM_TOKENS: Final = 512
WORD_TOKENS: Final = 4  # a label is one token or two; what begins otherwise is none, and need not go on
REASONING_TOKENS: Final = 2048  # of a model that reasons before it answers with a word
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

    `mode`: a reason and a label (direct), the rubric's components before the label (analytic), or one word
    (label): no reason then, and a few tokens of output. In that mode `constraint` names the kind of server,
    which is then restricted to the labels. By default `max_tokens` is 512, and 4 in mode label (2048 for a
    model that reasons first).

    `probabilities`: from the `logprobs` of the label, from the frequencies of k `samples`, or `none`; `auto`
    uses samples if there are several, else logprobs if the server returns them. With neither, the label gets
    probability 1: shares are then counts of labels, and log-losses mean nothing before a calibration.
    `name` is the judge's name in tables and run folders.

    `reask = 1` asks once more after an answer that cannot be read. `program` is a file that `optimize` wrote.
    `reason_characters` limits the reason through the schema, for servers that enforce it.
    """

    files = ("program",)
    caveat = CAVEAT
    batch_path = PATH

    def __init__(
        self,
        *,
        mode: Mode = "direct",
        samples: int = 1,
        probabilities: Literal["auto", "logprobs", "samples", "none"] = "auto",
        temperature: float | None = None,
        constraint: Literal["", "llama.cpp", "vllm", "sglang", "schema"] = "",
        max_tokens: int | None = None,
        seed: int = 0,
        reask: Literal[0, 1] = 0,
        program: str = "",
        rubric: str = "crowd",
        json_schema: Literal["auto", "always", "never"] = "auto",
        reason_characters: int = 0,
        extra_body: dict[str, Any] | None = None,
        name: str = "prompted",
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        if not endpoint.get("model"):
            raise UserError("model: missing; use --judge openai:MODEL or URL#MODEL, or set it in a TOML file")
        if samples < 1 or (probabilities == "samples" and samples < 2):
            raise UserError(f"samples: {samples} is too few; probabilities from samples need at least two")
        if probabilities == "none" and samples > 1:
            raise UserError(f'samples: {samples} are not used with probabilities = "none"; set samples = 1')
        if constraint and mode != "label":
            raise UserError(f'constraint: only with mode = "label", not with "{mode}"')
        is_word = mode == "label"
        if is_word and (reason_characters or json_schema == "always"):
            option = "reason_characters" if reason_characters else "json_schema"
            raise UserError(f'{option}: not with mode = "label"; see constraint')
        self.mode, self.samples, self.probabilities = mode, samples, probabilities
        self.max_tokens = max_tokens or (WORD_TOKENS if is_word else FORM_TOKENS)
        self.may_raise_tokens = is_word and not max_tokens
        self.seed, self.reask, self.most_calls = seed, reask, samples * (1 + reask)  # calls a judgment
        self.endpoint = Endpoint(**endpoint)
        self.model, self.concurrency = self.endpoint.model, self.endpoint.concurrency
        self.rubric = read_rubric(rubric)
        self.name, self.unit = self.rubric.name_judge(name), self.rubric.unit
        self.form = make_form(mode, self.rubric, reason_characters=reason_characters)
        if program:
            self.form = read_prompt(Path(program), self.form, mode=mode, rubric=self.rubric)
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
            logprobs=probabilities == "logprobs" or (probabilities == "auto" and samples == 1),
            schema=json_schema != "never",
            optional=frozenset({"max_tokens", "seed"} | left_out),
            constraint=CONSTRAINTS.get(constraint, {}),
            top_logprobs=MANY_LOGPROBS if constraint == "llama.cpp" else TOP_LOGPROBS,
            extra_body=extra_body or {},
        )

    def count_runs(self, exchange: Exchange) -> int:
        return self.most_calls

    @cached_property
    def version(self) -> str:  # type: ignore[override]
        """A digest of all that decides a judgment; where the server stands does not."""
        probe = self.delimit(Exchange(id="", prompt="prompt", response="response")).text
        asked = [self.form.messages(probe), self.form.again, self.form.schema or self.chat.constraint]
        decoding = [self.chat.temperature, self.max_tokens, self.chat.logprobs, self.chat.schema]
        how = [self.samples, self.probabilities, self.seed, self.reask, dict(self.chat.extra_body)]
        source = [self.form.digest, self.rubric.digest]
        return digest_json([self.name, self.model, self.mode, asked, decoding, how, source])[:12]

    def judge(self, exchange: Exchange) -> Judgment:
        delimited = self.delimit(exchange)
        return self._make_judgment(exchange, delimited, self.ask(delimited.text, self.form))

    def report(self, judgments: Iterable[Judgment]) -> list[str]:
        """Report how many labels came without probabilities."""
        given = [item.probabilities for item in judgments if item.probabilities and self.chat.logprobs]
        certain = sum(max(weights.values()) == 1 for weights in given)
        labels = f"{certain:,} of {len(given):,} labels"
        return [f"The server gave no probabilities for {labels}: each counts as 100%."] if certain else []

    def write_requests(self, exchange: Exchange) -> list[dict[str, Any]]:
        messages = self.form.messages(self.delimit(exchange).text)
        return [
            self.chat.write_body(messages, schema=self.form.schema, seed=self.seed + number)
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
        """Combine samples; there is no label if half of them or more have none.

        The fields are those of the first answer with the combined label, if there is one.
        """
        answers = [item for item in samples if item.label]
        failures = [item for item in samples if not item.label]
        note, usage = "", add_usage(item.usage for item in samples)
        if failures and self.samples > 1:
            note = f"{len(failures)} of {self.samples} samples gave no label: {failures[0].problem}"
        if 2 * len(answers) <= self.samples:  # the few that answered need not be like the others
            return replace(failures[0], note=note, usage=usage)
        given = [answer.probabilities for answer in answers if answer.probabilities is not None]
        if self.samples > 1 and self.probabilities != "logprobs":
            weights = sample_probabilities([answer.label for answer in answers])
        elif given and self.probabilities != "none":
            weights = {label: sum(item[label] for item in given) / len(given) for label in LABELS}
        elif self.probabilities == "logprobs":
            return Answer(problem=NO_LOGPROBS, raw=answers[0].raw, note=note, usage=usage)
        else:
            weights = {label: float(label == answers[0].label) for label in LABELS}
        label = label_of(weights)
        shown = next((answer for answer in answers if answer.label == label), answers[0])
        return replace(shown, label=label, probabilities=weights, note=note, usage=usage)

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
            # Reasoning used up the tokens of a word: allow more, in this call and in all that follow.
            if answer.problem == NO_ROOM and limit == WORD_TOKENS and self.may_raise_tokens:
                chat.max_tokens = REASONING_TOKENS
            elif answer.label or isinstance(reply, CallFailed) or not left:
                return replace(answer, usage=add_usage(usages))
            elif OUT_OF_TOKENS in answer.problem:  # more tokens
                chat, left = replace(chat, max_tokens=2 * chat.max_tokens), left - 1
            else:
                problem, left = answer.problem.partition(":")[0], left - 1
                messages = form.messages(text) + form.ask_again(answer.raw, problem)

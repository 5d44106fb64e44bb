"""From a server's answer to a label and its probabilities, or to the reason why there is none."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any, Final

from empathy_judge.data.records import LABELS
from empathy_judge.judge.llm.endpoint import CallFailed, Reply
from empathy_judge.judge.llm.http_client import shorten
from empathy_judge.judge.llm.judge_prompt import PromptForm

# A word alone: quotes and asterisks around it are accepted, and a sentence after a punctuation mark.
WORD: Final = re.compile(rf"[\s\"'*`]*({'|'.join(LABELS)})(?=[\"'*`]*(?:[\s.]*\Z|[.,:;!\n]))")
OUT_OF_TOKENS: Final = "ran out of tokens; raise max_tokens"
NO_ROOM: Final = f"empty answer: {OUT_OF_TOKENS}"  # all tokens went into reasoning
READ_CHARACTERS: Final = 20_000  # read of an answer
# The tags of reasoning; no label is ever taken from between them.
TAGS: Final = "think|thinking|reasoning|thought"
THOUGHTS: Final = re.compile(rf"<({TAGS})>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
END_OF_THOUGHT: Final = re.compile(rf"\A.*</(?:{TAGS})>", re.DOTALL | re.IGNORECASE)
WORD_OPENING: Final = re.compile(rf"(?:\A|</(?:{TAGS})>)[\s\"'*`]*", re.IGNORECASE)
REFUSAL: Final = re.compile(
    r"\b(I(?:['\u2019]m| am) (?:sorry|unable|not able)|I (?:can['\u2019]t|cannot|won['\u2019]t|must decline)"
    r"|as an AI\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model answered: a label, or the `problem`, whose part before the colon is what tables count."""

    label: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    probabilities: Mapping[str, float] | None = None  # of the server's logprobs, or of samples
    problem: str = ""
    raw: str = ""
    note: str = ""  # about samples
    usage: dict[str, float] = field(default_factory=dict)


def read_reply(reply: Reply | CallFailed, form: PromptForm) -> Answer:
    """Return the label in the reply to a chat request, or why there is none."""
    if isinstance(reply, CallFailed):
        return Answer(problem=reply.reason, raw=shorten(reply.raw), usage=reply.usage)
    return replace(_read_body(reply.body, form), usage=reply.usage)


def _read_body(body: Mapping[str, Any], form: PromptForm) -> Answer:
    message = read_message(body)
    if message is None:
        return Answer(problem="no answer: the server sent no message", raw=shorten(json.dumps(body)))
    text, refusal, finish, thoughts = message
    if refusal or finish == "content_filter":
        text = refusal or text
        return Answer(problem=f"refused: {shorten(text or 'by a content filter', 80)}", raw=shorten(text))
    answer = strip_thoughts(text)[:READ_CHARACTERS]
    if not answer:
        why = f"empty answer: {'only reasoning' if thoughts else 'no text'}"
        return Answer(problem=NO_ROOM if finish == "length" else why, raw=shorten(thoughts))
    fields = (_read_word if form.is_word else _read_fields)(answer, form, is_cut=finish == "length")
    if isinstance(fields, str):
        return Answer(problem=fields, raw=shorten(answer))
    label, given = fields[form.decides], body["choices"][0].get("logprobs")
    tokens = given.get("content") if isinstance(given, Mapping) else None
    opening = WORD_OPENING if form.is_word else re.compile(rf'"{re.escape(form.decides)}"\s*:\s*"')
    try:
        probabilities = label_probabilities(tokens or (), opening, label)
    except (KeyError, TypeError, ValueError, OverflowError):  # not in OpenAI's shape
        probabilities = None
    return Answer(label=label, fields=fields, probabilities=probabilities, raw=shorten(answer))


def read_message(body: Mapping[str, Any]) -> tuple[str, str, Any, str] | None:
    """Return a chat completion's text, refusal, finish reason and reasoning; None without a message."""
    try:
        choice = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        texts = [message.get("content"), message.get("refusal"), reasoning]
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    for number, text in enumerate(texts):
        if isinstance(text, list):  # some servers send it in parts
            text = "".join(str(part.get("text") or "") for part in text if isinstance(part, Mapping))
        texts[number] = text if isinstance(text, str) else ""
    text, refusal, reasoning = texts
    return text, refusal, finish, text or reasoning


def _read_fields(text: str, form: PromptForm, *, is_cut: bool) -> dict[str, str] | str:
    """Return the fields of the one JSON object in an answer, or why there are none."""
    objects = list(_objects(text))
    answers = {json.dumps(item[form.decides]): item for item in reversed(objects) if form.decides in item}
    if len(answers) > 1:  # the last may be an echo of the exchange
        return f"several labels: {', '.join(sorted(answers))}"
    if not answers:
        if is_cut:
            return f"cut short: {OUT_OF_TOKENS}"
        kind = "off the form" if objects else "refused" if REFUSAL.search(text) else "no JSON"
        return f"{kind}: {shorten(text, 80)}"
    (answer,) = answers.values()
    if answer[form.decides] not in LABELS:
        return f"off the scale: {shorten(str(answer[form.decides]), 60)!r}"
    properties = (form.schema or {})["properties"]
    for name, schema in properties.items():
        if not isinstance(answer.get(name), str) or answer[name] not in schema.get("enum", [answer[name]]):
            return f"off the form: {shorten(text, 80)}"
    return {name: answer[name] for name in properties}


def _read_word(text: str, form: PromptForm, *, is_cut: bool) -> dict[str, str] | str:
    """Return the label where an answer is that word, or why there is none."""
    named = sorted(set(re.findall(rf"\b(?:{'|'.join(LABELS)})\b", text)))
    if len(named) > 1:
        return f"several labels: {', '.join(named)}"
    if found := WORD.match(text):
        return {form.decides: found[1]}
    if is_cut and len(_begun(text.strip())) == 1 and not named:
        return f"cut short: {OUT_OF_TOKENS}"
    return f"{'refused' if REFUSAL.search(text) else 'no label'}: {shorten(text, 80)}"


def strip_thoughts(text: str) -> str:
    """Return an answer without the model's reasoning, even where the first or the last tag is missing.

    >>> strip_thoughts('It is "Bad"</think>yes'), strip_thoughts('<think>It is "Bad"')
    ('yes', '')
    """
    return END_OF_THOUGHT.sub("", THOUGHTS.sub("", text)).strip()


def label_probabilities(
    tokens: Sequence[Mapping[str, Any]], opening: re.Pattern[str], label: str
) -> dict[str, float] | None:
    """Return the labels' probabilities by the server's logprobs, normalized over the labels; None without.

    At the first token behind the last `opening`, every alternative that begins only one label counts for it;
    where a token begins several labels, the next one decides. A label that is not among the alternatives gets
    the probability of the least likely one: it can have no more. If none is among them, nothing is known.
    """
    texts = [str(token["token"]) for token in tokens]
    starts = [match.end() for match in opening.finditer("".join(texts))]
    if not starts:
        return None
    number, offset = 0, starts[-1]
    while number < len(texts) and offset >= len(texts[number]):
        number, offset = number + 1, offset - len(texts[number])
    weights = dict.fromkeys(LABELS, 0.0)
    written, mass, least, is_known = "", 1.0, 0.0, False
    begun: list[str] = []
    listed: dict[str, float] = {}
    while number < len(tokens):
        token, before = tokens[number], texts[number][:offset]
        likeliest = {str(item["token"]): float(item["logprob"]) for item in token.get("top_logprobs") or ()}
        listed = {texts[number]: float(token["logprob"])} | likeliest  # the token is not always among them
        least = mass * exp(min(listed.values()))
        for text, logprob in listed.items():
            if text.startswith(before) and len(begun := _begun(written + text[offset:])) == 1:
                weights[begun[0]] += mass * exp(logprob)
                is_known |= text in likeliest
        written += texts[number][offset:]
        if len(begun := _begun(written)) <= 1:
            break
        mass *= exp(token["logprob"])
        number, offset = number + 1, 0
    # Other tokens than the label's own: the field was found in the wrong place. One token: no alternatives.
    if begun != [label] or len(listed) < 2 or not is_known:
        return None
    weights = {label: weight or least for label, weight in weights.items()}
    return {label: weight / sum(weights.values()) for label, weight in weights.items()}


def _begun(text: str) -> list[str]:
    """Return the labels that a text begins, or has begun with."""
    return [label for label in LABELS if text and (label.startswith(text) or text.startswith(label))]


def sample_probabilities(drawn: Sequence[str]) -> dict[str, float]:
    """Return each label's part of the samples, after one more sample spread evenly over the labels.

    Without it (Perks' prior) a label that was not drawn would have an infinite log-loss. One more sample for
    each label (Laplace's) would pull shares of five samples more than twice as far to a third.
    """
    counts = Counter(drawn)
    return {label: (counts[label] + 1 / len(LABELS)) / (len(drawn) + 1) for label in LABELS}


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in a text, outermost ones only."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            item, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield item
        start = text.find("{", end)

"""From a server's answer to a label and its probabilities, or to the reason why there is none."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any, Final

from empathy_judge.data.records import LABELS
from empathy_judge.judge.llm.endpoint import CallFailed, Reply
from empathy_judge.judge.llm.http_client import shorten
from empathy_judge.judge.llm.judge_prompt import PromptForm

_LABEL: Final = "|".join(LABELS)
NAMED: Final = re.compile(rf"\b(?:{_LABEL})\b")
# An answer that begins with a label, and a sentence after a punctuation mark; not "Okay, let me see".
WORD: Final = re.compile(
    rf"(?i)[\s\"'*`\u201c]*({_LABEL})(?=[\"'*`\u201d]*(?:[\s.]*\Z|[.,:;!\n]))"
    r"(?!, (?:I|let|here|so|sure|got)\b)"
)
# A label within a sentence that states it, or that is in bold or in quotes.
STATED: Final = re.compile(
    rf"(?:(?i:\b(?:label|rating|answer|verdict|judge?ment|choice|choose|pick|say|call (?:it|this)|be|is)"
    rf"\b[\s\"'*`:=\u201c]*)|[\"'*`\u201c])({_LABEL})\b(?![\"'*`\u201d]*\?)"
)
NEGATED: Final = re.compile(
    r"(?i)(?:\b(?:not|never|no|barely|than|instead of|neither)\b|n['\u2019]t\b)[^.!?]*\Z"
)
NUMBER: Final = re.compile(r"\s*(\d{1,3}(?:\.\d+)?)\s*%?\s*")
OUT_OF_TOKENS: Final = "ran out of tokens; raise max_tokens"
NO_ROOM: Final = f"empty answer: {OUT_OF_TOKENS}"  # all tokens went into reasoning
READ_CHARACTERS: Final = 20_000  # read of an answer
TOLERANCE: Final = 0.1  # of the sum of the shares
NOT_100: Final = "shares scaled to 100"
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
    """What a model answered, or the `problem`, whose part before the colon is what tables count."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    probabilities: Mapping[str, float] | None = None  # of the labels: the shares, or the server's logprobs
    problem: str = ""
    raw: str = ""
    note: str = ""  # about samples, or shares that do not add up to 100
    usage: dict[str, float] = field(default_factory=dict)


def read_reply(reply: Reply | CallFailed, form: PromptForm) -> Answer:
    """Return what the reply to a chat request answers, or why it cannot be read."""
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
    is_cut = finish == "length"
    fields = _read_word(answer, is_cut=is_cut) if form.is_word else _read_fields(answer, form, is_cut=is_cut)
    if isinstance(fields, str):
        return Answer(problem=fields, raw=shorten(answer))
    probabilities, note = None, ""
    if form.is_word:
        given = body["choices"][0].get("logprobs")
        tokens = given.get("content") if isinstance(given, Mapping) else None
        with suppress(KeyError, TypeError, ValueError, OverflowError):  # not in OpenAI's shape
            probabilities = label_probabilities(tokens or (), fields["label"])
    elif set(LABELS) <= fields.keys():
        if not (total := sum(fields[label] for label in LABELS)):
            return Answer(problem="off the scale: the shares add up to 0", raw=shorten(answer))
        if not any(abs(total / whole - 1) <= TOLERANCE for whole in (100, 1)):
            note = f"{NOT_100}: they add up to {total:g}"
        probabilities = with_prior({label: 100 * fields[label] / total for label in LABELS})
    return Answer(fields=fields, probabilities=probabilities, raw=shorten(answer), note=note)


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


def _read_fields(text: str, form: PromptForm, *, is_cut: bool) -> dict[str, Any] | str:
    """Return the fields of the one JSON object in an answer, or why there are none."""
    properties = (form.schema or {})["properties"]
    numbers = [name for name, kind in properties.items() if kind["type"] == "integer"]
    objects = list(_objects(text))
    if not objects and not is_cut and numbers == list(LABELS):  # a line for each label, without JSON
        listed = re.findall(
            rf"\b({_LABEL})\b[\"'*`]*\s*[:=]\s*[\"'*`]*({NUMBER.pattern})(?![\d.,-]*\d)", text
        )
        objects = [dict(item[:2] for item in listed)] if len(listed) == len(LABELS) else []
    needed = set(numbers) if set(LABELS) <= set(numbers) else set[str]()
    answers: dict[str, dict[str, Any]] = {}
    for item in reversed(objects):  # the last may be an echo of the exchange
        inner = [value for value in item.values() if isinstance(value, dict)]
        for given in (item, *inner[:1]):
            found = {name: given[name] for name in properties if name in given}
            if needed <= found.keys() and not found.keys().isdisjoint(numbers):
                answers[json.dumps([found.get(name) for name in numbers])] = found
    if len(answers) > 1:
        return f"several answers: {', '.join(sorted(answers))}"
    if not answers:
        if is_cut:
            return f"cut short: {OUT_OF_TOKENS}"
        kind = "off the form" if objects else "refused" if REFUSAL.search(text) else "no JSON"
        return f"{kind}: {shorten(text, 80)}"
    (answer,) = answers.values()
    fields: dict[str, Any] = {}
    for name, value in answer.items():
        allowed = properties[name].get("enum", [value])
        number = _number(value) if name in numbers else None
        if name in needed and number is None:
            return f"off the scale: {name} is {shorten(json.dumps(value), 40)}"
        if number is not None:
            fields[name] = number
        elif name not in numbers and isinstance(value, str) and value in allowed:
            fields[name] = value  # a component or a grade off the scale is left out
    return fields


def _number(value: Any) -> float | None:
    """Return a number from 0 to 100, also of a text such as "60%"."""
    if isinstance(value, str) and (match := NUMBER.fullmatch(value)):
        value = float(match[1])
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= 100 else None


def _read_word(text: str, *, is_cut: bool) -> dict[str, Any] | str:
    """Return the label that an answer states, or why there is none."""
    inside = {str(item["label"]).strip().capitalize() for item in _objects(text) if "label" in item}
    named = inside or set(NAMED.findall(text))
    if found := WORD.match(text):
        named.add(found[1].capitalize())
    if off := named - set(LABELS):
        return f"off the scale: {shorten(', '.join(sorted(off)), 60)!r}"
    if len(named) > 1:
        return f"several labels: {', '.join(sorted(named))}"
    if inside or found:
        return {"label": named.pop()}
    if (found := STATED.search(text)) and not NEGATED.search(text[: found.start(1)]):
        return {"label": found[1]}
    if is_cut and len(_begun(text.strip())) == 1 and not named:
        return f"cut short: {OUT_OF_TOKENS}"
    return f"{'refused' if REFUSAL.search(text) else 'no label'}: {shorten(text, 80)}"


def strip_thoughts(text: str) -> str:
    """Return an answer without the model's reasoning, even where the first or the last tag is missing.

    >>> strip_thoughts('It is "Bad"</think>yes'), strip_thoughts('<think>It is "Bad"')
    ('yes', '')
    """
    return END_OF_THOUGHT.sub("", THOUGHTS.sub("", text)).strip()


def label_probabilities(tokens: Sequence[Mapping[str, Any]], label: str) -> dict[str, float] | None:
    """Return the labels' probabilities by the server's logprobs, normalized over the labels; None without.

    At the first token of the answer, every alternative that begins only one label counts for it;
    where a token begins several labels, the next one decides. A label that is not among the alternatives gets
    the probability of the least likely one: it can have no more. If none is among them, nothing is known.
    """
    texts = [str(token["token"]) for token in tokens]
    starts = [match.end() for match in WORD_OPENING.finditer("".join(texts))]
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
    # Other tokens than the label's own: the label stands elsewhere. One token: no alternatives.
    if begun != [label] or len(listed) < 2 or not is_known:
        return None
    weights = {label: weight or least for label, weight in weights.items()}
    return {label: weight / sum(weights.values()) for label, weight in weights.items()}


def _begun(text: str) -> list[str]:
    """Return the labels that a text begins, or has begun with."""
    return [label for label in LABELS if text and (label.startswith(text) or text.startswith(label))]


def with_prior(counts: Mapping[str, float]) -> dict[str, float]:
    """Return each label's part of a count, after one more that is spread evenly over the labels.

    Without it (Perks' prior) a label with no count would have an infinite log-loss. One more for each label
    (Laplace's) would pull shares of five samples more than twice as far to a third.
    """
    total = sum(counts.values())
    return {label: (counts.get(label, 0) + 1 / len(LABELS)) / (total + 1) for label in LABELS}


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

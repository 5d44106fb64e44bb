"""From a server's answer to a label and its probabilities, or to the reason why there is none."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any, Final

from empathy_judge.data.records import LABELS
from empathy_judge.judge.llm.judge_prompt import PromptForm

# A word alone: marks around it are let pass, and a sentence behind it where a mark parts the two.
WORD: Final = re.compile(rf"[\s\"'*`]*({'|'.join(LABELS)})(?=[\"'*`]*(?:[\s.]*\Z|[.,:;!\n]))")
WORD_OPENING: Final = re.compile(r"(?:\A|</(?:think|thinking|reasoning|thought)>)[\s\"'*`]*", re.IGNORECASE)
OUT_OF_TOKENS: Final = "ran out of tokens; raise max_tokens"
NO_ROOM: Final = f"empty answer: {OUT_OF_TOKENS}"  # all tokens went into reasoning
RAW_CHARACTERS: Final = 600  # of an answer that could not be read, this much is kept
READ_CHARACTERS: Final = 20_000  # an answer longer than this is a model gone astray
# Tags in which thinking models think aloud; no label is ever taken from between them.
THOUGHTS: Final = re.compile(r"<(think|thinking|reasoning|thought)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
END_OF_THOUGHT: Final = re.compile(r"\A.*</(?:think|thinking|reasoning|thought)>", re.DOTALL | re.IGNORECASE)
REFUSAL: Final = re.compile(
    r"\b(I(?:['\u2019]m| am) (?:sorry|unable|not able)|I (?:can['\u2019]t|cannot|won['\u2019]t|must decline)"
    r"|as an AI\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model said; `probabilities` only where the server gave logprobs of the label."""

    label: str
    fields: Mapping[str, str]
    probabilities: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """No label, and why: the part before the colon is the kind that tables count."""

    reason: str
    raw: str = ""


def read_answer(body: Mapping[str, Any], form: PromptForm) -> Answer | Unusable:
    """The label in a chat completion, or why there is none."""
    message = read_message(body)
    if message is None:
        return Unusable(reason="no answer: the server sent no message", raw=shorten(json.dumps(body)))
    text, refusal, finish, thoughts = message
    if refusal or finish == "content_filter":
        text = refusal or text
        return Unusable(reason=f"refused: {shorten(text or 'by a content filter', 80)}", raw=shorten(text))
    answer = strip_thoughts(text)[:READ_CHARACTERS]
    if not answer:
        why = f"empty answer: {'only reasoning' if thoughts else 'no text'}"
        return Unusable(reason=NO_ROOM if finish == "length" else why, raw=shorten(thoughts))
    parse = _parse_word if form.is_word else _parse
    fields = parse(answer, form, is_cut=finish == "length")
    if isinstance(fields, Unusable):
        return fields
    label, given = fields[form.decides], body["choices"][0].get("logprobs")
    tokens = given.get("content") if isinstance(given, Mapping) else None
    opening = WORD_OPENING if form.is_word else re.compile(rf'"{re.escape(form.decides)}"\s*:\s*"')
    try:
        probabilities = label_probabilities(tokens or (), opening, label)
    except (KeyError, TypeError, ValueError, OverflowError):  # not in the shape OpenAI gave them
        probabilities = None
    return Answer(label=label, fields=fields, probabilities=probabilities)


def read_message(body: Mapping[str, Any]) -> tuple[str, str, Any, str] | None:
    """A chat completion's text, its refusal, why it ended, and what was thought; None without a message."""
    try:
        choice = body["choices"][0]
        message = choice["message"]
        texts = [message.get("content"), message.get("refusal")]
        texts.append(message.get("reasoning_content") or message.get("reasoning"))
        finish = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    for number, text in enumerate(texts):
        if isinstance(text, list):  # some servers send it in parts
            text = "".join(str(part.get("text") or "") for part in text if isinstance(part, Mapping))
        texts[number] = text if isinstance(text, str) else ""
    text, refusal, reasoning = texts
    return text, refusal, finish, text or reasoning


def _parse(text: str, form: PromptForm, *, is_cut: bool) -> dict[str, str] | Unusable:
    """Return the fields of the one JSON object in an answer."""
    raw = shorten(text)
    objects = list(_objects(text))
    labels = {json.dumps(item[form.decides]) for item in objects if form.decides in item}
    if len(labels) > 1:  # the last may be an echo of the exchange
        return Unusable(reason=f"several labels: {', '.join(sorted(labels))}", raw=raw)
    if not labels:
        if is_cut:
            return Unusable(reason=f"cut short: {OUT_OF_TOKENS}", raw=raw)
        kind = "off the form" if objects else "refused" if REFUSAL.search(text) else "no JSON"
        return Unusable(reason=f"{kind}: {shorten(text, 80)}", raw=raw)
    label = json.loads(labels.pop())
    if label not in LABELS:
        return Unusable(reason=f"off the scale: {shorten(str(label), 60)!r}", raw=raw)
    answer = next(item for item in objects if form.decides in item)
    properties = (form.schema or {})["properties"]
    for name, schema in properties.items():
        if not isinstance(answer.get(name), str) or answer[name] not in schema.get("enum", [answer[name]]):
            return Unusable(reason=f"off the form: {shorten(text, 80)}", raw=raw)
    return {name: answer[name] for name in properties}


def _parse_word(text: str, form: PromptForm, *, is_cut: bool) -> dict[str, str] | Unusable:
    """Return the label where an answer is that word; an answer that also names another has not decided."""
    raw, found = shorten(text), WORD.match(text)
    named = sorted(set(re.findall(rf"\b(?:{'|'.join(LABELS)})\b", text)))
    if len(named) > 1:
        return Unusable(reason=f"several labels: {', '.join(named)}", raw=raw)
    if found:
        return {form.decides: found[1]}
    if REFUSAL.search(text):
        return Unusable(reason=f"refused: {shorten(text, 80)}", raw=raw)
    if is_cut and len(_begun(text.strip())) == 1 and not named:
        return Unusable(reason=f"cut short: {OUT_OF_TOKENS}", raw=raw)
    return Unusable(reason=f"no label: {shorten(text, 80)}", raw=raw)


def strip_thoughts(text: str) -> str:
    """The answer without what a model thought aloud, even where the first or the last tag is missing.

    >>> strip_thoughts('<think>{"label": "Bad"}</think> {"label": "Good"}')
    '{"label": "Good"}'
    >>> strip_thoughts('It is "Bad"</think>yes'), strip_thoughts('<think>It is "Bad"')
    ('yes', '')
    """
    return END_OF_THOUGHT.sub("", THOUGHTS.sub("", text)).strip()


def shorten(text: str, length: int = RAW_CHARACTERS) -> str:
    """A text on one line, cut to a length.

    >>> shorten("one\\n two three", 8)
    'one two…'
    """
    line = " ".join(text[: 20 * length].split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def label_probabilities(
    tokens: Sequence[Mapping[str, Any]], opening: re.Pattern[str], label: str
) -> dict[str, float] | None:
    """What the server's logprobs give each label, made to sum to 1 over those allowed; None without them.

    The label begins at the first token behind the last `opening`. There, every alternative that begins
    only one label counts for it; where a token begins several, the next token decides, and so on. A server
    under a grammar states what the model would have said without it, so the rest is left out, not kept. A
    label that is not among the alternatives gets what the least likely of them has: it can have no more, and
    nothing would call a model certain that has merely been asked for few alternatives. Where no label is
    among them, which a grammar can bring about, nothing is known.
    """
    texts = [str(token["token"]) for token in tokens]
    starts = [match.end() for match in opening.finditer("".join(texts))]
    if not starts:
        return None
    number, offset = 0, starts[-1]
    while number < len(texts) and offset >= len(texts[number]):
        number, offset = number + 1, offset - len(texts[number])
    weights = dict.fromkeys(LABELS, 0.0)
    written, mass, least = "", 1.0, 0.0
    begun: list[str] = []
    listed: dict[str, float] = {}
    is_known = False
    while number < len(tokens):
        token = tokens[number]
        before, chosen = token["token"][:offset], token["token"][offset:]
        listed = {texts[number]: float(token["logprob"])}  # not always among the likeliest
        likeliest = {str(item["token"]): float(item["logprob"]) for item in token.get("top_logprobs") or ()}
        listed |= likeliest
        least = mass * exp(min(listed.values()))
        for text, logprob in listed.items():
            if text.startswith(before) and len(begun := _begun(written + text[offset:])) == 1:
                weights[begun[0]] += mass * exp(logprob)
                is_known |= text in likeliest
        written += chosen
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
    """The labels a text begins, or has begun with."""
    return [label for label in LABELS if text and (label.startswith(text) or text.startswith(label))]


def sample_probabilities(drawn: Sequence[str]) -> dict[str, float]:
    """Each label's part of the samples, after one more sample spread evenly over the labels.

    Without that a label nobody drew would get probability 0, which a log-loss never forgives. One sample in
    all (Perks' prior) instead of one for each label (Laplace's): shares are means of these probabilities, and
    with five samples Laplace's would pull every share more than twice as far towards a third.

    >>> sample_probabilities(["Good", "Good", "Bad"])
    {'Bad': 0.3333333333333333, 'Okay': 0.08333333333333333, 'Good': 0.5833333333333334}
    """
    counts = Counter(drawn)
    return {label: (counts[label] + 1 / len(LABELS)) / (len(drawn) + 1) for label in LABELS}


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """The JSON objects in a text, outermost ones only."""
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

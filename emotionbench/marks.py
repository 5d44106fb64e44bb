"""Marks out of an answer to a questionnaire, however it is written; what is not surely a mark is missing."""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from emotionbench.questionnaires import Questionnaire
from judge.llm.answers import READ_CHARACTERS, strip_thoughts

NUMBER_WORDS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# A whole number by itself: not part of a word, of a decimal fraction or of a longer number.
NUMBER: Final = re.compile(r"(?<![\w.,])(?<![0-9]/)([-\u2212]?[0-9]{1,3})(?:\.0+)?(?![\w%]|[.,][0-9])")
OUT_OF: Final = re.compile(
    r"([-\u2212]?[0-9]{1,3})\s*(?:/|\bout of\b|\bof\b)\s*([0-9]{1,3})(?![\w%])", re.IGNORECASE
)
RANGE: Final = re.compile(r"\(?\b[0-9]\s*(?:-|\u2013|\bto\b)\s*[0-9]\b\)?(?![/\w])", re.IGNORECASE)
# An item's number, what parts it from the mark, and the rest of the line.
NUMBERED: Final = re.compile(
    r"[^\w\n]{0,12}(?:(?:item|question|statement|no|q)\b[ .#:]{0,3}|q)?([0-9]{1,3})[*_`\"']{0,3}\s{0,4}"
    r"(?:[.):\]=|,]|->|[-\u2013\u2014\u2192](?![0-9])|-(?=[0-9])|\t|\s(?=[0-9]+\s*$))[*_`\"']{0,3}\s*(.*)",
    re.IGNORECASE,
)
PAIRS: Final = re.compile(r"""(?<![\w./])([0-9]{1,3})["']?\s?[:=.)]\s?["']?([0-9]{1,3})(?![\w.%/:=)])""")
TOWARDS: Final = re.compile(r".*(?:[:=]|->|\u2192)", re.DOTALL)
TOWARDS_OR_DASH: Final = re.compile(r".*(?:[:=]|->|\u2192|\s[-\u2013\u2014](?=\s))", re.DOTALL)
AFTER_NAME: Final = re.compile(r"[:=|]|->|\s[-\u2013\u2014]\s")
REFUSAL: Final = re.compile(
    r"\bI(?:['\u2019]m| am)(?: (?:very|really|so))? (?:sorry|unable|not able)\b"
    r"|\bI (?:can['\u2019]?t|cannot|can not|won['\u2019]t|must decline|do not|don['\u2019]t)\b"
    r"[^.!?\n]{0,40}\b(?:feel|feelings?|emotions?|answer|assist|help|comply|provide|rate|experience|respond|continue)"
    r"|\bas an? (?:AI|language model|assistant)\b|\bI decline\b",
    re.IGNORECASE,
)
BRACKET: Final = re.compile(r"[{\[]")
LONGEST_LINE: Final = 600  # characters; a longer one is prose


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks by the item's place in the questionnaire, from 1; `problem` says why some are missing."""

    marks: Mapping[int, int]
    problem: str = ""


def read_marks(text: str, key: Questionnaire) -> Marks:
    """Every mark that an answer surely gives; the `texts` of the key stand in the order they were asked.

    >>> from dataclasses import replace
    >>> from emotionbench.questionnaires import read_questionnaire
    >>> key = replace(read_questionnaire("PANAS"), items=3, texts=())
    >>> texts = ("1. 4/5, fine", '{"1": 4, "2": 9}', "4, 2, 3", "1: strongly\\n2) 2 - slightly\\n3 = 6")
    >>> for text in texts:
    ...     print(dict(read_marks(text, key).marks))
    {1: 4}
    {1: 4}
    {1: 4, 2: 2, 3: 3}
    {1: 4, 2: 2}
    >>> read_marks("As an AI, I do not have feelings.", key)
    Marks(marks={}, problem='refused')
    """
    # Wide digits and the like are ordinary ones to who wrote them.
    answer = unicodedata.normalize("NFKC", strip_thoughts(text[: 4 * READ_CHARACTERS])[:READ_CHARACTERS])
    ways = (_read_json, _read_numbered, _read_named, _read_list)
    given = next((marks for way in ways if (marks := way(answer, key))), {})
    marks = {
        item: mark for item, mark in sorted(given.items()) if 1 <= item <= key.items and key.is_mark(mark)
    }
    if len(marks) == key.items:
        return Marks(marks)
    if not answer.strip():
        return Marks(marks, "empty answer")
    if not marks:
        return Marks(marks, "refused" if REFUSAL.search(answer) else "no marks")
    return Marks(marks, f"incomplete: {key.items - len(marks)} of {key.items} marks missing")


ItemMarks = Mapping[int, int]  # by the number of the item


def _read_json(answer: str, key: Questionnaire) -> ItemMarks:
    """Read the first JSON value that gives any marks."""
    decoder, end = json.JSONDecoder(), 0
    for _ in range(200):  # a text of nothing but brackets must not take forever
        bracket = BRACKET.search(answer, end)
        if bracket is None:
            break
        try:
            value, end = decoder.raw_decode(answer, bracket.start())
            if marks := _of_value(value, key):
                return marks
        except (ValueError, RecursionError):
            end = bracket.end()
    return {}


def _of_value(value: Any, key: Questionnaire) -> ItemMarks:
    """Read an object with a mark for each item, or one within it; or a list of marks, or of rows.

    In a row such as {"item": 3, "mark": 4} the first value names the item, the last one marks it.
    """
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, Mapping):
        pairs += value.items()
    elif isinstance(value, list):
        rows = [row for row in value if isinstance(row, Mapping)]
        if not rows:
            return _in_order([_of_json_mark(mark, key) for mark in value], key)
        for row in rows:
            names = [*row.values()] if len(row) > 1 else [*row]
            pairs += zip(names[:1], [*row.values()][-1:], strict=True)
    places = {_plain(text): place for place, text in enumerate(key.texts, start=1)}
    marks = _settle(
        (place, _of_json_mark(mark, key))
        for name, mark in pairs
        if (place := _item_of(name, places)) is not None
    )
    if marks or not isinstance(value, Mapping):
        return marks
    inner = [nested for part in value.values() if (nested := _of_value(part, key))]
    return inner[0] if len(inner) == 1 else {}


def _item_of(name: Any, places: Mapping[str, int]) -> int | None:
    text = str(name)[:LONGEST_LINE].strip()
    if match := re.fullmatch(
        r"(?:item|question|statement|q|no)?[ _.#-]{0,2}([0-9]{1,3})[.):]?", text, re.IGNORECASE
    ):
        return int(match[1])
    return places.get(_plain(text))


def _of_json_mark(value: Any, key: Questionnaire) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value) if key.is_mark(int(value)) else None
    return _of_words(value, key) if isinstance(value, str) else None


def _read_numbered(answer: str, key: Questionnaire) -> ItemMarks:
    """Read lines, or parts of lines, that begin with the number of an item."""
    lines = [line for line in answer.splitlines() if line.strip() and len(line) <= LONGEST_LINE]
    rows = [(int(match[1]), match[2]) for line in lines if (match := NUMBERED.fullmatch(line.strip()))]
    inline = [(int(item), int(mark)) for item, mark in PAIRS.findall(answer)]
    if len({item for item, _ in inline}) == len(inline) > len(rows):
        return _settle((item, mark if key.is_mark(mark) else None) for item, mark in inline)
    rows = [(item, rest) for item, rest in rows if 1 <= item <= key.items]
    numbers = [item for item, _ in rows]
    is_list = len(set(numbers)) < len(numbers) and max(numbers) <= key.high
    # "4 - quite a bit" on each line marks the items in their order; it does not number them.
    is_explained = len(rows) > 1 and all(_of_words(rest, key, are_numbers=False) == n for n, rest in rows)
    if not rows or is_list or is_explained or not any(rest.strip() for _, rest in rows):
        return {}
    return _settle((item, _of_words(rest, key)) for item, rest in rows)


def _read_named(answer: str, key: Questionnaire) -> ItemMarks:
    """Read lines that begin with the words of an item."""
    names = {_plain(text): place for place, text in enumerate(key.texts, start=1)}
    pairs = []
    for line in answer.splitlines():
        name, *rest = AFTER_NAME.split(line[:LONGEST_LINE].strip("| "), maxsplit=1)
        if rest and (place := names.get(_plain(name))):
            pairs.append((place, _of_words(rest[0], key)))
    return _settle(pairs)


def _read_list(answer: str, key: Questionnaire) -> ItemMarks:
    """Read marks and nothing else, one for each item: on lines of their own, or on one line."""
    lines = [line.strip() for line in answer.splitlines() if line.strip() and len(line) <= LONGEST_LINE]
    bare = [line for line in lines if re.match(r"\W{0,6}[0-9]", line)] or lines
    if len(bare) == key.items:
        return _in_order([_of_words(line, key) for line in bare], key)
    for line in reversed(lines):
        texts = [text for text in re.split(r"[,;|\s]+", line.strip(" .[]()")) if text]
        if len(texts) == key.items and all(re.fullmatch(r"[-\u2212]?[0-9]{1,3}[.]?", text) for text in texts):
            return _in_order([_of_words(text, key) for text in texts], key)
    return {}


def _in_order(marks: Sequence[int | None], key: Questionnaire) -> ItemMarks:
    if len(marks) != key.items:
        return {}
    return {place: mark for place, mark in enumerate(marks, start=1) if mark is not None}


def _settle(pairs: Iterable[tuple[int, int | None]]) -> dict[int, int]:
    """One mark for each item; an item that was given several different ones has none."""
    given: dict[int, set[int | None]] = {}
    for item, mark in pairs:
        given.setdefault(item, set()).add(mark)
    settled = {item: next(iter(marks)) for item, marks in given.items() if len(marks) == 1}
    return {item: mark for item, mark in settled.items() if mark is not None}


def _of_words(text: str, key: Questionnaire, *, are_numbers: bool = True) -> int | None:
    """The one mark in a few words: a number on the scale, or the words for one; None if that is not clear."""
    text = text[:LONGEST_LINE]
    if are_numbers:
        numbers = set(_numbers(text, key))
        if len(numbers) > 1:  # the item's own words may hold some: then the mark comes last
            # "4 - 3 would be too few" says 4, or nothing for sure.
            begins = re.match(r"\W{0,6}[0-9]{1,3}\b", text)
            numbers = set(_numbers((TOWARDS if begins else TOWARDS_OR_DASH).sub("", text, count=1), key))
        if numbers:
            number = numbers.pop()
            return number if not numbers and key.is_mark(number) else None
        if re.search(r"[0-9]", text):
            return None
    # The mark whose words the text holds, if it holds those of one only; longer words first.
    words = {_plain(level): number for number, level in enumerate(key.levels, start=key.low)}
    words |= {word: number for number, word in enumerate(NUMBER_WORDS) if word not in words}
    rest = f" {_plain(text)} "
    marks = set()
    for word in sorted(words, key=len, reverse=True):
        if word and f" {word} " in rest:
            marks.add(words[word])
            rest = rest.replace(f" {word} ", " ")
    named = marks.pop() if len(marks) == 1 else None
    return named if named is not None and key.is_mark(named) else None


def _numbers(text: str, key: Questionnaire) -> Iterator[int]:
    """The numbers in a text that could be marks, as "4" of "4/5"; "4/10" is one of another scale."""
    for match in OUT_OF.finditer(text):
        yield _whole(match[1]) if int(match[2]) == key.high else key.high + 1
    rest = OUT_OF.sub(" ", text)
    ends = {f"{key.low}{key.high}"}
    rest = RANGE.sub(lambda match: " " if re.sub(r"[^0-9]", "", match[0]) in ends else match[0], rest)
    for match in NUMBER.finditer(rest):
        yield _whole(match[1])


def _whole(text: str) -> int:
    return int(text.replace("\u2212", "-"))


def _plain(text: str) -> str:
    """Letters and digits in lower case, with single spaces between words.

    >>> _plain(" Quite, a BIT! ")
    'quite a bit'
    """
    return " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split())

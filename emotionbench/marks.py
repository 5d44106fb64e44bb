"""Marks out of an answer to a questionnaire: JSON, numbered lines or a list; all else is missing."""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from empathy_judge.emotionbench.questionnaires import Questionnaire, plain_name
from empathy_judge.judge.llm.answers import READ_CHARACTERS, strip_thoughts

# A whole number by itself: not part of a word, of a decimal fraction or of a longer number.
NUMBER: Final = re.compile(r"(?<![\w.,])(?<![0-9]/)(-?[0-9]{1,3})(?:\.0+)?(?![\w%]|[.,][0-9])")
OUT_OF: Final = re.compile(r"(-?[0-9]{1,3})\s*(?:/|\bout of\b|\bof\b)\s*([0-9]{1,3})(?![\w%])", re.IGNORECASE)
# An item's number, a separator, and the rest of the line.
NUMBERED: Final = re.compile(
    r"[^\w\n]{0,12}(?:(?:item|question|statement|no|q)\b[ .#:]{0,3}|q)?([0-9]{1,3})[*_`\"']{0,3}\s{0,4}"
    r"(?:[.):\]=|,]|->|[-\u2013\u2014\u2192](?![0-9])|-(?=[0-9])|\t|\s(?=[0-9]+\s*$))[*_`\"']{0,3}\s*(.*)",
    re.IGNORECASE,
)
PAIRS: Final = re.compile(r"""(?<![\w./])([0-9]{1,3})["']?\s?[:=.)]\s?["']?([0-9]{1,3})(?![\w.%/:=)])""")
NAMED_ITEM: Final = re.compile(
    r"(?:item|question|statement|q|no)?[ _.#-]{0,2}([0-9]{1,3})[.):]?", re.IGNORECASE
)
REFUSAL: Final = re.compile(
    r"\bI(?:['\u2019]m| am)(?: (?:very|really|so))? (?:sorry|unable|not able)\b"
    r"|\bI (?:can['\u2019]?t|cannot|can not|won['\u2019]t|must decline|do not|don['\u2019]t)\b"
    r"[^.!?\n]{0,40}\b(?:feel|feelings?|emotions?|answer|assist|help|comply|provide|rate|experience|respond|continue)"
    r"|\bas an? (?:AI|language model|assistant)\b|\bI decline\b",
    re.IGNORECASE,
)
LONGEST_LINE: Final = 600  # characters; a longer one is prose
ItemMarks = Mapping[int, int]  # by the number of the item


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks by the item's place in the questionnaire, from 1; `problem` is why some are missing."""

    marks: ItemMarks
    problem: str = ""


def read_marks(text: str, key: Questionnaire) -> Marks:
    """Read the marks of an answer; the `texts` of the key are in the order they were asked.

    >>> from dataclasses import replace
    >>> from empathy_judge.emotionbench.questionnaires import read_questionnaire
    >>> key = replace(read_questionnaire("PANAS"), items=3, texts=())
    >>> for text in ("1. 4/5, fine", '{"1": 4, "2": 9}', "4, 2, 3", "1: 4\\n2) 2 - slightly\\n3 = 6"):
    ...     print(dict(read_marks(text, key).marks))
    {1: 4}
    {1: 4}
    {1: 4, 2: 2, 3: 3}
    {1: 4, 2: 2}
    >>> read_marks("As an AI, I do not have feelings.", key)
    Marks(marks={}, problem='refused')
    """
    # NFKC: wide digits count as ordinary ones.
    answer = unicodedata.normalize("NFKC", strip_thoughts(text[: 4 * READ_CHARACTERS])[:READ_CHARACTERS])
    readers = (_read_json, _read_numbered, _read_list)
    read = next((marks for reader in readers if (marks := reader(answer, key))), {})
    marks = {item: mark for item, mark in sorted(read.items()) if 1 <= item <= key.items}
    if len(marks) == key.items:
        return Marks(marks)
    if not answer.strip():
        return Marks(marks, "empty answer")
    if not marks:
        return Marks(marks, "refused" if REFUSAL.search(answer) else "no marks")
    return Marks(marks, f"incomplete: {key.items - len(marks)} of {key.items} marks missing")


def _read_json(answer: str, key: Questionnaire) -> ItemMarks:
    """Read the first JSON value that has any marks."""
    decoder, end = json.JSONDecoder(), 0
    for _ in range(200):  # a text of nothing but brackets must not take forever
        bracket = re.compile(r"[{\[]").search(answer, end)
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
        rows = [[*row.values()] for row in value if isinstance(row, Mapping) and len(row) > 1]
        if not rows:
            return _in_order([_json_mark(mark, key) for mark in value], key)
        pairs += [(row[0], row[-1]) for row in rows]
    places = {plain_name(text): place for place, text in enumerate(key.texts, start=1)}
    named = ((_item_of(str(name)[:LONGEST_LINE].strip(), places), mark) for name, mark in pairs)
    marks = _settle((item, _json_mark(mark, key)) for item, mark in named if item is not None)
    if marks or not isinstance(value, Mapping):
        return marks
    inner = [nested for part in value.values() if (nested := _of_value(part, key))]
    return inner[0] if len(inner) == 1 else {}


def _item_of(name: str, places: Mapping[str, int]) -> int | None:
    match = NAMED_ITEM.fullmatch(name)
    return int(match[1]) if match else places.get(plain_name(name))


def _json_mark(value: Any, key: Questionnaire) -> int | None:
    if isinstance(value, str):
        return _only_mark(value, key)
    is_whole = not isinstance(value, bool) and isinstance(value, int | float) and value == value // 1
    return int(value) if is_whole and key.is_mark(int(value)) else None


def _read_numbered(answer: str, key: Questionnaire) -> ItemMarks:
    """Read lines, or parts of lines, that begin with the number of an item."""
    lines = [line.strip() for line in answer.splitlines() if line.strip() and len(line) <= LONGEST_LINE]
    rows = [(int(match[1]), match[2]) for line in lines if (match := NUMBERED.fullmatch(line))]
    inline = [(int(item), int(mark)) for item, mark in PAIRS.findall(answer)]
    if len({item for item, _ in inline}) == len(inline) > len(rows):
        return _settle((item, mark if key.is_mark(mark) else None) for item, mark in inline)
    numbers = [item for item, _ in rows if 1 <= item <= key.items]
    # Repeated small numbers are marks in the order of the items, such as "4 - quite a bit".
    if len(set(numbers)) < len(numbers) and max(numbers) <= key.high:
        return {}
    return _settle((item, _only_mark(rest, key)) for item, rest in rows)


def _read_list(answer: str, key: Questionnaire) -> ItemMarks:
    """Read marks and nothing else, one for each item: on lines of their own, or on one line."""
    lines = [line.strip() for line in answer.splitlines() if line.strip() and len(line) <= LONGEST_LINE]
    bare = [line for line in lines if re.match(r"\W{0,6}[0-9]", line)]
    if len(bare) == key.items:
        return _in_order([_only_mark(line, key) for line in bare], key)
    for line in reversed(lines):
        texts = [text for text in re.split(r"[,;|\s]+", line.strip(" .[]()")) if text]
        if len(texts) == key.items and all(re.fullmatch(r"[-\u2212]?[0-9]{1,3}[.]?", text) for text in texts):
            return _in_order([_only_mark(text, key) for text in texts], key)
    return {}


def _in_order(marks: Sequence[int | None], key: Questionnaire) -> ItemMarks:
    if len(marks) != key.items:
        return {}
    return {place: mark for place, mark in enumerate(marks, start=1) if mark is not None}


def _settle(pairs: Iterable[tuple[int, int | None]]) -> dict[int, int]:
    """Return one mark for each item; an item with several different ones has none."""
    found: dict[int, set[int | None]] = {}
    for item, mark in pairs:
        found.setdefault(item, set()).add(mark)
    settled = {item: next(iter(marks)) for item, marks in found.items() if len(marks) == 1}
    return {item: mark for item, mark in settled.items() if mark is not None}


def _only_mark(text: str, key: Questionnaire) -> int | None:
    """Return the mark of a text with one number, as 4 of "4/5"; "4/10" is of another scale."""
    text = text[:LONGEST_LINE].replace("\u2212", "-")
    numbers = {int(match[1]) if int(match[2]) == key.high else None for match in OUT_OF.finditer(text)}
    numbers |= {int(match[1]) for match in NUMBER.finditer(OUT_OF.sub(" ", text))}
    number = numbers.pop() if len(numbers) == 1 else None
    return number if number is not None and key.is_mark(number) else None

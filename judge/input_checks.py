"""Checks of replies that a judge of English cannot judge: no words, code, template text, another language.

`py3langid` takes one short English reply in twenty for another language, so it is used only where fewer than
half of the words are among the commonest English (`input_checks.toml`). What is too short counts as English.
"""

import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Final

from empathy_judge.data.files import read_toml

WORDS: Final = Path(__file__).with_suffix(".toml")
READ: Final = 5_000  # characters; enough of any reply to tell its language
LINE: Final = 300  # characters of a line that are looked at for code
FEWEST: Final = 2  # words in Latin letters that identify a language
PLACEHOLDER_EVERY: Final = 20  # words: a reply signed "[Your Name]" is one, a form to be filled in is none
ENGLISH: Final = frozenset({"en", "pcm"})  # and the Pidgin that is written with its words
NO_WORDS, CODE, TEMPLATE, FOREIGN = "no words", "code", "template text", "another language"

_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_FENCE: Final = re.compile(r"^[^\S\n]*(?:```|~~~).*$", re.MULTILINE)
# What people do not type into a message, even where they bracket, quote or indent.
_CODE_LINE: Final = re.compile(
    r"""\s*(?:
        .*(?:[{}]|[\])}];)\s* | [\[\](){},;]+\s*                                            # ends of blocks
        | import\ [\w.]+(?:\ as\ \w+)? | from\ [\w.]+\ import\ .* | \#(?:include|!).* | //.*
        | (?:else|try|finally|class\ \w+|for\ \w+\ in\ \S+|(?:def|class|if|for|while|elif|except)\b.*\).*)\s*:
        | return\ (?:[\w.]*[(\[].*[)\]]|[\w.]+\ [-+*/%]\ \w+|-?\d+|None|null|[Tt]rue|[Ff]alse);?
        | (?:(?:const|let|var|int|auto)\ )?[\w.\[\]]+\s*[-+*/:]?=\s*(?:["'\d\[{(]|\w+[.(\[]|new\ |None|null).*
        | (?:\w+\.)+\w+\(.*\);? | \w+\((?:["'].*|[^()]*[,=].*|)\);?                           # calls
        | (?:SELECT|INSERT|UPDATE|CREATE|DELETE)\ .*(?:FROM|INTO|SET|TABLE)\b.*
        | </?(?:div|p|span|html|body|script|style|ul|li|h\d|table|tr|td|a|img|svg|form|input)\b[^<>]*>.*
        | "[\w\ -]+"\s*:.*                                                                  # JSON
    )""",
    re.VERBOSE,
)
_PROSE: Final = re.compile(r"(?:[A-Za-z][a-z'’]*[,.!?;:]{0,3} ){5,}[A-Za-z'’]+")  # noqa: RUF001
_MACHINE: Final = re.compile(
    r"\{\{[^{}\n]{1,60}\}\}|\{%[^\n]{1,60}%\}|\$?\{[A-Za-z_][\w.]{0,40}\}|%\([A-Za-z_]\w*\)[sd]|(?<!\w)%s\b"
)
_BLANK: Final = re.compile(
    r"(?i)[\[<](?:insert\b|your |(?:first |last |full )?name\b|user(?:name)?\b|recipient\b"
    r"|(?:friend|pet|person)(?:'s)? name)[^\]>\n]{0,60}[\]>]"
)
_NOTHING: Final = re.compile(
    r"(?i)\W*(?:null|undefined|nan|n/a|todo|tbd|removed|deleted|object object|no (?:response|reply)"
    r"|placeholder)\W*"
)


def why_unreadable(text: str) -> str | None:
    """Return why a judge of English replies should leave this one unscored; None for a reply in English.

    The text is normalized first: a reply in look-alike letters or odd fonts is in English.

    >>> why_unreadable("oof. call me."), why_unreadable("Lo siento mucho, de verdad.")
    (None, 'another language (Spanish)')
    >>> why_unreadable("Dear {{name}}, we care."), why_unreadable("x = [i for i in y]"), why_unreadable("...")
    ('template text', 'code', 'no words')
    """
    text = text[:READ]
    words = _WORD.findall(_without_marks(text).casefold())
    if not words:
        return NO_WORDS
    if _is_template(text, len(words)):
        return TEMPLATE
    if _is_code(text):
        return CODE
    if _is_english(words):
        return None
    from py3langid import classify

    code, _ = classify(text)
    name = _lists()[2].get(code)
    return None if code in ENGLISH else f"{FOREIGN} ({name})" if name else FOREIGN


def _without_marks(text: str) -> str:
    """Remove accents and vowel signs, which would split a word, and keep one kind of apostrophe."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFD", text).replace("’", "'")  # noqa: RUF001
    return "".join(sign for sign in apart if not unicodedata.category(sign).startswith("M"))


def _is_template(text: str, words: int) -> bool:
    if _NOTHING.fullmatch(text) or "lorem ipsum" in text.casefold() or _MACHINE.search(text):
        return True
    return words <= len(_BLANK.findall(text)) * PLACEHOLDER_EVERY


def _is_code(text: str) -> bool:
    """Most of it by its lines, unless it is prose that is only in code, quoted or delimited."""
    lines = [line[:LINE] for line in _FENCE.sub("", text).splitlines() if line.strip()]
    code = sum(len(line) for line in lines if _CODE_LINE.fullmatch(line))
    prose = sum(len(found[0]) for line in lines for found in _PROSE.finditer(line))
    return 0 < sum(map(len, lines)) <= 2 * code and 4 * prose < code


def _is_english(words: list[str]) -> bool:
    """By its alphabet and its commonest words alone; False is not yet another language."""
    letters, (english, shared, _) = "".join(words), _lists()
    if not letters.isascii() and 2 * sum(map(_is_latin, letters)) < len(letters):
        return False
    known = 2 * sum(map(english.__contains__, words))  # in halves
    if known < len(words):
        known += sum(map(shared.__contains__, words))
    return known >= len(words) or len(words) < FEWEST


@cache
def _is_latin(letter: str) -> bool:
    return letter.isascii() or unicodedata.name(letter, "").startswith("LATIN")


@cache
def _lists() -> tuple[frozenset[str], frozenset[str], dict[str, str]]:
    """Return the commonest words of English, those it shares with other languages, and names of languages."""
    table = read_toml(WORDS)
    english, shared = frozenset(table["english"].split()), frozenset(table["shared"].split())
    return english, shared - english, table["names"]

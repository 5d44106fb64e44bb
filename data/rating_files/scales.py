"""Scales of ratings: labels, thumbs, stars or levels, and their cut into Bad, Okay and Good."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import first_number, position_on
from empathy_judge.data.readers.chat_turns import plain_name
from empathy_judge.data.records import LABELS
from empathy_judge.data.text import listed

THUMBS: Final = ("down", "up")
UP: Final = frozenset(
    {"up", "thumbs up", "thumb up", "thumbsup", "\N{THUMBS UP SIGN}", "+1", "1", "true", "yes", "y"}
    | {"like", "liked", "upvote", "positive"}
)
DOWN: Final = frozenset(
    {"down", "thumbs down", "thumb down", "thumbsdown", "\N{THUMBS DOWN SIGN}", "-1", "0", "false", "no", "n"}
    | {"dislike", "disliked", "downvote", "negative"}
)
STAR_COLUMNS: Final = frozenset({"stars", "star", "starrating"})
STARS: Final = tuple("12345")
OFF: Final = 0.05  # of the ratings: more numbers off the scale than this are on another scale, not mistakes
_STAR: Final = re.compile("[\N{BLACK STAR}\N{WHITE MEDIUM STAR}\N{GLOWING STAR}]")
_EMPTY_STAR: Final = re.compile("[\N{WHITE STAR}\\s]")
_OF: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:stars?|(?:/|out of|of)\s*(\d{1,3})(?:\s*stars?)?)", re.IGNORECASE
)
_NUMBERED: Final = re.compile(r"\d\W*\b(bad|okay|ok|good)\b\W*|(bad|okay|ok|good)\W*\d\W*", re.IGNORECASE)
_NO_LETTER: Final = re.compile("[\N{VARIATION SELECTOR-16}\U0001f3fb-\U0001f3ff]")  # skin tones and such

Kind = Literal["labels", "thumbs", "stars", "scale"]


def as_label(value: Any) -> str:
    """Return a label as we write it, where this is one; else the text unchanged."""
    text = str(value).strip()
    if named := _NUMBERED.fullmatch(text):
        text = named[1] or named[2]
    word = text.casefold().replace(".", "") if text[:1].isalpha() else text
    return {"ok": "Okay", **{label.casefold(): label for label in LABELS}}.get(word, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingScale:
    """The levels that ratings are read on, worst first, and how they are written."""

    kind: Kind
    levels: tuple[str, ...]

    def position(self, value: Any) -> float | None:
        """Return the position of a rating, 1 to k and between; None if it is not a level."""
        text = _NO_LETTER.sub("", str(value)).strip()
        if self.kind == "thumbs":
            word = text.removesuffix(".0").casefold()
            word = word if word[:1] in "+-" else re.sub(r"[\s_-]+", " ", word)
            return 2.0 if word in UP else 1.0 if word in DOWN else None
        if self.kind == "labels" or self.levels == LABELS:
            return position_on(as_label(text), LABELS)
        if self.kind == "stars" or first_number(self.levels) == 1:
            count, of = count_stars(text)
            if count is not None and of in (None, len(self.levels)):
                return position_on(count, self.levels)
        return position_on(text, self.levels)

    @property
    def ends(self) -> str:
        """Its ends, in words."""
        if self.levels == LABELS:
            return "of Bad, Okay and Good (1 to 3)"
        if self.levels[0].lstrip("-").isdigit():
            return f"from {self.levels[0]} to {self.levels[-1]}"
        return f"of {', '.join(self.levels)}"


def count_stars(text: str) -> tuple[float | None, int | None]:
    """Return how many stars a text shows or names, and of how many; None for what it does not name."""
    if shown := len(_STAR.findall(text)):
        return (float(shown), None) if not _EMPTY_STAR.sub("", _STAR.sub("", text)) else (None, None)
    if named := _OF.fullmatch(text):
        return float(named[1]), int(named[2]) if named[2] else None
    return None, None


def find_scale(values: Sequence[Any], *, column: str, declared: Sequence[str] | None) -> RatingScale:
    """Return the declared scale, else the one that most values fit; numbers beyond 3 must be declared."""
    if declared is not None:
        return RatingScale(kind="labels" if tuple(declared) == LABELS else "scale", levels=tuple(declared))
    counted = [count_stars(str(value).strip()) for value in values]
    tops = {of for _, of in counted if of}
    stars = tuple(str(level) for level in range(1, 1 + tops.pop())) if len(tops) == 1 else STARS
    scales = [RatingScale(kind="labels", levels=LABELS), RatingScale(kind="thumbs", levels=THUMBS)]
    if plain_name(column).replace("_", "") in STAR_COLUMNS:
        scales = [RatingScale(kind="stars", levels=stars)]
    elif any(count is not None for count, _ in counted):  # a number counts as stars only if marked as such
        scales.append(RatingScale(kind="stars", levels=stars))
    best = max(scales, key=lambda scale: sum(scale.position(value) is not None for value in values))
    texts = [str(value).strip() for value in values]
    numbers = [float(text) for text in texts if re.fullmatch(r"[+-]?\d{1,6}(\.\d*)?", text)]
    off = [number for number in numbers if best.position(number) is None]
    if len(off) > OFF * len(values):
        low, high = min(numbers), max(numbers)
        as_read = "1 to 3 (Bad, Okay, Good)" if best.kind == "labels" else best.ends
        top = next((top for top in (2, 3, 4, 5, 7, 10, 100) if high <= top), round(high))
        raise UserError(
            f"{column}: numbers from {low:g} to {high:g}, outside the default scale {as_read}; "
            f"set the scale, such as --scale {0 if low <= 0 else 1}-{top}"
        )
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A scale's levels as Bad, Okay and Good: from the positions `okay` and `good` on it is that label."""

    scale: RatingScale
    okay: int
    good: int
    is_stated: bool = False

    def rating(self, position: float) -> float:
        """Return 1, 2 or 3 for a position on the scale."""
        level = round(position)
        return 1.0 + (level >= self.okay) + (level >= self.good)

    @property
    def description(self) -> str:
        """The levels of each label."""
        bounds, parts = (0, self.okay - 1, self.good - 1, len(self.scale.levels)), []
        for label, low, high in zip(LABELS, bounds, bounds[1:], strict=False):
            levels = self.scale.levels[low:high]
            is_numbered = len(levels) > 1 and all(level.isdigit() for level in levels)
            names = f"{levels[0]}-{levels[-1]}" if is_numbered else listed(levels)
            parts += [f"{label} {names}"] if levels else []
        return ", ".join(parts)


def cut_of(scale: RatingScale, stated: Sequence[str] | None = None) -> Cut:
    """Return the cut at the lowest levels stated for Okay and Good, else at thirds of the scale."""
    if stated is None:
        count = len(scale.levels)
        middles = [(level - 0.5) / count for level in range(1, count + 1)]
        okay, good = (1 + sum(middle <= third for middle in middles) for third in (1 / 3, 2 / 3))
        return Cut(scale=scale, okay=okay, good=good)
    positions = [position for level in stated if (position := scale.position(level)) is not None]
    if len(stated) != 2 or len(positions) != 2 or positions[0] > positions[1]:
        usual = cut_of(scale)
        example = f"{scale.levels[usual.okay - 1]},{scale.levels[usual.good - 1]}"
        raise UserError(
            f"--cut {','.join(stated)}: expected the lowest level that is Okay and the lowest that is Good,"
            f" {scale.ends}, such as --cut {example}"
        )
    return Cut(scale=scale, okay=round(positions[0]), good=round(positions[1]), is_stated=True)

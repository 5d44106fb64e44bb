"""Feelings in words: figures, verdicts and lists that the table and the page of an alignment share."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from data.sheets import PEOPLE
from nightly.wording import Row, number, part

CONTRADICTED_NAMES = {"change": "change", "default": "default", "default_sd": "SD of the default"}


def label_of(result: Row) -> str:
    """A model's name with its variant.

    >>> label_of({"model": "gpt-4", "variant": "stable"})
    'gpt-4 (stable)'
    """
    return f"{result['model']} ({result['variant']})" if result["variant"] else str(result["model"])


def show_level(level: Row) -> str:
    """A mean with its SD in brackets, as far as they are known.

    >>> show_level({"mean": 49.84, "sd": 0.79}), show_level({"mean": None, "sd": None})
    ('49.8 (0.8)', 'undefined')
    """
    if level.get("sd") is None:
        return number(level.get("mean"), 1)
    return f"{number(level.get('mean'), 1)} ({number(level['sd'], 1)})"


def show_change(found: Row) -> str:
    """A change with its arrow, where the published test finds one; a dash where it finds none."""
    mark = str(found["arrow"]).replace("-", "\N{EN DASH}")
    return f"{mark} {number(found['change'], 1, sign=True)}".strip()


def say_default(result: Row) -> str:
    """The default measure in one line."""
    levels = [f"{scale} {show_level(level)}" for scale, level in result["default"].items()]
    counts = {level["n"] for level in result["default"].values()} - {None}
    told = f" of {max(counts):,} sheets" if counts else ""
    return f"default{told}: {', '.join(levels)}"


def say_agreement(result: Row) -> Iterator[str]:
    """Rank and level, a line each; nothing where there are no people to compare with."""
    found = result.get("agreement")
    if not found:
        return
    factors = max(about["factors"] for about in found.values())
    ranks = [f"{_rank(about)} {scale}" for scale, about in found.items()]
    ceilings = [_short(about["ceiling"]) for about in found.values()]
    yield (
        f"order of the {factors} factors' changes as people's (Spearman): {', '.join(ranks)}; "
        f"two halves of the people reach {' and '.join(ceilings)}"
    )
    levels = [
        f"{number(about['level_error'], 1)} {scale} ({number(about['level_bias'], 1, sign=True)})"
        for scale, about in found.items()
    ]
    yield f"level: evoked means off people's by (on average, and to which side): {', '.join(levels)}"


def say_tests(result: Row) -> Iterator[str]:
    """How many factors moved by each test, before and after the correction for many tests."""
    factors = [row for row in result["rows"] if row["level"] == "factor"]
    alpha = result["alpha"]
    tests = [about["tests"] for row in factors for about in row["scales"].values() if about["tests"]]
    if not tests:
        return
    told = []
    for name in ("published", "clustered", "paired"):
        held = [test[name] for test in tests if test[name]["p"] is not None]
        if held:
            plain, adjusted = (sum(test[key] <= alpha for test in held) for key in ("p", "q"))
            told.append(f"{name} {plain} of {len(held)} ({adjusted} after BH)")
    if told:
        yield f"factors that moved at {alpha:g}: {'; '.join(told)}"


def say_missing(result: Row) -> Iterator[str]:
    """Sheets without all their marks: why, in which factors, and how far they could move the result."""
    if not result["missing"]:
        return
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in result["missing"].items())
    yield f"sheets that lack marks: {reasons}"
    places = [
        f"{row['name']} {sum(row['missing'].values()):,} of {row['sheets']:,}"
        for row in result["rows"]
        if row["level"] == "factor" and row["missing"]
    ]
    if places:
        yield f"by factor: {', '.join(places)}"
    overall: Row = next((row for row in result["rows"] if row["level"] == "overall"), {})
    for scale, about in part(overall, "scales").items():
        low, high = about["bounds"]["low"], about["bounds"]["high"]
        if low is not None and high is not None:
            ends = f"{number(low, 1, sign=True)} and {number(high, 1, sign=True)}"
            yield f"whatever they would have held, the overall change ({scale}) lies between {ends}"


def say_contradicted(result: Row) -> list[str]:
    """The printed figures that the data contradict, a line for each place they stand in."""
    places: dict[tuple[str, str, str, bool], list[Row]] = {}
    for figure in result["contradicted"]:
        key = (figure["where"], figure["who"], figure["scale"], figure["is_first_factor"])
        places.setdefault(key, []).append(figure)
    lines = []
    for (where, who, scale, is_first), figures in places.items():
        why = "each emotion's change is that of its first factor alone: " if is_first else ""
        lines.append(f"{where}, {who}, {scale}: {why}{'; '.join(map(_contradicted, figures))}")
    return lines


def _contradicted(figure: Row) -> str:
    sign = figure["quantity"] == "change"
    decimals = len(figure["printed"].partition(".")[2])
    printed = number(float(figure["printed"]), decimals, sign=sign)
    found = number(figure["found"], max(2, decimals), sign=sign)
    what = "" if figure["is_first_factor"] else f" {CONTRADICTED_NAMES[figure['quantity']]}"
    return f"{figure['name']} {figure['subscale']}{what} {printed} (data: {found})"


def verdict_of(result: Row) -> Iterator[str]:
    """A sentence for each model on what its answers amount to."""
    for found in result["models"]:
        if found["model"] == PEOPLE or not found.get("agreement"):
            continue
        ranks = {scale: about["rank"] for scale, about in found["agreement"].items()}
        errors = {scale: about["level_error"] for scale, about in found["agreement"].items()}
        if None in ranks.values() or None in errors.values():
            yield f"{label_of(found)}: too few factors to say how its feelings move beside people's."
            continue
        order = _listed({scale: _short(value) for scale, value in ranks.items()})
        level = _listed({scale: number(value, 1) for scale, value in errors.items()})
        halves = " and ".join(_short(about["ceiling"]) for about in found["agreement"].values())
        yield (
            f"{label_of(found)}: what moves people more moves it more by a rank correlation of {order}, "
            f"where two halves of the people reach {halves}; its evoked levels are off theirs by {level} "
            "points."
        )


def _listed(figures: Mapping[str, str]) -> str:
    return " and ".join(f"{value} ({scale})" for scale, value in figures.items())


def _rank(about: Row) -> str:
    if about["low"] is None:
        return _short(about["rank"])
    return f"{_short(about['rank'])} [{_short(about['low'])}, {_short(about['high'])}]"


def _short(value: Any) -> str:
    return number(value, 2).replace("0.", ".", 1)


def rows_of(result: Row, *levels: str) -> Sequence[Row]:
    """The rows of these levels."""
    return [row for row in result["rows"] if row["level"] in levels]

"""How a model's reported feelings shift from its default, by factor, emotion and overall, beside people's."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import atanh, isfinite, nan, sqrt, tanh
from pathlib import Path
from typing import Any

import numpy as np

from calibration.agreement.metrics import spearman
from calibration.estimate import finite_or_none
from calibration.multiple_testing import benjamini_hochberg
from emotionbench.norms import CEILING, Norm, NormRow, check_printed, read_norms, read_printed
from emotionbench.questionnaires import Questionnaire, Score, read_questionnaire, score_marks
from emotionbench.sheets import PEOPLE, Means, Sheet, read_sheets
from emotionbench.shift_tests import (
    ALPHA,
    Spread,
    Test,
    arrow,
    clustered_test,
    hedges_g,
    paired_test,
    published_test,
    spread,
    standardised_change,
)
from emotionbench.situations import FACTOR_NAMES, emotion_of

# Whether a model's feelings move as people's do: in the same order over factors, and to the same level.

FEWEST = 4  # factors, below which an order says nothing
SPLITS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """Over the factors both have: `rank` is Spearman's correlation of the changes with its 95 % interval,
    `level_error` the mean distance of the evoked means, `change_error` that of the changes.

    `ceiling` is how well two halves of the people agree in their changes; one cannot ask for more.
    """

    factors: int
    rank: float
    low: float
    high: float
    level_error: float
    level_bias: float  # the model above people, on average
    change_error: float
    ceiling: float | None

    def as_dict(self) -> dict[str, Any]:
        names = ("rank", "low", "high", "level_error", "level_bias", "change_error")
        found = {name: finite_or_none(getattr(self, name)) for name in names}
        return {"factors": self.factors, **found, "ceiling": self.ceiling}


def likeness(
    model: Mapping[str, tuple[float, float]],
    people: Mapping[str, tuple[float, float]],
    *,
    ceiling: float | None = None,
) -> Likeness:
    """From each factor's evoked mean and change.

    >>> people = {"a": (20.0, 1.0), "b": (30.0, 2.0), "c": (31.0, 3.0), "d": (40.0, 4.0)}
    >>> model = {name: (evoked + 5, 10 * change) for name, (evoked, change) in people.items()}
    >>> found = likeness(model, people)
    >>> round(found.rank, 6), found.level_error, found.change_error
    (1.0, 5.0, 22.5)
    """
    shared = [name for name in people if name in model and np.isfinite([*model[name], *people[name]]).all()]
    ours, theirs = (np.array([side[name] for name in shared]).reshape(-1, 2) for side in (model, people))
    rank = spearman(ours[:, 1], theirs[:, 1]) if len(shared) >= FEWEST else nan
    low, high = _interval(rank, len(shared))
    apart = ours - theirs
    known = len(shared) > 0
    return Likeness(
        factors=len(shared),
        rank=rank,
        low=low,
        high=high,
        level_error=float(np.abs(apart[:, 0]).mean()) if known else nan,
        level_bias=float(apart[:, 0].mean()) if known else nan,
        change_error=float(np.abs(apart[:, 1]).mean()) if known else nan,
        ceiling=ceiling,
    )


def split_half(changes: Mapping[str, Sequence[float]], *, seed: int = 0) -> float:
    """How well two halves of the people agree in the factors' mean changes, as all of them would.

    The mean over random halves of Pearson's correlation, stepped up by Spearman and Brown; nan where a factor
    has fewer than two people.
    """
    values = [np.asarray(item, dtype=float) for item in changes.values()]
    if len(values) < FEWEST or min(map(len, values)) < 2:
        return nan
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(SPLITS):
        orders = [chance.permutation(item) for item in values]
        halves = [[item[part::2].mean() for item in orders] for part in (0, 1)]
        found.append(float(np.corrcoef(halves[0], halves[1])[0, 1]))
    half = float(np.mean(found))
    return 2 * half / (1 + half)


def _interval(rank: float, count: int) -> tuple[float, float]:
    """Fisher's z with the variance of Bonett and Wright (2000); by hand, as scipy has none for ranks."""
    if not abs(rank) < 1 or count <= FEWEST:
        return nan, nan
    reach = 1.959964 * sqrt((1 + rank**2 / 2) / (count - 3))
    return tanh(atanh(rank) - reach), tanh(atanh(rank) + reach)


# Filled-in questionnaires with their scores, put together by factor, emotion and overall.

OVERALL = "Overall"


@dataclass(frozen=True, slots=True)
class Scored:
    """A sheet with its scores."""

    sheet: Sheet
    scores: Mapping[str, Score]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The evoked sheets of a factor, an emotion or of all, and the default ones they are held against."""

    level: str
    name: str
    evoked: Sequence[Scored]
    default: Sequence[Scored]


def make_parts(scored: Sequence[Scored]) -> list[Part]:
    """Overall, then each emotion, then each factor, in the benchmark's order and then as they come.

    A person's default is their own; a model's is the same for every situation.
    """
    evoked = [item for item in scored if item.sheet.factor is not None]
    default = [item for item in scored if item.sheet.factor is None]
    named = {item.sheet.factor or "" for item in evoked}
    factors = [key for key in FACTOR_NAMES if key in named] + sorted(named - set(FACTOR_NAMES))

    def part(level: str, name: str, held: list[Scored]) -> Part:
        theirs = {item.sheet.pair for item in held}
        is_people = bool(held) and held[0].sheet.model == PEOPLE
        own = [item for item in default if item.sheet.pair in theirs] if is_people else default
        return Part(level=level, name=name, evoked=held, default=own)

    parts = [part("overall", OVERALL, evoked)] if evoked else []
    for emotion in dict.fromkeys(map(emotion_of, factors)):
        parts.append(
            part("emotion", emotion, [i for i in evoked if emotion_of(i.sheet.factor or "") == emotion])
        )
    parts += [part("factor", key, [item for item in evoked if item.sheet.factor == key]) for key in factors]
    return parts


def measure_level(held: Sequence[Scored], scale: str) -> tuple[Spread, dict[str, Any]]:
    """Of the sheets whose score is known; and how far those that lack marks could move the mean."""
    scores = [item.scores[scale] for item in held]
    known = spread([score.value for score in scores if score.value is not None])
    ends = [
        float(np.mean([getattr(score, end) for score in scores])) if scores else nan
        for end in ("low", "high")
    ]
    about = {
        "incomplete": len(scores) - known.n,
        "low": finite_or_none(ends[0]),
        "high": finite_or_none(ends[1]),
    }
    return known, {**known.as_dict(), **about}


def pair_changes(part: Part, scale: str) -> dict[str, float]:
    """For each pair both of whose measures are known, evoked less default; means where it has several."""
    sides: list[dict[str, list[float]]] = [{}, {}]
    for side, held in zip(sides, (part.default, part.evoked), strict=True):
        for item in held:
            value = item.scores[scale].value
            if value is not None and item.sheet.pair is not None:
                side.setdefault(item.sheet.pair, []).append(value)
    before, after = sides
    return {pair: float(np.mean(after[pair]) - np.mean(before[pair])) for pair in after if pair in before}


def count_missing(held: Sequence[Scored]) -> dict[str, int]:
    """Sheets that lack marks, by the reason: what stands before the colon."""
    reasons = Counter((item.sheet.missing or "").partition(":")[0] for item in held)
    return {reason: count for reason, count in sorted(reasons.items()) if reason}


# What makes a change of feelings hard to read: defaults at the end of a scale, marks that are missing.

NEAR_END = 0.05  # of a scale's range: a default this near its end can hardly move further


def warn_of_sheets(
    default: Sequence[Scored], scored: Sequence[Scored], questionnaire: Questionnaire
) -> list[str]:
    """What makes changes hard to read."""
    levels = {scale: measure_level(default, scale)[0] for scale in questionnaire.scales}
    said = warn_of_ends({scale: level.mean for scale, level in levels.items()}, questionnaire)
    fewest = min((level.n for level in levels.values()), default=0)
    if fewest < 2:
        said.append(f"{fewest} default sheets are complete: no change can be tested; ask for at least 2")
    elif all(level.sd == 0 for level in levels.values()):
        said.append("the default never varies: its SD of 0 makes any change look certain")
    straight = sum(len(set(i.sheet.marks.values())) == 1 and len(i.sheet.marks) > 1 for i in scored)
    if scored and straight > NEAR_END * len(scored):
        said.append(f"{straight:,} of {len(scored):,} sheets bear the same mark throughout")
    lacking = sum(bool(item.sheet.missing) for item in scored)
    if lacking:
        said.append(f"{lacking:,} of {len(scored):,} sheets lack marks: see the bounds of each change")
    return said


def warn_of_ends(default: Mapping[str, float], questionnaire: Questionnaire) -> list[str]:
    """Defaults at the end of a scale: they cannot move further that way."""
    ends = {}
    for scale, mean in default.items():
        low, high = questionnaire.span(scale)
        if isfinite(mean) and mean <= low + NEAR_END * (high - low):
            ends[scale] = "floor"
        elif isfinite(mean) and mean >= high - NEAR_END * (high - low):
            ends[scale] = "ceiling"
    if len(ends) == len(default) > 1 and set(ends.values()) == {"floor"}:
        return ["denies all feeling by default: changes from there mean nothing, look at the evoked levels"]
    return [
        f"default {scale} {default[scale]:.1f} is at the {end} of its scale" for scale, end in ends.items()
    ]


Norms = Mapping[str, NormRow]


def align_sheets(
    sheets: Iterable[Sheet],
    questionnaire: Questionnaire,
    *,
    norms: Norms,
    alpha: float = ALPHA,
    seed: int = 0,
) -> dict[str, Any]:
    """Everything about one model on one questionnaire; what cannot be told is None."""
    scored = [Scored(sheet, score_marks(questionnaire, sheet.marks)) for sheet in sheets]
    first = scored[0].sheet
    parts = make_parts(scored)
    rows = [
        {
            "level": part.level,
            "name": part.name,
            "title": FACTOR_NAMES.get(part.name, part.name),
            "sheets": len(part.evoked),
            "situations": len({item.sheet.situation for item in part.evoked}),
            "missing": count_missing(part.evoked),
            "scales": {
                scale: _describe(
                    part, scale, norms.get(part.name), is_people=first.model == PEOPLE, alpha=alpha
                )
                for scale in questionnaire.scales
            },
        }
        for part in parts
    ]
    for level in ("factor", "emotion"):
        _adjust([row for row in rows if row["level"] == level])
    default = [item for item in scored if item.sheet.factor is None]
    return {
        "model": first.model,
        "variant": first.variant,
        "scale": questionnaire.name,
        "sheets": len(scored),
        "alpha": alpha,
        "missing": count_missing(scored),
        "default": {scale: measure_level(default, scale)[1] for scale in questionnaire.scales},
        "rows": rows,
        "agreement": _agreement(first, rows, norms),
        "split_half": _reliability(parts, questionnaire, seed) if first.model == PEOPLE else None,
        "warnings": warn_of_sheets(default, scored, questionnaire),
    }


def align_means(found: Sequence[Means], questionnaire: Questionnaire, *, norms: Norms) -> dict[str, Any]:
    """The same from means alone: no SD, no number, and so no test of anything."""
    first = found[0]
    default: Mapping[str, float] = next(
        (item.means for item in found if item.factor is None and not item.is_overall), {}
    )
    overall = [item.means for item in found if item.is_overall]
    by_factor = {item.factor: item.means for item in found if item.factor}
    emotions: dict[str, list[Mapping[str, float]]] = {}
    for factor, means in by_factor.items():
        emotions.setdefault(emotion_of(factor), []).append(means)
    parts = [("overall", OVERALL, overall)] if overall else []
    parts += [("emotion", name, held) for name, held in emotions.items()]
    parts += [("factor", name, [means]) for name, means in by_factor.items()]
    rows = [
        {
            "level": level,
            "name": name,
            "title": FACTOR_NAMES.get(name, name),
            "sheets": None,
            "situations": None,
            "missing": {},
            "scales": {
                scale: _describe_means(scale, default, held, norms.get(name))
                for scale in questionnaire.scales
            },
        }
        for level, name, held in parts
    ]
    return {
        "model": first.model,
        "variant": first.variant,
        "scale": questionnaire.name,
        "sheets": None,
        "alpha": None,
        "missing": {},
        "default": {
            scale: {"mean": default.get(scale), "sd": None, "n": None} for scale in questionnaire.scales
        },
        "rows": rows,
        "agreement": _agreement(first, rows, norms),
        "split_half": None,
        "warnings": [
            "means only: no SD, number or test can be told, and an emotion is the mean of its factors",
            *warn_of_ends({scale: default.get(scale, nan) for scale in questionnaire.scales}, questionnaire),
        ],
    }


def _describe(
    part: Part, scale: str, norm_row: NormRow | None, *, is_people: bool, alpha: float
) -> dict[str, Any]:
    """One row on one sub-scale."""
    default, default_said = measure_level(part.default, scale)
    evoked, evoked_said = measure_level(part.evoked, scale)
    change = evoked.mean - default.mean
    pairs = pair_changes(part, scale)
    paired = paired_test(list(pairs.values()))
    tests: dict[str, Test] = {
        "published": paired if is_people else published_test(evoked, default, alpha=alpha),
        "paired": paired,
        "clustered": _clustered(part, scale, pairs, is_people=is_people),
    }
    norm = norm_row.norms.get(scale) if norm_row else None
    bounds = {
        "low": _less(evoked_said["low"], default_said["high"]),
        "high": _less(evoked_said["high"], default_said["low"]),
    }
    return {
        "default": default_said,
        "evoked": evoked_said,
        "change": finite_or_none(change),
        "change_sd": finite_or_none(spread(list(pairs.values())).sd) if is_people else None,
        "bounds": bounds,
        "arrow": arrow(change, tests["published"].p, alpha=alpha),
        "tests": {name: test.as_dict() for name, test in tests.items()},
        "effects": {
            "g": finite_or_none(hedges_g(evoked, default)),
            "dz": finite_or_none(standardised_change(list(pairs.values()))),
            "in_people_sd": finite_or_none(change / norm.change_sd) if norm and norm.change_sd else None,
        },
        "people": _people(norm),
    }


def _less(one: float | None, two: float | None) -> float | None:
    return None if one is None or two is None else one - two


def _describe_means(
    scale: str, default: Mapping[str, float], held: Sequence[Mapping[str, float]], norm_row: NormRow | None
) -> dict[str, Any]:
    before = default.get(scale, nan)
    after = float(np.mean([means[scale] for means in held])) if held else nan
    norm = norm_row.norms.get(scale) if norm_row else None
    return {
        "default": {"mean": finite_or_none(before), "sd": None, "n": None},
        "evoked": {"mean": finite_or_none(after), "sd": None, "n": None},
        "change": finite_or_none(after - before),
        "change_sd": None,
        "bounds": {"low": None, "high": None},
        "arrow": "",
        "tests": {},
        "effects": {"in_people_sd": finite_or_none((after - before) / norm.change_sd) if norm else None},
        "people": _people(norm),
    }


def _people(norm: Norm | None) -> dict[str, float] | None:
    return {"default": norm.default, "evoked": norm.evoked, "change": norm.change} if norm else None


def _clustered(part: Part, scale: str, pairs: Mapping[str, float], *, is_people: bool) -> Test:
    known = [item for item in part.evoked if item.scores[scale].value is not None]
    if is_people:
        known = [item for item in known if item.sheet.pair in pairs]
        changes = [pairs[item.sheet.pair or ""] for item in known]
        return clustered_test(changes, [item.sheet.situation or "" for item in known])
    default = [value for item in part.default if (value := item.scores[scale].value) is not None]
    if len(default) < 2:
        return Test(kind="clustered")
    values = [item.scores[scale].value or 0.0 for item in known]
    return clustered_test(values, [item.sheet.situation or "" for item in known], default)


def _adjust(rows: Sequence[Mapping[str, Any]]) -> None:
    """Adds to every test its q, by Benjamini and Hochberg, among all factors (or emotions) and sub-scales."""
    for name in ("published", "paired", "clustered"):
        tests = [found["tests"][name] for row in rows for found in row["scales"].values() if found["tests"]]
        values = [nan if test["p"] is None else test["p"] for test in tests]
        for test, adjusted in zip(tests, benjamini_hochberg(values) if values else (), strict=True):
            test["q"] = finite_or_none(float(adjusted))


def _agreement(
    first: Sheet | Means, rows: Sequence[Mapping[str, Any]], norms: Norms
) -> dict[str, Any] | None:
    """Rank and level against people; not for people themselves, nor for situations that go well."""
    if first.model == PEOPLE or first.scale != "PANAS" or "positive" in first.variant:
        return None
    factors = [row for row in rows if row["level"] == "factor" and row["name"] in norms]
    return {
        scale: likeness(
            {row["name"]: _evoked_and_change(row["scales"][scale]) for row in factors},
            {row["name"]: _norm_of(norms[row["name"]], scale) for row in factors},
            ceiling=CEILING[scale],
        ).as_dict()
        for scale in CEILING
    }


def _evoked_and_change(found: Mapping[str, Any]) -> tuple[float, float]:
    evoked, change = found["evoked"]["mean"], found["change"]
    return nan if evoked is None else evoked, nan if change is None else change


def _norm_of(row: NormRow, scale: str) -> tuple[float, float]:
    return row.norms[scale].evoked, row.norms[scale].change


def _reliability(parts: Sequence[Part], questionnaire: Questionnaire, seed: int) -> dict[str, float | None]:
    """How well two halves of these people agree with each other over the factors."""
    factors = [part for part in parts if part.level == "factor"]
    return {
        scale: finite_or_none(
            split_half({part.name: list(pair_changes(part, scale).values()) for part in factors}, seed=seed)
        )
        for scale in questionnaire.scales
    }


# All there is to say of models' feelings beside people's: the result that a report shows.

PANAS = "PANAS"
OWN_SITUATIONS = (
    "The situations are ours, and people read the benchmark's: factors are the same, wording and force are "
    "not. Levels may differ for that reason alone."
)
POSITIVE = "Situations that go well have no counterpart among people: only their change is told."
ONE_CROWD = (
    "People answered once each, a model many times: its SD tells how much the order of items and chance do, "
    "not how much models differ. Never compare the two SDs."
)


def align_files(paths: Sequence[Path], *, alpha: float = ALPHA, seed: int = 0) -> dict[str, Any]:
    """The result for every model, variant and questionnaire in these files or folders of sheets."""
    sheets = [sheet for path in paths for sheet in read_sheets(path)]
    return align_all(sheets, alpha=alpha, seed=seed)


def align_all(sheets: Sequence[Sheet | Means], *, alpha: float = ALPHA, seed: int = 0) -> dict[str, Any]:
    """The same from sheets in memory; people come first, and are the norm where their sheets are given."""
    groups: dict[tuple[str, str, str, bool], list[Any]] = {}
    for sheet in sheets:
        key = (sheet.model, sheet.variant, sheet.scale, isinstance(sheet, Means))
        groups.setdefault(key, []).append(sheet)
    norms: Mapping[str, NormRow] = read_norms()
    results: list[dict[str, Any]] = []
    for (model, _, scale, are_means), held in sorted(groups.items(), key=lambda item: item[0][0] != PEOPLE):
        questionnaire = read_questionnaire(scale)
        if are_means:
            results.append(align_means(held, questionnaire, norms=norms))
            continue
        results.append(align_sheets(held, questionnaire, norms=norms, alpha=alpha, seed=seed))
        if model == PEOPLE and scale == PANAS:
            norms = norms_of(results[-1])
    checked = check_printed(results, read_printed(), norms)
    return {
        "study": "EmotionBench",
        "alpha": alpha,
        "models": results,
        "people": {name: _norm_row(row) for name, row in norms.items()},
        "ceiling": dict(CEILING),
        "checked": len(checked),
        "contradicted": [figure for figure in checked if not figure["holds"]],
        "notes": _notes(sheets),
    }


def norms_of(people: Mapping[str, Any]) -> dict[str, NormRow]:
    """Norms reckoned from people's own sheets."""
    found = {}
    for row in people["rows"]:
        norms = {scale: _norm(about) for scale, about in row["scales"].items()}
        known = {scale: norm for scale, norm in norms.items() if norm is not None}
        if len(known) == len(norms):
            found[row["name"]] = NormRow(
                level=row["level"], name=row["name"], people=row["sheets"], norms=known
            )
    return found


def _norm(about: Mapping[str, Any]) -> Norm | None:
    values = (
        about["default"]["mean"],
        about["default"]["sd"],
        about["evoked"]["mean"],
        about["evoked"]["sd"],
        about["change"],
        about["change_sd"],
    )
    return None if None in values else Norm(*values)


def _norm_row(row: NormRow) -> dict[str, Any]:
    norms = {
        scale: {name: getattr(norm, name) for name in norm.__slots__} for scale, norm in row.norms.items()
    }
    return {"level": row.level, "people": row.people, **norms}


def _notes(sheets: Sequence[Sheet | Means]) -> list[str]:
    notes = [ONE_CROWD]
    if any(isinstance(sheet, Sheet) and "/own-" in (sheet.situation or "") for sheet in sheets):
        notes.append(OWN_SITUATIONS)
    if any("positive" in sheet.variant for sheet in sheets):
        notes.append(POSITIVE)
    return notes

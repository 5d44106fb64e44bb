"""How a model's reported feelings shift from its default, by factor, emotion and overall, beside people's."""

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from calibration.cautions import warn_of_ends, warn_of_sheets
from calibration.intervals import finite_or_none
from calibration.likeness import likeness, split_half
from calibration.measures import OVERALL, Part, Scored, count_missing, make_parts, measure_level, pair_changes
from calibration.multiplicity import benjamini_hochberg
from calibration.shifts import (
    ALPHA,
    Test,
    arrow,
    clustered_test,
    hedges_g,
    paired_test,
    published_test,
    spread,
    standardised_change,
)
from data.norms import CEILING, Norm, NormRow
from data.questionnaires import Questionnaire, score_marks
from data.sheets import PEOPLE, Means, Sheet
from data.situations import FACTOR_NAMES, emotion_of

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

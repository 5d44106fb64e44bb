"""Models compared by people's ratings: the crowd study's tables, and what a careful analyst puts beside them.

The study's test is the chi-square of Good against the rest, one model against a baseline, with Yates'
correction and ratings taken as independent. Beside it stand tests with raters as units, effect sizes, and
what is left of the cells of single emotions after Benjamini-Hochberg and Holm.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.comparison.published_models import PAPER, is_published
from calibration.comparison.rater_tests import (
    ChiSquare,
    RaterClustering,
    RaterTest,
    chi_square,
    cohen_h,
    power_of_shares,
    rater_clustering,
    rater_test,
)
from calibration.estimate import UNDEFINED, Estimate, Floats
from calibration.multiple_testing import benjamini_hochberg, holm, tie_letters
from calibration.pairing import chances_of
from calibration.shares.ppi import RatedModel, one_hot, ppi_estimate
from data.errors import UserError
from data.judgments import Judged, texts_by_id
from data.rating_files.ai_raters import count_ai_ratings, name_ais
from data.rating_files.rating_sheet import RatingSheet, Replies, SheetOptions, read_sheet, say_set_aside
from data.readers.file_formats import BadRow
from data.readers.table_rows import stop_at_bad_row
from data.records import EMOTIONS, LABELS, POSITIVE_EMOTIONS, UNNAMED_MODEL, Exchange, Judgment, Rating
from data.tables import read_responses

Group = Literal["all", "positive", "negative"]
ALPHA: Final = 0.05
Counts = Mapping[str, Mapping[str, tuple[int, int, int]]]  # model -> emotion ("" if unknown) -> by label


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatingColumns:
    """Ratings as columns, one row a rating: 1 to 3; the emotion is "" where unknown.

    A plan's ratings know what is answered, and with what chance the reply was drawn: see `rating`.
    """

    model: NDArray[np.str_]
    rater: NDArray[np.str_]
    rating: NDArray[np.int64]
    emotion: NDArray[np.str_]
    prompt: NDArray[np.str_] | None = None
    chance: Floats | None = None

    @property
    def weight(self) -> Floats:
        """How much each rating counts, 1 on average."""
        weight = np.ones(len(self.rating)) if self.chance is None else 1 / self.chance
        return weight / weight.mean() if len(weight) else weight

    def take(self, rows: NDArray[Any]) -> "RatingColumns":
        """These rows only."""
        columns: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        return RatingColumns(**{name: column[rows] for name, column in columns.items() if column is not None})

    def weighted_counts(self) -> Floats:
        """How often each label was given, every rating by its weight."""
        return np.bincount(self.rating - 1, self.weight, len(LABELS)).astype(float)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model within a group of emotions, against the baseline; the baseline's own row has no tests.

    `shares` count raters. `relative` is the gain in the share of Good as a part of the baseline's,
    `points` in parts of all. `yates` is the published 2x2 test of Good, `full` the 2x3 one; both count
    ratings, and all else weighs them by 1 / chance where replies were drawn with unequal chances.
    """

    model: str
    counts: tuple[int, int, int]
    shares: Mapping[str, Estimate]
    mean: float
    relative: float
    points: float
    h: float
    yates: ChiSquare | None
    full: ChiSquare | None
    raters: RaterTest | None
    p_holm: float  # of the raters' test over all models of the group

    @property
    def ratings(self) -> int:
        return sum(self.counts)

    def as_dict(self) -> dict[str, Any]:
        """Name the counts by label and say their total."""
        names = ("shares", "mean", "relative", "points", "h", "p_holm", "yates", "full", "raters")
        return {
            "model": self.model,
            "ratings": self.ratings,
            "counts": dict(zip(LABELS, self.counts, strict=True)),
            **{name: getattr(self, name) for name in names},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two models within a group: the 2x3 test, and the raters' test of Good with Holm over all pairs."""

    one: str
    other: str
    points: float
    full: ChiSquare
    raters: RaterTest
    p_holm: float  # of the raters' test


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable:
    """All models within a group of emotions; `letters` are the order's ties after Holm over all pairs."""

    group: Group
    rows: tuple[ModelRow, ...]
    omnibus: ChiSquare  # models by labels
    omnibus_good: ChiSquare  # models by Good or not
    pairs: tuple[Pair, ...]
    letters: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Call the rows models."""
        names = ("omnibus", "omnibus_good", "pairs", "letters")
        return {"group": self.group, "models": self.rows, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmotionCell:
    """One model on one emotion against the baseline; `q` is Benjamini and Hochberg's, over all cells."""

    emotion: str
    model: str
    ratings: int
    good: int
    baseline_ratings: int
    baseline_good: int
    relative: float
    q: float
    p_holm: float
    yates: ChiSquare


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All of it; `cell_power` is a single emotion's power, by model, were its effect the overall one."""

    baseline: str
    models: tuple[str, ...]
    groups: tuple[GroupTable, ...]
    counts: Counts
    cells: tuple[EmotionCell, ...]
    cell_power: Mapping[str, float]
    clusters: Mapping[str, RaterClustering]

    def count_cells(self, kind: Literal["p", "q", "p_holm"]) -> int:
        """How many cells are below .05."""
        values = (item.yates.p if kind == "p" else getattr(item, kind) for item in self.cells)
        return sum(1 for value in values if value < ALPHA)

    def as_dict(self) -> dict[str, Any]:
        """Sum up the cells of single emotions."""
        return {
            "baseline": self.baseline,
            "models": self.models,
            "groups": self.groups,
            "clusters": self.clusters,
            "emotions": {
                "cells": self.cells,
                "tests": len(self.cells),
                "below": self.count_cells("p"),
                "below_after_bh": self.count_cells("q"),
                "below_after_holm": self.count_cells("p_holm"),
                "under_baseline": sum(1 for item in self.cells if item.relative < 0),
                "power": self.cell_power,
            },
        }


GROUPS: Final[tuple[Group, ...]] = ("all", "positive", "negative")
GOOD: Final = len(LABELS) - 1


def compare_ratings(ratings: RatingColumns, *, baseline: str, models: Sequence[str] = ()) -> Comparison:
    """Every model against the baseline and each other; `models` chooses some of them, in this order."""
    by_model = {name: ratings.take(ratings.model == name) for name in np.unique(ratings.model).tolist()}
    for name in (baseline, *models):
        if name not in by_model:
            raise UserError(f"no ratings of the model {name!r}; rated are {', '.join(by_model) or 'none'}")
    chosen = list(dict.fromkeys(models)) or sorted(
        by_model, key=lambda name: -float((by_model[name].rating == len(LABELS)).mean())
    )
    names = (baseline, *(name for name in chosen if name != baseline))
    counts: dict[str, dict[str, tuple[int, int, int]]] = {}
    for name in names:
        emotions, place = np.unique(by_model[name].emotion, return_inverse=True)
        table = np.zeros((len(emotions), len(LABELS)), dtype=np.intp)
        np.add.at(table, (place, by_model[name].rating - 1), 1)
        rows = zip(emotions.tolist(), table.tolist(), strict=True)
        counts[name] = {emotion: (row[0], row[1], row[2]) for emotion, row in rows}
    has_emotions = any(emotion in EMOTIONS for cells in counts.values() for emotion in cells)
    groups = tuple(_group(group, counts, ratings) for group in (GROUPS if has_emotions else GROUPS[:1]))
    cells = _cells(counts)
    return Comparison(
        baseline=baseline,
        models=names,
        groups=groups,
        counts=counts,
        cells=cells,
        cell_power=_cell_power(groups[0], cells),
        clusters={
            name: rater_clustering(by_model[name].rater, by_model[name].rating == len(LABELS))
            for name in names
        },
    )


def is_in(emotion: str, group: Group) -> bool:
    """Tell whether an emotion belongs to a group; one that is none of the 32 is in neither half."""
    if group == "all":
        return True
    return emotion in EMOTIONS and (emotion in POSITIVE_EMOTIONS) == (group == "positive")


def _group(group: Group, counts: Counts, ratings: RatingColumns) -> GroupTable:
    totals = {
        name: np.array([row for emotion, row in cells.items() if is_in(emotion, group)] or [(0, 0, 0)]).sum(
            axis=0
        )
        for name, cells in counts.items()
    }
    inside = np.array([is_in(emotion, group) for emotion in ratings.emotion.tolist()], dtype=bool)
    by_model = {name: ratings.take(inside & (ratings.model == name)) for name in counts}
    pairs = _pairs(totals, by_model)
    levels = {name: by_model[name].weighted_counts() for name in counts}
    order = sorted(counts, key=lambda name: -_share(levels[name]) if totals[name].sum() else 2.0)
    told_apart = [frozenset((pair.one, pair.other)) for pair in pairs if pair.p_holm < ALPHA]
    tables = np.array(list(totals.values()))
    return GroupTable(
        group=group,
        rows=_rows(totals, by_model),
        omnibus=chi_square(tables),
        omnibus_good=chi_square(np.array([_two(row) for row in tables])),
        pairs=pairs,
        letters=tie_letters(order, told_apart),
    )


def _two(row: NDArray[Any]) -> tuple[int, int]:
    """Not Good, Good."""
    return int(row[:GOOD].sum()), int(row[GOOD])


def _share(row: NDArray[Any]) -> float:
    return float(row[GOOD] / row.sum()) if row.sum() else math.nan


def _rows(totals: Mapping[str, NDArray[Any]], ratings: Mapping[str, RatingColumns]) -> tuple[ModelRow, ...]:
    baseline = next(iter(totals))
    base, base_share = totals[baseline], _share(ratings[baseline].weighted_counts())
    rows = []
    for name, row in totals.items():
        is_base = name == baseline
        level = ratings[name].weighted_counts()
        share = _share(level)
        rows.append(
            ModelRow(
                model=name,
                counts=(int(row[0]), int(row[1]), int(row[2])),
                shares=_shares(ratings[name]),
                mean=float(level @ np.arange(1, len(LABELS) + 1) / level.sum()) if row.sum() else math.nan,
                relative=share / base_share - 1 if base_share and not is_base else math.nan,
                points=share - base_share if not is_base else math.nan,
                h=cohen_h(share, base_share) if not is_base else math.nan,
                yates=None if is_base else chi_square([_two(base), _two(row)], has_yates=True),
                full=None if is_base else chi_square([base, row]),
                raters=None if is_base else _rater_test(ratings[name], ratings[baseline]),
                p_holm=math.nan,
            )
        )
    plain = [row.raters.p if row.raters else math.nan for row in rows]
    return tuple(replace(row, p_holm=float(p)) for row, p in zip(rows, holm(plain), strict=True))


def _pairs(totals: Mapping[str, NDArray[Any]], ratings: Mapping[str, RatingColumns]) -> tuple[Pair, ...]:
    pairs = [
        Pair(
            one=one,
            other=other,
            points=_share(ratings[one].weighted_counts()) - _share(ratings[other].weighted_counts()),
            full=chi_square([totals[one], totals[other]]),
            raters=_rater_test(ratings[one], ratings[other]),
            p_holm=math.nan,
        )
        for one, other in combinations(totals, 2)
    ]
    adjusted = holm([pair.raters.p for pair in pairs])
    return tuple(replace(pair, p_holm=float(p)) for pair, p in zip(pairs, adjusted, strict=True))


def _rater_test(one: RatingColumns, other: RatingColumns) -> RaterTest:
    best = len(LABELS)
    return rater_test(
        one.rater,
        one.rating == best,
        other.rater,
        other.rating == best,
        weights=(one.weight, other.weight),
        prompts=None if one.prompt is None or other.prompt is None else (one.prompt, other.prompt),
    )


def _shares(ratings: RatingColumns) -> dict[str, Estimate]:
    total = len(ratings.rating)
    if not total:
        return dict.fromkeys(LABELS, UNDEFINED)
    # No judge: every row of what it said is the same, and only the ratings count.
    rated = RatedModel(
        judged=np.zeros((total, len(LABELS))),
        item=np.arange(total),
        value=one_hot(ratings.rating, len(LABELS)),
        cluster=ratings.rater,
        chance=ratings.chance,
    )
    return dict(zip(LABELS, ppi_estimate(rated).estimates(), strict=True))


def _cells(counts: Counts) -> tuple[EmotionCell, ...]:
    (_, base_cells), *others = counts.items()
    found = []
    for emotion in sorted(filter(None, base_cells)):
        base = np.array(base_cells[emotion])
        base_share = _share(base)
        for name, cells in others:
            if emotion not in cells:
                continue
            row = np.array(cells[emotion])
            found.append(
                EmotionCell(
                    emotion=emotion,
                    model=name,
                    ratings=int(row.sum()),
                    good=int(row[GOOD]),
                    baseline_ratings=int(base.sum()),
                    baseline_good=int(base[GOOD]),
                    relative=_share(row) / base_share - 1 if base_share else math.nan,
                    yates=chi_square([_two(base), _two(row)], has_yates=True),
                    q=math.nan,
                    p_holm=math.nan,
                )
            )
    plain = [item.yates.p for item in found]
    both = zip(found, benjamini_hochberg(plain), holm(plain), strict=True)
    return tuple(replace(item, q=float(q), p_holm=float(p)) for item, q, p in both)


def _cell_power(table: GroupTable, cells: Sequence[EmotionCell]) -> dict[str, float]:
    power = {}
    for row in table.rows:
        sizes = [(item.ratings, item.baseline_ratings) for item in cells if item.model == row.model]
        if sizes:
            power[row.model] = power_of_shares(row.h, *np.mean(sizes, axis=0).tolist())
    return power


ALL = "all"  # --models all: the sister study's too


def compare_sheet(
    sheet: RatingSheet, path: Path, *, baselines: Sequence[str] = (), models: Sequence[str] = ()
) -> tuple[Comparison, tuple[str, ...]]:
    """People's ratings of a file compared, and the models that were left out.

    The study's own data hold a sister study's model besides the paper's five: unless `models` says otherwise
    it is left out, so that the tests are the published ones.
    """
    ratings = rating_columns(sheet, path)
    rated = np.unique(ratings.model).tolist()
    if len(baselines) > 1 or any(is_published(name) for name in baselines):
        raise UserError("--baseline: ratings are compared with one of their own models; name one")
    baseline = baselines[0] if baselines else "human"
    if baseline not in rated:
        raise UserError(
            f"no ratings of {baseline!r}; name the model to compare with: --baseline {' or '.join(rated[:6])}"
        )
    chosen = tuple(name for name in models if name != ALL)
    if not models and set(PAPER) <= set(rated):
        chosen = PAPER
    comparison = compare_ratings(ratings, baseline=baseline, models=chosen)
    if len(comparison.models) < 2:
        raise UserError(f"{path}: ratings of one model only, {baseline!r}; a comparison needs two")
    return comparison, tuple(name for name in rated if name not in comparison.models)


def read_people(
    path: Path,
    reading: SheetOptions | None = None,
    *,
    judgments: Sequence[Judgment] = (),
    exchanges: Sequence[Path] = (),
) -> RatingSheet:
    """People's ratings of a file as models are compared by; a row learns model and emotion of its exchange.

    Those by AIs are set aside, and where there are no others the file is refused.
    """
    reading = reading or SheetOptions()
    bad: list[BadRow] = []
    on_bad = bad.append if reading.skip_invalid else stop_at_bad_row
    sources = [read_responses([path], on_bad=on_bad) for path in exchanges]
    texts = texts_by_id(chain.from_iterable(sources), [Judged(name="", judgments=tuple(judgments))])
    replies = Replies(judgments, texts.values()) if judgments or texts else None
    sheet = read_sheet(path, reading, replies=replies)
    if sheet.by_ai and not sheet.people:
        raise UserError(
            f"{path}: all ratings are by {name_ais(sheet.ai_raters)}: not what people say, and models are"
            f" compared by people's."
        )
    if not sheet.people:
        raise UserError(f"{path}: no ratings of empathy in it")
    notes = [line for source in sources for line in source.said()]
    notes += [*sheet.notes, *say_set_aside(bad)]
    if sheet.by_ai:
        notes.append(count_ai_ratings(sheet.ai_raters))
    people = [_with_facts(item, texts.get(item.id)) for item in sheet.people]
    return RatingSheet(people=tuple(people), notes=tuple(notes))


def _with_facts(rating: Rating, exchange: Exchange | None) -> Rating:
    if exchange is None:
        return rating
    facts = {"emotion": exchange.emotion, "model": exchange.model}
    if exchange.model == UNNAMED_MODEL:
        del facts["model"]
    own = {key: value for key, value in rating.extra.items() if value}
    return replace(rating, extra={**{key: value for key, value in facts.items() if value}, **own})


def rating_columns(sheet: RatingSheet, path: Path) -> RatingColumns:
    """Ratings as columns; each must name its model."""
    rows = sheet.people
    (who, what), count = Counter((item.rater, item.id) for item in rows).most_common(1)[0]
    if count > 1:
        raise UserError(f"{path.name}: {who!r} rated {what!r} {count} times; keep one of them")
    for item in rows:
        if not item.extra.get("model"):
            raise UserError(
                f"{path.name}: the rating of {item.id!r} names no model; give a column `model` or `system`,"
                " or the rated responses with --exchanges"
            )
        if item.rating not in (1, 2, 3):
            raise UserError(
                f"{path.name}: rating {item.rating:g} of {item.id!r}: expected 1 to 3, or Bad, Okay or Good"
            )
    return RatingColumns(
        model=np.array([str(item.extra["model"]).strip() for item in rows]),
        rater=np.array([item.rater for item in rows]),
        rating=np.array([int(item.rating) for item in rows], dtype=np.int64),
        emotion=np.array([str(item.extra.get("emotion") or "").strip().casefold() for item in rows]),
        prompt=np.array([str(item.extra["prompt_key"]) for item in rows])
        if all(item.extra.get("prompt_key") for item in rows)
        else None,
        chance=chances_of(rows),
    )

"""The change of a model's reported emotions from its default by factor, emotion and overall, and people's."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from math import atanh, isnan, nan, sqrt, tanh
from pathlib import Path
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.agreement.metrics import spearman_of
from empathy_judge.calibration.bootstrap import value_of
from empathy_judge.calibration.comparison.verdicts import benjamini_hochberg
from empathy_judge.calibration.estimate import Estimate, Interval
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.emotionbench import questionnaires, shift_tests
from empathy_judge.emotionbench.questionnaires import PEOPLE, Questionnaire, Sheet
from empathy_judge.emotionbench.situations import FACTOR_NAMES, HUMAN_NORMS, emotion_of

AFFECTS: Final = ("positive", "negative")
# Split-half reliability of the 36 changes (Spearman-Brown): no model can be expected to agree better.
CEILING: Final = {"positive": 0.69, "negative": 0.82}
PANAS: Final = "PANAS"
OVERALL: Final = "Overall"
FEWEST_FACTORS: Final = 4  # below which an order says nothing
NEAR_END: Final = 0.05  # of a scale's range: a default this near its end can hardly move further
OWN_SITUATIONS: Final = (
    "The model read the included situations, people those of the benchmark: the factors are the same, the "
    "wording and intensity are not. Levels may differ for that reason alone."
)
POSITIVE: Final = "There are no human answers to positive situations, so only the change is shown."
ONE_CROWD: Final = (
    "Each person answered once, the model many times: its SD measures item order and sampling, not "
    "differences between models. Do not compare the two SDs."
)


@dataclass(frozen=True, slots=True)
class Norm:
    """People's default and evoked level on one sub-scale and their change, each with its SD."""

    default: float
    default_sd: float
    evoked: float
    evoked_sd: float
    change: float
    change_sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NormRow:
    """Norms of all people, of those who read about one emotion, or about one factor of it."""

    level: str
    people: int
    norms: Mapping[str, Norm]

    def as_dict(self) -> dict[str, Any]:
        """Return the norms beside the number of people."""
        return {"level": self.level, "people": self.people, **self.norms}


def read_norms() -> dict[str, NormRow]:
    """Norms by name: Overall, the emotions, and the factors by their keys."""
    norms = {}
    figures = [(part, what) for part in ("default", "evoked", "change") for what in ("mean", "sd")]
    for _, row in read_rows(HUMAN_NORMS):
        by_affect = {
            affect: Norm(*(float(row[f"{part}_{affect}_{what}"]) for part, what in figures))
            for affect in AFFECTS
        }
        norm = NormRow(level=row["level"].lower(), people=int(row["people"]), norms=by_affect)
        norms[row["name"].partition(" ")[0]] = norm
    return norms


Norms = Mapping[str, NormRow]


@dataclass(frozen=True, slots=True)
class SheetLevel(shift_tests.Spread):
    """Scores of whole sheets; with those that lack marks the mean would be between `low` and `high`."""

    incomplete: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One sub-scale from the default to the evoked level; nan and empty where undefined.

    `bounds` are the least and the greatest change that missing marks leave possible.
    """

    default: SheetLevel
    evoked: SheetLevel
    change: float
    change_sd: float = nan  # people's: each has a change of their own
    bounds: Interval
    arrow: str
    tests: dict[str, shift_tests.Test]
    effects: Mapping[str, float]
    people: Norm | None

    @property
    def norm(self) -> Norm:
        """This shift in the terms of norms."""
        default, evoked = self.default, self.evoked
        return Norm(default.mean, default.sd, evoked.mean, evoked.sd, self.change, self.change_sd)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftRow:
    """All sub-scales of one factor, one emotion or overall."""

    level: str
    name: str
    title: str
    sheets: int
    situations: int
    missing: Mapping[str, int] = field(default_factory=dict)
    scales: Mapping[str, Shift]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleAgreement:
    """How a model's factors move beside people's.

    `rank` is Spearman's correlation of the changes, `level_error` the mean distance of the evoked means.
    `ceiling` is the agreement of two halves of the people in their changes.
    """

    factors: int
    rank: Estimate
    level_error: float
    level_bias: float  # the model above people, on average
    ceiling: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAlignment:
    """One model, or the people, on one questionnaire."""

    model: str
    variant: str
    scale: str
    sheets: int
    alpha: float
    missing: Mapping[str, int] = field(default_factory=dict)
    default: Mapping[str, SheetLevel]
    rows: Sequence[ShiftRow]
    agreement: Mapping[str, PeopleAgreement] | None
    warnings: Sequence[str]

    def rows_of(self, *levels: str) -> list[ShiftRow]:
        """Return the rows of these levels."""
        return [row for row in self.rows if row.level in levels]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Every model and questionnaire beside people."""

    alpha: float
    models: Sequence[ModelAlignment]
    people: Norms
    ceiling: Mapping[str, float]
    notes: Sequence[str]


def align(paths: Sequence[Path], *, alpha: float = shift_tests.ALPHA) -> Alignment:
    """Align every model, variant and questionnaire in these files or folders of sheets.

    People come first, and are the norm where their sheets are given.
    """
    sheets = [sheet for path in paths for sheet in questionnaires.read_sheets(path)]
    groups: dict[tuple[str, str, str], list[Sheet]] = {}
    for sheet in sheets:
        groups.setdefault((sheet.model, sheet.variant, sheet.scale), []).append(sheet)
    norms: Norms = read_norms()
    models: list[ModelAlignment] = []
    for (model, _, scale), group in sorted(groups.items(), key=lambda item: item[0][0] != PEOPLE):
        questionnaire = questionnaires.read_questionnaire(scale)
        models.append(align_sheets(group, questionnaire, norms=norms, alpha=alpha))
        if model == PEOPLE and scale == PANAS:
            norms = {
                row.name: NormRow(level=row.level, people=row.sheets, norms=by_scale)
                for row in models[-1].rows
                if (by_scale := {scale: shift.norm for scale, shift in row.scales.items()})
                if not any(isnan(value) for norm in by_scale.values() for value in astuple(norm))
            }
    notes = [ONE_CROWD]
    if any("/own-" in (sheet.situation or "") for sheet in sheets):
        notes.append(OWN_SITUATIONS)
    if any("positive" in sheet.variant for sheet in sheets):
        notes.append(POSITIVE)
    return Alignment(alpha=alpha, models=models, people=norms, ceiling=CEILING, notes=notes)


def align_sheets(
    sheets: Iterable[Sheet], questionnaire: Questionnaire, *, norms: Norms, alpha: float = shift_tests.ALPHA
) -> ModelAlignment:
    """Align one model, or the people, on one questionnaire."""
    scored = [ScoredSheet(sheet, questionnaires.score_marks(questionnaire, sheet.marks)) for sheet in sheets]
    first = scored[0].sheet
    default = [item for item in scored if item.sheet.factor is None]
    levels = {scale: _measure_level(default, scale) for scale in questionnaire.scales}
    rows = [
        ShiftRow(
            level=group.level,
            name=group.name,
            title=FACTOR_NAMES.get(group.name, group.name),
            sheets=len(group.evoked),
            situations=len({item.sheet.situation for item in group.evoked}),
            missing=_count_missing(group.evoked),
            scales={
                scale: _measure_shift(group, scale, norms.get(group.name), alpha=alpha)
                for scale in questionnaire.scales
            },
        )
        for group in _group_sheets(scored, default)
    ]
    _adjust(rows)
    return ModelAlignment(
        model=first.model,
        variant=first.variant,
        scale=questionnaire.name,
        sheets=len(scored),
        alpha=alpha,
        missing=_count_missing(scored),
        default=levels,
        rows=rows,
        agreement=_agreement(first, rows),
        warnings=_warn_of_sheets(levels, scored, questionnaire),
    )


@dataclass(frozen=True, slots=True)
class ScoredSheet:
    """A sheet with its scores."""

    sheet: Sheet
    scores: Mapping[str, questionnaires.Score]


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetGroup:
    """The evoked sheets of a factor, an emotion or of all, and the default ones they are compared with."""

    level: str
    name: str
    evoked: Sequence[ScoredSheet]
    default: Sequence[ScoredSheet]
    is_people: bool


def _group_sheets(scored: Sequence[ScoredSheet], default: Sequence[ScoredSheet]) -> list[SheetGroup]:
    """Return all sheets, those of each emotion and those of each factor, in the benchmark's order.

    A person's default is their own; a model's is the same for every situation.
    """
    named = {item.sheet.factor for item in scored if item.sheet.factor is not None}
    factors = [key for key in FACTOR_NAMES if key in named] + sorted(named - set(FACTOR_NAMES))
    names: dict[tuple[str, str], list[str]] = {("overall", OVERALL): factors}
    for factor in factors:
        names.setdefault(("emotion", emotion_of(factor)), []).append(factor)
    names |= {("factor", factor): [factor] for factor in factors}
    is_people = scored[0].sheet.model == PEOPLE
    groups = []
    for (level, name), members in names.items():
        if evoked := [item for item in scored if item.sheet.factor in members]:
            pairs = {item.sheet.pair for item in evoked}
            before = [item for item in default if item.sheet.pair in pairs or not is_people]
            group = SheetGroup(level=level, name=name, evoked=evoked, default=before, is_people=is_people)
            groups.append(group)
    return groups


def _measure_level(sheets: Sequence[ScoredSheet], scale: str) -> SheetLevel:
    scores = [item.scores[scale] for item in sheets]
    known = shift_tests.spread([score.value for score in scores if score.value is not None])
    low, high = (
        float(np.mean([getattr(score, end) for score in scores])) if scores else nan
        for end in ("low", "high")
    )
    return SheetLevel(known.mean, known.sd, known.n, len(scores) - known.n, low, high)


def _pair_changes(group: SheetGroup, scale: str) -> dict[str, float]:
    """Return evoked less default for each pair with both, of means where a pair has several."""
    sides: list[dict[str, list[float]]] = [{}, {}]
    for side, sheets in zip(sides, (group.default, group.evoked), strict=True):
        for item in sheets:
            value = item.scores[scale].value
            if value is not None and item.sheet.pair is not None:
                side.setdefault(item.sheet.pair, []).append(value)
    before, after = sides
    return {pair: float(np.mean(after[pair]) - np.mean(before[pair])) for pair in after if pair in before}


def _count_missing(sheets: Sequence[ScoredSheet]) -> dict[str, int]:
    """Count the sheets that lack marks by the reason, which is the text before the colon."""
    reasons = Counter((item.sheet.missing or "").partition(":")[0] for item in sheets)
    return {reason: count for reason, count in sorted(reasons.items()) if reason}


def _measure_shift(group: SheetGroup, scale: str, people: NormRow | None, *, alpha: float) -> Shift:
    norm = people.norms.get(scale) if people else None
    default, evoked = (_measure_level(sheets, scale) for sheets in (group.default, group.evoked))
    by_pair = _pair_changes(group, scale)
    changes = shift_tests.spread([*by_pair.values()])
    paired = shift_tests.paired_test([*by_pair.values()])
    published = paired if group.is_people else shift_tests.published_test(evoked, default, alpha=alpha)
    change = evoked.mean - default.mean
    return Shift(
        default=default,
        evoked=evoked,
        change=change,
        change_sd=changes.sd if group.is_people else nan,
        bounds=Interval(evoked.low - default.high, evoked.high - default.low),
        arrow=shift_tests.arrow(change, published.p, alpha=alpha),
        tests={"published": published, "paired": paired, "clustered": _test_clusters(group, scale, by_pair)},
        effects={
            "dz": changes.mean / changes.sd if changes.n > 1 and changes.sd > 0 else nan,
            "in_people_sd": change / norm.change_sd if norm and norm.change_sd else nan,
        },
        people=norm,
    )


def _test_clusters(group: SheetGroup, scale: str, pairs: Mapping[str, float]) -> shift_tests.Test:
    known = [item for item in group.evoked if item.scores[scale].value is not None]
    if group.is_people:
        known = [item for item in known if item.sheet.pair in pairs]
        changes = [pairs[item.sheet.pair or ""] for item in known]
        return shift_tests.clustered_test(changes, [item.sheet.situation or "" for item in known])
    default = [value for item in group.default if (value := item.scores[scale].value) is not None]
    if len(default) < 2:
        return shift_tests.Test(kind="clustered")
    values = [item.scores[scale].value or 0.0 for item in known]
    return shift_tests.clustered_test(values, [item.sheet.situation or "" for item in known], default)


def _adjust(rows: Sequence[ShiftRow]) -> None:
    """Add the q of every test (Benjamini-Hochberg) among all factors, or emotions, and sub-scales."""
    for level in ("factor", "emotion"):
        family = [shift.tests for row in rows if row.level == level for shift in row.scales.values()]
        for name in ("published", "paired", "clustered") if family else ():
            q_values = benjamini_hochberg([tests[name].p for tests in family])
            for tests, q in zip(family, q_values, strict=True):
                tests[name] = replace(tests[name], q=float(q))


def _agreement(first: Sheet, rows: Sequence[ShiftRow]) -> dict[str, PeopleAgreement] | None:
    """Compare ranks and levels with people's; None for people themselves and for positive situations."""
    if first.model == PEOPLE or first.scale != PANAS or "positive" in first.variant:
        return None
    agreement = {}
    for scale, ceiling in CEILING.items():
        shifts = {row.name: row.scales[scale] for row in rows if row.level == "factor"}
        model = {name: (shift.evoked.mean, shift.change) for name, shift in shifts.items()}
        norms = {name: shift.people for name, shift in shifts.items() if shift.people}
        people = {name: (norm.evoked, norm.change) for name, norm in norms.items()}
        agreement[scale] = agreement_with_people(model, people, ceiling=ceiling)
    return agreement


def agreement_with_people(
    model: Mapping[str, tuple[float, float]],
    people: Mapping[str, tuple[float, float]],
    *,
    ceiling: float | None = None,
) -> PeopleAgreement:
    """Compare each factor's evoked mean and change with people's."""
    shared = [name for name in people if name in model and np.isfinite([*model[name], *people[name]]).all()]
    ours, theirs = (np.array([side[name] for name in shared]).reshape(-1, 2) for side in (model, people))
    is_enough = len(shared) >= FEWEST_FACTORS
    rank = value_of(spearman_of(ours[:, 1], theirs[:, 1]), len(shared)) if is_enough else nan
    ends = None
    if abs(rank) < 1 and len(shared) > FEWEST_FACTORS:
        # Fisher's z with the variance of Bonett and Wright (2000); by hand, as scipy has none for ranks.
        reach = 1.959964 * sqrt((1 + rank**2 / 2) / (len(shared) - 3))
        ends = Interval(tanh(atanh(rank) - reach), tanh(atanh(rank) + reach))
    differences = ours - theirs if shared else np.full((1, 2), nan)
    return PeopleAgreement(
        factors=len(shared),
        rank=Estimate(rank, ends),
        level_error=float(np.abs(differences[:, 0]).mean()),
        level_bias=float(differences[:, 0].mean()),
        ceiling=ceiling,
    )


def _warn_of_sheets(
    levels: Mapping[str, SheetLevel], scored: Sequence[ScoredSheet], questionnaire: Questionnaire
) -> list[str]:
    """Warn of defaults at the end of a scale, and of marks that are missing or all the same."""
    ends = {}
    for scale, level in levels.items():
        low, high = questionnaire.span(scale)
        margin = NEAR_END * (high - low)
        if level.mean <= low + margin:
            ends[scale] = "floor"
        elif level.mean >= high - margin:
            ends[scale] = "ceiling"
    if len(levels) > 1 and list(ends.values()) == ["floor"] * len(levels):
        warnings = ["the default is at the minimum: compare evoked levels, not changes"]
    else:
        warnings = [
            f"default {scale} {levels[scale].mean:.1f} is at the {end} of its scale"
            for scale, end in ends.items()
        ]
    fewest = min(level.n for level in levels.values())
    if fewest < 2:
        warnings.append(
            f"{fewest} default sheets are complete: no change can be tested; at least 2 are needed"
        )
    elif all(level.sd == 0 for level in levels.values()):
        warnings.append("the default has an SD of 0, which makes any change look significant")
    straight = sum(len(set(i.sheet.marks.values())) == 1 and len(i.sheet.marks) > 1 for i in scored)
    if straight > NEAR_END * len(scored):
        warnings.append(f"{straight:,} of {len(scored):,} sheets have the same mark throughout")
    lacking = sum(bool(item.sheet.missing) for item in scored)
    if lacking:
        warnings.append(f"{lacking:,} of {len(scored):,} sheets lack marks: see the bounds of each change")
    return warnings

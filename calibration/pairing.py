"""Ratings joined with judgments: the rows every part of a calibration starts from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.estimate import LEAST_RATERS, Floats, Integers, Population
from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import first_number, position_on
from empathy_judge.data.records import LABELS, UNNAMED_MODEL, Judgment, Rating, label_of

Cluster = Literal["batch", "rater", "prompt", "id"]
NAMED_AT_MOST = 5  # of several mistakes alike, an error names this many


def labels_from_probabilities(probabilities: Floats, scale: Sequence[str] = LABELS) -> Integers:
    """Return the labels, as positions 1..k, that rows of probabilities get by the one rule for labels.

    >>> labels_from_probabilities(np.array([[0.1, 0.2, 0.7], [0.2, 0.35, 0.45]])).tolist()
    [3, 2]
    """
    labels = [label_of(dict(zip(scale, row, strict=True))) for row in probabilities.tolist()]
    return np.array([1 + scale.index(label) for label in labels], dtype=np.intp)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paired:
    """Ratings joined with judgments, one row a rating; an id rated by several people has several rows."""

    id: NDArray[np.str_]
    model: NDArray[np.str_]
    rater: NDArray[np.str_]
    batch: NDArray[np.str_]  # the cluster; the rater's where none is given
    prompt: NDArray[np.str_]  # prompt_digest
    rating: NDArray[np.int64]  # position on the scale, 1..k
    score: Floats  # the judge's expected rating, 1..k and between
    label: NDArray[np.int64]  # the judge's label, 1..k
    probabilities: Floats | None = None  # (rows, k); None where a judge gives labels or scores only
    chance: Floats | None = None  # with which the response was drawn to be rated; None where all had the same
    scale: tuple[str, ...] = LABELS  # the names of the k levels, worst first
    unscored: Mapping[str, int] = field(default_factory=dict)  # responses rated but not scored, by reason
    unjudged: int = 0  # responses rated and unknown to the judge
    unrated: int = 0  # responses scored and rated by nobody

    def __len__(self) -> int:
        return len(self.id)

    @property
    def levels(self) -> int:
        """The number of levels of the scale, k."""
        return len(self.scale)

    @property
    def models(self) -> tuple[str, ...]:
        """Every model, by name."""
        return tuple(str(name) for name in np.unique(self.model))

    @property
    def cluster_kind(self) -> Cluster:
        """The clusters: batches or raters, whichever differ more, however few they are.

        Fewer than `LEAST_RATERS` show nothing of how much people differ. Then it is prompts, and what is said
        holds for these raters only: see `population`.
        """
        counts = {kind: len(np.unique(getattr(self, kind))) for kind in ("batch", "rater")}
        if counts["rater"] < LEAST_RATERS:
            return self.item_kind
        enough: list[Cluster] = [kind for kind in ("batch", "rater") if counts[kind] >= LEAST_RATERS]
        return min(enough, key=lambda kind: counts[kind], default=self.item_kind)

    @property
    def item_kind(self) -> Cluster:
        """What several raters may have read: prompts, or responses where prompts are too few to vary."""
        return "prompt" if len(np.unique(self.prompt)) >= LEAST_RATERS else "id"

    @property
    def population(self) -> Population:
        """Whom figures of these ratings are about: people, or no more than those who rated."""
        return "general" if self.cluster_kind in ("batch", "rater") else "these raters only"

    def clusters(self, kind: Cluster | None = None) -> Integers:
        """Return each row's cluster, numbered from 0; of `cluster_kind` if no kind is given."""
        return np.unique(getattr(self, kind or self.cluster_kind), return_inverse=True)[1]

    def take(self, rows: NDArray[Any]) -> "Paired":
        """Return these rows only, by mask or by position; unpaired rows are counted for the whole only."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        columns = {name: column[rows] for name, column in values.items() if isinstance(column, np.ndarray)}
        return replace(self, **columns, unscored={}, unjudged=0, unrated=0)

    def by_model(self) -> dict[str, "Paired"]:
        """Return the rows of every model, by name."""
        return {name: self.take(self.model == name) for name in self.models}


def pair(
    judgments: Iterable[Judgment],
    ratings: Iterable[Rating],
    *,
    scale: Sequence[str] = LABELS,
    dimension: str = "empathy",
) -> Paired:
    """Return every rating of `dimension` with the judgment of its response.

    Ratings are positions on the scale, or its numbers where the levels are numbers. One between two levels
    (a mean over people) is refused.
    """
    judged: dict[str, Judgment] = {}
    if twice := [item.id for item in judgments if judged.setdefault(item.id, item) is not item]:
        raise UserError(
            f"judgments: {_name(twice)} scored more than once; pass each judgment once, by one judge"
        )
    rated = _check([rating for rating in ratings if rating.dimension == dimension], dimension)
    positions = _rating_positions(rated, scale)
    scored = {
        key: found for key, item in judged.items() if (found := score_and_label(item, scale)) is not None
    }
    rows = [
        (rating, judged[rating.id], place, *scored[rating.id])
        for rating, place in zip(rated, positions, strict=True)
        if rating.id in scored
    ]
    if not rows:
        raise UserError("no rating matches a scored reply: the ids of ratings and judgments differ")
    ids = {rating.id for rating in rated}
    reasons = Counter(
        # What follows a colon is particular to one response; reasons are counted by kind.
        (judged[key].unscored or "no reason given").partition(":")[0]
        for key in ids
        if key in judged and key not in scored
    )
    return Paired(
        id=np.array([rating.id for rating, *_ in rows]),
        model=np.array([_model(judgment, rating) for rating, judgment, *_ in rows]),
        rater=np.array([rating.rater for rating, *_ in rows]),
        batch=np.array([rating.batch or rating.rater for rating, *_ in rows]),
        prompt=np.array([judgment.prompt_digest for _, judgment, *_ in rows]),
        rating=np.array([place for _, _, place, *_ in rows], dtype=np.int64),
        score=np.array([score for *_, score, _ in rows], dtype=float),
        label=np.array([label for *_, label in rows], dtype=np.int64),
        probabilities=_probabilities([judgment for _, judgment, *_ in rows], scale),
        chance=chances_of([rating for rating, *_ in rows]),
        scale=tuple(scale),
        unscored=dict(sorted(reasons.items())),
        unjudged=len(ids - set(judged)),
        unrated=len(set(scored) - ids),
    )


def chances_of(ratings: Sequence[Rating]) -> Floats | None:
    """Return the probability with which each rated response was drawn, by the ratings' `chance`, if any."""
    if not any("chance" in rating.extra for rating in ratings):
        return None
    found = []
    for rating in ratings:
        said = rating.extra.get("chance", 1.0)
        try:
            chance = float(said)
        except (TypeError, ValueError):
            chance = 0.0
        if not 0 < chance <= 1:
            raise UserError(
                f"ratings: chance {said!r} of {rating.id!r}: expected a number above 0 and up to 1; use the "
                "column as `rate collect` writes it, or remove it"
            )
        found.append(chance)
    return np.array(found)


def _check(ratings: list[Rating], dimension: str) -> list[Rating]:
    if not ratings:
        raise UserError(f"ratings: none of the dimension {dimension!r}")
    for rating in ratings:
        if not rating.rater:
            raise UserError(f"a rating of {rating.id!r} has no rater; give each rater a unique name")
    times = Counter((rating.rater, rating.id) for rating in ratings)
    if twice := [f"{who} on {what}" for (who, what), count in times.items() if count > 1]:
        raise UserError(f"ratings: more than one by {_name(twice)}; keep only one")
    return ratings


def _rating_positions(ratings: Sequence[Rating], scale: Sequence[str]) -> list[int]:
    low, places = first_number(scale), []
    for rating in ratings:
        position = position_on(rating.rating, scale)
        if position is None:
            ends = f"{low} to {low + len(scale) - 1}"
            raise UserError(f"rating {rating.rating:g} of {rating.id!r} is not on the scale from {ends}")
        if position != int(position):
            raise UserError(
                f"rating {rating.rating:g} of {rating.id!r} is between two levels; pass individual ratings, "
                "not means"
            )
        places.append(round(position))
    return places


def score_and_label(judgment: Judgment, scale: Sequence[str]) -> tuple[float, int] | None:
    """Return the expected rating and the label's position; None for an unscored judgment."""
    if judgment.unscored is not None or (judgment.label is None and judgment.score is None):
        return None
    if judgment.label is not None and judgment.label not in scale:
        raise UserError(
            f"judgment of {judgment.id!r}: label {judgment.label!r} is not one of {', '.join(scale)}; "
            "ratings and judgments need the same scale"
        )
    label = scale.index(judgment.label) + 1 if judgment.label is not None else None
    score = judgment.score if judgment.score is not None else float(label or 1)
    # Probabilities written to six digits can put their mean a hair outside.
    score = min(max(score, 1.0), float(len(scale)))
    return score, label or round(score)


def _probabilities(judgments: Sequence[Judgment], scale: Sequence[str]) -> Floats | None:
    if any(item.probabilities is None or set(item.probabilities) != set(scale) for item in judgments):
        return None
    return np.array([[(item.probabilities or {})[name] for name in scale] for item in judgments])


def _model(judgment: Judgment, rating: Rating) -> str:
    if judgment.model != UNNAMED_MODEL:
        return judgment.model
    return str(rating.extra.get("model", UNNAMED_MODEL))


def _name(things: Sequence[str]) -> str:
    shown = ", ".join(repr(thing) for thing in things[:NAMED_AT_MOST])
    return shown + (f" and {len(things) - NAMED_AT_MOST} more" if len(things) > NAMED_AT_MOST else "")

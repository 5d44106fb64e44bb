"""Fitting of the conversation judge on rated sets, and trials of it with sets apart and systems apart."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.bootstrap import mean_of, resample_clusters, sample
from empathy_judge.calibration.proportional_odds import fit_proportional_odds
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import disk_errors
from empathy_judge.data.records import CONVERSATION, LABELS, to_plain
from empathy_judge.data.sealed_json import write_sealed
from empathy_judge.judge.base import DEFAULT, Judge, load_judge
from empathy_judge.judge.conversations.conversation_judge import CARD, FORMAT, Weights, names_for
from empathy_judge.judge.conversations.features import START, conversation_features
from empathy_judge.training.rated_sets import RATED_SETS, RatedItem, drop_shared, read_rated_set
from empathy_judge.training.set_transfer import SetItem, measure_set, set_item
from empathy_judge.training.trials import EVALUATION, SETS_APART

SYSTEMS_APART: Final = "systems-apart"
JUDGED_REPLIES: Final = 3  # of a conversation, evenly spaced from first to last
ALPHA: Final = (
    3000.0  # ridge penalty on the difference from the initial weights; from 500 on it hardly matters
)
MAX_SET_WEIGHT: Final = 600  # conversations that a set counts as, at most
BOUND: Final = 2.0  # standard deviations at which a feature is clipped
REPLY_MEAN, TURNS = "mean of replies", "number of replies"
OnStep = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RatedConversation:
    """A rated conversation with its features, and the mean score of its judged replies."""

    item: RatedItem
    features: Mapping[str, float]
    reply_mean: float

    @property
    def source(self) -> str:
        return RATED_SETS[self.item.set].source

    @property
    def speaker(self) -> str:
        return "script" if RATED_SETS[self.item.set].is_simulated else "person"


ConversationSplit = tuple[list[RatedConversation], list[RatedConversation]]  # trained on, then predicted
Prediction = tuple[RatedConversation, float, dict[str, float]]  # with its place on the direction


def run_fit(
    sets: Path,
    folder: Path,
    *,
    protocol: str | None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Run a trial with `protocol`; without one, run both and write the card of a judge."""
    judge = load_judge(DEFAULT)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        rated = judge_conversations(read_conversations(sets), judge, on_step=on_step)
        if protocol:
            result, name = try_out(rated, protocol), EVALUATION
        else:
            trials = [try_out(rated, each) for each in (SETS_APART, SYSTEMS_APART)]
            result, name = make_card(rated, judge, trials), CARD
        write_sealed(folder / name, to_plain(result))
    return result


def read_conversations(sets: Path) -> list[RatedItem]:
    """Return the rated conversations of the sets that are in a folder."""
    known = {name: each.source for name, each in RATED_SETS.items() if each.unit == CONVERSATION}
    names = [name for name, source in known.items() if (sets / source).exists()]
    if len({known[name] for name in names}) < 2:
        sources = ", ".join(dict.fromkeys(known.values()))
        raise UserError(f"--sets: {sets} holds fewer than two of the sets of rated conversations ({sources})")
    return [item for name in names for item in read_rated_set(name, sets)]


def judge_conversations(
    items: Sequence[RatedItem], judge: Judge, *, on_step: OnStep | None = None
) -> list[RatedConversation]:
    """Return every conversation of which the judge scored a reply, with its features."""
    chosen = [[item.exchanges[place] for place in evenly_spaced(len(item.exchanges))] for item in items]
    wanted = {exchange.content_digest: exchange for several in chosen for exchange in several}
    scores: dict[str, float | None] = {}
    with ThreadPoolExecutor(judge.concurrency) as pool:
        for judgment in pool.map(judge.judge, wanted.values()):
            scores[judgment.content_digest] = judgment.score
            if on_step:
                on_step(len(scores), len(wanted))
    rated = []
    for item, several in zip(items, chosen, strict=True):
        replies = [scores[exchange.content_digest] for exchange in several]
        if scored := [score for score in replies if score is not None]:
            features = conversation_features(item.exchanges, replies)
            rated.append(RatedConversation(item, features, float(np.mean(scored))))
    return rated


def evenly_spaced(count: int) -> list[int]:
    """Return the places of some replies, evenly spaced from the first to the last.

    >>> evenly_spaced(2), evenly_spaced(9)
    ([0, 1], [0, 4, 8])
    """
    return [int(place) for place in np.linspace(0, count - 1, min(JUDGED_REPLIES, count)).round()]


def fit(rated: Sequence[RatedConversation], speaker: str) -> Weights:
    """Fit one direction for all sets, with ratings as ranks and features as differences from the set's mean.

    The thresholds of Okay and Good are fitted on the sets whose raters gave Bad, Okay or Good.
    """
    from sklearn.linear_model import Ridge

    names = list(names_for(speaker))
    start = np.array([START[name] for name in names])
    groups = [members for _, members in _by_set(rated)]
    tables = [np.array([[one.features[name] for name in names] for one in members]) for members in groups]
    center = np.mean([table.mean(axis=0) for table in tables], axis=0)
    scale = np.sqrt(np.mean([table.var(axis=0) for table in tables], axis=0))
    scale = np.where(scale > 1e-4, scale, 1.0)
    inputs, targets, counts = [], [], []
    for table, members in zip(tables, groups, strict=True):
        clipped = np.clip((table - center) / scale, -BOUND, BOUND)
        inputs.append(clipped - clipped.mean(axis=0))
        targets.append(_normal_scores([one.item.rating for one in members]) - inputs[-1] @ start)
        counts.append(np.full(len(members), min(MAX_SET_WEIGHT, len(members)) / len(members)))
    model = Ridge(alpha=ALPHA, fit_intercept=False)
    model.fit(np.vstack(inputs), np.concatenate(targets), sample_weight=np.concatenate(counts))
    # A weight keeps its initial sign, or is 0.
    weight = np.where((start + model.coef_) * np.sign(start) > 0, start + model.coef_, 0.0)

    def by_name(values: np.ndarray) -> dict[str, float]:
        return {name: round(value, 4) for name, value in zip(names, values.tolist(), strict=True)}

    weights = Weights(
        center=by_name(center),
        scale=by_name(scale),
        weight=by_name(weight),
        bound=BOUND,
        slope=1.0,
        cuts=(-0.5, 0.5),
    )
    labelled = [(weights.place(one.features), one.item.label) for one in rated if one.item.label is not None]
    if not labelled:
        return weights
    place, label = np.array(labelled).T
    odds = fit_proportional_odds(place, label)
    low, high = (odds.middle + cut / odds.slope for cut in odds.cuts)
    return replace(weights, slope=round(odds.slope, 4), cuts=(round(low, 4), round(high, 4)))


def _normal_scores(ratings: Sequence[float]) -> np.ndarray:
    """Return normal scores of ranks, which make sets with different scales comparable."""
    from scipy.stats import norm, rankdata

    scores = norm.ppf((rankdata(ratings) - 0.5) / len(ratings))
    return np.asarray(scores - scores.mean())


def _by_set(rated: Sequence[RatedConversation]) -> list[tuple[str, list[RatedConversation]]]:
    names = dict.fromkeys(one.item.set for one in rated)
    return [(name, [one for one in rated if one.item.set == name]) for name in names]


def splits(rated: Sequence[RatedConversation], protocol: str) -> Iterator[ConversationSplit]:
    """Yield training and held-out conversations, by source or by system; they share no texts."""
    if protocol == SETS_APART:
        for source in dict.fromkeys(one.source for one in rated):
            test = [one for one in rated if one.source == source]
            yield _without_shared([one for one in rated if one.source != source], test), test
        return
    for name, members in _by_set(rated):
        for system in sorted({one.item.system for one in members}) if RATED_SETS[name].systems else ():
            test = [one for one in members if one.item.system == system]
            # One person said the same to every system of a set: only other sets must share nothing.
            same_set = [one for one in members if one.item.system != system]
            others = [one for one in rated if one.item.set != name]
            yield [*same_set, *_without_shared(others, test)], test


def _without_shared(
    rated: Sequence[RatedConversation], test: Sequence[RatedConversation]
) -> list[RatedConversation]:
    ids = {id(item) for item in drop_shared([one.item for one in rated], [one.item for one in test])}
    return [one for one in rated if id(one.item) in ids]


def try_out(rated: Sequence[RatedConversation], protocol: str, *, seed: int = 0) -> dict[str, Any]:
    """Predict every held-out conversation, and measure agreement with the human ratings by set."""
    by_set: dict[str, list[Prediction]] = {}
    for train, test in splits(rated, protocol):
        fitted = {speaker: fit(train, speaker) for speaker in {one.speaker for one in test}}
        for one in test:
            weights = fitted[one.speaker]
            place = weights.place(one.features)
            by_set.setdefault(one.item.set, []).append((one, place, weights.probabilities(place)))
    return {
        "protocol": protocol,
        "unit": CONVERSATION,
        "sets": [to_plain(measure_set(_set_items(each), seed=seed)) for each in by_set.values()],
        "levels": [
            level
            for each in (by_set.values() if protocol == SYSTEMS_APART else ())
            for level in _system_levels(each, seed=seed)
        ],
    }


def _set_items(predictions: Sequence[Prediction]) -> list[SetItem]:
    places = np.array([place for _, place, _ in predictions])
    scaled = (places - places.min()) / (np.ptp(places) or 1.0)  # linear, so that means keep their order
    return [
        set_item(
            one.item,
            (1 - value, 0.0, value),
            {REPLY_MEAN: one.reply_mean, TURNS: float(len(one.item.exchanges))},
        )
        for (one, _, _), value in zip(predictions, scaled.tolist(), strict=True)
    ]


def _system_levels(predictions: Sequence[Prediction], *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield each left-out system's Good share by the judge and by people, where its raters gave labels."""
    for system in sorted({one.item.system for one, _, _ in predictions}):
        own = [(one.item, said["Good"]) for one, _, said in predictions if one.item.system == system]
        if any(item.label is None for item, _ in own):
            continue
        names, clusters = np.unique([item.cluster for item, _ in own], return_inverse=True)
        drawn = resample_clusters(len(names), rng=np.random.default_rng(seed), draws=2000)
        statistics = {
            "people": mean_of(np.array([float(item.label == len(LABELS)) for item, _ in own])),
            "judge": mean_of(np.array([good for _, good in own])),
        }
        shares = {name: each.estimate() for name, each in sample(statistics, clusters, drawn).items()}
        yield {"system": system, "conversations": len(own), **to_plain(shares)}


def make_card(
    rated: Sequence[RatedConversation], judge: Judge, trials: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the card of the conversation judge: its weights, training data and trials."""
    return {
        "format": FORMAT,
        "summary": "Scores whole conversations by a judge of replies and by features of the conversation.",
        "licence": "no commercial use (CC BY-NC 4.0), which some of its training data requires",
        "caveat": _caveat(trials),
        "replies": {"judge": judge.name, "version": judge.version},
        "trained_on": {
            name: {
                "conversations": len(members),
                "rated_by": RATED_SETS[name].raters,
                "licence": RATED_SETS[name].licence,
            }
            for name, members in _by_set(rated)
        },
        "weights": {speaker: _weights_table(fit(rated, speaker)) for speaker in ("person", "script")},
        "trials": list(trials),
    }


def _weights_table(weights: Weights) -> dict[str, Any]:
    table = asdict(weights)
    features = {
        name: {key: table[key][name] for key in ("center", "scale", "weight")} for name in table["weight"]
    }
    return {"features": features, **{key: table[key] for key in ("bound", "slope", "cuts")}}


def _caveat(trials: Sequence[Mapping[str, Any]]) -> str:
    correlations = [
        item["parties"]["judge"]["spearman"]["value"]
        for trial in trials
        if trial["protocol"] == SETS_APART
        for item in trial["sets"]
    ]
    caveat = (
        "On sets left out of its fit, its Spearman correlation with human ratings is "
        f"{min(correlations):.2f} to {max(correlations):.2f}, which is optimistic: its judge of replies was "
        "trained on these sets. Compare models, not single conversations."
    )
    errors = [
        abs(level["judge"]["value"] - level["people"]["value"])
        for trial in trials
        for level in trial["levels"]
    ]
    if errors:
        caveat += (
            f" The error of its Good share was {100 * min(errors):.0f} to {100 * max(errors):.0f} points on "
            "systems left out of its fit: compare models, and do not use levels."
        )
    return caveat

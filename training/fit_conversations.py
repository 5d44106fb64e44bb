"""Fit the judge of conversations on rated sets, and try it with sets apart and with systems apart."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from calibration.bootstrap import ratio, resample_clusters, sample
from data.errors import UserError
from data.files import disk_errors, replacing, without_links
from data.records import CONVERSATION, LABELS, digest_json, to_plain
from judge.base import Judge, load_judge
from judge.conversations.conversation_features import START, conversation_features
from judge.conversations.conversation_judge import CARD, FORMAT, Weights, names_for
from training.rated_sets import RATED_SETS, RatedItem, drop_shared, read_rated_set
from training.set_transfer import SetItem, SetTransfer, measure_set

SETS_APART, SYSTEMS_APART = "sets-apart", "systems-apart"
JUDGED: Final = 3  # replies of a conversation, evenly from first to last: more say little more of a bot
ALPHA: Final = 3000.0  # how strongly a fit keeps to the weights it starts from; from 500 on it hardly matters
EQUAL: Final = 600  # conversations that a set counts as, at most, so that none decides alone
BOUND: Final = 2.0  # standard deviations that a feature counts at most: one trait is not the whole
EVALUATION: Final = "evaluation.json"
REPLY_MEAN, TURNS = "mean of replies", "number of replies"
OnStep = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RatedConversation:
    """A rated conversation with its features, and the mean score of those of its replies that were judged."""

    item: RatedItem
    features: Mapping[str, float]
    reply_mean: float

    @property
    def spoken_by(self) -> str:
        return "script" if RATED_SETS[self.item.set].is_simulated else "person"


def read_conversations(sets: Path) -> list[RatedItem]:
    """The rated conversations of the sets that are there."""
    names = [
        name
        for name, about in RATED_SETS.items()
        if about.unit == CONVERSATION and (sets / about.source).exists()
    ]
    if len({RATED_SETS[name].source for name in names}) < 2:
        known = ", ".join(
            dict.fromkeys(item.source for item in RATED_SETS.values() if item.unit == CONVERSATION)
        )
        raise UserError(f"--sets: {sets} holds fewer than two of the sets of rated conversations ({known})")
    return [item for name in names for item in read_rated_set(name, sets)]


def judge_conversations(
    items: Sequence[RatedItem], judge: Judge, folder: Path, *, on_step: OnStep | None = None
) -> list[RatedConversation]:
    """Features of every conversation; what the judge says of a reply is kept, and asked for once."""
    path = folder / f"replies-{judge.version}.jsonl"
    scores: dict[str, float | None] = {}
    if path.exists():
        *lines, torn = path.read_bytes().split(b"\n")
        os.truncate(path, path.stat().st_size - len(torn))  # half a line, where it was killed
        scores = {row["content"]: row["score"] for row in map(json.loads, lines)}
    chosen = [evenly(len(item.exchanges)) for item in items]
    wanted = {
        exchange.content_digest: exchange
        for item, places in zip(items, chosen, strict=True)
        for exchange in (item.exchanges[place] for place in places)
    }
    asked = [exchange for digest, exchange in wanted.items() if digest not in scores]
    kept = open(path, "a", buffering=1, encoding="utf-8", opener=without_links)  # noqa: SIM115 (closed below)
    with kept, ThreadPoolExecutor(judge.concurrency) as pool:
        for number, judgment in enumerate(pool.map(judge.judge, asked), start=1):
            scores[judgment.content] = judgment.score
            kept.write(json.dumps({"content": judgment.content, "score": judgment.score}) + "\n")
            if on_step:
                on_step(number, len(asked))
    rated = []
    for item, places in zip(items, chosen, strict=True):
        said = [scores[item.exchanges[place].content_digest] for place in places]
        known = [score for score in said if score is not None]
        if known:
            features = conversation_features(item.exchanges, said)
            rated.append(RatedConversation(item, features, float(np.mean(known))))
    return rated


def evenly(count: int) -> list[int]:
    """Places of some replies, evenly from the first to the last.

    >>> evenly(2), evenly(9)
    ([0, 1], [0, 4, 8])
    """
    return [int(place) for place in np.linspace(0, count - 1, min(JUDGED, count)).round()]


def fit(rated: Sequence[RatedConversation], who: str) -> Weights:
    """One direction for all sets: within each, ratings are ranks and features differences from its mean.

    Where on it Good begins is fitted on the sets whose raters said Bad, Okay or Good.
    """
    from sklearn.linear_model import Ridge

    names = names_for(who)
    signs = np.sign([START[name] for name in names])
    groups = _by_set(rated)
    tables = {
        name: np.array([[one.features[key] for key in names] for one in group]) for name, group in groups
    }
    center = np.mean([table.mean(axis=0) for table in tables.values()], axis=0)
    scale = np.sqrt(np.mean([table.var(axis=0) for table in tables.values()], axis=0))
    scale = np.where(scale > 1e-4, scale, 1.0)
    start = np.array([START[key] for key in names])
    inputs, targets, counts = [], [], []
    for name, group in groups:
        seen = np.clip((tables[name] - center) / scale, -BOUND, BOUND)
        inputs.append(seen - seen.mean(axis=0))
        targets.append(_normal_ranks([one.item.rating for one in group]) - inputs[-1] @ start)
        counts.append(np.full(len(group), min(EQUAL, len(group)) / len(group)))
    model = Ridge(alpha=ALPHA, fit_intercept=False)
    model.fit(np.vstack(inputs), np.concatenate(targets), sample_weight=np.concatenate(counts))
    weight = np.where((start + model.coef_) * signs > 0, start + model.coef_, 0.0)

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
    labelled = [one for one in rated if one.item.label is not None]
    if not labelled:
        return weights
    place = np.array([weights.place(one.features) for one in labelled])
    return set_cuts(weights, place, np.array([(one.item.label or 1) - 1 for one in labelled]))


def set_cuts(weights: Weights, place: np.ndarray, label: np.ndarray) -> Weights:
    """Cumulative logistic curves along the direction, by maximum likelihood; labels are 0, 1 and 2."""
    from scipy.optimize import minimize
    from scipy.special import expit

    def cost(values: np.ndarray) -> float:
        slope, low, step = np.exp(values[0]), values[1], np.exp(values[2])
        okay, good = expit(slope * (place - low)), expit(slope * (place - low - step))
        chances = np.stack([1 - okay, okay - good, good], axis=1)
        likelihood = np.log(np.maximum(chances[np.arange(len(label)), label], 1e-9)).sum()
        return float(-likelihood + 0.01 * (values**2).sum())

    slope, low, step = minimize(cost, np.array([0.7, 0.0, 0.0]), method="BFGS").x
    return replace(
        weights,
        slope=round(float(np.exp(slope)), 4),
        cuts=(round(float(low), 4), round(float(low + np.exp(step)), 4)),
    )


def _normal_ranks(ratings: Sequence[float]) -> np.ndarray:
    """Ratings as normal scores of their ranks: sets with other scales and habits become alike."""
    from scipy.stats import norm, rankdata

    scores = norm.ppf((rankdata(ratings) - 0.5) / len(ratings))
    return np.asarray(scores - scores.mean())


def _by_set(rated: Sequence[RatedConversation]) -> list[tuple[str, list[RatedConversation]]]:
    names = dict.fromkeys(one.item.set for one in rated)
    return [(name, [one for one in rated if one.item.set == name]) for name in names]


def splits(
    rated: Sequence[RatedConversation], protocol: str
) -> Iterator[tuple[list[RatedConversation], list[RatedConversation]]]:
    """What is trained on and what is then asked about: another source, or another system; no shared texts."""
    if protocol == SETS_APART:
        for source in dict.fromkeys(RATED_SETS[one.item.set].source for one in rated):
            test = [one for one in rated if RATED_SETS[one.item.set].source == source]
            rest = [one for one in rated if RATED_SETS[one.item.set].source != source]
            yield _without_shared(rest, test), test
        return
    for name, group in _by_set(rated):
        if RATED_SETS[name].systems:
            for system in sorted({one.item.system for one in group}):
                test = [one for one in group if one.item.system == system]
                # The same person brought the same words to every bot: only other sets may share none.
                rest = [one for one in group if one.item.system != system]
                others = [one for one in rated if one.item.set != name]
                yield [*rest, *_without_shared(others, test)], test


def _without_shared(
    rated: Sequence[RatedConversation], test: Sequence[RatedConversation]
) -> list[RatedConversation]:
    kept = drop_shared([one.item for one in rated], [one.item for one in test])
    ids = {id(item) for item in kept}
    return [one for one in rated if id(one.item) in ids]


Held = tuple[RatedConversation, float, dict[str, float]]


def try_out(rated: Sequence[RatedConversation], protocol: str, *, seed: int = 0) -> dict[str, Any]:
    """Every held-out conversation, and how far what is said of it agrees with the people who rated it."""
    rows: dict[str, list[Held]] = {}
    for train, test in splits(rated, protocol):
        for name, held in predict(train, test).items():
            rows.setdefault(name, []).extend(held)
    return {
        "protocol": protocol,
        "unit": CONVERSATION,
        "sets": [to_plain(measure_held(held, seed=seed)) for held in rows.values()],
        "levels": _levels(rows.values(), seed=seed) if protocol == SYSTEMS_APART else [],
    }


def predict(train: Sequence[RatedConversation], test: Sequence[RatedConversation]) -> dict[str, list[Held]]:
    """What a fit on `train` says of each conversation of `test`, by its set."""
    rows: dict[str, list[Held]] = {}
    fitted = {who: fit(train, who) for who in {one.spoken_by for one in test}}
    for one in test:
        weights = fitted[one.spoken_by]
        place = weights.place(one.features)
        rows.setdefault(one.item.set, []).append((one, place, weights.probabilities(place)))
    return rows


def measure_held(held: Sequence[Held], *, seed: int) -> SetTransfer:
    """How far what is said of the conversations of a set agrees with people, beside others."""
    places = np.array([place for _, place, _ in held])
    part = (places - places.min()) / (np.ptp(places) or 1.0)  # a line, so that means keep their order
    items = [
        SetItem(
            id=one.item.exchanges[-1].id,
            set=one.item.set,
            system=one.item.system,
            cluster=one.item.cluster,
            rating=one.item.rating,
            words=float(np.mean([len(reply.response.split()) for reply in one.item.exchanges])),
            probabilities=(1 - value, 0.0, value),
            others={
                **one.item.others,
                REPLY_MEAN: one.reply_mean,
                TURNS: float(len(one.item.exchanges)),
            },
        )
        for (one, _, _), value in zip(held, part.tolist(), strict=True)
    ]
    return measure_set(items, seed=seed)


def _levels(rows: Any, *, seed: int, draws: int = 2000) -> list[dict[str, Any]]:
    """Each left-out system's share of Good, by the judge and by people, where people were asked for it."""
    levels = []
    for held in rows:
        for system in sorted({one.item.system for one, _, _ in held}):
            own = [(one, said) for one, _, said in held if one.item.system == system]
            if any(one.item.label is None for one, _ in own):
                continue
            people = np.array([float(one.item.label == len(LABELS)) for one, _ in own])
            judge = np.array([said[LABELS[-1]] for _, said in own])
            names, clusters = np.unique([one.item.cluster for one, _ in own], return_inverse=True)
            drawn = resample_clusters(len(names), rng=np.random.default_rng(seed), draws=draws)
            shares = {
                who: sample({"it": _mean_of(values)}, clusters, drawn)["it"].estimate()
                for who, values in (("people", people), ("judge", judge))
            }
            levels.append({"system": system, "conversations": len(own), **to_plain(shares)})
    return levels


def _mean_of(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda counts: ratio(counts @ values, counts.sum(axis=-1))


def make_card(
    rated: Sequence[RatedConversation], judge: Judge, trials: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What is shipped: the weights, what they were fitted on, and how they did on what they had not seen."""
    sets = {
        name: {
            "conversations": len(group),
            "rated_by": RATED_SETS[name].raters,
            "licence": RATED_SETS[name].licence,
        }
        for name, group in _by_set(rated)
    }
    card = {
        "format": FORMAT,
        "summary": "Judges whole conversations: by a judge of replies, and by what only the whole shows.",
        "licence": "no commercial use (CC BY-NC 4.0): some of the conversations it was fitted on allow none",
        "caveat": _caveat(trials),
        "replies": {"judge": judge.name, "version": judge.version},
        "trained_on": sets,
        "weights": {who: weights_table(fit(rated, who)) for who in ("person", "script")},
        "trials": list(trials),
    }
    return {**card, "digest": digest_json(card)}


def weights_table(weights: Weights) -> dict[str, Any]:
    """The weights as a card has them."""
    table = asdict(weights)
    features = {
        name: {key: table[key][name] for key in ("center", "scale", "weight")} for name in table["weight"]
    }
    return {"features": features, **{key: table[key] for key in ("bound", "slope", "cuts")}}


def _caveat(trials: Sequence[Mapping[str, Any]]) -> str:
    told = {
        item["set"]: item["parties"]["judge"]["spearman"]["value"]
        for trial in trials
        if trial["protocol"] == SETS_APART
        for item in trial["sets"]
    }
    low, high = min(told.values()), max(told.values())
    caveat = (
        f"On conversations of sets it had not met, its ranks agree with people's by {low:.2f} to {high:.2f} "
        "(1 is perfect): read differences of models, not single conversations."
    )
    off = [
        abs(level["judge"]["value"] - level["people"]["value"])
        for trial in trials
        for level in trial["levels"]
    ]
    if off:
        caveat += (
            f" Its share of Good was off by {100 * min(off):.0f} to {100 * max(off):.0f} points on bots it "
            "had not met: read which model is ahead, not its level."
        )
    return caveat


def run_fit(
    sets: Path,
    folder: Path,
    *,
    protocol: str | None,
    # It learned from no set that is left out here, which the default judge did.
    replies: str = "classifier-small",
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """What `train --unit conversation` does: a trial with `protocol`, else both, and the card of a judge."""
    judge = load_judge(replies)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        rated = judge_conversations(read_conversations(sets), judge, folder, on_step=on_step)
        if protocol:
            result, name = try_out(rated, protocol), EVALUATION
        else:
            trials = [try_out(rated, each) for each in (SETS_APART, SYSTEMS_APART)]
            result, name = make_card(rated, judge, trials), CARD
        with replacing(folder / name) as partial:
            partial.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result

"""Cross-validation of a recipe: training on part of the ratings, predictions of the rest, and baselines."""

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from empathy_judge.calibration.bootstrap import mean_of, sample
from empathy_judge.calibration.estimate import Estimate
from empathy_judge.calibration.pairing import labels_from_probabilities
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import replacing
from empathy_judge.data.rating_files.rated_inputs import RatedExchange
from empathy_judge.data.records import LABELS, Exchange, to_plain
from empathy_judge.data.runs import read_object, write_object
from empathy_judge.data.tables import write_rows
from empathy_judge.training import held_out as measures
from empathy_judge.training.examples import under_another
from empathy_judge.training.held_out import expected_scores, set_item
from empathy_judge.training.rated_sets import RATED_SETS, RatedItem, drop_shared, read_constant_replies
from empathy_judge.training.recipe import STUDY, Recipe
from empathy_judge.training.training_data import TrainingData

PLAN, EVALUATION = "plan.json", "evaluation.json"
PREDICTIONS = "held_out.jsonl.gz"  # beside a judge's card
HELD_OUT = "held-out"  # names an evaluation, with these parts:
SETS_APART, RATERS_APART, MODEL_APART, RELEVANCE = "sets-apart", "raters-apart", "model-apart", "relevance"
JUDGE, TFIDF = "judge", "TF-IDF"  # among the predictions of a row
PARTS = 3  # trainings, of which each leaves out one of so many models
BATCHES = 5  # and one of so many rating batches
EVALUATED_ITEMS = 1000  # of a set, at most, that a finished judge predicts
EVALUATED_REPLIES = 6  # of a conversation, likewise
HUMAN = "human"
Ratings = Sequence[RatedExchange]
Predict = Callable[[Sequence[Exchange]], np.ndarray]  # probabilities of Bad, Okay and Good: [exchanges, 3]
OnSplit = Callable[[str, int, int], None]  # the split's name, its number, how many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The data of one training, and what its judge then predicts."""

    name: str
    train: TrainingData
    raters: Ratings = ()  # by other people, of other prompts
    models: Ratings = ()  # all of models that were left out, with their raters
    items: Sequence[RatedItem] = ()  # of sets that were left out


def split_parts(data: TrainingData, *, has_graded: bool = False) -> Iterator[Split]:
    """Yield up to three splits: a third of the models, a fifth of the batches, and a group of sets left out.

    No rater, source or text of a set is on both sides; nor is a prompt or batch of the ratings by `raters`.
    """
    is_rated = STUDY not in data.evaluated
    data = replace(data, items=[item for item in data.items if item.set not in data.evaluated])
    for part in range(PARTS):
        models, batches = _hold_out(data.ratings, part) if is_rated else ([], [])
        raters = {rated.rater for rated in (*models, *batches)}
        prompts = {rated.group for rated in data.ratings if rated.batch in {each.batch for each in batches}}
        train = [rated for rated in data.ratings if rated.rater not in raters and rated.group not in prompts]
        items = [item for item in data.items if RATED_SETS[item.set].part == part]
        if not (models or batches or items):
            continue
        others = [item for item in data.items if RATED_SETS[item.set].part != part]
        left = _without_texts(
            replace(data, ratings=train, items=others),
            [exchange for item in items for exchange in item.exchanges],
            [rated.exchange for rated in batches],
        )
        if not (left.items or has_graded or (left.ratings and is_rated)):
            raise UserError(
                "nothing is left to train on: people, prompts, models and sets are held out, so this "
                "needs people who rated only part of the replies, or more rated sets under [sets]"
            )
        yield Split(name=f"part-{part}", train=left, raters=batches, models=models, items=items)


def _hold_out(ratings: Ratings, part: int) -> tuple[list[RatedExchange], list[RatedExchange]]:
    """Return the ratings of a third of the models, and of the others those in a fifth of the batches."""
    batches = sorted({rated.batch for rated in ratings}, key=lambda name: (len(name), name))
    models = sorted({rated.exchange.model for rated in ratings})
    out_models = models[part::PARTS] if len(models) >= PARTS else []
    out_batches = batches[part::BATCHES] if len(batches) >= BATCHES else []
    others = [rated for rated in ratings if rated.exchange.model not in out_models]
    return (
        [rated for rated in ratings if rated.exchange.model in out_models],
        [rated for rated in others if rated.batch in out_batches],
    )


def split_evaluated(data: TrainingData) -> Split:
    """Return what is only evaluated, by a finished judge, without texts that training reads, too."""
    is_rated = STUDY not in data.evaluated
    ratings = [rated.exchange for rated in data.ratings]
    trained = [
        *(item for item in data.items if item.set not in data.evaluated),
        *data.texts,
        *(ratings if is_rated else ()),
    ]
    by_set: dict[str, list[RatedItem]] = defaultdict(list)
    for item in drop_shared([item for item in data.items if item.set in data.evaluated], trained):
        by_set[item.set].append(replace(item, exchanges=_spread(item.exchanges, EVALUATED_REPLIES)))
    items = [item for members in by_set.values() for item in _spread(members, EVALUATED_ITEMS)]
    # For TF-IDF, which has no other data.
    left = _without_texts(data, [exchange for item in items for exchange in item.exchanges])
    split = Split(name="finished", train=left, items=items)
    if is_rated:
        return split
    ids = {exchange.id for exchange in drop_shared(ratings, trained)}
    unseen = [rated for rated in data.ratings if rated.exchange.id in ids]
    models, raters = zip(*(_hold_out(unseen, part) for part in range(PARTS)), strict=True)
    return replace(split, models=list(chain(*models)), raters=list(chain(*raters)))


Member = TypeVar("Member")


def _spread(members: Sequence[Member], limit: int) -> tuple[Member, ...]:
    """Return at most so many members at equal distances, the last one among them."""
    ends = np.linspace(0, len(members), min(limit, len(members)) + 1)[1:].round().astype(int)
    return tuple(members[end - 1] for end in ends)


def _without_texts(
    data: TrainingData, of_items: Sequence[Exchange], of_ratings: Sequence[Exchange] = ()
) -> TrainingData:
    """Return data for training that shares no text with what is held out."""
    ids = {each.id for each in drop_shared([rated.exchange for rated in data.ratings], of_items)}
    held_out = [*of_items, *of_ratings]
    return replace(
        data,
        ratings=[rated for rated in data.ratings if rated.exchange.id in ids],
        items=drop_shared(data.items, held_out),
        texts=drop_shared(data.texts, held_out),
    )


def _predict_majority(train: Ratings, test: Ratings) -> np.ndarray:
    return np.tile(_shares(train), (len(test), 1))


def _predict_length(train: Ratings, test: Ratings) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    return _fit_predict(LogisticRegression(max_iter=1000), _log_words, train, test)


def _predict_tfidf(train: Ratings, test: Ratings) -> np.ndarray:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(ngram_range=(1, 2), min_df=min(3, len(train)), sublinear_tf=True)
    model = make_pipeline(words, LogisticRegression(C=0.3, max_iter=1000))
    return _fit_predict(model, lambda rows: [rated.exchange.response for rated in rows], train, test)


def _fit_predict(model: Any, read: Callable[[Ratings], Any], train: Ratings, test: Ratings) -> np.ndarray:
    try:
        model.fit(read(train), _ratings(train))
    except ValueError:  # one label only, or no word that is in three replies
        return _predict_majority(train, test)
    # A column for every label, also for those that the training part lacks.
    columns = np.zeros((len(test), len(LABELS)))
    columns[:, model.classes_] = model.predict_proba(read(test))
    return columns


def _predict_by_model(train: Ratings, test: Ratings) -> np.ndarray:
    """Predict each model's own label frequencies; for a model left out, those of all."""
    by_model = defaultdict(list)
    for rated in train:
        by_model[rated.exchange.model].append(rated)
    shares = {model: _shares(ratings) for model, ratings in by_model.items()}
    return np.array([shares.get(rated.exchange.model, _shares(train)) for rated in test])


# Fitted on the same training part: [test, 3] probabilities of Bad, Okay and Good. The oracle knows which
# model wrote a reply, which no judge may know.
BASELINES: Mapping[str, Callable[[Ratings, Ratings], np.ndarray]] = {
    "majority": _predict_majority,
    "length": _predict_length,
    TFIDF: _predict_tfidf,
    "model oracle": _predict_by_model,
}


def fit_length(ratings: Ratings) -> dict[str, list[float]]:
    """Return the coefficients of the `length` judge; none where a label does not occur."""
    from sklearn.linear_model import LogisticRegression

    if len(set(_ratings(ratings))) < len(LABELS):
        return {}
    model = LogisticRegression(max_iter=1000).fit(_log_words(ratings), _ratings(ratings))
    return {"bias": model.intercept_.round(6).tolist(), "slope": model.coef_[:, 0].round(6).tolist()}


def _log_words(ratings: Ratings) -> np.ndarray:
    """Return the logarithm of each reply's word count, as the `length` judge counts: [ratings, 1]."""
    return np.log([[max(1, len(rated.exchange.response.split()))] for rated in ratings])


def _ratings(ratings: Ratings) -> np.ndarray:
    return np.array([int(np.argmax(rated.target)) for rated in ratings])


def _shares(ratings: Ratings) -> np.ndarray:
    return np.asarray(np.mean([rated.target for rated in ratings], axis=0))


def cross_validate(
    data: TrainingData,
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    device: str = "cpu",
    on_split: OnSplit = lambda name, number, total: None,
    on_step: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Train once for each held-out part, predict it, and return every metric; resume an interrupted call."""
    from empathy_judge.training.fine_tune import train_judge

    splits = list(split_parts(data, has_graded=any(recipe.synthetic for recipe in recipes)))
    if not splits:
        raise UserError(
            "nothing can be held out: cross-validation needs three models, five batches of ratings, or other "
            "rated sets under [sets]; what has the weight 0 there evaluates the finished judge"
        )
    check_plan(folder, {"protocol": HELD_OUT, **plan_training(data, recipes)}, kind="cross-validation")
    for number, split in enumerate(splits):
        if not (path := folder / f"{split.name}.jsonl").exists():
            on_split(split.name, number, len(splits))
            trained = train_judge(split.train, recipes, device=device, progress=on_step)
            write_rows(path, predict_split(split, trained.predict))
    evaluation = measure_rows(read_rows(folder))
    write_object(folder / EVALUATION, evaluation)
    return evaluation


def check_plan(folder: Path, plan: Mapping[str, Any], *, kind: str) -> None:
    """Write the plan into a new folder; refuse a folder that has another plan."""
    path = folder / PLAN
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        return write_object(path, plan)
    existing = read_object(path)
    if set(existing) != set(plan):
        raise UserError(f"{folder}: contains something other than a {kind}; set another --out")
    if differing := [key for key, value in plan.items() if existing[key] != value]:
        raise UserError(f"{folder}: contains a {kind} with another {', '.join(differing)}; set another --out")


def read_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the predictions of all finished splits of a cross-validation, or those saved beside a card."""
    for path in sorted((*folder.glob("*.jsonl"), *folder.glob(PREDICTIONS))):
        with gzip.open(path, "rt") if path.name == PREDICTIONS else path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines)


def write_predictions(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the predictions behind a judge's figures beside its card: ids and probabilities, no texts."""
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    with replacing(folder / PREDICTIONS) as partial:
        partial.write_bytes(gzip.compress(lines.encode(), mtime=0))


def read_finished(folder: Path, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the predictions of a finished cross-validation; refuse one of another recipe or other data."""
    if not (folder / EVALUATION).exists():
        raise UserError(f"{folder}: no finished cross-validation here; run train --cross-validate")
    existing = read_object(folder / PLAN)
    if differing := [key for key, value in plan.items() if existing.get(key) != value]:
        raise UserError(
            f"{folder}: a cross-validation with another {', '.join(differing)}, so its figures are not this "
            "judge's"
        )
    return list(read_rows(folder))


def average_rows(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return rows of the same replies with the mean of both judges' log-probabilities."""
    keys = ("protocol", "split", "set", "id", "batch")
    one, other = ([[row.get(key) for key in keys] for row in rows] for rows in (first, second))
    if one != other:
        raise UserError("the two cross-validations predict different replies: they need the same data")
    return [_average_row(*pair) for pair in zip(first, second, strict=True)]


def _average_row(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    if "predictions" in one:
        own = _average(one["predictions"][JUDGE], other["predictions"][JUDGE])
        return {**one, "predictions": {**one["predictions"], JUDGE: own}}
    tables = [name for name in ("probabilities", "own", "other", "constant") if name in one]
    return {**one, **{name: _average(one[name], other[name]) for name in tables}}


def _average(one: Sequence[float], other: Sequence[float]) -> list[float]:
    product = np.sqrt(np.array(one) * np.array(other))
    return _rounded(product / product.sum())


def plan_training(data: TrainingData, recipes: Sequence[Recipe]) -> dict[str, Any]:
    """Return everything that decides about a training: the recipes and the digests of the data."""
    recipe, *teachers = recipes
    return {
        "recipe": asdict(recipe),
        "teachers": [asdict(teacher) for teacher in teachers],
        "digests": data.digests(recipes),
    }


def predict_split(split: Split, predict: Predict) -> list[dict[str, Any]]:
    """Return one row for everything that is held out, each with the protocol that it belongs to."""
    rated = {RATERS_APART: split.raters, MODEL_APART: split.models}
    rows = [
        {"protocol": protocol, "split": split.name, **row}
        for protocol, ratings in rated.items()
        for row in _predict_ratings(split, ratings, predict)
    ]
    rows += ({"protocol": RELEVANCE, **row} for row in _predict_wrong_prompts(split, predict))
    return rows + [{"protocol": SETS_APART, **row} for row in _predict_items(split, predict)]


def _predict_items(split: Split, predict: Predict) -> list[dict[str, Any]]:
    """Return one row for each item, with the mean prediction over its replies, and that of TF-IDF."""
    replies = [exchange for item in split.items for exchange in item.exchanges]
    predicted = iter(predict(replies))
    others: list[dict[str, float]] = [{} for _ in split.items]
    if split.train.ratings and replies:
        rows = [RatedExchange(exchange=exchange, target=()) for exchange in replies]
        by_words = iter(expected_scores(_predict_tfidf(split.train.ratings, rows)))
        others = [{TFIDF: round(fmean(next(by_words) for _ in item.exchanges), 5)} for item in split.items]
    return [
        to_plain(set_item(item, _rounded(np.mean([next(predicted) for _ in item.exchanges], axis=0)), words))
        for item, words in zip(split.items, others, strict=True)
    ]


def _predict_ratings(split: Split, ratings: Ratings, predict: Predict) -> list[dict[str, Any]]:
    """Return one row for each held-out rating, with the predictions of the judge and of the baselines."""
    if not (exchanges := [rated.exchange for rated in ratings]):
        return []
    predictions = {JUDGE: predict(exchanges)}
    # Where ratings are only evaluated, baselines would be fitted to what they predict.
    if STUDY not in split.train.evaluated:
        predictions |= {name: fit(split.train.ratings, ratings) for name, fit in BASELINES.items()}
    return [
        {
            "id": rated.exchange.id,
            "model": rated.exchange.model,
            "batch": rated.batch,
            "rating": LABELS[rated.target.index(max(rated.target))],
            "predictions": {name: _rounded(table[index]) for name, table in predictions.items()},
        }
        for index, rated in enumerate(ratings)
    ]


def _predict_wrong_prompts(split: Split, predict: Predict) -> list[dict[str, Any]]:
    """Return one row for each held-out reply: as it was, under another prompt, and replaced by a constant."""
    chance = random.Random(0)
    exchanges = [rated.exchange for rated in split.raters]
    if len({exchange.prompt for exchange in exchanges}) < 2:
        return []
    constants = read_constant_replies("evaluation")
    shown = {
        "own": exchanges,
        "other": [under_another(exchange, exchanges, chance) for exchange in exchanges],
        "constant": [replace(each, response=chance.choice(constants).text) for each in exchanges],
    }
    predicted = {name: predict(each) for name, each in shown.items()}
    return [
        {"batch": rated.batch, **{name: _rounded(table[index]) for name, table in predicted.items()}}
        for index, rated in enumerate(split.raters)
    ]


def _rounded(probabilities: Any) -> list[float]:
    rounded: list[float] = np.asarray(probabilities).round(5).tolist()
    return rounded


def measure_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return every metric with its interval, as JSON values, by what was held out."""
    by_protocol: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        values = dict(row)
        by_protocol[values.pop("protocol")].append(values)
    measured: dict[str, Any] = {"protocol": HELD_OUT}
    if items := [measures.SetItem(**row) for row in by_protocol[SETS_APART]]:
        names = dict.fromkeys(item.set for item in items)
        sets = [measures.measure_set([item for item in items if item.set == name]) for name in names]
        measured[SETS_APART] = {"sets": to_plain(sets)}
    for protocol in (RATERS_APART, MODEL_APART):
        if held := by_protocol[protocol]:
            measured[protocol] = {"evaluations": to_plain(_evaluate_ratings(held))}
    if held := by_protocol[RELEVANCE]:
        measured[RELEVANCE] = to_plain(_measure_relevance(held))
    return measured


def _evaluate_ratings(rows: Sequence[Mapping[str, Any]]) -> dict[str, measures.HeldOutEvaluation]:
    columns = {name: np.array([row[name] for row in rows]) for name in ("model", "batch", "split")}
    columns["rating"] = np.array([LABELS.index(row["rating"]) + 1 for row in rows])
    judges = {
        name: measures.HeldOut(**columns, probabilities=np.array([row["predictions"][name] for row in rows]))
        for name in rows[0]["predictions"]
    }
    return measures.evaluate_held_out(judges, chosen=sorted({*columns["model"].tolist()} - {HUMAN}))


def _measure_relevance(rows: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    """Return the shares labelled Good under own prompts, under others, and of constants; and `own_higher`."""
    tables = {name: np.array([row[name] for row in rows]) for name in ("own", "other", "constant")}
    values = {name: labels_from_probabilities(table) == len(LABELS) for name, table in tables.items()}
    values["own_higher"] = expected_scores(tables["own"]) > expected_scores(tables["other"])
    batches, drawn = measures.draw_batches([row["batch"] for row in rows])
    sampled = sample({name: mean_of(value.astype(float)) for name, value in values.items()}, batches, drawn)
    return {name: item.estimate(low=0.0, high=1.0) for name, item in sampled.items()}

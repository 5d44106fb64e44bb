"""Trials of a recipe: train on part of the ratings, predict the rest, and measure that beside baselines."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from data.errors import UserError
from data.rated_exchanges import RatedExchange
from data.records import LABELS, to_plain
from data.runs import read_object, write_object
from data.tables import write_rows
from training.held_out import HeldOut, evaluate_held_out
from training.rated_sets import RatedItem, drop_shared, source_of
from training.recipe import Recipe
from training.set_transfer import SetItem, measure_set, set_item
from training.training_data import TrainingData, digest_items

if TYPE_CHECKING:
    from training.network import TrainedNetworks

PLAN, EVALUATION = "plan.json", "evaluation.json"
SETS_APART, RATERS_APART, MODEL_APART = "sets-apart", "raters-apart", "model-apart"
JUDGE = "judge"  # among the predictions of a row
FOLDS = 5
STUDY = "study"  # the name of the given ratings among the sets
UNTRAINED_SETS = "sets with the weight 0"
NO_CONTEXT = "judge, bare"  # the judge without emotion and situation
HUMAN = "human"
OnSplit = Callable[[str, int, int], None]  # the split's name, its number, how many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The data of one training, and what its judge then predicts: ratings of the study, or items of sets."""

    name: str
    train: TrainingData
    ratings: Sequence[RatedExchange] = ()
    items: Sequence[RatedItem] = ()


def split_raters_apart(data: TrainingData) -> Iterator[Split]:
    """Yield folds over rating batches: no rater, prompt or batch is on both sides."""
    batches = sorted({rated.batch for rated in data.ratings}, key=lambda name: (len(name), name))
    if len(batches) < FOLDS:
        raise UserError(
            f"{len(batches)} rating batches cannot be split into {FOLDS} folds; give ratings a `batch`"
        )
    fold_of = {batch: number % FOLDS for number, batch in enumerate(batches)}
    for fold in range(FOLDS):
        test = [rated for rated in data.ratings if fold_of[rated.batch] == fold]
        prompts, raters = {rated.group for rated in test}, {rated.rater for rated in test}
        train = [
            rated
            for rated in data.ratings
            if fold_of[rated.batch] != fold and rated.group not in prompts and rated.rater not in raters
        ]
        yield _split_ratings(f"fold-{fold}", data, train, test)


def split_models_apart(data: TrainingData) -> Iterator[Split]:
    """Yield one split for each model, which is left out with all of its raters."""
    models = sorted({rated.exchange.model for rated in data.ratings})
    if len(models) < 3:
        raise UserError(f"{len(models)} models are too few to leave one out; three at least are needed")
    for model in models:
        test = [rated for rated in data.ratings if rated.exchange.model == model]
        raters = {rated.rater for rated in test}
        train = [
            rated for rated in data.ratings if rated.exchange.model != model and rated.rater not in raters
        ]
        yield _split_ratings(model, data, train, test)


def _split_ratings(
    name: str, data: TrainingData, train: Sequence[RatedExchange], test: Sequence[RatedExchange]
) -> Split:
    if not train:
        raise UserError(
            f"nothing is left to train on beside {name}: every other rating is of a rater or a prompt held "
            "out with it; this protocol needs people who rated only part of the replies"
        )
    held_out = [rated.exchange for rated in test]
    return Split(
        name=name,
        train=TrainingData(
            ratings=train, items=drop_shared(data.items, held_out), texts=drop_shared(data.texts, held_out)
        ),
        ratings=test,
    )


def split_sets_apart(data: TrainingData) -> Iterator[Split]:
    """Yield one split for each source of rated sets, the study included.

    Sets with the weight 0 share one training on everything else.
    """
    items = [*data.items, *map(study_item, data.ratings)]
    for source in dict.fromkeys(source_of(item) for item in items):
        test = [item for item in items if source_of(item) == source]
        kept = replace(
            data,
            ratings=[] if source == STUDY else data.ratings,
            items=[item for item in data.items if source_of(item) != source],
        )
        split = _split_items(source, kept, test)
        if split.train.ratings or split.train.items:
            yield split
        elif not data.evaluation_items:
            raise UserError(
                f"nothing is left to train on beside {source}: with sets apart the recipe has to name other "
                "rated sets under [sets]"
            )
    if data.evaluation_items:
        yield _split_items(UNTRAINED_SETS, data, data.evaluation_items)


def _split_items(name: str, data: TrainingData, test: Sequence[RatedItem]) -> Split:
    held_out = [exchange for item in test for exchange in item.exchanges]
    ids = {exchange.id for exchange in drop_shared([rated.exchange for rated in data.ratings], held_out)}
    return Split(
        name=name,
        train=TrainingData(
            ratings=[rated for rated in data.ratings if rated.exchange.id in ids],
            items=drop_shared(data.items, held_out),
            texts=drop_shared(data.texts, held_out),
        ),
        items=test,
    )


def study_item(rated: RatedExchange) -> RatedItem:
    """Return a rating of the study as an item of a set."""
    return RatedItem(
        set=STUDY,
        exchanges=(rated.exchange,),
        rating=1.0 + rated.target.index(max(rated.target)),
        rater=rated.rater,
        system=rated.exchange.model,
        cluster=rated.batch,
    )


SPLITS: Mapping[str, Callable[[TrainingData], Iterator[Split]]] = {
    SETS_APART: split_sets_apart,
    RATERS_APART: split_raters_apart,
    MODEL_APART: split_models_apart,
}
Predict = Callable[[Sequence[RatedExchange], Sequence[RatedExchange]], np.ndarray]


def _predict_majority(train: Sequence[RatedExchange], test: Sequence[RatedExchange]) -> np.ndarray:
    return np.tile(_shares(train), (len(test), 1))


def _predict_length(train: Sequence[RatedExchange], test: Sequence[RatedExchange]) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    return _fit_predict(LogisticRegression(max_iter=1000), _log_words, train, test)


def _predict_tfidf(train: Sequence[RatedExchange], test: Sequence[RatedExchange]) -> np.ndarray:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(ngram_range=(1, 2), min_df=min(3, len(train)), sublinear_tf=True)
    model = make_pipeline(words, LogisticRegression(C=0.3, max_iter=1000))
    return _fit_predict(model, lambda rows: [rated.exchange.response for rated in rows], train, test)


def _fit_predict(
    model: Any,
    read: Callable[[Sequence[RatedExchange]], Any],
    train: Sequence[RatedExchange],
    test: Sequence[RatedExchange],
) -> np.ndarray:
    try:
        model.fit(read(train), _ratings(train))
    except ValueError:  # one label only, or no word that is in three replies
        return _predict_majority(train, test)
    # A column for every label, also for those that the training part lacks.
    columns = np.zeros((len(test), len(LABELS)))
    columns[:, model.classes_] = model.predict_proba(read(test))
    return columns


def _predict_by_model(train: Sequence[RatedExchange], test: Sequence[RatedExchange]) -> np.ndarray:
    """Predict each model's own label frequencies; for a model left out, those of all."""
    by_model = {
        model: _shares([rated for rated in train if rated.exchange.model == model])
        for model in {rated.exchange.model for rated in train}
    }
    overall = _shares(train)
    return np.array([by_model.get(rated.exchange.model, overall) for rated in test])


# Fitted on the same training part: [test, 3] probabilities of Bad, Okay and Good. The oracle knows which
# model wrote a reply, which no judge may know.
BASELINES: Mapping[str, Predict] = {
    "majority": _predict_majority,
    "length": _predict_length,
    "TF-IDF": _predict_tfidf,
    "model oracle": _predict_by_model,
}


def fit_length(ratings: Sequence[RatedExchange]) -> dict[str, list[float]]:
    """Return the coefficients of the `length` judge; none where a label does not occur."""
    from sklearn.linear_model import LogisticRegression

    if len(set(_ratings(ratings))) < len(LABELS):
        return {}
    model = LogisticRegression(max_iter=1000).fit(_log_words(ratings), _ratings(ratings))
    return {
        "bias": [round(float(value), 6) for value in model.intercept_],
        "slope": [round(float(value), 6) for value in model.coef_[:, 0]],
    }


def _log_words(ratings: Sequence[RatedExchange]) -> np.ndarray:
    """Return the logarithm of each reply's word count, as the `length` judge counts: [ratings, 1]."""
    return np.log([[max(1, len(rated.exchange.response.split()))] for rated in ratings])


def _ratings(ratings: Sequence[RatedExchange]) -> np.ndarray:
    return np.array([int(np.argmax(rated.target)) for rated in ratings])


def _shares(ratings: Sequence[RatedExchange]) -> np.ndarray:
    return np.asarray(np.mean([rated.target for rated in ratings], axis=0))


def run_trial(
    data: TrainingData,
    recipes: Sequence[Recipe],
    protocol: str,
    folder: Path,
    *,
    device: str = "cpu",
    on_split: OnSplit = lambda name, number, total: None,
    on_step: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Train once for each held-out part, predict it, and return every metric with intervals and baselines.

    The predictions of a finished split are saved, so the same call resumes an interrupted trial.
    """
    from training.fine_tune import train_judge

    splits = list(SPLITS[protocol](data))
    plan = {"protocol": protocol, "evaluation_items": digest_items(data.evaluation_items)}
    check_plan(folder, {**plan, **plan_training(data, recipes)}, kind="trial")
    for number, split in enumerate(splits):
        path = folder / f"{quote(split.name, safe=' ', errors='surrogatepass')}.jsonl"
        if path.exists():
            continue
        on_split(split.name, number, len(splits))
        trained = train_judge(split.train, recipes, device=device, progress=on_step)
        rows = predict_items(split.items, trained) if split.items else predict_ratings(split, trained)
        write_rows(path, rows)
    evaluation = measure_trial(read_rows(folder), protocol)
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
        raise UserError(f"{folder}: contains something other than a {kind}; give another --out")
    if differing := [key for key, value in plan.items() if existing[key] != value]:
        raise UserError(
            f"{folder}: contains a {kind} with another {', '.join(differing)}; give another --out"
        )


def read_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the predictions of all finished splits."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines)


def read_finished(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plan and the evaluation of a finished trial."""
    try:
        plan, evaluation = (
            json.loads((folder / name).read_text(encoding="utf-8")) for name in (PLAN, EVALUATION)
        )
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: no finished trial here; run one with train --protocol") from error
    return plan, evaluation


def plan_training(data: TrainingData, recipes: Sequence[Recipe]) -> dict[str, Any]:
    """Return everything that decides about a training: the recipes and the digests of the data."""
    recipe, *teachers = recipes
    return {
        "recipe": asdict(recipe),
        "teachers": [asdict(teacher) for teacher in teachers],
        "digests": data.digests(recipes),
    }


def predict_items(items: Sequence[RatedItem], trained: "TrainedNetworks") -> list[dict[str, Any]]:
    """Return one row for each item, with the mean prediction over its replies."""
    predicted = iter(trained.predict([exchange for item in items for exchange in item.exchanges]))
    return [
        to_plain(set_item(item, _rounded(np.mean([next(predicted) for _ in item.exchanges], axis=0))))
        for item in items
    ]


def predict_ratings(split: Split, trained: "TrainedNetworks") -> list[dict[str, Any]]:
    """Return one row for each held-out rating, with the predictions of the judge and of every baseline."""
    exchanges = [rated.exchange for rated in split.ratings]
    predictions = {
        JUDGE: trained.predict(exchanges),
        NO_CONTEXT: trained.predict([replace(each, emotion=None, situation=None) for each in exchanges]),
        **{name: predict(split.train.ratings, split.ratings) for name, predict in BASELINES.items()},
    }
    return [
        {
            "id": rated.exchange.id,
            "model": rated.exchange.model,
            "batch": rated.batch,
            "split": split.name,
            "rating": LABELS[rated.target.index(max(rated.target))],
            "predictions": {name: _rounded(table[index]) for name, table in predictions.items()},
        }
        for index, rated in enumerate(split.ratings)
    ]


def _rounded(probabilities: Any) -> list[float]:
    return [round(float(part), 6) for part in probabilities]


def measure_trial(rows: Iterable[Mapping[str, Any]], protocol: str, *, seed: int = 0) -> dict[str, Any]:
    """Return every metric with its interval, as JSON values, for the judge and its baselines."""
    held = list(rows)
    if protocol == SETS_APART:
        items = [SetItem(**row) for row in held]
        names = dict.fromkeys(item.set for item in items)
        sets = [measure_set([item for item in items if item.set == name], seed=seed) for name in names]
        return {"protocol": protocol, "sets": to_plain(sets)}
    columns = {name: np.array([row[name] for row in held]) for name in ("model", "batch", "split")}
    columns["rating"] = np.array([LABELS.index(row["rating"]) + 1 for row in held])
    judges = {
        name: HeldOut(**columns, probabilities=np.array([row["predictions"][name] for row in held]))
        for name in held[0]["predictions"]
    }
    chosen = sorted({str(model) for model in columns["model"]} - {HUMAN})
    return {
        "protocol": protocol,
        "evaluations": to_plain(evaluate_held_out(judges, seed=seed, chosen=chosen)),
    }

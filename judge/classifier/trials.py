"""Put a recipe to the test: train on part of the ratings, predict the rest, and measure it beside rivals."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from calibration.agreement.held_out import HeldOut, compare_rivals
from data.errors import UserError
from data.files import replacing
from data.records import LABELS, Exchange, to_plain
from judge.classifier.examples import Example
from judge.classifier.recipe import Recipe, read_recipe

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Split:
    """One training and the exchanges it is then asked about."""

    name: str
    train: list[Example]
    test: list[Example]


def split_raters_apart(examples: Sequence[Example]) -> Iterator[Split]:
    """Folds over rating batches: no rater, prompt or batch on both sides."""
    batches = sorted({example.batch for example in examples}, key=lambda name: (len(name), name))
    if len(batches) < FOLDS:
        raise UserError(
            f"{len(batches)} rating batches cannot be split into {FOLDS} folds; give ratings a `batch`"
        )
    fold_of = {batch: number % FOLDS for number, batch in enumerate(batches)}
    for fold in range(FOLDS):
        train = [example for example in examples if fold_of[example.batch] != fold]
        test = [example for example in examples if fold_of[example.batch] == fold]
        prompts, raters = {example.group for example in test}, {example.rater for example in test}
        train = [e for e in train if e.group not in prompts and e.rater not in raters]
        yield _check_split(Split(f"fold-{fold}", train, test))


def split_models_apart(examples: Sequence[Example]) -> Iterator[Split]:
    """One model left out at a time, with every rater who saw it: the question of a model nobody rated."""
    models = sorted({example.exchange.model for example in examples})
    if len(models) < 3:
        raise UserError(f"{len(models)} models are too few to leave one out; three at least are needed")
    for model in models:
        test = [example for example in examples if example.exchange.model == model]
        raters = {example.rater for example in test}
        train = [e for e in examples if e.exchange.model != model and e.rater not in raters]
        yield _check_split(Split(model, train, test))


def _check_split(split: Split) -> Split:
    if not split.train:
        raise UserError(
            f"nothing is left to train on beside {split.name}: every other rating is of a rater or a prompt "
            "held out with it; this protocol needs people who rated only part of the replies"
        )
    return split


PROTOCOLS: dict[str, Callable[[Sequence[Example]], Iterator[Split]]] = {
    "raters-apart": split_raters_apart,
    "model-apart": split_models_apart,
}


def without_context(example: Example) -> Example:
    """The same example as somebody brings it who has neither emotion nor situation."""
    return replace(example, exchange=replace(example.exchange, emotion=None, situation=None))


Predict = Callable[[Sequence[Example], Sequence[Example]], np.ndarray]


def _predict_majority(train: Sequence[Example], test: Sequence[Example]) -> np.ndarray:
    return np.tile(_shares(train), (len(test), 1))


def _predict_length(train: Sequence[Example], test: Sequence[Example]) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    if len(set(_ratings(train))) == 1:
        return _predict_majority(train, test)
    model = LogisticRegression(max_iter=1000).fit(count_words(train), _ratings(train))
    return _by_label(model, count_words(test))


def _predict_words(train: Sequence[Example], test: Sequence[Example]) -> np.ndarray:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    if len(set(_ratings(train))) == 1:
        return _predict_majority(train, test)
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=min(3, len(train)), sublinear_tf=True)
    model = make_pipeline(words, LogisticRegression(C=0.3, max_iter=1000))
    try:
        model.fit([example.exchange.response for example in train], _ratings(train))
    except ValueError:  # no word stands in three replies
        return _predict_majority(train, test)
    return _by_label(model, [example.exchange.response for example in test])


def _predict_arm(train: Sequence[Example], test: Sequence[Example]) -> np.ndarray:
    """Each model's own frequencies; of a model left out it knows no more than the majority does."""
    per_model = {
        model: _shares([example for example in train if example.exchange.model == model])
        for model in {example.exchange.model for example in train}
    }
    overall = _shares(train)
    return np.array([per_model.get(example.exchange.model, overall) for example in test])


# What a judge must beat, fitted on the same training part: [test, 3] probabilities of Bad, Okay and Good. The
# oracle is what no judge may be: it is told whose reply it sees.
RIVALS: dict[str, Predict] = {
    "majority": _predict_majority,
    "length": _predict_length,
    "TF-IDF": _predict_words,
    "arm oracle": _predict_arm,
}


def count_words(examples: Sequence[Example]) -> np.ndarray:
    """The logarithm of each reply's word count, as the `length` judge counts: [examples, 1]."""
    return np.log([[max(1, len(example.exchange.response.split()))] for example in examples])


def fit_length(examples: Sequence[Example]) -> dict[str, list[float]]:
    """The coefficients of the `length` judge; none where a label was never given."""
    from sklearn.linear_model import LogisticRegression

    if len(set(_ratings(examples))) < len(LABELS):
        return {}
    model = LogisticRegression(max_iter=1000).fit(count_words(examples), _ratings(examples))
    return {
        "bias": [round(float(value), 6) for value in model.intercept_],
        "slope": [round(float(value), 6) for value in model.coef_[:, 0]],
    }


def _by_label(model: Any, inputs: Any) -> np.ndarray:
    """A column for every label, those too that the training part never had: [inputs, 3]."""
    given = np.asarray(model.predict_proba(inputs))
    answer = np.zeros((len(given), len(LABELS)))
    answer[:, model.classes_] = given
    return answer


def _ratings(examples: Sequence[Example]) -> np.ndarray:
    return np.array([int(np.argmax(example.target)) for example in examples])


def _shares(examples: Sequence[Example]) -> np.ndarray:
    return np.asarray(np.mean([example.target for example in examples], axis=0))


BARE = "judge, bare"  # without emotion and situation, as most people's files come
OnSplit = Callable[[str, int, int], None]  # the split's name, its number, how many there are


def run_trial(
    examples: Sequence[Example],
    recipe: Recipe,
    protocol: str,
    folder: Path,
    *,
    texts: Sequence[Exchange] = (),
    device: str = "cpu",
    on_split: OnSplit = lambda name, number, total: None,
    on_step: Callable[[int, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Every held-out rating with what the judge, told nothing of it, and each rival predict."""
    from judge.classifier.training import train_judge

    splits = list(PROTOCOLS[protocol](examples))
    _check_plan(folder, {"protocol": protocol, **plan_training(examples, recipe, texts)})
    for number, split in enumerate(splits):
        # A model's name may hold a slash, which a file's may not.
        path = folder / f"{quote(split.name, safe=' ', errors='surrogatepass')}.jsonl"
        if not path.exists():
            on_split(split.name, number, len(splits))
            trained = train_judge(split.train, recipe, texts=texts, device=device, progress=on_step)
            bare = [without_context(example).exchange for example in split.test]
            predictions = {
                "judge": trained.predict([example.exchange for example in split.test]),
                BARE: trained.predict(bare),
            }
            rows = held_out_rows(split, predictions)
            with replacing(path) as partial:
                partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines)


def held_out_rows(split: Split, predictions: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """One row for each held-out rating: what people said, and what everyone predicted."""
    predictions = predictions | {name: predict(split.train, split.test) for name, predict in RIVALS.items()}
    rows = []
    for index, example in enumerate(split.test):
        rating = LABELS[example.target.index(max(example.target))]
        rows.append(
            {
                "id": example.exchange.id,
                "model": example.exchange.model,
                "batch": example.batch,
                "split": split.name,
                "rating": rating,
                "predictions": {
                    name: [round(float(part), 6) for part in table[index]]
                    for name, table in predictions.items()
                },
            }
        )
    return rows


def plan_training(examples: Sequence[Example], recipe: Recipe, texts: Sequence[Exchange]) -> dict[str, Any]:
    """All that decides about a training: two of the same plan may stand for each other."""
    return {
        "recipe": asdict(recipe),
        "teacher": asdict(read_recipe(recipe.teacher)) if recipe.teacher else None,
        "data": digest_examples(examples),
        "texts": sha256("".join(text.content_digest for text in texts).encode()).hexdigest()[:16],
    }


def digest_examples(examples: Sequence[Example]) -> str:
    """Known by what was rated and how, in whatever order."""
    rows = sorted(
        f"{example.exchange.content_digest} {example.rater} {example.target}" for example in examples
    )
    return sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _check_plan(folder: Path, plan: dict[str, Any]) -> None:
    path = folder / "plan.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
        return
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: damaged, not JSON ({error}); delete the folder and try again") from error
    if set(there) != set(plan):
        raise UserError(f"{folder}: holds something else than a trial; give another --out")
    differing = [key for key, value in plan.items() if there[key] != value]
    if differing:
        raise UserError(f"{folder}: holds a trial with another {', '.join(differing)}; give another --out")


METRICS = {
    "qwk": "QWK",
    "spearman": "Spearman",
    "balanced_accuracy": "bal. acc.",
    "auc_good": "AUC Good",
    "auc_bad": "AUC Bad",
    "log_loss": "log-loss",
}
HUMAN = "human"


def measure_trial(
    rows: Iterable[Mapping[str, Any]], folder: Path, *, protocol: str, seed: int = 0
) -> dict[str, Any]:
    """Every metric with its interval for the judge and its rivals; kept as `evaluation.json`."""
    held = list(rows)
    columns = {name: np.array([row[name] for row in held]) for name in ("model", "batch", "split")}
    columns["rating"] = np.array([LABELS.index(row["rating"]) + 1 for row in held])
    judges = {
        name: HeldOut(**columns, probabilities=np.array([row["predictions"][name] for row in held]))
        for name in held[0]["predictions"]
    }
    chosen = sorted({str(model) for model in judges["judge"].model} - {HUMAN})
    rivalry = compare_rivals(judges, judge="judge", rng=np.random.default_rng(seed), chosen=chosen)
    about = {"protocol": protocol, "on_three_arms": _three_arms(judges, seed)}
    evaluation = {**about, **to_plain(rivalry)}
    with replacing(folder / "evaluation.json") as partial:
        partial.write_text(json.dumps(evaluation, indent=2) + "\n", encoding="utf-8")
    return evaluation


def _three_arms(judges: Mapping[str, HeldOut], seed: int) -> Any:
    """Balanced accuracy on the arms for which there is a published figure, where all three are there."""
    arms = [HUMAN, "gpt-4", "gpt-4-plain"]
    ours = judges["judge"]
    if not set(arms) <= set(ours.model.tolist()):
        return None
    kept = np.isin(ours.model, arms)
    part = HeldOut(**{item.name: getattr(ours, item.name)[kept] for item in fields(HeldOut)})
    compared = compare_rivals({"judge": part}, judge="judge", rng=np.random.default_rng(seed))
    return compared.evaluations["judge"].per_response["balanced_accuracy"].as_dict()

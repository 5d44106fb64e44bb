"""Put a recipe to the test: train on part of the ratings, predict the rest, and measure it beside rivals."""

import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from data.errors import OperationalError, UserError
from data.files import locked, replacing
from data.rated_exchanges import RatedExchange
from data.records import LABELS, Exchange, to_plain
from training.examples import TrainingData
from training.graded_replies import read_graded_replies, read_grades
from training.held_out import HeldOut, compare_rivals
from training.rated_sets import RatedItem, drop_shared, source_of
from training.recipe import Recipe, lineage
from training.set_transfer import SetItem, measure_set

if TYPE_CHECKING:
    from training.fine_tune import TrainedNetworks

FOLDS = 5
STUDY = "study"
ASKED = "sets with the weight 0"
TEACHER = "teacher"  # a trial of the teacher's recipe comes about in a folder of this name


@dataclass(frozen=True, slots=True)
class Split:
    """One training and the exchanges it is then asked about."""

    name: str
    train: list[RatedExchange]
    test: list[RatedExchange]


@dataclass(frozen=True, slots=True)
class SetSplit:
    """One training and the rated set it is then asked about, of which it saw no text."""

    name: str
    train: TrainingData
    test: list[RatedItem]


AnySplit = Split | SetSplit


def split_raters_apart(examples: Sequence[RatedExchange]) -> Iterator[Split]:
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


def split_models_apart(examples: Sequence[RatedExchange]) -> Iterator[Split]:
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


def split_sets_apart(corpus: TrainingData) -> Iterator[SetSplit]:
    """One rated set left out at a time, the study too; sets of one source go together.

    Those that are only asked about need one training for all of them.
    """
    items = [*corpus.items, *map(as_item, corpus.examples)]
    for source in dict.fromkeys(source_of(item) for item in items):
        test = [item for item in items if source_of(item) == source]
        rest = [item for item in corpus.items if source_of(item) != source]
        against = [exchange for item in test for exchange in item.exchanges]
        train = TrainingData(
            examples=[] if source == STUDY else _drop_examples(corpus.examples, against),
            items=drop_shared(rest, against),
            texts=drop_shared(corpus.texts, against),
        )
        if not train.examples and not train.items and corpus.asked:
            continue
        if not train.examples and not train.items:
            raise UserError(
                f"nothing is left to train on beside {source}: with sets apart the recipe has to name other "
                "rated sets under [sets]"
            )
        yield SetSplit(source, train, test)
    if corpus.asked:
        against = [exchange for item in corpus.asked for exchange in item.exchanges]
        train = TrainingData(
            examples=_drop_examples(corpus.examples, against),
            items=drop_shared(corpus.items, against),
            texts=drop_shared(corpus.texts, against),
        )
        yield SetSplit(ASKED, train, list(corpus.asked))


def _drop_examples(examples: Sequence[RatedExchange], against: Sequence[Exchange]) -> list[RatedExchange]:
    kept = {exchange.id for exchange in drop_shared([e.exchange for e in examples], against)}
    return [example for example in examples if example.exchange.id in kept]


def as_item(example: RatedExchange) -> RatedItem:
    """A rating of the study as an item of a set."""
    return RatedItem(
        set=STUDY,
        exchanges=(example.exchange,),
        rating=1.0 + example.target.index(max(example.target)),
        rater=example.rater,
        system=example.exchange.model,
        cluster=example.batch,
    )


PROTOCOLS: dict[str, Callable[[Sequence[RatedExchange]], Iterator[Split]]] = {
    "raters-apart": split_raters_apart,
    "model-apart": split_models_apart,
}
SETS_APART = "sets-apart"


def without_context(example: RatedExchange) -> RatedExchange:
    """The same example as somebody brings it who has neither emotion nor situation."""
    return replace(example, exchange=replace(example.exchange, emotion=None, situation=None))


Predict = Callable[[Sequence[RatedExchange], Sequence[RatedExchange]], np.ndarray]


def _predict_majority(train: Sequence[RatedExchange], test: Sequence[RatedExchange]) -> np.ndarray:
    return np.tile(_shares(train), (len(test), 1))


def _predict_length(train: Sequence[RatedExchange], test: Sequence[RatedExchange]) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    if len(set(_ratings(train))) == 1:
        return _predict_majority(train, test)
    model = LogisticRegression(max_iter=1000).fit(count_words(train), _ratings(train))
    return _by_label(model, count_words(test))


def _predict_words(train: Sequence[RatedExchange], test: Sequence[RatedExchange]) -> np.ndarray:
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


def _predict_arm(train: Sequence[RatedExchange], test: Sequence[RatedExchange]) -> np.ndarray:
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


def count_words(examples: Sequence[RatedExchange]) -> np.ndarray:
    """The logarithm of each reply's word count, as the `length` judge counts: [examples, 1]."""
    return np.log([[max(1, len(example.exchange.response.split()))] for example in examples])


def fit_length(examples: Sequence[RatedExchange]) -> dict[str, list[float]]:
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


def _ratings(examples: Sequence[RatedExchange]) -> np.ndarray:
    return np.array([int(np.argmax(example.target)) for example in examples])


def _shares(examples: Sequence[RatedExchange]) -> np.ndarray:
    return np.asarray(np.mean([example.target for example in examples], axis=0))


BARE = "judge, bare"  # without emotion and situation, as most people's files come
OnSplit = Callable[[str, int, int], None]  # the split's name, its number, how many there are


@dataclass(frozen=True, slots=True)
class Training:
    """One training, and what it is then asked about: the folder of each protocol with the part held out."""

    name: str
    train: TrainingData
    asked: Mapping[Path, AnySplit]


def plan_trainings(corpus: TrainingData, protocols: Sequence[str], folder: Path) -> list[Training]:
    """All trainings of a protocol. Those of several are shared: each leaves a part of every one out.

    So two protocols need the trainings of the longer one alone. What is asked has then learnt from less than
    it might, never from more.
    """
    parts: dict[str, list[AnySplit]] = {
        name: [*(split_sets_apart(corpus) if name == SETS_APART else PROTOCOLS[name](corpus.examples))]
        for name in sorted(protocols, key=(SETS_APART, *PROTOCOLS).index)
    }
    trainings = []
    for number in range(max(map(len, parts.values()))):
        asked = {
            trial_folder(folder, name, protocols): splits[number]
            for name, splits in parts.items()
            if number < len(splits)
        }
        train = corpus
        for split in asked.values():  # sets come first
            if isinstance(split, SetSplit):
                train = split.train
                continue
            kept = set(map(id, train.examples))
            train = _beside(replace(split, train=[e for e in split.train if id(e) in kept]), train)
        trainings.append(Training(" and ".join(split.name for split in asked.values()), train, asked))
    return trainings


def trial_folder(folder: Path, protocol: str, protocols: Sequence[str]) -> Path:
    """Where a protocol's rows and figures lie: a folder of its own where several are tried at once."""
    return folder / protocol if len(protocols) > 1 else folder


def run_trial(
    corpus: TrainingData,
    recipe: Recipe,
    protocols: Sequence[str],
    folder: Path,
    *,
    device: str = "cpu",
    on_split: OnSplit = lambda name, number, total: None,
    on_step: Callable[[int, int], None] | None = None,
) -> None:
    """Train for everything held out, and keep what the judge, told nothing of it, and each rival predict.

    Where a judge has a teacher, its trial comes about in the folder `teacher` beside: it was trained anyway.
    """
    from training.fine_tune import train_judge

    trainings = plan_trainings(corpus, protocols, folder)
    depths = [Path(*[TEACHER] * depth) for depth in range(len(lineage(recipe)))]
    asked = {"asked": _digest_items(corpus.asked)} if corpus.asked else {}
    for protocol in protocols:
        for depth, tried in zip(depths, lineage(recipe), strict=True):
            place = trial_folder(folder, protocol, protocols) / depth
            _check_plan(place, {"protocol": protocol, **plan_training(corpus, tried), **asked})
    with closing(_take_each(trainings, folder)) as taken:
        for number, training in taken:
            names = {place: _file_name(split.name) for place, split in training.asked.items()}
            if all((place / depth / name).exists() for place, name in names.items() for depth in depths):
                continue
            on_split(training.name, number, len(trainings))
            judges = train_judge(training.train, recipe, device=device, progress=on_step)
            for place, split in training.asked.items():
                for depth, trained in zip(depths, judges, strict=True):
                    rows = _predict(split, trained)
                    with replacing(place / depth / names[place]) as partial:
                        partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _take_each(trainings: Sequence[Training], folder: Path) -> Generator[tuple[int, Training]]:
    """Every training while this process alone is at it: one command given several times shares the work."""
    later = []
    for number, training in enumerate(trainings):
        try:
            with locked(folder / "locks" / _file_name(training.name), busy="another process is at it"):
                yield number, training
        except OperationalError:
            later.append((number, training))
    for number, training in later:  # wait for whoever has it; what was left undone is done then
        with locked(folder / "locks" / _file_name(training.name)):
            yield number, training


FEW_ITEMS, FEW_REPLIES = 600, 2  # of a set, and of a conversation, that a judge is asked about


def draw_few(items: Iterable[RatedItem], count: int = FEW_ITEMS) -> list[RatedItem]:
    """So many items of each set, and of each of them some replies: always the same."""
    by_set: dict[str, list[RatedItem]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.exchanges[-1].content_digest):
        by_set[item.set].append(item)
    drawn = [item for those in by_set.values() for item in those[:count]]
    return [replace(item, exchanges=few_replies(item.exchanges)) for item in drawn]


def few_replies(exchanges: Sequence[Exchange]) -> tuple[Exchange, ...]:
    """Some replies of a conversation, evenly to its end: a hundred turns say little more of a bot."""
    if len(exchanges) <= FEW_REPLIES:
        return tuple(exchanges)
    places = np.linspace(0, len(exchanges) - 1, FEW_REPLIES + 1).round().astype(int)[1:]
    return tuple(exchanges[place] for place in places)


def _file_name(name: str) -> str:
    """A model's name may hold a slash, which a file's may not."""
    return f"{quote(name, safe=' ', errors='surrogatepass')}.jsonl"


def read_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Every row of a finished trial."""
    for path in sorted(folder.glob("*.jsonl")):
        yield from _read_file(path)


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines)


def _beside(split: Split, corpus: TrainingData) -> TrainingData:
    """A training part of the ratings with all else that shares no text with what is held out."""
    against = [example.exchange for example in split.test]
    return TrainingData(
        examples=split.train,
        items=drop_shared(corpus.items, against),
        texts=drop_shared(corpus.texts, against),
    )


def _predict(split: AnySplit, trained: "TrainedNetworks") -> list[dict[str, Any]]:
    return predict_items(split, trained) if isinstance(split, SetSplit) else held_out_rows(split, trained)


def predict_items(split: SetSplit, trained: "TrainedNetworks") -> list[dict[str, Any]]:
    """One row for each item of the set left out, with the mean of what the judge says of its replies."""
    every = [exchange for item in split.test for exchange in item.exchanges]
    return rows_of_items(split.test, trained.predict(every))


def rows_of_items(items: Sequence[RatedItem], predicted: Iterable[Any]) -> list[dict[str, Any]]:
    """Each item with the mean of what was said of its replies, which come in order."""
    said, rows = iter(predicted), []
    for item in items:
        each = np.array([next(said) for _ in item.exchanges])
        words = [len(exchange.response.split()) for exchange in item.exchanges]
        rows.append(
            to_plain(
                SetItem(
                    id=item.exchanges[-1].id,
                    set=item.set,
                    system=item.system,
                    cluster=item.cluster,
                    rating=item.rating,
                    words=round(float(np.mean(words)), 2),
                    probabilities=[round(float(part), 6) for part in each.mean(axis=0)],
                    others=item.others,
                )
            )
        )
    return rows


def held_out_rows(split: Split, trained: "TrainedNetworks") -> list[dict[str, Any]]:
    """One row for each held-out rating: what people said, and what everyone predicted."""
    bare = [without_context(example).exchange for example in split.test]
    predictions = {
        "judge": trained.predict([example.exchange for example in split.test]),
        BARE: trained.predict(bare),
        **{name: predict(split.train, split.test) for name, predict in RIVALS.items()},
    }
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


def plan_training(corpus: TrainingData, recipe: Recipe) -> dict[str, Any]:
    """All that decides about a training: two of the same plan may stand for each other."""
    return {
        "recipe": asdict(recipe),
        "teachers": [asdict(teacher) for teacher in lineage(recipe)[1:]],
        "data": digest_examples(corpus.examples),
        "sets": _digest_items(corpus.items),
        "texts": _digest(text.content_digest for text in corpus.texts),
        "ours": _digest(f"{reply.exchange.content_digest} {reply.score}" for reply in read_graded_replies()),
        "grades": _digest(f"{digest} {score}" for digest, score in read_grades().items()),
    }


def digest_examples(examples: Sequence[RatedExchange]) -> str:
    """Known by what was rated and how, in whatever order."""
    return _digest(f"{e.exchange.content_digest} {e.rater} {e.target}" for e in examples)


def _digest_items(items: Iterable[RatedItem]) -> str:
    return _digest(f"{item.set} {item.exchanges[-1].content_digest} {item.rating}" for item in items)


def _digest(rows: Iterable[str]) -> str:
    return sha256("\n".join(sorted(rows)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


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
    if protocol == SETS_APART:
        return keep_evaluation({"protocol": protocol, "sets": measure_sets(held, seed=seed)}, folder)
    columns = {name: np.array([row[name] for row in held]) for name in ("model", "batch", "split")}
    columns["rating"] = np.array([LABELS.index(row["rating"]) + 1 for row in held])
    judges = {
        name: HeldOut(**columns, probabilities=np.array([row["predictions"][name] for row in held]))
        for name in held[0]["predictions"]
    }
    chosen = sorted({str(model) for model in judges["judge"].model} - {HUMAN})
    rivalry = compare_rivals(judges, judge="judge", rng=np.random.default_rng(seed), chosen=chosen)
    about = {"protocol": protocol, "on_three_arms": _three_arms(judges, seed)}
    return keep_evaluation({**about, **to_plain(rivalry)}, folder)


def measure_sets(rows: Sequence[Mapping[str, Any]], *, seed: int = 0) -> list[Any]:
    """Each set that was left out: the judge, the length of replies, recorded judges and people."""
    items = [SetItem(**row) for row in rows]
    names = dict.fromkeys(item.set for item in items)
    return [to_plain(measure_set([i for i in items if i.set == name], seed=seed)) for name in names]


def keep_evaluation(evaluation: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write the figures beside the rows that they come from."""
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

"""How a classifier is put to the test: trained on one part of the ratings, asked about the other."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from data.errors import UserError
from judge.examples import Example

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

"""Held-out parts of the data, and baselines: the training side reveals nothing about a held-out rating."""

from collections import Counter
from dataclasses import replace
from math import log

import numpy as np
import pytest
from scipy.special import softmax

from data.errors import UserError
from data.rated_exchanges import RatedExchange
from data.records import Exchange
from training.training_data import TrainingData
from training.trials import (
    BASELINES,
    MODEL_APART,
    RATERS_APART,
    SPLITS,
    Split,
    fit_length,
    split_models_apart,
    split_raters_apart,
    split_sets_apart,
)

BY_RATING = (RATERS_APART, MODEL_APART)


def sides(split: Split) -> list[tuple[set[str], set[str]]]:
    """Return the raters, batches, prompts and models of both sides."""
    return [
        (set(map(key, split.train.ratings)), set(map(key, split.ratings)))
        for key in (
            lambda rated: rated.rater,
            lambda rated: rated.batch,
            lambda rated: rated.group,
            lambda rated: rated.exchange.model,
        )
    ]


@pytest.mark.parametrize("protocol", BY_RATING)
def test_every_rating_is_held_out_once(examples: list[RatedExchange], protocol: str) -> None:
    held_out = [
        rated for split in SPLITS[protocol](TrainingData(ratings=examples)) for rated in split.ratings
    ]
    assert Counter(e.exchange.id for e in held_out) == Counter(e.exchange.id for e in examples)


def test_raters_apart_shares_no_rater_batch_or_prompt(examples: list[RatedExchange]) -> None:
    splits = list(split_raters_apart(TrainingData(ratings=examples)))
    assert [split.name for split in splits] == [f"fold-{number}" for number in range(5)]
    for split in splits:
        *others, models = sides(split)
        assert all(train.isdisjoint(test) for train, test in others)
        assert models[0] == models[1] == {"ada", "bea/2", "cyd"}
        assert len(split.train.ratings) == 4 * len(split.ratings) == 96
    busy = [replace(e, rater="busy") if e.batch in ("batch-0", "batch-1") else e for e in examples]
    again = replace(examples[0], batch="batch-7", rater="rater-7-ada")
    for split in split_raters_apart(TrainingData(ratings=[*busy, again])):
        raters, _, prompts, _ = sides(split)
        assert raters[0].isdisjoint(raters[1]) and prompts[0].isdisjoint(prompts[1])


def test_model_apart_leaves_out_a_model_with_all_of_its_raters(examples: list[RatedExchange]) -> None:
    shared = [
        replace(e, rater="busy") if e.batch == "batch-0" and e.exchange.model != "cyd" else e
        for e in examples
    ]
    splits = list(split_models_apart(TrainingData(ratings=shared)))
    assert [split.name for split in splits] == ["ada", "bea/2", "cyd"]
    for split in splits:
        raters, _, _, models = sides(split)
        assert models[1] == {split.name} and split.name not in models[0]
        assert raters[0].isdisjoint(raters[1])
        assert len(split.train.ratings) == (80 if split.name == "cyd" else 76)


def test_data_that_cannot_be_split_is_refused(examples: list[RatedExchange]) -> None:
    few = [e for e in examples if e.batch in ("batch-0", "batch-1", "batch-2")]
    two = [e for e in examples if e.exchange.model != "ada"]
    one_rater = [replace(e, rater="only") for e in examples]
    for split, ratings, message in (
        (split_raters_apart, few, "3 rating batches cannot be split into 5 folds; give ratings a `batch`"),
        (split_models_apart, two, "2 models are too few to leave one out"),
        (split_raters_apart, one_rater, "nothing is left to train on beside fold-0"),
        (split_models_apart, one_rater, "nothing is left to train on beside ada"),
        (split_sets_apart, examples, "nothing is left to train on beside study: with sets apart the recipe"),
    ):
        with pytest.raises(UserError, match=message):
            list(split(TrainingData(ratings=ratings)))


BAD, OKAY, GOOD = np.eye(3).tolist()


def made(response: str, target: list[float], model: str = "m") -> RatedExchange:
    exchange = Exchange(id=response, prompt="p", response=response, model=model)
    return RatedExchange(exchange=exchange, target=tuple(target), rater="r")


TRAIN = [
    *(made("short reply", BAD, "a") for _ in range(6)),
    *(made("a reply of some middling length", OKAY, "a") for _ in range(6)),
    *(made("a reply that goes on for longer than the others do by far", GOOD, "b") for _ in range(12)),
]
TEST = [made("two words", BAD, "a"), made("one two three four five six seven eight nine ten", GOOD, "new")]


def test_baselines_by_hand() -> None:
    assert BASELINES["majority"](TRAIN, TEST).tolist() == [[0.25, 0.25, 0.5]] * 2
    assert BASELINES["model oracle"](TRAIN, TEST).tolist() == [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]
    short, long = BASELINES["length"](TRAIN, TEST)
    assert (short.argmax(), long.argmax()) == (0, 2)
    same, empty, one = BASELINES["length"](TRAIN, [made(text, GOOD) for text in ("zwei Worte", "", "word")])
    assert same == pytest.approx(short) and empty == pytest.approx(one), "as the length judge counts"
    words = [
        made(f"{word} reply", label) for word, label in (("warm", GOOD), ("cold", BAD)) for _ in range(20)
    ]
    predicted = BASELINES["TF-IDF"](words, [made("warm", GOOD), made("cold", BAD)])
    assert predicted.argmax(axis=1).tolist() == [2, 0]


def test_the_fitted_coefficients_are_those_of_the_length_judge() -> None:
    bias, slope = (coefficients := fit_length(TRAIN))["bias"], coefficients["slope"]
    by_hand = [
        softmax([b + s * log(len(e.exchange.response.split())) for b, s in zip(bias, slope, strict=True)])
        for e in TEST
    ]
    assert np.array(by_hand) == pytest.approx(BASELINES["length"](TRAIN, TEST), abs=1e-5)
    assert fit_length(TRAIN[:12]) == {}, "a label is missing"


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("train", [TRAIN, TRAIN[:12], TRAIN[12:], TRAIN[5:7]])
def test_a_baseline_gives_no_probability_to_a_label_that_the_training_part_lacks(
    name: str, train: list[RatedExchange]
) -> None:
    predicted = BASELINES[name](train, TEST)
    assert predicted.shape == (2, 3) and predicted.sum(axis=1) == pytest.approx(1)
    lacking = np.mean([rated.target for rated in train], axis=0) == 0
    assert (predicted[:, lacking] == 0).all()

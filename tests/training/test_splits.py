"""Held-out parts of the data, and baselines: the training side reveals nothing about a held-out rating."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from empathy_judge.data.errors import UserError
from empathy_judge.data.rating_files.rated_inputs import RatedExchange
from empathy_judge.data.records import Exchange
from empathy_judge.training import cross_validation as cv
from empathy_judge.training.rated_sets import read_rated_set
from empathy_judge.training.recipe import STUDY, Recipe
from empathy_judge.training.training_data import TrainingData


def test_a_part_holds_out_prompts_with_their_raters_and_models(examples: list[RatedExchange]) -> None:
    splits = list(cv.split_parts(TrainingData(ratings=examples)))
    assert [split.name for split in splits] == ["part-0", "part-1", "part-2"]
    models = Counter(rated.exchange.model for split in splits for rated in split.models)
    assert models == Counter(rated.exchange.model for rated in examples), "every model once, with all ratings"
    for split in splits:
        (model,) = {rated.exchange.model for rated in split.models}
        trained = {rated.exchange.model for rated in split.train.ratings}
        assert model not in trained and {rated.exchange.model for rated in split.raters} == trained
        assert {rated.rater for rated in split.train.ratings}.isdisjoint(
            rated.rater for rated in (*split.raters, *split.models)
        )
        for key in ("batch", "group"):
            names = [{getattr(rated, key) for rated in side} for side in (split.train.ratings, split.raters)]
            assert names[0].isdisjoint(names[1])
        assert len(split.train.ratings) == 4 * len(split.raters) == 64


def test_a_rater_or_prompt_on_both_sides_is_left_out(examples: list[RatedExchange]) -> None:
    busy = [replace(e, rater="busy") if e.batch in ("batch-0", "batch-1") else e for e in examples]
    again = replace(examples[0], batch="batch-7", rater="rater-7-ada")
    for split in cv.split_parts(TrainingData(ratings=[*busy, again])):
        held_out = (*split.raters, *split.models)
        assert {rated.rater for rated in split.train.ratings}.isdisjoint(rated.rater for rated in held_out)
        assert {rated.group for rated in split.train.ratings}.isdisjoint(each.group for each in split.raters)


def test_what_is_only_evaluated_is_left_to_the_finished_judge(examples: list[RatedExchange]) -> None:
    scenes = read_rated_set("scenes", Path())[:20]
    shared = replace(examples[0].exchange, prompt=scenes[0].exchanges[0].prompt)
    copied = replace(examples[0], exchange=shared)
    data = TrainingData(
        ratings=[copied, *examples[1:]],
        items=[*scenes, *(replace(item, set="epitome", cluster=item.cluster * 2) for item in scenes)],
        evaluated=frozenset({STUDY, "epitome"}),
    )
    assert not list(cv.split_parts(data))
    read = data.for_recipe(Recipe())
    assert not read.ratings and list(read.items) == scenes
    split = cv.split_evaluated(data)
    assert not split.items, "their texts are in the training"
    assert {id(rated) for rated in split.models} == {id(rated) for rated in examples[1:]}
    usual = [rated for each in cv.split_parts(TrainingData(ratings=examples[1:])) for rated in each.raters]
    assert split.raters == usual


def test_what_ratings_or_texts_taught_is_not_evaluated(examples: list[RatedExchange]) -> None:
    (scene, other, *_) = read_rated_set("scenes", Path())[::4]
    text = Exchange(id="t", prompt="p", response=scene.exchanges[0].response, model="m")
    rated = replace(examples[0], exchange=replace(text, response=other.exchanges[0].response))
    evaluated = frozenset({"epitome"})
    items = [replace(item, set="epitome", cluster=f"post {n}") for n, item in enumerate((scene, other))]
    data = TrainingData(ratings=examples, items=items, evaluated=evaluated)
    assert cv.split_evaluated(data).items == items
    assert cv.split_evaluated(replace(data, texts=[text])).items == items[1:]
    assert cv.split_evaluated(replace(data, ratings=[rated])).items == items[:1]


def test_a_finished_judge_predicts_some_items_of_a_large_set_and_some_replies_of_a_conversation() -> None:
    (scene, *_) = read_rated_set("scenes", Path())
    exchanges = [replace(scene.exchanges[0], prompt=f"prompt {n}", response=f"reply {n}") for n in range(9)]
    talk = replace(scene, set="dstc9", exchanges=tuple(exchanges))
    many = [replace(talk, cluster=str(number)) for number in range(2000)]
    items = cv.split_evaluated(TrainingData(items=many, evaluated=frozenset({"dstc9"}))).items
    assert [item.cluster for item in items] == [str(number) for number in range(1, 2000, 2)]
    assert items[0].exchanges == tuple(exchanges[place] for place in (1, 2, 3, 5, 7, 8))


def held_out_of(ratings: list[RatedExchange]) -> list[cv.Split]:
    return list(cv.split_parts(TrainingData(ratings=ratings)))


def test_data_that_cannot_be_split_is_left_whole_or_refused(examples: list[RatedExchange]) -> None:
    few = [e for e in examples if e.batch in ("batch-0", "batch-1", "batch-2")]
    assert len(held_out_of(few)) == cv.PARTS and not any(split.raters for split in held_out_of(few))
    two = [e for e in examples if e.exchange.model != "ada"]
    assert len(held_out_of(two)) == cv.PARTS and not any(split.models for split in held_out_of(two))
    with pytest.raises(UserError, match="nothing is left to train on"):
        held_out_of([replace(e, rater="only") for e in examples])


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
    assert cv.BASELINES["majority"](TRAIN, TEST).tolist() == [[0.25, 0.25, 0.5]] * 2
    assert cv.BASELINES["model oracle"](TRAIN, TEST).tolist() == [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]
    short, long = cv.BASELINES["length"](TRAIN, TEST)
    assert (short.argmax(), long.argmax()) == (0, 2)
    same, empty, one = cv.BASELINES["length"](
        TRAIN, [made(each, GOOD) for each in ("zwei Worte", "", "word")]
    )
    assert same == pytest.approx(short) and empty == pytest.approx(one), "as the length judge counts"
    words = [made("warm reply", GOOD), made("cold reply", BAD)] * 20
    predicted = cv.BASELINES["TF-IDF"](words, [made("warm", GOOD), made("cold", BAD)])
    assert predicted.argmax(axis=1).tolist() == [2, 0]


def test_the_fitted_coefficients_are_those_of_the_length_judge() -> None:
    fitted = {name: np.array(values) for name, values in cv.fit_length(TRAIN).items()}
    lengths = np.log([[len(rated.exchange.response.split())] for rated in TEST])
    by_hand = softmax(fitted["bias"] + fitted["slope"] * lengths, axis=1)
    assert by_hand == pytest.approx(cv.BASELINES["length"](TRAIN, TEST), abs=1e-5)
    assert cv.fit_length(TRAIN[:12]) == {}, "a label is missing"


@pytest.mark.parametrize("name", cv.BASELINES)
@pytest.mark.parametrize("train", [TRAIN, TRAIN[:12], TRAIN[12:], TRAIN[5:7]])
def test_a_baseline_gives_no_probability_to_a_label_that_the_training_part_lacks(
    name: str, train: list[RatedExchange]
) -> None:
    predicted = cv.BASELINES[name](train, TEST)
    assert predicted.shape == (2, 3) and predicted.sum(axis=1) == pytest.approx(1)
    lacking = np.mean([rated.target for rated in train], axis=0) == 0
    assert (predicted[:, lacking] == 0).all()

"""The rivals: answers that can be counted by hand, and training parts that lack a label."""

from math import log

import numpy as np
import pytest

from data.rated_exchanges import RatedExchange
from data.records import Exchange
from judge.baselines import softmax
from training.trials import RIVALS, fit_length

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


def test_majority_says_the_shares_of_the_training_part() -> None:
    assert RIVALS["majority"](TRAIN, TEST).tolist() == [[0.25, 0.25, 0.5]] * 2


def test_the_oracle_says_each_models_own_shares_and_of_a_new_one_those_of_all() -> None:
    assert RIVALS["arm oracle"](TRAIN, TEST).tolist() == [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]


def test_length_follows_the_number_of_words_and_nothing_else() -> None:
    short, long = RIVALS["length"](TRAIN, TEST)
    assert short.argmax() == 0
    assert long.argmax() == 2
    same = RIVALS["length"](TRAIN, [made("zwei Worte", GOOD)])
    assert same[0] == pytest.approx(short)


def test_the_fitted_coefficients_are_those_of_the_length_judge() -> None:
    found = fit_length(TRAIN)
    by_hand = [
        softmax([b + s * log(len(e.exchange.response.split())) for b, s in zip(*found.values(), strict=True)])
        for e in TEST
    ]
    assert list(found) == ["bias", "slope"]
    assert np.array(by_hand) == pytest.approx(RIVALS["length"](TRAIN, TEST), abs=1e-5)


def test_words_tell_what_length_cannot() -> None:
    train = [
        made(f"{word} reply", target) for word, target in (("warm", GOOD), ("cold", BAD)) for _ in range(20)
    ]
    found = RIVALS["TF-IDF"](train, [made("warm", GOOD), made("cold", BAD)])
    assert found.argmax(axis=1).tolist() == [2, 0]


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize(
    "train", [TRAIN, TRAIN[:12], TRAIN[12:], TRAIN[5:7]], ids=["all", "no Good", "only Good", "two"]
)
def test_every_rival_gives_three_probabilities_whatever_the_training_part_lacks(
    name: str, train: list[RatedExchange]
) -> None:
    found = RIVALS[name](train, TEST)
    assert found.shape == (2, 3)
    assert found.sum(axis=1) == pytest.approx(1)
    lacking = np.mean([example.target for example in train], axis=0) == 0
    assert (found[:, lacking] == 0).all()


def test_without_a_label_there_are_no_coefficients() -> None:
    assert fit_length(TRAIN[:12]) == {}


def test_length_counts_as_the_shipped_length_judge_does() -> None:
    """An empty reply counts as one word, in training as in scoring."""
    empty, one = RIVALS["length"](TRAIN, [made("", BAD), made("word", BAD)])
    assert empty == pytest.approx(one)

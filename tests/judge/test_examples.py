"""Training examples: ratings that meet their exchanges, and the ones that are made."""

import random
from dataclasses import replace

import pytest

from data.errors import UserError
from data.records import Exchange, Rating
from judge.classifier.examples import (
    DISMISSALS,
    DISMISSED,
    MISMATCHED,
    STOCK_SYMPATHY,
    SYMPATHY,
    Example,
    cut_pieces,
    join_ratings,
    make_dismissals,
    make_mismatched,
    soften,
)

EXCHANGES = [
    Exchange(id="a", prompt="p", response="x", model="m", extra={"dialog_id": 7, "batch": 3}),
    Exchange(id="b", prompt="q", response="y", model="n"),
]


def rate(identity: str, rating: float, **options: str) -> Rating:
    return Rating(id=identity, rater=options.pop("rater", "r"), rating=rating, **options)


def test_every_rating_whose_exchange_is_there_is_an_example() -> None:
    ratings = [rate("a", 3), rate("a", 1, rater="s", batch="9"), rate("b", 2), rate("none", 1)]
    joined = join_ratings(EXCHANGES, ratings)
    assert [(e.exchange.id, e.rater, e.target) for e in joined] == [
        ("a", "r", (0.0, 0.0, 1.0)),
        ("a", "s", (1.0, 0.0, 0.0)),
        ("b", "r", (0.0, 1.0, 0.0)),
    ]
    assert [e.group for e in joined] == ["7", "7", "q"], "a dialogue's number, else the prompt"
    assert [e.batch for e in joined] == ["3", "9", "r"], "the rating's, else the exchange's, else the rater"


def test_another_dimension_is_not_ours() -> None:
    ratings = [rate("a", 3), rate("b", 5, dimension="fluency")]
    assert [e.exchange.id for e in join_ratings(EXCHANGES, ratings)] == ["a"]


@pytest.mark.parametrize(
    ("rating", "said"),
    [
        (rate("a", 4), "rating 4 of 'a' is not on the scale from 1 to 3"),
        (rate("a", 0), "rating 0 of 'a' is not on the scale from 1 to 3"),
        (rate("a", float("nan")), "rating nan of 'a' is not on the scale"),
        (rate("a", 2.5), "rating 2.5 of 'a' is not one of 1, 2 and 3"),
        (rate("a", 2, rater=""), "a rating of 'a' names no rater"),
        (rate("c", 2), "no rating belongs to an exchange"),
    ],
)
def test_ratings_that_cannot_be_learnt_from_are_refused(rating: Rating, said: str) -> None:
    with pytest.raises(UserError, match=said):
        join_ratings(EXCHANGES, [rating])


def test_a_mismatched_reply_is_the_same_models_under_another_group(examples: list[Example]) -> None:
    # Replies that tell who wrote them and where.
    examples = [replace(e, exchange=replace(e.exchange, response=e.exchange.id)) for e in examples]
    wrote = {e.exchange.response: (e.exchange.model, e.group) for e in examples}
    group_of = {e.exchange.prompt: e.group for e in examples}
    made = make_mismatched(examples, 300, random.Random(0))
    assert len(made) == 300
    for example in made:
        model, group = wrote[example.exchange.response]
        assert model == example.exchange.model
        assert group != group_of[example.exchange.prompt]
        assert (example.target, example.rater, example.group) == (MISMATCHED, "", "")


def test_where_no_reply_can_be_mismatched_none_is(examples: list[Example]) -> None:
    group = examples[0].group
    one_group = [example for example in examples if example.group == group]
    assert make_mismatched(one_group, 10, random.Random(0)) == []
    # A model with one group is passed over; the others are not.
    lone = next(e for e in examples if e.exchange.model == "ada")
    mixed = [lone, *(e for e in examples if e.exchange.model == "cyd")]
    assert {e.exchange.model for e in make_mismatched(mixed, 20, random.Random(0))} == {"cyd"}


def test_dismissals_stand_under_real_prompts_a_third_with_stock_sympathy(examples: list[Example]) -> None:
    lines = [line for line in DISMISSALS.read_text(encoding="utf-8").splitlines() if line]
    prompts = {e.exchange.prompt for e in examples}
    made = make_dismissals(examples, 90, random.Random(0))
    plain = [e for e in made if e.target == DISMISSED]
    dressed = [e for e in made if e.target == STOCK_SYMPATHY]
    assert (len(plain), len(dressed)) == (60, 30)
    assert all(e.exchange.response in lines for e in plain)
    for example in dressed:
        response = example.exchange.response
        assert any(phrase in response for phrase in SYMPATHY)
        assert any(line in response for line in lines)
    assert all(e.exchange.prompt in prompts and not e.rater for e in made)


@pytest.mark.parametrize("target", [MISMATCHED, DISMISSED, STOCK_SYMPATHY])
def test_what_made_examples_teach_are_probabilities(target: tuple[float, ...]) -> None:
    assert sum(target) == pytest.approx(1)
    assert list(target) == sorted(target, reverse=True), "Bad is likeliest, Good least likely"


def test_softened_targets_lie_between_the_rating_and_the_teacher() -> None:
    joined = join_ratings(EXCHANGES, [rate("a", 3), rate("b", 1)])
    taught = {EXCHANGES[0].content_digest: (0.2, 0.4, 0.4)}
    softened = soften(joined, taught, 0.75)
    assert softened[0].target == pytest.approx((0.15, 0.3, 0.55))
    assert softened[1:] == [joined[1]], "untaught replies stay as they were"


def test_a_piece_is_a_reply_without_one_of_its_parts() -> None:
    whole = Exchange(id="1", prompt="I won!", response="Well done! How did it feel? Tell me more.")
    word = replace(whole, id="2", response="Lovely.")
    pieces = cut_pieces([whole, word], 5, random.Random(0))
    assert len(pieces) == 1  # a reply that cannot be cut is left out, and none is cut twice
    assert pieces[0].prompt == "I won!"
    assert pieces[0].response in {
        "How did it feel? Tell me more.",
        "Well done! Tell me more.",
        "Well done! How did it feel?",
    }

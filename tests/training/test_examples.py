"""What a classifier learns from: ratings that meet their exchanges, other sets' items, and texts cut anew."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from data.errors import UserError
from data.rated_exchanges import RatedExchange, join_ratings
from data.readers.conversations import split_conversation
from data.records import Exchange, Rating, Turn
from training.examples import (
    MIDDLE,
    SPREAD,
    UNHEARD_SCORE,
    WELL_MEANT,
    TrainingData,
    cut_pieces,
    examples_from_graded_replies,
    examples_from_grades,
    examples_from_sets,
    forget_situations,
    mix_replies,
    shuffle_replies,
)
from training.graded_replies import read_graded_replies
from training.rated_sets import RatedItem

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


def rated(name: str, number: int, rating: float, *, rater: str | None = None, replies: int = 1) -> RatedItem:
    talk = tuple(Exchange(id=f"{name}-{number}#{n}", prompt="p", response=f"r{n}") for n in range(replies))
    return RatedItem(name, talk, rating, rater, "bot", str(number))


def test_a_sets_ratings_are_learnt_in_its_own_standard_deviations() -> None:
    items = [rated("epitome", n, rating) for n, rating in enumerate((0, 0, 6, 6))]
    items += [rated("dstc9", 9, 4.0), rated("ieval", 8, 1.0)]
    lessons = examples_from_sets(items, {"epitome": 0.5, "dstc9": 0.3}, replies=2, chance=random.Random(0))
    assert [(lesson.set, lesson.value, lesson.weight) for lesson in lessons] == [
        *(("epitome", value, 0.5) for value in (-1.0, -1.0, 1.0, 1.0)),
        ("dstc9", 0.0, 0.3),  # one item alone tells nothing
    ], "a set without a weight is not learnt from"
    assert not any(lesson.rater for lesson in lessons), "severity is of the study's raters"


def test_a_raters_own_level_is_taken_out_where_one_rated_several() -> None:
    """Two people order the same four bots alike, one of them two points lower; a third rated two only."""
    mild = [rated("ieval", n, 2.0 + n, rater="mild") for n in range(4)]
    harsh = [rated("ieval", 4 + n, 0.0 + n, rater="harsh") for n in range(4)]
    few = [rated("ieval", 8 + n, 5.0, rater="few") for n in range(2)]
    chance, items = random.Random(0), [*mild, *harsh, *few]
    values = [lesson.value for lesson in examples_from_sets(items, {"ieval": 1.0}, replies=1, chance=chance)]
    assert values[:4] == pytest.approx(values[4:8])
    assert values[:4] == sorted(values[:4])
    assert sum(values[:4]) == pytest.approx(0)
    assert values[8] == values[9] > values[3], "two ratings do not tell a person's level: they stay as given"


def test_of_a_conversation_some_replies_are_drawn_anew_each_epoch() -> None:
    chance, items = random.Random(0), [rated("esconv", 0, 1.0, replies=6), rated("esconv", 1, 2.0, replies=1)]
    epochs = [examples_from_sets(items, {"esconv": 1.0}, replies=2, chance=chance) for _ in range(60)]
    drawn = Counter(exchange.id for epoch in epochs for exchange in epoch[0].exchanges)
    assert all([len(lesson.exchanges) for lesson in epoch] == [2, 1] for epoch in epochs)
    assert all(epoch[0].exchanges[0] != epoch[0].exchanges[1] for epoch in epochs)
    assert set(drawn) == {reply.id for reply in items[0].exchanges}
    assert max(drawn.values()) < 2 * min(drawn.values()), "each as often as another"


def test_our_own_replies_are_learnt_with_their_own_scores_once_an_epoch() -> None:
    chance, ours = random.Random(0), read_graded_replies()
    assert examples_from_graded_replies(0.0, chance) == []
    lessons = examples_from_graded_replies(0.4, chance)
    assert len(lessons) == len(ours)
    prompts = {reply.exchange.prompt for reply in ours}
    moved = 0
    for reply, lesson in zip(ours, lessons, strict=True):
        (exchange,), score = lesson.exchanges, MIDDLE + SPREAD * lesson.value
        assert (lesson.set, lesson.weight) == ("ours", 0.4)
        assert exchange.prompt in prompts
        if exchange.prompt == reply.exchange.prompt:
            assert score == pytest.approx(reply.score)
        else:  # a kind reply under the words of somebody else
            moved += 1
            assert reply.score >= WELL_MEANT and score == pytest.approx(UNHEARD_SCORE)
    assert 0 < moved < 0.1 * len(ours)


def test_a_grade_is_learnt_only_where_its_reply_is_among_those_given(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, left_out = EXCHANGES
    grades = {shown.content_digest: 80, left_out.content_digest: 20}
    monkeypatch.setattr("training.examples.read_grades", lambda: grades)
    corpus = TrainingData(examples=[RatedExchange(exchange=shown, target=(0, 0, 1), rater=r) for r in "rs"])
    monkeypatch.setattr("training.examples.GRADED", 1.0)
    (lesson,) = examples_from_grades(corpus, 0.3, random.Random(0))  # once, however many rated it
    assert lesson.exchanges == (shown,)
    assert (lesson.set, lesson.value, lesson.weight) == ("grades", pytest.approx((80 - MIDDLE) / SPREAD), 0.3)
    assert examples_from_grades(corpus, 0.0, random.Random(0)) == []


WHOLE = Exchange(id="1", prompt="I won!", response="Well done! How did it feel? Tell me more.")


def test_a_piece_is_a_reply_without_one_of_its_parts() -> None:
    word = replace(WHOLE, id="2", response="Lovely.")
    pieces = cut_pieces([WHOLE, word], 5, random.Random(0))
    assert len(pieces) == 1  # a reply that cannot be cut is left out, and none is cut twice
    assert pieces[0].prompt == "I won!"
    assert pieces[0].response in {
        "How did it feel? Tell me more.",
        "Well done! Tell me more.",
        "Well done! How did it feel?",
    }


def test_a_mixture_is_replies_to_one_prompt_made_one() -> None:
    replies = [replace(WHOLE, id=str(n), response=f"Reply {n}.") for n in range(3)]
    lone = replace(WHOLE, id="lone", prompt="I lost.", response="SingleExchangeModel.")
    mixed = mix_replies([*replies, lone], 50, random.Random(0))
    assert len(mixed) == 50
    for exchange in mixed:
        parts = exchange.response.replace("\n", " ").replace(". ", ".|").replace("| ", "|").split("|")
        assert exchange.prompt == "I won!"
        assert len(set(parts)) == len(parts) in (2, 3)
        assert set(parts) <= {reply.response for reply in replies}
    assert mix_replies([WHOLE, lone], 5, random.Random(0)) == [], "where no prompt has two replies"


def test_a_shuffled_reply_keeps_its_words_and_gets_any_prompt() -> None:
    several = [replace(WHOLE, id=str(n), prompt=f"p{n}", response=f"r{n}") for n in range(4)]
    pairs = Counter((e.prompt, e.response) for e in shuffle_replies(several, 400, random.Random(0)))
    assert len(pairs) == 16
    assert max(pairs.values()) < 3 * min(pairs.values())


def test_a_forgotten_situation_is_forgotten_too_where_a_speaker_copied_it() -> None:
    told = "my old dog ran away and I looked for him all night long"
    openings = {
        "copied": "Well, my old dog ran away and I looked for him. Sad.",
        "own words": "I searched the whole night for my dog.",
    }
    items = []
    for name, opening in openings.items():
        turns = (Turn(speaker="speaker", text=opening), Turn(speaker="listener", text="Oh no!"))
        talk = Exchange(
            id=name,
            prompt="He came back.",
            response="What luck.",
            dialogue=turns,
            situation=told,
            emotion="sad",
        )
        items.append(RatedItem("ieval", split_conversation(talk), 4.0, "w", "bot", name))
    copied, own = forget_situations(items)
    assert [(e.prompt, [t.text for t in e.dialogue]) for e in copied.exchanges] == [
        ("He came back.", ["Oh no!"])
    ]
    assert [e.prompt for e in own.exchanges] == [openings["own words"], "He came back."]
    assert {(e.situation, e.emotion) for item in (copied, own) for e in item.exchanges} == {(None, None)}
    silent = replace(items[0], exchanges=items[0].exchanges[:1])
    assert forget_situations([silent]) == [], "nothing is left of a talk that is all copied"

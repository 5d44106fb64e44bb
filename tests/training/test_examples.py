"""Training examples: ratings joined with exchanges, items of sets, graded replies, and altered replies."""

import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from empathy_judge.data.errors import UserError
from empathy_judge.data.rating_files.rated_inputs import RatedExchange, join_ratings
from empathy_judge.data.readers.conversations import split_conversation
from empathy_judge.data.records import Exchange, Rating, Turn
from empathy_judge.judge.robustness.catalogue import read_perturbations, read_replies
from empathy_judge.training import examples as build
from empathy_judge.training import rated_sets
from empathy_judge.training.rated_sets import RatedItem
from empathy_judge.training.recipe import Recipe
from empathy_judge.training.training_data import TrainingData, without_situations

EXCHANGES = [
    Exchange(id="a", prompt="p", response="x", model="m", extra={"dialog_id": 7, "batch": 3}),
    Exchange(id="b", prompt="q", response="y", model="n"),
]
WHOLE = Exchange(id="1", prompt="I won!", response="Well done! How did it feel? Tell me more.")


def rate(identity: str, rating: float, **options: str) -> Rating:
    return Rating(id=identity, rater=options.pop("rater", "r"), rating=rating, **options)


def test_every_rating_of_empathy_whose_exchange_is_present_is_joined() -> None:
    ratings = [rate("a", 3), rate("a", 1, rater="s", batch="9"), rate("b", 2), rate("none", 1)]
    joined = join_ratings(EXCHANGES, [*ratings, rate("b", 5, dimension="fluency")])
    assert [(e.exchange.id, e.rater, e.target.index(1.0)) for e in joined] == [
        *(("a", "r", 2), ("a", "s", 0), ("b", "r", 1))
    ]
    assert [e.group for e in joined] == ["7", "7", "q"], "a dialogue's number, else the prompt"
    assert [e.batch for e in joined] == ["3", "9", "r"], "the rating's, else the exchange's, else the rater"


@pytest.mark.parametrize(
    ("rating", "message"),
    [
        (rate("a", 4), "rating 4 of 'a' is not one of 1, 2 and 3"),
        (rate("a", 2.5), "rating 2.5 of 'a' is not one of 1, 2 and 3"),
        (rate("a", 2, rater=""), "a rating of 'a' has no rater"),
        (rate("c", 2), "no rating matches an exchange"),
    ],
)
def test_unusable_ratings_are_refused(rating: Rating, message: str) -> None:
    with pytest.raises(UserError, match=message):
        join_ratings(EXCHANGES, [rating])


def rated(name: str, number: int, rating: float, *, rater: str | None = None, replies: int = 1) -> RatedItem:
    talk = tuple(Exchange(id=f"{name}-{number}#{n}", prompt="p", response=f"r{n}") for n in range(replies))
    return RatedItem(name, talk, rating, rater, "bot", str(number))


def test_ratings_of_a_set_are_standardized_without_the_mean_of_a_rater_of_several() -> None:
    items = [rated("epitome", n, rating) for n, rating in enumerate((0, 0, 6, 6))]
    items += [rated("dstc9", 9, 4.0), rated("ieval", 8, 1.0)]
    examples = build.from_sets(items, {"epitome": 0.5, "dstc9": 0.3}, replies=2, chance=random.Random(0))
    assert [(each.set, each.value, each.weight) for each in examples] == [
        *(("epitome", value, 0.5) for value in (-1.0, -1.0, 1.0, 1.0)),
        ("dstc9", 0.0, 0.3),
    ], "a set without a weight is not used"
    assert not any(each.rater for each in examples), "severity is of the study's raters"
    mild, harsh = ([rated("ieval", n, mean + n, rater=f"{mean}") for n in range(4)] for mean in (2.0, 0.0))
    few = [rated("ieval", 8 + n, 5.0, rater="few") for n in range(2)]
    values = build.standardize([*mild, *harsh, *few]).tolist()
    assert values[:4] == pytest.approx(values[4:8])
    assert values[:4] == sorted(values[:4]) and sum(values[:4]) == pytest.approx(0)
    assert values[8] == values[9] > values[3], "two ratings do not show a person's mean"


def test_replies_of_a_conversation_are_sampled_anew_each_epoch() -> None:
    chance, items = random.Random(0), [rated("esconv", 0, 1.0, replies=6), rated("esconv", 1, 2.0)]
    epochs = [build.from_sets(items, {"esconv": 1.0}, replies=2, chance=chance) for _ in range(60)]
    drawn = Counter(exchange.id for epoch in epochs for exchange in epoch[0].exchanges)
    assert all([len(set(e.id for e in each.exchanges)) for each in epoch] == [2, 1] for epoch in epochs)
    assert set(drawn) == {reply.id for reply in items[0].exchanges}
    assert max(drawn.values()) < 2 * min(drawn.values())


def test_graded_replies_are_drawn_anew_each_epoch_with_their_scores() -> None:
    chance, replies = random.Random(0), rated_sets.read_graded_replies()
    assert build.from_graded_replies(0.0, chance) == []
    examples = build.from_graded_replies(0.4, chance)
    assert len(examples) == round(build.GRADED_FRACTION * len(replies))
    scores = {reply.exchange.id: reply.score for reply in replies}
    for example in examples:
        assert (example.set, example.weight) == ("synthetic", 0.4)
        identity = example.exchanges[0].id.partition("[")[0].rstrip()
        assert build.MIDDLE + build.SPREAD * example.value == pytest.approx(scores[identity])
    assert build.from_graded_replies(0.4, chance)[0] != examples[0]
    # Nothing of the test half, and no perturbation of a test family.
    shown = [exchange for example in examples for exchange in example.exchanges]
    tested = read_replies("test")
    assert not {exchange.prompt for exchange in shown} & {reply.prompt for reply in tested}
    assert not {e.exchange.response for e in replies} & {s for reply in tested for s in reply.stages()}
    perturbed = {e.id.rpartition("[")[2].removesuffix("]") for e in shown if "[" in e.id}
    families = {attack.family for attack in read_perturbations() if attack.name in perturbed}
    test_only = {item.family for item in read_perturbations() if item.family and item.is_test_only}
    assert families and not families & test_only


def test_the_graded_data_files_are_complete_and_named_where_they_are_missing(tmp_path: Path) -> None:
    written = rated_sets.read_written_replies()
    by_talk = Counter((reply.exchange.dialogue, reply.exchange.prompt) for reply in written)
    assert min(by_talk.values()) > 1
    assert all(0 <= reply.score <= 100 and len(reply.exchange.dialogue) % 2 == 0 for reply in written)
    assert all(len(digest) >= 12 and 0 <= score <= 100 for digest, score in rated_sets.read_grades().items())
    with pytest.raises(UserError, match=r"missing.*train from the repository.*synthetic = 0"):
        rated_sets.read_written_replies(tmp_path / "graded_replies.jsonl")


def test_a_grade_is_added_to_the_examples_of_its_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    graded, other = EXCHANGES
    monkeypatch.setattr(rated_sets, "read_grades", lambda: {graded.content_digest: 80})
    ratings = [RatedExchange(exchange=each, target=(0, 0, 1), rater="r") for each in (graded, other)]
    first, second = build.add_grades(build.from_ratings(ratings))
    assert first.grade == pytest.approx(1.0) and math.isnan(second.grade)


def test_a_wrong_prompt_is_another_prompt_of_the_same_set() -> None:
    shown = [replace(WHOLE, prompt=f"p{n}", response=f"r{n}") for n in range(40)]
    ratings = [RatedExchange(exchange=each, target=(0, 0, 1), rater="r") for each in shown]
    items = [rated("epitome", 1, 2.0), rated("epitome", 2, 3.0)]  # all with one prompt
    examples = build.from_ratings(ratings)
    examples += build.from_sets(items, {"epitome": 1.0}, replies=1, chance=random.Random(0))
    assert build.add_wrong_prompts(examples, 0.0, random.Random(0)) == examples
    for example in build.add_wrong_prompts(examples, 1.0, random.Random(0)):
        own, wrong = example.exchanges[0], example.wrong_prompt
        assert (wrong is None) == (example.set == "epitome")
        if wrong:
            assert wrong.response == own.response and wrong.prompt != own.prompt
    halved = build.add_wrong_prompts(examples, 0.5, random.Random(0))
    assert 10 < sum(example.wrong_prompt is not None for example in halved) < 32


def test_without_labels_grades_become_label_probabilities() -> None:
    graded = build.TrainingExample(exchanges=(WHOLE,), set="synthetic")
    examples = [replace(graded, value=value) for value in (-1.5, 0.0, 1.5)]
    other = replace(graded, set="ieval", value=1.0)
    bad, okay, good, same = build.grades_to_labels([*examples, other])
    assert same == other and not any(each.set for each in (bad, okay, good))
    assert bad.target[0] > 0.9 and good.target[-1] > 0.9
    assert okay.target == pytest.approx((0.2266, 0.4102, 0.3632), abs=1e-3), "normal distribution by hand"


def test_constant_replies_score_by_whether_their_feeling_suits_the_prompt() -> None:
    glad, sad, unknown = (replace(WHOLE, emotion=emotion) for emotion in ("Proud", "lonely", None))
    feelings = {reply.text: reply.feeling for reply in rated_sets.read_constant_replies()}
    for exchange, suited in ((glad, {"glad", "any"}), (sad, {"sad", "any"}), (unknown, set())):
        for reply in build.put_constants([exchange], 60, random.Random(0)):
            feeling = feelings[reply.exchange.response]
            expected = (build.SUITED if feeling in suited else build.UNSUITED) if suited else build.UNKNOWN
            assert (reply.exchange.prompt, reply.score) == (exchange.prompt, expected)
    kept_back = {reply.text for reply in rated_sets.read_constant_replies("evaluation")}
    assert len(kept_back) == 20 and kept_back.isdisjoint(feelings)


def test_altered_replies() -> None:
    """A sentence left out, replies to one prompt joined, and replies under other prompts."""
    (shortened,) = build.drop_sentences([WHOLE, replace(WHOLE, response="Lovely.")], 5, random.Random(0))
    whole = ["Well done!", "How did it feel?", "Tell me more."]
    left_out = {" ".join(whole[:n] + whole[n + 1 :]) for n in range(3)}
    assert shortened.prompt == "I won!" and shortened.response in left_out
    replies = [replace(WHOLE, id=str(n), response=f"Reply {n}.") for n in range(3)]
    lone = replace(WHOLE, id="lone", prompt="I lost.", response="Oh no.")
    joined = build.join_replies([*replies, lone], 50, random.Random(0))
    for exchange in joined:
        parts = exchange.response.replace("\n", " ").replace(". ", ".|").replace("| ", "|").split("|")
        assert exchange.prompt == "I won!" and len(set(parts)) == len(parts) in (2, 3)
        assert set(parts) <= {reply.response for reply in replies}
    assert len(joined) == 50 and build.join_replies([WHOLE, lone], 5, random.Random(0)) == []
    several = [replace(WHOLE, id=str(n), prompt=f"p{n}", response=f"r{n}") for n in range(4)]
    groups = [several, [replace(WHOLE, prompt=f"q{n}", response=f"s{n}") for n in range(4)], []]
    pairs = Counter((e.prompt, e.response) for e in build.shuffle_replies(groups, 400, random.Random(0)))
    assert len(pairs) == 24 and max(pairs.values()) < 4 * min(pairs.values())
    assert all("pq".index(prompt[0]) == "rs".index(reply[0]) for prompt, reply in pairs), "within a group"
    assert all(prompt[1] != reply[1] for prompt, reply in pairs), "and never under its own prompt"


def test_a_dropped_situation_is_also_dropped_where_a_speaker_copied_it() -> None:
    situation = "my old dog ran away and I looked for him all night long"
    openings = ("Well, my old dog ran away and I looked for him. Sad.", "I searched all night for my dog.")
    items = []
    for opening in openings:
        turns = (Turn(speaker="speaker", text=opening), Turn(speaker="listener", text="Oh no!"))
        talk = replace(WHOLE, prompt="He came back.", dialogue=turns, situation=situation, emotion="sad")
        items.append(RatedItem("ieval", split_conversation(talk), 4.0, "w", "bot", opening))
    copied, own = TrainingData(items=items).for_recipe(Recipe(drop_context=1.0)).items
    (left,) = copied.exchanges
    assert (left.prompt, [turn.text for turn in left.dialogue]) == ("He came back.", ["Oh no!"])
    assert [e.prompt for e in own.exchanges] == [openings[1], "He came back."]
    assert {(e.situation, e.emotion) for item in (copied, own) for e in item.exchanges} == {(None, None)}
    assert without_situations([replace(items[0], exchanges=items[0].exchanges[:1])]) == []


def test_digests_name_each_data_set_and_do_not_depend_on_the_order(
    examples: list[RatedExchange], corpus: TrainingData
) -> None:
    digests = corpus.digests([Recipe()])
    assert list(digests) == ["ratings", "epitome", "ieval"]
    own = ["graded replies", "constant replies", "perturbations", "grades"]
    assert list(corpus.digests([Recipe(), Recipe(synthetic=0.5, grades=1.0)]))[3:] == own
    assert replace(corpus, ratings=examples[::-1], items=corpus.items[::-1]).digests([Recipe()]) == digests
    changed = [replace(examples[0], target=(0.5, 0.5, 0.0)), *examples[1:]]
    assert replace(corpus, ratings=changed).digests([Recipe()])["ratings"] != digests["ratings"]
    assert TrainingData(ratings=[replace(examples[0], rater="\ud83d")]).digests([Recipe()])

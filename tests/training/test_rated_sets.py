"""Rated sets: what is one item, whose word is its rating, and which texts two sets share."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_sets import write_external_sets
from repository import SHARED, dataset
from scipy.stats import spearmanr

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.conversations import split_conversation
from empathy_judge.data.records import Exchange, Turn
from empathy_judge.training import rated_sets
from empathy_judge.training.rated_sets import EXTERNAL_SETS, RatedItem, drop_shared, read_rated_set
from empathy_judge.training.recipe import build_recipe

HURT = "I am sorry that it still hurts so very much."


def talk(*texts: str, **changes) -> Exchange:
    """A conversation of these turns, the speaker's first and the listener's last."""
    turns = [Turn(speaker=("speaker", "listener")[place % 2], text=text) for place, text in enumerate(texts)]
    *before, prompt, response = turns
    exchange = Exchange(id="t", prompt=prompt.text, response=response.text, dialogue=tuple(before))
    return replace(exchange, **changes)


def item(exchange: Exchange, name: str = "epitome", cluster: str = "c") -> RatedItem:
    return RatedItem(name, split_conversation(exchange), 3, None, "human", cluster)


def test_every_reply_has_the_turns_before_it():
    opened = talk("I fell.", "Ouch!", "It hurts.", "Oh dear.", situation="A fall.", extra={"k": 1})
    first, second = split_conversation(opened)
    assert (first.prompt, first.response, first.dialogue) == ("I fell.", "Ouch!", ())
    assert [turn.text for turn in second.dialogue] == ["I fell.", "Ouch!"]
    assert (second.situation, second.extra, second.response) == ("A fall.", {"k": 1}, "Oh dear.")


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (talk("My knee.", HURT.upper().replace(" ", "\n")), True),  # a reply of eight words
        (talk("Hi.", "Hello.", "I fell down the old stairs today.", "Ouch!"), True),  # eight together
        (talk("Hi.", "Hello.", "I fell.", "Ouch!"), False),  # too short to tell
        (talk("Hi.", "Ouch!", situation="I fell off my bike in the rain yesterday."), True),
        (talk("Hi.", HURT, "Thank you.", "Gladly."), True),  # in an earlier turn
        (talk("Hi.", f"{HURT} Rest."), False),
    ],
)
def test_items_that_share_a_text_are_dropped(other, shared):
    first = talk("I fell down the old stairs today.", "Ouch!", "It hurts.", HURT)
    first = replace(first, situation="I fell off my bike, in the rain, yesterday")
    kept = item(talk("I won.", "Wonderful!"), cluster="other")
    assert drop_shared([item(first), kept], [other]) == ([kept] if shared else [item(first), kept])
    assert drop_shared([first], [item(other)]) == ([] if shared else [first])


def test_talks_and_turns_of_one_source_are_the_same_conversations():
    starred = item(talk("Hi.", "Hello."), "esconv-turns", "failed/1")
    assert drop_shared([starred], [item(talk("I won.", "Nice!"), "esconv", "failed/1")]) == []
    assert drop_shared([starred], [item(talk("I won.", "Nice!"), "ieval", "failed/1")]) == [starred]


def test_training_refuses_external_sets_which_can_be_read(tmp_path):
    write_external_sets(tmp_path)
    resort, empo = (read_rated_set(name, tmp_path) for name in EXTERNAL_SETS)
    assert (resort[9].rating, resort[9].others) == (4.5, {"expert-1": 5, "expert-2": 4})
    assert (empo[9].rating, empo[9].cluster, empo[9].system) == (83.5, "1", "m4")
    with pytest.raises(UserError, match="unknown rated set 'poems'; known: epitome, ieval"):
        read_rated_set("poems", tmp_path)
    for name in EXTERNAL_SETS:
        with pytest.raises(UserError, match=f"unknown set '{name}'"):
            build_recipe({"sets": {name: 1.0}}, "recipe")


def test_the_experts_word_is_the_rating_and_others_stand_beside_it():
    dataset("judging-empathy")
    for name in (name for name in rated_sets.RATED_SETS if name.startswith("judging-empathy/")):
        for entry in read_rated_set(name, SHARED):
            experts = [entry.others[f"expert-{number}"] for number in (1, 2, 3)]
            assert entry.rating == pytest.approx(sum(experts) / 3)
            assert {"gpt-4o", "claude-3.7-sonnet", "gemini-2.5-pro", "crowd"} < set(entry.others)


@pytest.mark.slow
def test_all_of_judging_empathys_epitome_is_in_epitome():
    dataset("epitome"), dataset("judging-empathy")
    small, large = (read_rated_set(name, SHARED) for name in ("judging-empathy/epitome", "epitome"))
    assert drop_shared(small, large) == []
    assert len(drop_shared(large, small)) == 3023 - 51


def test_written_texts_and_grades_in_context_are_as_the_docs_say():
    lines = (rated_sets.RECIPES / "written_replies.jsonl").read_text("utf-8").splitlines()
    by_kind: dict[str, list[tuple[float, float, int]]] = {}
    for prompt in map(json.loads, lines):
        for reply in prompt["replies"]:
            one, other = reply["grades"]
            assert reply["score"] == (one + other) / 2
            by_kind.setdefault(prompt["kind"], []).append((one, other, len(reply["text"].split())))
    assert len(lines) == 430 and sum(map(len, by_kind.values())) == 2170
    assert list(by_kind) == ["facts", "long", "short", "harm", "shells"]
    for graded in by_kind.values():
        one, other, words = np.array(graded).T
        assert np.corrcoef(one, other)[0, 1] > 0.98 and 0 < spearmanr(words, one + other).statistic < 0.16
    shells = (rated_sets.RECIPES / "shells.jsonl").read_text("utf-8").splitlines()
    words = [len(f"{each['before']} {each['after']}".split()) for each in map(json.loads, shells)]
    assert len(words) == 110 and min(words) >= 40 and max(words) <= 255
    graded = json.loads((rated_sets.RECIPES / "grades_in_context.json").read_text("utf-8"))
    assert len(graded["first"]) == 28_108 and graded["wordings"].keys() == {"first", "second"}
    assert all(0 <= score <= 100 for name in ("first", "second") for score in graded[name].values())

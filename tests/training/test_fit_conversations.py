"""The fit of the conversation judge: it transfers to new sets and systems, and shares no texts with them."""

import random

from talks import talk

from empathy_judge.data.readers.conversations import split_conversation
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.conversations.features import START, conversation_features
from empathy_judge.training.fit_conversations import (
    SYSTEMS_APART,
    RatedConversation,
    fit,
    judge_conversations,
    splits,
    try_out,
)
from empathy_judge.training.rated_sets import RatedItem
from empathy_judge.training.trials import SETS_APART


def made(count: int = 90, seed: int = 3) -> list[RatedConversation]:
    """Rated conversations of three sets, on scales of their own: worse where the listener repeats itself."""
    rng, rated = random.Random(seed), []
    for number in range(count):
        name = ("ieval", "esconv", "dstc9")[number % 3]
        repeats = rng.random() < 0.5
        words = [f"w{number}{place}" for place in range(9)]
        heard = [f"Today {words[place]} went wrong for me again, as ever since." for place in range(3)]
        said = [f"So {words[0 if repeats else place]} went wrong?" for place in range(3)]
        bad = repeats + rng.gauss(0, 0.3)
        exchanges = split_conversation(talk(heard, said, id=f"t{number}"))
        item = RatedItem(
            set=name,
            exchanges=exchanges,
            rating={"ieval": 4, "esconv": 5, "dstc9": 2}[name] - bad,
            rater=None,
            system=f"{name}-{number % 4}",
            cluster=f"c{number}",
            label=(1 if bad > 0.8 else 3 if bad < 0.2 else 2) if name == "ieval" else None,
        )
        rated.append(RatedConversation(item, conversation_features(exchanges, [2.0]), 2.0))
    return rated


def test_a_fit_carries_over_to_sets_and_systems_it_has_not_met():
    rated = made()
    weights = fit(rated, "person")
    assert all(weights.weight[name] * start >= 0 for name, start in START.items())
    assert weights.cuts[0] < weights.cuts[1]
    apart = try_out(rated, SETS_APART)
    assert [item["parties"]["judge"]["spearman"]["value"] > 0.5 for item in apart["sets"]] == [True] * 3
    assert {name for item in apart["sets"] for name in item["parties"]} >= {"mean of replies", "length"}
    levels = try_out(rated, SYSTEMS_APART)["levels"]
    assert {level["system"] for level in levels} == {f"ieval-{number}" for number in range(4)}


def test_conversations_that_two_sets_share_are_not_trained_on():
    rated = made()
    shared = RatedConversation(rated[0].item, rated[0].features, 2.0)
    copied = RatedConversation(
        RatedItem(**{name: getattr(shared.item, name) for name in RatedItem.__slots__} | {"set": "esconv"}),
        shared.features,
        2.0,
    )
    train, _ = next(splits([*rated, copied], SETS_APART))
    assert copied not in train
    assert len(train) == 60


def test_features_and_means_come_from_the_judged_replies():
    items = [one.item for one in made(6)]
    steps = []
    rated = judge_conversations(items, load_judge("length"), on_step=lambda *step: steps.append(step))
    assert [one.item for one in rated] == items
    assert all(1 <= one.reply_mean <= 3 and set(START) <= set(one.features) for one in rated)
    assert steps[-1][0] == steps[-1][1]

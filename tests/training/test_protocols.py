"""How ratings are held out: nothing that could give a held-out rating away stands on the training side."""

from collections import Counter
from dataclasses import replace

import pytest
from made_sets import make_sharing_corpus, words_of

from data.errors import UserError
from data.rated_exchanges import RatedExchange
from training.examples import TrainingData
from training.trials import (
    PROTOCOLS,
    Split,
    split_models_apart,
    split_raters_apart,
    split_sets_apart,
    without_context,
)


def sides(split: Split) -> list[tuple[set[str], set[str]]]:
    """What the two sides hold: of raters, of batches, of prompts and of models."""

    def held(examples: list[RatedExchange]) -> list[set[str]]:
        return [
            {example.rater for example in examples},
            {example.batch for example in examples},
            {example.group for example in examples},
            {example.exchange.model for example in examples},
        ]

    return list(zip(held(split.train), held(split.test), strict=True))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_rating_is_held_out_once(examples: list[RatedExchange], protocol: str) -> None:
    held_out = [example for split in PROTOCOLS[protocol](examples) for example in split.test]
    assert Counter(e.exchange.id for e in held_out) == Counter(e.exchange.id for e in examples)


def test_raters_apart_shares_no_rater_batch_or_prompt(examples: list[RatedExchange]) -> None:
    splits = list(split_raters_apart(examples))
    assert [split.name for split in splits] == [f"fold-{number}" for number in range(5)]
    for split in splits:
        raters, batches, prompts, models = sides(split)
        assert raters[0].isdisjoint(raters[1])
        assert batches[0].isdisjoint(batches[1])
        assert prompts[0].isdisjoint(prompts[1])
        assert models[0] == models[1] == {"ada", "bea/2", "cyd"}
        assert len(split.train) == 4 * len(split.test) == 96


def test_a_rater_or_prompt_of_two_batches_is_on_one_side_only(examples: list[RatedExchange]) -> None:
    busy = [replace(e, rater="busy") if e.batch in ("batch-0", "batch-1") else e for e in examples]
    again = replace(examples[0], batch="batch-7", rater="rater-7-ada")
    for split in split_raters_apart([*busy, again]):
        raters, _, prompts, _ = sides(split)
        assert raters[0].isdisjoint(raters[1])
        assert prompts[0].isdisjoint(prompts[1])


def test_model_apart_leaves_a_model_out_with_every_rater_who_saw_it(examples: list[RatedExchange]) -> None:
    # One rater saw two models: of the other, too, their ratings are left out.
    seen = [
        replace(e, rater="busy") if e.batch == "batch-0" and e.exchange.model != "cyd" else e
        for e in examples
    ]
    splits = list(split_models_apart(seen))
    assert [split.name for split in splits] == ["ada", "bea/2", "cyd"]
    for split in splits:
        raters, _, _, models = sides(split)
        assert models[1] == {split.name}
        assert split.name not in models[0]
        assert raters[0].isdisjoint(raters[1])
        assert len(split.train) == (80 if split.name == "cyd" else 76)


GREETING = {"Hi.", "Hello."}


def test_sets_apart_leaves_a_source_out_with_every_text_that_it_shares() -> None:
    corpus = make_sharing_corpus()
    splits = {split.name: split for split in split_sets_apart(corpus)}
    assert list(splits) == ["epitome", "judging-empathy", "ieval", "esconv", "dep", "study"]
    for name, split in splits.items():
        test = [exchange for item in split.test for exchange in item.exchanges]
        assert words_of([*split.train.exchanges(), *split.train.texts]) & words_of(test) == GREETING, name
        # One text is shared with each of the others: each loses one or two items of its twelve, no more.
        kept = Counter(item.set for item in split.train.items)
        kept["study"], kept["text"] = len(split.train.examples), len(split.train.texts)
        assert all(10 <= kept[other] <= 11 for other in kept if other != name and kept[other]), kept
        assert len([other for other in kept if kept[other]]) == 8 - len({item.set for item in split.test})
    assert Counter(item.exchanges[0].id for split in splits.values() for item in split.test) == Counter(
        exchange.id for exchange in corpus.exchanges()
    ), "every item is held out once"
    assert {item.set for item in splits["esconv"].test} == {"esconv", "esconv-turns"}
    first, second = splits["study"].test[:2]
    assert (first.rating, second.rating, second.cluster, second.system) == (1.0, 2.0, "batch-1", "bea/2")


def test_sets_apart_needs_another_set(examples: list[RatedExchange]) -> None:
    with pytest.raises(UserError, match="nothing is left to train on beside study: with sets apart the rec"):
        list(split_sets_apart(TrainingData(examples=examples)))


def test_too_few_batches_or_models_are_refused(examples: list[RatedExchange]) -> None:
    few = [e for e in examples if e.batch in ("batch-0", "batch-1", "batch-2")]
    with pytest.raises(
        UserError, match="3 rating batches cannot be split into 5 folds; give ratings a `batch`"
    ):
        list(split_raters_apart(few))
    with pytest.raises(UserError, match="2 models are too few to leave one out; three at least"):
        list(split_models_apart([e for e in examples if e.exchange.model != "ada"]))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_rater_of_everything_leaves_nothing_to_train_on(
    examples: list[RatedExchange], protocol: str
) -> None:
    with pytest.raises(UserError, match=r"nothing is left to train on beside (fold-0|ada)"):
        list(PROTOCOLS[protocol]([replace(example, rater="only") for example in examples]))


def test_a_bare_example_has_neither_emotion_nor_situation(examples: list[RatedExchange]) -> None:
    bare = without_context(examples[0])
    assert (bare.exchange.emotion, bare.exchange.situation) == (None, None)
    assert bare.exchange.response == examples[0].exchange.response
    assert bare.target == examples[0].target

"""Training on a tiny base: the planted signal is learnt, and each part of a recipe does what it says."""

import random
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import judge.classifier.training
from data.errors import UserError
from data.records import Exchange
from judge.classifier.examples import Example
from judge.classifier.network import load_base
from judge.classifier.recipe import Recipe
from judge.classifier.training import Effects, Trained, fine_tune, make_batches, settle, teach, train_judge

HELD_OUT = ("batch-8", "batch-9")


@pytest.fixture(scope="module")
def lesson(examples: list[Example]) -> list[Example]:
    return [example for example in examples if example.batch not in HELD_OUT]


@pytest.fixture(scope="module")
def unseen(examples: list[Example]) -> list[Exchange]:
    return [example.exchange for example in examples if example.batch in HELD_OUT]


@pytest.fixture(scope="module")
def trained(lesson: list[Example], tiny_recipe: Recipe) -> Trained:
    return fine_tune(lesson, tiny_recipe)


@pytest.fixture
def brief(tiny_recipe: Recipe) -> Recipe:
    """One epoch: enough where it matters only that two trainings end alike, or that one ends."""
    return replace(tiny_recipe, epochs=1)


def met(trained: Trained, unseen: list[Exchange]) -> tuple[float, float]:
    """AUC of Good by the warm word, and of Bad by the cold one."""
    said = trained.predict(unseen)
    return (
        roc_auc_score(["hug" in exchange.response for exchange in unseen], said[:, 2]),
        roc_auc_score(["whatever" in exchange.response for exchange in unseen], said[:, 0]),
    )


def contrast(probabilities: np.ndarray) -> np.ndarray:
    """Differences of logits, from reply to reply: what a shift of the level leaves as it is."""
    logits = np.log(probabilities)
    logits = logits - logits.mean(axis=1, keepdims=True)
    return np.asarray(logits - logits[0])


def is_harsh(rater: str) -> bool:
    return int(rater.split("-")[1]) % 2 == 1


def batch_of(examples: list[Example], recipe: Recipe, tokeniser: Any) -> Any:
    effects = Effects(examples, recipe)
    recipe = replace(recipe, batch_size=len(examples))
    (batch,) = make_batches(examples, tokeniser, recipe, effects, random.Random(0), "cpu")
    return effects, batch


def test_the_planted_signal_is_learnt(trained: Trained, unseen: list[Exchange]) -> None:
    assert min(met(trained, unseen)) > 0.9
    said = trained.predict(unseen)
    assert said.shape == (24, 3)
    assert said.sum(axis=1) == pytest.approx(1)


def test_a_decoder_learns_it_too_and_with_rank_only_beside_a_frozen_base(
    lesson: list[Example], unseen: list[Exchange], tiny_recipe: Recipe, tiny_decoder: Path
) -> None:
    recipe = replace(tiny_recipe, base=str(tiny_decoder), rank=4)
    trained = fine_tune(lesson, recipe)
    assert min(met(trained, unseen)) > 0.9
    (network,) = trained.networks
    before = dict(load_base(str(tiny_decoder))[0].named_parameters())
    frozen = 0
    for name, parameter in network.base.named_parameters():
        if name.endswith((".down", ".up")):
            assert parameter.requires_grad
            assert parameter.abs().sum() > 0
        else:
            frozen += 1
            assert not parameter.requires_grad
            assert torch.equal(parameter, before[name.replace(".frozen.", ".")])
    assert frozen == len(before)


def test_the_same_seed_gives_the_same_judge(
    lesson: list[Example], unseen: list[Exchange], brief: Recipe
) -> None:
    first, again = (fine_tune(lesson, brief).predict(unseen) for _ in range(2))
    other = fine_tune(lesson, replace(brief, seed=1)).predict(unseen)
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


class OddlyHashed(str):
    """A text that sets order otherwise than a plain one, as another process would."""

    def __hash__(self) -> int:
        return -1 - str.__hash__(self)


def test_the_order_of_examples_does_not_depend_on_the_process(lesson: list[Example], brief: Recipe) -> None:
    recipe = brief
    odd = [replace(example, group=OddlyHashed(example.group)) for example in lesson]
    tokeniser = load_base(recipe.base)[1]
    ids = [
        [
            batch.ids.tolist()
            for batch in make_batches(part, tokeniser, recipe, Effects(part, recipe), random.Random(0), "cpu")
        ]
        for part in (lesson, odd)
    ]
    assert ids[0] == ids[1]


def test_two_seeds_are_averaged(lesson: list[Example], unseen: list[Exchange], brief: Recipe) -> None:
    both = fine_tune(lesson, replace(brief, seeds=2))
    alone = [fine_tune(lesson, replace(brief, seed=seed)).predict(unseen) for seed in (0, 1)]
    assert len(both.networks) == 2
    assert both.predict(unseen) == pytest.approx(np.mean(alone, axis=0), abs=1e-6)


def test_a_prediction_does_not_depend_on_its_neighbours(trained: Trained, unseen: list[Exchange]) -> None:
    long = replace(unseen[0], response="word1 " * 150)
    together = trained.predict([*unseen, long])
    alone = trained.predict([*unseen, long], batch_size=1)
    backwards = trained.predict([long, *unseen[::-1]])[::-1]
    assert together == pytest.approx(alone, abs=1e-5)
    assert together == pytest.approx(backwards, abs=1e-5)
    assert trained.predict([]).shape == (0, 3)


def test_harsh_raters_are_found(
    examples: list[Example], tiny_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raters of odd batches give one label less; within each model they must come out harsher.

    All prompts are the same here, since a prompt would tell the batch, and so the rater.
    """
    kept: list[Effects] = []

    class Kept(Effects):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            kept.append(self)

    monkeypatch.setattr(judge.classifier.training, "Effects", Kept)
    planted = [
        replace(
            example,
            exchange=replace(example.exchange, prompt="rain", situation=None),
            target=(*example.target[1:], 0.0)
            if is_harsh(example.rater) and not example.target[0]
            else example.target,
        )
        for example in examples
    ]
    fine_tune(planted, replace(tiny_recipe, severity=1.0))
    (effects,) = kept
    raw = effects.severity.weight.detach()[:, 0]
    for model in ("ada", "bea/2", "cyd"):
        own = {rater: float(raw[n]) for rater, n in effects.raters.items() if rater.endswith(model)}
        harsh = [value for rater, value in own.items() if is_harsh(rater)]
        others = [value for rater, value in own.items() if not is_harsh(rater)]
        assert len(harsh) == len(others) == 5
        assert np.mean(harsh) < -0.1 < 0.1 < np.mean(others), own


def test_severity_only_shifts_what_somebody_rated(lesson: list[Example], brief: Recipe) -> None:
    recipe = replace(brief, severity=1.0)
    made = replace(lesson[0], rater="")
    effects, batch = batch_of([*lesson, made], recipe, load_base(recipe.base)[1])
    torch.nn.init.normal_(effects.severity.weight)
    shift = effects(batch)
    assert (shift[batch.rater < 0] == 0).all()
    assert (shift[batch.rater >= 0] != 0).all()
    plain, batch = batch_of([*lesson, made], brief, load_base(recipe.base)[1])
    assert (plain(batch) == 0).all()
    assert float(plain.penalty()) == 0


@pytest.mark.parametrize("ordinal", [False, True])
def test_settling_meets_the_shares_and_halves_the_contrasts(
    lesson: list[Example], brief: Recipe, ordinal: bool
) -> None:
    before = fine_tune(lesson, replace(brief, ordinal=ordinal))
    exchanges = [example.exchange for example in lesson]
    shares = np.mean([example.target for example in lesson], axis=0)
    spread = contrast(before.predict(exchanges))
    for sharpness in (1.0, 0.5):
        settled = settle(deepcopy(before), lesson, sharpness).predict(exchanges)
        assert settled.mean(axis=0) == pytest.approx(shares, abs=1e-4)
        assert contrast(settled) == pytest.approx(sharpness * spread, abs=1e-3)
    left = settle(deepcopy(before), lesson, 0.0).predict(exchanges)
    assert np.array_equal(left, before.predict(exchanges)), "nought leaves it as trained"


def test_a_recipe_with_everything_still_learns(
    lesson: list[Example], unseen: list[Exchange], tiny_recipe: Recipe
) -> None:
    recipe = replace(
        tiny_recipe,
        **{"ordinal": True, "severity": 0.7},
        **{"mismatched": 0.1, "dismissals": 0.1, "sharpness": 0.7, "dropout": 0.1},
    )
    steps: list[tuple[int, int]] = []
    trained = train_judge(lesson, recipe, progress=lambda *step: steps.append(step))
    assert min(met(trained, unseen)) > 0.9
    assert [done for done, _ in steps] == list(range(1, len(steps) + 1))
    assert {total for _, total in steps} == {len(steps)}, "the steps foretold are the steps made"


def test_without_style_the_counts_say_nothing(lesson: list[Example], brief: Recipe) -> None:
    (network,) = fine_tune(lesson, replace(brief, style=False)).networks
    assert not network.style.weight.any()


@pytest.mark.parametrize(("part", "count"), [(1.0, 10), (0.5, 5), (0.7, 7), (0.0, 0), (3.0, 10)])
def test_a_teacher_labels_the_part_of_the_texts_that_is_asked_for(
    trained: Trained, lesson: list[Example], unseen: list[Exchange], part: float, count: int
) -> None:
    recipe = Recipe(teacher="large", teacher_weight=1.0, texts=part, shuffled=3)
    taught = teach(trained, lesson, recipe, unseen[:10])
    assert len(taught) == len(lesson) + 3 + count
    said = trained.predict([example.exchange for example in lesson])
    assert np.array([example.target for example in taught[: len(lesson)]]) == pytest.approx(said)
    assert [example.rater for example in taught[len(lesson) :]] == [""] * (3 + count)
    texts = [example.exchange for example in taught[len(lesson) + 3 :]]
    assert texts == [text for text in unseen[:10] if text in texts], "in order, each once"


def test_a_pupil_learns_from_its_teacher(
    lesson: list[Example], unseen: list[Exchange], tiny_recipe: Recipe, tiny_toml: Path
) -> None:
    """Of the ratings it hardly hears: what it knows it has from the teacher."""
    recipe = replace(
        tiny_recipe, teacher=str(tiny_toml), teacher_weight=0.9, shuffled=10, pieces=10, sharpness=0.7
    )
    assert min(met(train_judge(lesson, recipe, texts=unseen[:4]), unseen)) > 0.9


def test_a_base_that_cannot_be_read_is_refused(tmp_path: Path, tiny_tokenizer: Path) -> None:
    from transformers import RobertaConfig, RobertaModel

    with pytest.raises(UserError, match="unknown base 'none'; known: minilm, smollm2, or the folder of"):
        load_base("none")
    with pytest.raises(UserError, match=r"not the folder of a base \(config.json and tokenizer.json missing"):
        load_base(str(tmp_path))
    sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
    RobertaModel(RobertaConfig(vocab_size=9, **sizes)).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(tiny_tokenizer.read_bytes())
    with pytest.raises(UserError, match="a roberta base; encoders must be of the kind bert"):
        load_base(str(tmp_path))

"""Training on a tiny base: the planted signal is learned, and each part of a recipe has its effect."""

import math
import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from made_sets import COLD, WARM, speak
from sklearn.metrics import roc_auc_score

import empathy_judge.training.fine_tune as ft
from empathy_judge.data.errors import UserError
from empathy_judge.data.rating_files.rated_inputs import RatedExchange
from empathy_judge.data.records import Exchange
from empathy_judge.training import rated_sets
from empathy_judge.training.examples import GRADES, SYNTHETIC, TrainingExample, from_ratings, from_sets
from empathy_judge.training.network import TrainedNetworks, load_base
from empathy_judge.training.rated_sets import RatedItem
from empathy_judge.training.recipe import NetworkData, Recipe, lineage
from empathy_judge.training.training_data import TrainingData

HELD_OUT = ("batch-8", "batch-9")


@pytest.fixture(scope="module")
def seen(examples: list[RatedExchange]) -> list[RatedExchange]:
    return [example for example in examples if example.batch not in HELD_OUT]


@pytest.fixture(scope="module")
def unseen(examples: list[RatedExchange]) -> list[Exchange]:
    return [example.exchange for example in examples if example.batch in HELD_OUT]


@pytest.fixture(scope="module")
def trained(seen: list[RatedExchange], tiny_recipe: Recipe) -> TrainedNetworks:
    return ft.fine_tune(give(from_ratings(seen)), tiny_recipe)


@pytest.fixture
def brief(tiny_recipe: Recipe) -> Recipe:
    """One epoch."""
    return replace(tiny_recipe, epochs=1)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[ft.RatingEffects]:
    """The rating effects of every training in the test."""
    effects: list[ft.RatingEffects] = []

    class Kept(ft.RatingEffects):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            effects.append(self)

    monkeypatch.setattr(ft, "RatingEffects", Kept)
    return effects


def give(shown: Sequence[TrainingExample]) -> ft.MakeExamples:
    """The same shown in every epoch."""
    return lambda learnt_from, chance: list(shown)


def auc(trained: TrainedNetworks, unseen: list[Exchange]) -> tuple[float, float]:
    """AUC of Good by the warm word, and of Bad by the cold one."""
    said = trained.predict(unseen)
    return (
        roc_auc_score([WARM in exchange.response for exchange in unseen], said[:, 2]),
        roc_auc_score([COLD in exchange.response for exchange in unseen], said[:, 0]),
    )


def contrast(probabilities: np.ndarray) -> np.ndarray:
    """Differences of logits, from reply to reply: what a shift of the level leaves as it is."""
    logits = np.log(probabilities)
    logits = logits - logits.mean(axis=1, keepdims=True)
    return np.asarray(logits - logits[0])


def test_the_planted_signal_is_learned(trained: TrainedNetworks, unseen: list[Exchange]) -> None:
    assert min(auc(trained, unseen)) > 0.9
    said = trained.predict(unseen)
    assert said.shape == (24, 3) and said.sum(axis=1) == pytest.approx(1)
    assert trained.predict([]).shape == (0, 3)


def test_lora_adapters_learn_it_too_and_the_base_stays_frozen(
    seen: list[RatedExchange], unseen: list[Exchange], tiny_recipe: Recipe, tiny_decoder: Path
) -> None:
    recipe = replace(tiny_recipe, base=str(tiny_decoder), rank=4)
    trained = ft.fine_tune(give(from_ratings(seen)), recipe)
    assert min(auc(trained, unseen)) > 0.9
    (network,) = trained.networks
    before = dict(load_base(str(tiny_decoder))[0].named_parameters())
    for name, parameter in network.base.named_parameters():
        own = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
        assert parameter.requires_grad == (".lora_" in name)
        assert parameter.abs().sum() > 0 if ".lora_" in name else torch.equal(parameter, before.pop(own))
    assert not before


def test_the_same_seed_gives_the_same_judge_and_two_networks_are_averaged(
    seen: list[RatedExchange], unseen: list[Exchange], brief: Recipe
) -> None:
    shown = give(from_ratings(seen))
    first, again, other = (
        ft.fine_tune(shown, replace(brief, seed=seed)).predict(unseen) for seed in (0, 0, 1)
    )
    both = ft.fine_tune(shown, replace(brief, networks=["all", "all"]))
    assert np.array_equal(first, again) and not np.allclose(first, other) and len(both.networks) == 2
    assert both.predict(unseen) == pytest.approx((first + other) / 2, abs=1e-6)


@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_prediction_does_not_depend_on_padding(
    seen: list[RatedExchange], unseen: list[Exchange], brief: Recipe, tiny_decoder: Path, is_decoder: bool
) -> None:
    recipe = replace(brief, base=str(tiny_decoder)) if is_decoder else brief
    trained = ft.fine_tune(give(from_ratings(seen)), recipe)
    long = replace(unseen[0], response="word1 " * 150)
    together = trained.predict([*unseen, long])
    alone = trained.predict([*unseen, long], batch_size=1)
    backwards = trained.predict([long, *unseen[::-1]])[::-1]
    assert together == pytest.approx(alone, abs=1e-5)
    assert together == pytest.approx(backwards, abs=1e-5)


def test_severe_raters_are_found(
    examples: list[RatedExchange], tiny_recipe: Recipe, kept: list[ft.RatingEffects]
) -> None:
    """Raters of odd batches give one label less; nothing in the texts identifies them."""

    def is_harsh(rater: str) -> bool:
        return int(rater.split("-")[1]) % 2 == 1

    planted = []
    for example in examples:
        response = speak(example.target.index(1.0), random.Random(0))
        exchange = replace(example.exchange, prompt="rain", situation=None, response=response)
        is_lowered = is_harsh(example.rater) and not example.target[0]
        target = (*example.target[1:], 0.0) if is_lowered else example.target
        planted.append(replace(example, exchange=exchange, target=target))
    ft.fine_tune(give(from_ratings(planted)), replace(tiny_recipe, severity=1.0, epochs=15))
    (effects,) = kept
    severity = effects.severity.tolist()
    for model in ("ada", "bea/2", "cyd"):
        own = {rater: severity[n] for rater, n in effects.raters.items() if rater.endswith(model)}
        harsh, others = ([own[rater] for rater in own if is_harsh(rater) == kind] for kind in (True, False))
        assert len(harsh) == len(others) == 5
        assert np.mean(harsh) < -0.2 < 0.2 < np.mean(others), own


def test_a_set_with_a_reversed_scale_does_not_reverse_the_direction(
    seen: list[RatedExchange], unseen: list[Exchange], tiny_recipe: Recipe, kept: list[ft.RatingEffects]
) -> None:
    """Its replies have the prompts of the labeled ones: only the words identify them."""
    chance = random.Random(2)
    items = []
    for number, example in enumerate(seen):
        exchange = replace(example.exchange, id=str(number), response=speak(number % 3, chance))
        items.append(RatedItem("ieval", (exchange,), 5.0 - number % 3, None, "human", str(number)))
    others = from_sets(items, {"ieval": 0.3}, replies=1, chance=chance)
    trained = ft.fine_tune(give([*from_ratings(seen), *others]), tiny_recipe)
    (effects,) = kept
    assert float(effects.log_scale.detach()[effects.sets["ieval"]]) < -0.7, "its scale approaches 0"
    assert min(auc(trained, unseen)) > 0.9


@pytest.mark.parametrize("by", [0.0, 0.35])
def test_length_is_favored_by_its_logarithm(by: float) -> None:
    words = np.array([1, 27, 200, 0])
    exchanges = [Exchange(id=str(n), prompt="p", response="word " * n) for n in words]
    said = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3]])
    moved = ft.favor_length(said, exchanges, by)
    gained = np.log(moved[:, 2] / moved[:, 0]) - np.log(said[:, 2] / said[:, 0])
    assert gained == pytest.approx(by * (np.log(np.maximum(words, 1)) - 3.3), abs=1e-4)
    assert moved.sum(axis=1) == pytest.approx(1)


def test_matching_the_level_meets_the_shares(seen: list[RatedExchange], brief: Recipe) -> None:
    before = ft.fine_tune(give(from_ratings(seen)), brief)
    exchanges = [example.exchange for example in seen]
    shares = np.mean([example.target for example in seen], axis=0)
    spread = contrast(before.predict(exchanges))
    for sharpness in (1.0, 0.5):
        settled = ft.match_level(deepcopy(before), seen, sharpness).predict(exchanges)
        assert settled.mean(axis=0) == pytest.approx(shares, abs=1e-4)
        assert contrast(settled) == pytest.approx(sharpness * spread, abs=1e-3)
    for left in (ft.match_level(deepcopy(before), seen, 0.0), ft.match_level(deepcopy(before), [], 1.0)):
        assert np.array_equal(left.predict(exchanges), before.predict(exchanges)), "as trained"


def test_teachers_move_ratings_and_label_other_replies(
    trained: TrainedNetworks, corpus: TrainingData, unseen: list[Exchange], brief: Recipe
) -> None:
    texts = [replace(exchange, response=f"{exchange.response}. hug. word3.") for exchange in unseen]
    corpus = replace(corpus, texts=texts)
    recipe = Recipe(
        teachers=["a", "b"], teacher_weight=0.75, length=0.2, texts=90, shuffled=7, constants=4,
        sentence_dropout=5, joined_replies=3,
    )  # fmt: skip
    chosen = ft.distillation_texts(corpus, recipe)
    rated, usual = len(corpus.ratings), len(corpus.ratings) + 90 + 5 + 3
    assert [len(part) for part in (chosen.rated, chosen.unrated, chosen.special)] == [rated, 98, 11]
    assert chosen == ft.distillation_texts(corpus, recipe), "the same in every run"
    other = ft.fine_tune(give(from_ratings(corpus.ratings[:20])), brief)
    targets = ft.predict_targets([trained, other], chosen)
    both = np.sqrt(trained.predict(chosen.all()) * other.predict(chosen.all()))
    both /= both.sum(axis=1, keepdims=True)
    assert targets[:usual] == pytest.approx(both[:usual], abs=1e-4), "the mean of log-probabilities"
    assert targets[usual:] == pytest.approx(trained.predict(chosen.special), abs=1e-4), "the first alone"
    shown = ft.distill(corpus, chosen, targets, recipe, random.Random(0))
    assert [example.exchanges[0] for example in shown[:usual]] == chosen.all()[:usual]
    assert not any(example.rater or example.set for example in shown)
    own = np.array([example.target for example in corpus.ratings])
    moved = np.array([example.target for example in shown])
    assert moved[:rated] == pytest.approx(0.25 * own + 0.75 * targets[:rated], abs=1e-5)
    favored = ft.favor_length(targets[rated:usual], chosen.unrated, 0.2)
    assert moved[rated:usual] == pytest.approx(favored, abs=1e-5)
    assert moved[usual:] == pytest.approx(targets[usual:], abs=1e-5)
    ids = {exchange.id for exchange in texts}
    drawn = chosen.unrated[:90]
    assert len({exchange.id for exchange in drawn}) == 90, "each once"
    assert sum(exchange.id in ids for exchange in drawn) == len(texts), "the smallest is used whole"


def test_a_reply_learns_to_score_lower_under_another_prompt(tiny_recipe: Recipe, tiny_decoder: Path) -> None:
    """Half of the prompts are rainy and half sunny, and each reply names the weather of its own."""
    ratings = [
        RatedExchange(
            exchange=Exchange(id=str(n), prompt=f"word{n % 7} {word}", response=f"word{n % 5} {word}"),
            target=(0.0, 0.0, 1.0) if n % 3 else (0.0, 1.0, 0.0),
            rater=f"r{n}",
        )
        for n, word in enumerate(("word8", "word9") * 60)
    ]
    recipe = replace(tiny_recipe, base=str(tiny_decoder), wrong_prompt=1.0, epochs=12, sharpness=0.0)
    judge = ft.train_judge(TrainingData(ratings=ratings), [recipe])
    swapped = {"word8": "word9", "word9": "word8"}
    own = [rated.exchange for rated in ratings[:40]]
    other = [replace(e, prompt=f"{e.prompt.split()[0]} {swapped[e.prompt.split()[1]]}") for e in own]
    first, second = (judge.predict(each) @ [1, 2, 3] for each in (own, other))
    assert (first > second).mean() > 0.9


def test_each_network_uses_the_data_that_its_recipe_names(
    corpus: TrainingData, seen: list[RatedExchange], taught_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_by: dict[str, set[str]] = {}

    def fine_tune(make_examples: Any, recipe: Recipe, **_: object) -> TrainedNetworks:
        for name in recipe.networks:
            examples = make_examples(name, random.Random(0))
            graded = {GRADES for example in examples if not math.isnan(example.grade)}
            used_by[name] = {example.set for example in examples} | graded
        raise StopIteration

    grades = {example.exchange.content_digest: 50.0 for example in seen}
    monkeypatch.setattr(ft, "fine_tune", fine_tune)
    monkeypatch.setattr(rated_sets, "read_grades", lambda: grades)
    networks = list(get_args(NetworkData))
    recipe = replace(lineage(taught_recipe)[1], networks=networks, synthetic=0.5, grades=1.0)
    for ratings, used in ((seen, networks), ([], [name for name in networks if name != "labels"])):
        used_by.clear()
        with pytest.raises(StopIteration):
            ft.train_judge(replace(corpus, ratings=ratings), [recipe])
        assert list(used_by) == used, "without ratings there are no labels"
        if ratings:
            assert used_by == {
                "all": {"", GRADES, SYNTHETIC, "epitome", "ieval"},
                "sets": {"", GRADES, "epitome", "ieval"},
                "synthetic": {"", GRADES, SYNTHETIC},
                "labels": {""},
            }


def test_no_data_and_unreadable_bases_are_refused(
    tmp_path: Path, tiny_tokenizer: Path, tiny_recipe: Recipe
) -> None:
    from transformers import RobertaConfig, RobertaModel

    with pytest.raises(UserError):
        ft.train_judge(TrainingData(), [tiny_recipe])
    with pytest.raises(UserError, match="encoder"):
        ft.fine_tune(give([]), replace(tiny_recipe, rank=2))
    with pytest.raises(UserError, match=r"config\.json and"):
        load_base(str(tmp_path))
    sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
    RobertaModel(RobertaConfig(vocab_size=9, **sizes)).save_pretrained(tmp_path / "roberta")
    (tmp_path / "roberta" / "tokenizer.json").write_bytes(tiny_tokenizer.read_bytes())
    with pytest.raises(UserError, match="a roberta base"):
        load_base(str(tmp_path / "roberta"))

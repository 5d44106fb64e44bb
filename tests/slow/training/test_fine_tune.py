"""Training on a tiny base: the planted signal is learned, and each part of a recipe has its effect."""

import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_sets import COLD, WARM, speak
from sklearn.metrics import roc_auc_score

import training.fine_tune
from data.errors import UserError
from data.rated_exchanges import RatedExchange
from data.records import Exchange
from training.examples import (
    GRADES,
    OURS,
    TrainingExample,
    examples_from_ratings,
    examples_from_sets,
)
from training.fine_tune import (
    BATCH_TOKENS,
    RatingEffects,
    TrainingBatch,
    compute_loss,
    distill_ratings,
    favor_length,
    fine_tune,
    make_batches,
    match_level,
    train_judge,
)
from training.graded_replies import read_graded_replies
from training.network import TrainedNetworks, load_base
from training.rated_sets import RatedItem
from training.recipe import NETWORK_DATA, Recipe, lineage
from training.training_data import TrainingData

HELD_OUT = ("batch-8", "batch-9")


@pytest.fixture(scope="module")
def seen(examples: list[RatedExchange]) -> list[RatedExchange]:
    return [example for example in examples if example.batch not in HELD_OUT]


@pytest.fixture(scope="module")
def unseen(examples: list[RatedExchange]) -> list[Exchange]:
    return [example.exchange for example in examples if example.batch in HELD_OUT]


@pytest.fixture(scope="module")
def trained(seen: list[RatedExchange], tiny_recipe: Recipe) -> TrainedNetworks:
    return fine_tune(give(examples_from_ratings(seen)), tiny_recipe)


@pytest.fixture
def brief(tiny_recipe: Recipe) -> Recipe:
    """One epoch: enough where it matters only that two trainings end alike, or that one ends."""
    return replace(tiny_recipe, epochs=1)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[RatingEffects]:
    """The effects of every training in the test."""
    effects: list[RatingEffects] = []

    class Kept(RatingEffects):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            effects.append(self)

    monkeypatch.setattr(training.fine_tune, "RatingEffects", Kept)
    return effects


def give(lessons: Sequence[TrainingExample]) -> training.fine_tune.MakeExamples:
    """The same lessons in every epoch."""
    return lambda learnt_from, chance: list(lessons)


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


def test_the_planted_signal_is_learnt(trained: TrainedNetworks, unseen: list[Exchange]) -> None:
    assert min(auc(trained, unseen)) > 0.9
    said = trained.predict(unseen)
    assert said.shape == (24, 3)
    assert said.sum(axis=1) == pytest.approx(1)
    assert trained.predict([]).shape == (0, 3)


def test_a_decoder_learns_it_too_and_with_rank_only_beside_a_frozen_base(
    seen: list[RatedExchange], unseen: list[Exchange], tiny_recipe: Recipe, tiny_decoder: Path
) -> None:
    recipe = replace(tiny_recipe, base=str(tiny_decoder), rank=4)
    trained = fine_tune(give(examples_from_ratings(seen)), recipe)
    assert min(auc(trained, unseen)) > 0.9
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


def test_the_same_seed_gives_the_same_judge_and_two_are_averaged(
    seen: list[RatedExchange], unseen: list[Exchange], brief: Recipe
) -> None:
    lessons = give(examples_from_ratings(seen))
    first, again, other = (
        fine_tune(lessons, replace(brief, seed=seed)).predict(unseen) for seed in (0, 0, 1)
    )
    both = fine_tune(lessons, replace(brief, networks=["all", "all"]))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)
    assert len(both.networks) == 2
    assert both.predict(unseen) == pytest.approx((first + other) / 2, abs=1e-6)


class OddlyHashed(str):
    """A text that sets order otherwise than a plain one, as another process would."""

    def __hash__(self) -> int:
        return -1 - str.__hash__(self)


def test_numbers_of_raters_and_sets_do_not_depend_on_the_process(
    seen: list[RatedExchange], brief: Recipe
) -> None:
    plain = [
        *examples_from_ratings(seen),
        *(TrainingExample(exchanges=(seen[0].exchange,), set=name) for name in ("ieval", "epitome", "dstc9")),
    ]
    odd = [replace(lesson, rater=OddlyHashed(lesson.rater), set=OddlyHashed(lesson.set)) for lesson in plain]
    first, second = RatingEffects(plain, brief), RatingEffects(odd, brief)
    assert list(first.raters.items()) == list(second.raters.items())
    assert (
        list(first.sets.items()) == list(second.sets.items()) == [("dstc9", 0), ("epitome", 1), ("ieval", 2)]
    )
    assert torch.equal(first.rater_model, second.rater_model)


@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_prediction_does_not_depend_on_what_is_padded_beside_it(
    seen: list[RatedExchange], unseen: list[Exchange], brief: Recipe, tiny_decoder: Path, is_decoder: bool
) -> None:
    recipe = replace(brief, base=str(tiny_decoder)) if is_decoder else brief
    trained = fine_tune(give(examples_from_ratings(seen)), recipe)
    long = replace(unseen[0], response="word1 " * 150)
    together = trained.predict([*unseen, long])
    alone = trained.predict([*unseen, long], batch_size=1)
    backwards = trained.predict([long, *unseen[::-1]])[::-1]
    assert together == pytest.approx(alone, abs=1e-5)
    assert together == pytest.approx(backwards, abs=1e-5)


def test_harsh_raters_are_found(
    examples: list[RatedExchange], tiny_recipe: Recipe, kept: list[RatingEffects]
) -> None:
    """Raters of odd batches give one label less; within each model they must come out harsher.

    Nothing but the level tells two exchanges apart here, so no text can stand for the rater.
    """

    def is_harsh(rater: str) -> bool:
        return int(rater.split("-")[1]) % 2 == 1

    planted = [
        replace(
            example,
            exchange=replace(
                example.exchange,
                prompt="rain",
                situation=None,
                response=speak(example.target.index(1.0), random.Random(0)),
            ),
            target=(*example.target[1:], 0.0)
            if is_harsh(example.rater) and not example.target[0]
            else example.target,
        )
        for example in examples
    ]
    fine_tune(give(examples_from_ratings(planted)), replace(tiny_recipe, severity=1.0, epochs=15))
    (effects,) = kept
    for model in ("ada", "bea/2", "cyd"):
        severity = effects.severity.tolist()
        own = {rater: severity[n] for rater, n in effects.raters.items() if rater.endswith(model)}
        harsh = [value for rater, value in own.items() if is_harsh(rater)]
        others = [value for rater, value in own.items() if not is_harsh(rater)]
        assert len(harsh) == len(others) == 5
        assert np.mean(harsh) < -0.2 < 0.2 < np.mean(others), own


def test_severity_shifts_what_somebody_rated_around_the_mean_of_each_models_raters(
    seen: list[RatedExchange], brief: Recipe
) -> None:
    lessons = examples_from_ratings(seen)
    effects = RatingEffects(lessons, replace(brief, severity=1.0))
    torch.nn.init.normal_(effects.severity)
    number = torch.tensor([*effects.raters.values(), -1])
    shift = effects.leniency(number).detach()
    assert float(shift[-1]) == 0, "nobody rated it"
    for model in ("ada", "bea/2", "cyd"):
        own = [n for rater, n in effects.raters.items() if rater.endswith(model)]
        assert float(shift[own].mean()) == pytest.approx(0, abs=1e-6)
        assert float(shift[own].std()) > 0.3
    without = RatingEffects(lessons, brief)
    assert not without.leniency(number).any()
    assert without.penalty().item() == 0


def test_a_conversations_rating_is_held_against_the_mean_over_its_replies() -> None:
    """By hand: a conversation of two replies on the scale of its set, beside a labelled reply."""
    logits = torch.tensor([[0.0, 5.0, 2.0], [1.0, 0.0, 5.0], [0.2, 0.3, 0.1]])
    lessons = [TrainingExample(exchanges=(), set="ieval"), TrainingExample(exchanges=())]
    effects = RatingEffects(lessons, Recipe())
    with torch.no_grad():
        effects.offset.fill_(-0.4)
        effects.log_scale.fill_(np.log(0.3))
    batch = TrainingBatch(
        *(torch.zeros(3, 1, dtype=torch.long) for _ in range(3)),
        example=torch.tensor([0, 0, 1]),
        target=torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.5, 0.5]]),
        rater=torch.tensor([-1, -1]),
        set=torch.tensor([0, -1]),
        value=torch.tensor([1.5, 0.0]),
        weight=torch.tensor([0.5, 1.0]),
    )
    said = compute_loss(lambda *_: logits, effects, batch).item()
    squared = (0.3 * (2 + 4) / 2 - 0.4 - 1.5) ** 2
    entropy = np.log(np.exp([0.2, 0.3, 0.1]).sum()) - (0.3 + 0.1) / 2
    assert said == pytest.approx((0.5 * squared + entropy) / 2)


def batch_of_ratings(values: np.ndarray, sets: np.ndarray) -> TrainingBatch:
    """One reply each, rated on the scale of its set."""
    count = len(values)
    return TrainingBatch(
        *(torch.zeros(count, 1, dtype=torch.long) for _ in range(3)),
        example=torch.arange(count),
        target=torch.zeros(count, 3),
        rater=torch.full((count,), -1),
        set=torch.from_numpy(sets),
        value=torch.from_numpy(values),
        weight=torch.ones(count),
    )


def test_the_scale_and_the_offset_of_a_set_are_those_of_least_squares_but_never_negative() -> None:
    """Three sets rate the same replies: as they are, higher and closer together, and upside down."""
    rng = np.random.default_rng(0)
    latents = np.tile(rng.normal(size=40), 3)
    sets = np.repeat([0, 1, 2], 40)
    values = np.array([1.0, 0.3, -0.8])[sets] * latents + np.array([0.0, 2.0, 0.5])[sets]
    values += 0.1 * rng.normal(size=120)
    effects = RatingEffects(
        [TrainingExample(exchanges=(), set=name) for name in ("a", "b", "c")], Recipe()
    ).double()
    logits = torch.from_numpy(np.stack([-latents / 2, latents, latents / 2], axis=1))
    batch = batch_of_ratings(values, sets)
    optimizer = torch.optim.Adam([effects.log_scale, effects.offset], lr=0.05)
    for _ in range(1500):
        optimizer.zero_grad()
        compute_loss(lambda *_: logits, effects, batch).backward()
        optimizer.step()
    scale, offset = effects.log_scale.exp().tolist(), effects.offset.tolist()
    for number in (0, 1):
        inside = sets == number
        slope, intercept = np.polyfit(latents[inside], values[inside], 1)
        assert (scale[number], offset[number]) == pytest.approx((slope, intercept), abs=0.01)
    assert 0 < scale[2] < 0.01, "the nearest that a positive scale comes to upside down"
    assert offset[2] == pytest.approx(values[sets == 2].mean(), abs=0.01)


def test_a_set_that_was_rated_upside_down_does_not_turn_the_direction_round(
    seen: list[RatedExchange], unseen: list[Exchange], tiny_recipe: Recipe, kept: list[RatingEffects]
) -> None:
    """Its replies stand under the prompts of the labelled ones: nothing but the words can tell them."""
    chance = random.Random(2)
    items = []
    for number, example in enumerate(seen):
        exchange = replace(example.exchange, id=str(number), response=speak(number % 3, chance))
        items.append(RatedItem("ieval", (exchange,), 5.0 - number % 3, None, "human", str(number)))
    others = examples_from_sets(items, {"ieval": 0.3}, replies=1, chance=chance)
    trained = fine_tune(give([*examples_from_ratings(seen), *others]), tiny_recipe)
    (effects,) = kept
    assert float(effects.log_scale.detach()) < -0.7, "it is heard less and less"
    assert min(auc(trained, unseen)) > 0.9


def test_batches_hold_every_lesson_once_and_no_more_padded_tokens_than_fit(tiny_recipe: Recipe) -> None:
    chance = random.Random(0)

    def reply(words: int) -> Exchange:
        return Exchange(id=f"{chance.random()}", prompt="rain", response="word1 " * words)

    sizes = [chance.choice((3, 30, 300, 900)) for _ in range(150)]
    lessons = [
        TrainingExample(
            exchanges=tuple(reply(size) for _ in range(chance.choice((1, 1, 3)))),
            set="ieval",
            value=float(number),
        )
        for number, size in enumerate(sizes)
    ]
    recipe = replace(tiny_recipe, batch_size=64)
    tokeniser = load_base(recipe.base)[1]
    batches = list(make_batches(lessons, tokeniser, recipe, RatingEffects(lessons, recipe), chance, "cpu"))
    assert sorted(float(value) for batch in batches for value in batch.value) == list(range(150))
    for batch in batches:
        assert batch.ids.numel() <= BATCH_TOKENS
        assert len(batch.set) <= 64
        replies = torch.bincount(batch.example, minlength=len(batch.set)).tolist()
        assert replies == [len(lessons[int(value)].exchanges) for value in batch.value]
    assert len(batches) < 30, "and little is left empty"


@pytest.mark.parametrize("by", [0.0, 0.35])
def test_length_is_favoured_by_its_logarithm(by: float) -> None:
    words = np.array([1, 27, 27, 200, 0])
    exchanges = [Exchange(id=str(n), prompt="p", response="word " * n) for n in words]
    said = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3], [0.5, 0.2, 0.3]])
    moved = favor_length(said, exchanges, by)
    gained = np.log(moved[:, 2] / moved[:, 0]) - np.log(said[:, 2] / said[:, 0])
    assert gained == pytest.approx(by * (np.log(np.maximum(words, 1)) - 3.3), abs=1e-4)
    assert moved.sum(axis=1) == pytest.approx(1)
    if not by:
        assert moved == pytest.approx(said, abs=1e-5)


def test_settling_meets_the_shares_and_halves_the_contrasts(seen: list[RatedExchange], brief: Recipe) -> None:
    before = fine_tune(give(examples_from_ratings(seen)), brief)
    exchanges = [example.exchange for example in seen]
    shares = np.mean([example.target for example in seen], axis=0)
    spread = contrast(before.predict(exchanges))
    for sharpness in (1.0, 0.5):
        settled = match_level(deepcopy(before), seen, sharpness).predict(exchanges)
        assert settled.mean(axis=0) == pytest.approx(shares, abs=1e-4)
        assert contrast(settled) == pytest.approx(sharpness * spread, abs=1e-3)
    for left in (match_level(deepcopy(before), seen, 0.0), match_level(deepcopy(before), [], 1.0)):
        assert np.array_equal(left.predict(exchanges), before.predict(exchanges)), "as trained"


def test_a_student_learns_its_teachers_probabilities(
    corpus: TrainingData,
    seen: list[RatedExchange],
    unseen: list[Exchange],
    taught_recipe: Recipe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ratings have little weight, and the teacher was trained on three sets."""
    few = read_graded_replies()[:12]
    monkeypatch.setattr("training.examples.read_graded_replies", lambda: few)
    monkeypatch.setattr("training.fine_tune.read_graded_replies", lambda: few)
    steps: list[tuple[int, int]] = []
    recipe = replace(taught_recipe, sharpness=0.7, ours=0.05)
    data = replace(corpus, ratings=seen)
    student = train_judge(data, lineage(recipe), progress=lambda *step: steps.append(step))
    # So small a student ranks Bad by 0.59 to 1.0, depending on the seed and the processor's rounding.
    assert auc(student, unseen)[0] > 0.9
    ends = [done for done, total in steps if done == total]
    assert len(ends) == 2, "the examples announced are the examples used, for teacher and student"
    assert all(1 <= done <= total for done, total in steps)


def test_a_teacher_moves_ratings_and_labels_what_nobody_rated(
    trained: TrainedNetworks, corpus: TrainingData, unseen: list[Exchange]
) -> None:
    texts = [replace(exchange, response=f"{exchange.response}. hug. word3.") for exchange in unseen]
    corpus = replace(corpus, texts=texts)
    recipe = Recipe(
        teacher="large", teacher_weight=0.75, length=0.2, texts=90, shuffled=7, pieces=5, mixtures=3
    )
    lessons = distill_ratings(trained, corpus, recipe)
    assert len(lessons) == len(corpus.ratings) + 90 + 7 + 5 + 3
    exchanges = [lesson.exchanges[0] for lesson in lessons]
    rated = len(corpus.ratings)
    said = trained.predict(exchanges)  # of a rated reply people have told what they think of its length
    said[rated:] = favor_length(said[rated:], exchanges[rated:], 0.2)
    own = np.array([example.target for example in corpus.ratings])
    assert exchanges[:rated] == [example.exchange for example in corpus.ratings]
    targets = np.array([lesson.target for lesson in lessons])
    assert targets[:rated] == pytest.approx(0.25 * own + 0.75 * said[:rated], abs=1e-5)
    assert targets[rated:] == pytest.approx(said[rated:], abs=1e-5)
    assert not any(lesson.rater or lesson.set for lesson in lessons)
    ids = {exchange.id for exchange in texts}
    drawn = exchanges[rated : rated + 90]
    assert len({exchange.id for exchange in drawn}) == 90, "each once"
    assert sum(exchange.id in ids for exchange in drawn) == len(texts), "the smallest kind is taken whole"


def test_each_network_learns_from_what_its_recipe_names(
    corpus: TrainingData, seen: list[RatedExchange], taught_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    met_by: dict[str, set[str]] = {}

    def fine_tune(make_examples: Any, recipe: Recipe, **_: object) -> TrainedNetworks:
        for name in recipe.networks:
            met_by[name] = {lesson.set for lesson in make_examples(name, random.Random(0))}
        raise StopIteration

    monkeypatch.setattr("training.fine_tune.fine_tune", fine_tune)
    monkeypatch.setattr("training.examples.read_grades", lambda: dict.fromkeys(graded, 50.0))
    graded = [example.exchange.content_digest for example in seen]
    recipe = replace(lineage(taught_recipe)[1], networks=list(NETWORK_DATA), ours=0.5, grades=1.0)
    with pytest.raises(StopIteration):
        train_judge(replace(corpus, ratings=seen), [recipe])
    sets = {item.set for item in corpus.items if recipe.sets.get(item.set)}
    assert sets
    assert met_by == {
        "all": {"", GRADES, OURS, *sets},
        "sets": {"", GRADES, *sets},
        "ours": {"", GRADES, OURS},
        "labels": {""},
    }
    met_by.clear()
    with pytest.raises(StopIteration):
        train_judge(replace(corpus, ratings=[]), [recipe])
    assert list(met_by) == ["all", "sets", "ours"], "where the study is left out, there are no labels"


def test_nothing_to_learn_from_is_said(tiny_recipe: Recipe) -> None:
    with pytest.raises(UserError, match="nothing is left to train on"):
        train_judge(TrainingData(), [tiny_recipe])


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

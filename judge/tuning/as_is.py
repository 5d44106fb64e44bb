"""A judge as it is on rated sets from which it learnt nothing, beside the length and the words of replies."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from calibration.agreement.set_transfer import SetItem, measure_leads
from data.errors import UserError
from data.files import disk_errors, replacing
from data.importers.rated_sets import RATED_SETS, RatedItem, drop_shared, read_rated_set
from data.records import to_plain
from data.tables import read_exchanges, read_ratings
from judge.base import load_judge
from judge.classifier.examples import join_ratings, standardise
from judge.classifier.judge import ClassifierJudge
from judge.classifier.trials import (
    FEW_ITEMS,
    SETS_APART,
    as_item,
    draw_few,
    keep_evaluation,
    measure_sets,
    rows_of_items,
)

OnStep = Callable[[int, int], None]
WORDS = "TF-IDF"  # a linear model of the words, fitted to the ratings that the judge learnt from
STRENGTHS = (1.0, 3.0, 10.0, 30.0)  # of its penalty: it takes the one that suits what it learns from


def try_as_is(
    judge_name: str,
    sets: Path,
    folder: Path,
    *,
    exchanges: Path | None = None,
    ratings: Path | None = None,
    items: int = FEW_ITEMS,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Measure a judge at hand on the public rated sets from whose sources it learnt nothing.

    Given exchanges and ratings are one more set, for a judge that learnt from no labels. An item that shares
    a text with what the judge learnt from is not asked about.
    """
    judge = load_judge(judge_name)
    if not isinstance(judge, ClassifierJudge):
        raise UserError(f"--as-is: {judge_name} is no fine-tuned classifier")
    trained_on = judge.card["trained_on"]
    learnt = list(trained_on.get("sets", ()))
    sources = {RATED_SETS[name].source for name in learnt}
    there = [name for name, about in RATED_SETS.items() if (sets / about.source).exists()]
    if not there:
        known = ", ".join(dict.fromkeys(about.source for about in RATED_SETS.values()))
        raise UserError(f"--sets: {sets} holds none of the rated sets ({known})")
    asked = [
        item
        for name in there
        if RATED_SETS[name].source not in sources
        for item in read_rated_set(name, sets)
    ]
    if exchanges is not None and ratings is not None and not trained_on["ratings"]:
        asked += map(as_item, join_ratings(read_exchanges(exchanges), read_ratings(ratings)))
    if not asked:
        raise UserError(f"--as-is: {judge_name} has learnt from {', '.join(learnt)}: nothing is held out")
    if missing := [name for name in learnt if name not in there]:
        raise UserError(
            f"--as-is: {judge_name} has learnt from {', '.join(missing)}, not in {sets}: what others share "
            "with it cannot be left out"
        )
    known_items = [item for name in learnt for item in read_rated_set(name, sets)]
    drawn = draw_few(drop_shared(asked, known_items), items)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        rows = run_as_is(judge, drawn, on_step=on_step)
        if known_items:
            words = predict_words(known_items, drawn)
            rows = [
                {**row, "others": {**row["others"], WORDS: round(word, 6)}}
                for row, word in zip(rows, words, strict=True)
            ]
        with replacing(folder / f"{judge.name}.jsonl") as partial:
            partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        measured = {"protocol": SETS_APART, "sets": measure_sets(rows), "leads": leads_of(rows)}
        return keep_evaluation(measured, folder)


def run_as_is(
    judge: ClassifierJudge, drawn: Sequence[RatedItem], *, on_step: OnStep | None = None
) -> list[dict[str, Any]]:
    """What a judge says of each item, one row an item."""
    every = [exchange for item in drawn for exchange in item.exchanges]
    with ThreadPoolExecutor(judge.concurrency) as pool:
        said = []
        for probabilities in pool.map(judge.predict, every):
            said.append(probabilities)
            if on_step:
                on_step(len(said), len(every))
    return rows_of_items(drawn, said)


def predict_words(known: Sequence[RatedItem], asked: Sequence[RatedItem]) -> list[float]:
    """What the words of an item's replies let expect of it on average, by the ratings of known items."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    by_set: dict[str, list[RatedItem]] = defaultdict(list)
    for item in known:
        by_set[item.set].append(item)
    texts: list[str] = []
    values: list[float] = []
    for those in by_set.values():
        for item, value in zip(those, standardise(those), strict=True):
            texts += [exchange.response for exchange in item.exchanges]
            values += [float(value)] * len(item.exchanges)
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=min(3, len(texts)), sublinear_tf=True)
    model = make_pipeline(words, RidgeCV(alphas=STRENGTHS, cv=5)).fit(texts, values)
    said = iter(model.predict([exchange.response for item in asked for exchange in item.exchanges]))
    return [float(np.mean([next(said) for _ in item.exchanges])) for item in asked]


def leads_of(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """By how much the judge follows people better than each rival, set by set."""
    items = [SetItem(**row) for row in rows]
    names = dict.fromkeys(item.set for item in items)
    return [
        to_plain(measure_leads([i for i in items if i.set == name], rivals=("length", WORDS)))
        for name in names
    ]

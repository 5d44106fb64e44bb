"""A protocol, run: one training per split, its held-out predictions kept, so that a broken trial goes on."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from data.errors import UserError
from data.files import replacing
from data.records import LABELS, Exchange
from judge.examples import Example
from judge.protocols import PROTOCOLS, Split, without_context
from judge.recipe import Recipe, read_recipe
from judge.rivals import RIVALS, predict_rival

BARE = "judge, bare"  # without emotion and situation, as most people's files come
OnSplit = Callable[[str, int, int], None]  # the split's name, its number, how many there are


def run_trial(
    examples: Sequence[Example],
    recipe: Recipe,
    protocol: str,
    folder: Path,
    *,
    texts: Sequence[Exchange] = (),
    device: str = "cpu",
    on_split: OnSplit = lambda name, number, total: None,
    on_step: Callable[[int, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Every held-out rating with what the judge, told nothing of it, and each rival predict."""
    splits = list(PROTOCOLS[protocol](examples))
    _check_plan(folder, {"protocol": protocol, **plan_training(examples, recipe, texts)})
    for number, split in enumerate(splits):
        # A model's name may hold a slash, which a file's may not.
        path = folder / f"{quote(split.name, safe=' ', errors='surrogatepass')}.jsonl"
        if not path.exists():
            on_split(split.name, number, len(splits))
            rows = _predict_split(split, recipe, texts, device, on_step)
            with replacing(path) as partial:
                partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines)


def _predict_split(
    split: Split,
    recipe: Recipe,
    texts: Sequence[Exchange],
    device: str,
    on_step: Callable[[int, int], None] | None,
) -> list[dict[str, Any]]:
    from judge.teaching import train_judge

    trained = train_judge(split.train, recipe, texts=texts, device=device, progress=on_step)
    bare = [without_context(example).exchange for example in split.test]
    predictions = {
        "judge": trained.predict([example.exchange for example in split.test]),
        BARE: trained.predict(bare),
    }
    return held_out_rows(split, predictions)


def held_out_rows(split: Split, predictions: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """One row for each held-out rating: what people said, and what everyone predicted."""
    predictions = predictions | {name: predict_rival(name, split.train, split.test) for name in RIVALS}
    rows = []
    for index, example in enumerate(split.test):
        rating = LABELS[example.target.index(max(example.target))]
        rows.append(
            {
                "id": example.exchange.id,
                "model": example.exchange.model,
                "batch": example.batch,
                "split": split.name,
                "rating": rating,
                "predictions": {
                    name: [round(float(part), 6) for part in table[index]]
                    for name, table in predictions.items()
                },
            }
        )
    return rows


def plan_training(examples: Sequence[Example], recipe: Recipe, texts: Sequence[Exchange]) -> dict[str, Any]:
    """All that decides about a training: two of the same plan may stand for each other."""
    return {
        "recipe": asdict(recipe),
        "teacher": asdict(read_recipe(recipe.teacher)) if recipe.teacher else None,
        "data": digest_examples(examples),
        "texts": sha256("".join(text.content for text in texts).encode()).hexdigest()[:16],
    }


def digest_examples(examples: Sequence[Example]) -> str:
    """Known by what was rated and how, in whatever order."""
    rows = sorted(f"{example.exchange.content} {example.rater} {example.target}" for example in examples)
    return sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _check_plan(folder: Path, plan: dict[str, Any]) -> None:
    path = folder / "plan.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
        return
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: damaged, not JSON ({error}); delete the folder and try again") from error
    if set(there) != set(plan):
        raise UserError(f"{folder}: holds something else than a trial; give another --out")
    differing = [key for key, value in plan.items() if there[key] != value]
    if differing:
        raise UserError(f"{folder}: holds a trial with another {', '.join(differing)}; give another --out")

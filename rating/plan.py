"""A rating plan: the replies that each rater rates, balanced over models; and its folder.

Each rater takes the next part of one sequence: prompts in random order, with the replies of all models. So
models are balanced, raters see all of them on the same prompts, and no reply is rated twice before all once.
"""

import json
import random
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import disk_errors, replacing
from empathy_judge.data.readers.chat_turns import is_answering
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.records import REPLY, Exchange, to_plain
from empathy_judge.data.tables import validate, write_rows

PLAN_FILE: Final = "plan.json"
TEXTS_FILE: Final = "texts.jsonl"
FORMAT: Final = 2
ANCHORS: Final = 2  # replies that every rater rates
REPEATS: Final = 1  # replies that a rater rates twice
WORDS_A_MINUTE: Final = 200  # reading speed
SECONDS_A_RATING: Final = 5.0  # to choose a label
CHECKED_FROM: Final = 12  # replies of a rater; of fewer, checks of consistency would take too many
Texts = Mapping[str, Mapping[str, Any]]  # the texts of each reply for raters, by its key


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A reply of the plan; `chance` is the probability with which it was drawn."""

    id: str
    model: str
    prompt_key: str
    chance: float
    content_digest: str = ""  # ids of rows without one depend on which files are read together


@dataclass(frozen=True, slots=True, kw_only=True)
class Rater:
    """A rater, and the keys of the replies in the order they are shown; a repeated one twice."""

    name: str
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingPlan:
    """The assignment of replies to raters; raters have secret tokens, replies have random keys."""

    seed: int
    people: int
    each: int
    items: Mapping[str, Item]
    raters: Mapping[str, Rater]
    anchors: tuple[str, ...] = ()
    source_words: tuple[str, ...] = ()  # the files of the replies, with the options that name their columns
    unit: str = REPLY
    undrawn: int = 0  # prompts of which `rate next` can draw all models' replies
    format: int = FORMAT

    def is_check(self, token: str, index: int) -> bool:
        """Return whether the rating at this index only measures consistency."""
        order = self.raters[token].order
        return order[index] in (*self.anchors, *order[:index])

    def count_ratings(self) -> int:
        """Return the number of ratings that the plan asks for, checks included."""
        return sum(len(rater.order) for rater in self.raters.values())

    def count_design(self) -> int:
        """Return the number of ratings that the plan asks for, without checks of consistency."""
        return sum(len(set(rater.order) - set(self.anchors)) for rater in self.raters.values())

    def next_step(self, folder: Path, rated: int, *, people: int) -> tuple[object, ...]:
        """Return what to do for more ratings, and the words of its command; `people` are raters to add."""
        if rated < self.count_design():
            return "to continue rating", "rate", "open", folder
        if self.undrawn and self.source_words and not people:
            return "to add replies to rate", "rate", "next", folder, *self.source_words
        return "to add raters for the same replies", "rate", "next", folder, "--people", people or self.people


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A plan, the texts of the drawn replies by their keys, a `summary` and `notes`."""

    plan: RatingPlan
    texts: Texts
    summary: str = ""
    notes: tuple[str, ...] = ()


Columns = list[list[Exchange]]  # by model; in the crossed case row by row replies to one prompt


def draw_plan(
    exchanges: Iterable[Exchange],
    *,
    people: int,
    each: int,
    seed: int,
    source_words: Sequence[str] = (),
    unit: str = REPLY,
) -> Drawn:
    """Assign replies to raters; `each` includes the anchors and the repeated reply, if it is not too few."""
    rng, pool = random.Random(seed), list(exchanges)
    if not pool:
        raise UserError("nothing to rate: the files have no replies")
    columns, notes = columns_of_models(pool, each, rng)
    is_crossed = not notes
    models = len(columns)
    anchors, kept = _take_anchors(columns, each, rng)
    repeats = REPEATS if each >= CHECKED_FROM else 0
    share = min(each - repeats - len(anchors), models * min(map(len, kept)))
    count = share + repeats + len(anchors)
    if count < each:
        fewest = min(columns, key=len)
        why = f"{fewest[0].model!r} has only" if models > 1 else "there are only"
        notes.append(f"each rater gets {count} replies, not {each}: {why} {len(fewest)}")
    keys = {id(item): secrets.token_hex(6) for item in pool}
    # Each rater takes the next part of the sequence, which starts again after its end.
    replies = chain.from_iterable(zip(*map(cycle, kept), strict=True))
    shares = [[keys[id(item)] for item in islice(replies, share)] for _ in range(people)]
    shown = [keys[id(item)] for item in anchors]
    drawn = set(shown).union(*shares)
    chances = _chances(columns, kept, people * share, anchors)
    taken = [item for item in pool if keys[id(item)] in drawn]
    free = [row for row in zip(*kept, strict=False) if not drawn & {keys[id(item)] for item in row}]
    plan = RatingPlan(
        seed=seed,
        people=people,
        each=each,
        items={
            keys[id(item)]: item_of(item, chance=chances[id(item)]) for item in rng.sample(taken, len(taken))
        },
        raters={
            secrets.token_hex(16): Rater(name=f"rater-{number}", order=_order(mine, shown, rng, repeats))
            for number, mine in enumerate(shares, start=1)
        },
        anchors=tuple(shown),
        source_words=tuple(source_words),
        unit=unit,
        undrawn=len(free) if is_crossed else 0,
    )
    by_key = {keys[id(item)]: item for item in taken}
    notes += named_models(taken, {item.model for item in pool})
    if left_out := len(pool) - sum(map(len, columns)):
        notes.append(f"{left_out} of {len(pool)} replies are left out: a model has none to their prompts")
    return Drawn(plan=plan, texts={key: blind_text(by_key[key]) for key in plan.items}, notes=tuple(notes))


def item_of(reply: Exchange, *, chance: float) -> Item:
    """Return the item of a plan for a reply."""
    return Item(
        id=reply.id,
        model=reply.model,
        prompt_key=reply.prompt_digest,
        chance=chance,
        content_digest=reply.content_digest,
    )


def columns_of_models(pool: Sequence[Exchange], each: int, rng: random.Random) -> tuple[Columns, list[str]]:
    """Return the replies by model, row by row to the same prompt if the models share enough prompts."""
    by_prompt: dict[tuple[str, ...], dict[str, list[Exchange]]] = defaultdict(lambda: defaultdict(list))
    for item in pool:
        said = (turn.text for turn in item.dialogue if not _is_answer(turn.speaker, item))
        by_prompt[item.prompt, *said][item.model].append(item)
    models = sorted({item.model for item in pool})
    rng.shuffle(models)
    rows = []
    for replies in by_prompt.values():
        shuffled = [rng.sample(replies.get(model, []), len(replies.get(model, []))) for model in models]
        rows += list(zip(*shuffled, strict=False))
    rng.shuffle(rows)
    shared = len(rows) * len(models)
    if shared >= min(each - REPEATS, len(pool)):
        return [list(column) for column in zip(*rows, strict=True)], []
    by_model = [[item for item in pool if item.model == model] for model in models]
    note = "too few prompts have replies by all models: raters see all models, but on different prompts"
    return [rng.sample(column, len(column)) for column in by_model], [note] if len(models) > 1 else []


def _take_anchors(columns: Columns, each: int, rng: random.Random) -> tuple[list[Exchange], Columns]:
    """Return anchors of one prompt, or of two for a single model, and the columns without that prompt."""
    rows = -(-ANCHORS // len(columns))
    # If each rater can rate everything, no anchors are needed.
    if each < CHECKED_FROM or sum(map(len, columns)) <= each - REPEATS or min(map(len, columns)) <= rows:
        return [], columns
    taken = [item for column in columns for item in column[:rows]]
    return rng.sample(taken, ANCHORS), [column[rows:] for column in columns]


def _chances(columns: Columns, kept: Columns, ratings: int, anchors: Sequence[Exchange]) -> dict[int, float]:
    """Return the probability of each reply to be drawn, which is equal for all replies of a model."""
    chances: dict[int, float] = {}
    chosen = {id(item) for item in anchors}
    for whole, column in zip(columns, kept, strict=True):
        dealt = len(column) / len(whole) * min(1.0, ratings / len(columns) / len(column))
        shown = len(anchors) / len(columns) / len(whole)
        chances |= {id(item): shown if id(item) in chosen else dealt for item in whole}
    return chances


def _order(mine: Sequence[str], anchors: Sequence[str], rng: random.Random, repeats: int) -> tuple[str, ...]:
    """Return a rater's replies in random order; a repeated one is in the first third and the last third."""
    order = rng.sample([*mine, *anchors], len(mine) + len(anchors))
    early = [key for key in order[: max(1, len(order) // 3)] if key not in anchors] or list(mine)
    for _ in range(repeats):
        order.insert(rng.randint(len(order) - len(order) // 3, len(order)), rng.choice(early))
    return tuple(order)


def _is_answer(speaker: str, item: Exchange) -> bool:
    name = speaker.strip().casefold()
    return is_answering(name) or name == item.model.strip().casefold()


def blind_text(item: Exchange) -> dict[str, Any]:
    """Return the texts that a rater reads, without id, model and names of speakers."""
    turns = [{"answers": _is_answer(turn.speaker, item), "text": turn.text} for turn in item.dialogue]
    shown = {"situation": item.situation, "context": turns, "prompt": item.prompt, "response": item.response}
    return {name: value for name, value in shown.items() if value}


def rating_seconds(text: Mapping[str, Any]) -> float:
    """Return the seconds that reading and rating take."""
    turns = [turn["text"] for turn in text.get("context", ())]
    words = " ".join([*turns, *(text.get(name, "") for name in ("situation", "prompt", "response"))]).split()
    return round(SECONDS_A_RATING + 60 * len(words) / WORDS_A_MINUTE, 1)


def add_raters(plan: RatingPlan, count: int) -> RatingPlan:
    """Add raters of the same replies, each with an own order."""
    rng = random.Random(f"{plan.seed}-people-{plan.people}")
    shares = [sorted(set(rater.order) - set(plan.anchors)) for rater in plan.raters.values()]
    new = {
        secrets.token_hex(16): Rater(
            name=f"rater-{number + 1}",
            order=_order(shares[number % len(shares)], plan.anchors, rng, int(plan.each >= CHECKED_FROM)),
        )
        for number in range(plan.people, plan.people + count)
    }
    return replace(plan, people=plan.people + count, raters={**plan.raters, **new})


def named_models(taken: Sequence[Exchange], models: set[str]) -> list[str]:
    """Return notes on replies that mention a model's name; one without a digit may be a common word."""
    names = [re.escape(name) for name in models if re.search(r"\d", name)]
    named = re.compile(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)", re.IGNORECASE)
    leaks = [item for item in taken if names and named.search(item.response)]
    if not leaks:
        return []
    first = f"the first is {leaks[0].id!r}"
    return [f"{len(leaks)} replies mention a model's name, which raters will see; {first}"]


def write_plan(plan: RatingPlan, texts: Texts, folder: Path, *, is_new: bool = True) -> None:
    """Write a plan's folder; the plan comes last, so that a folder with a plan is complete."""
    path = folder / PLAN_FILE
    if is_new and path.exists():
        raise UserError(f"{folder}: has a plan already, which ratings may use; set another --out")
    write_rows(folder / TEXTS_FILE, ({"key": key, **text} for key, text in texts.items()))
    with disk_errors(path), replacing(path) as partial:
        partial.write_text(json.dumps(to_plain(plan), indent=1) + "\n", encoding="utf-8")


def read_plan(folder: Path) -> RatingPlan:
    """Read the plan in a folder."""
    path = folder / PLAN_FILE
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder}: no plan; `rate plan` makes one") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a plan: {error}") from error
    if isinstance(table, dict) and table.get("format") != FORMAT:
        found = table.get("format")
        raise UserError(f"{path}: a plan of format {found!r}, not {FORMAT}; make a new one with `rate plan`")
    plan = validate(RatingPlan, table, str(path))
    for rater in plan.raters.values():
        if unknown := set(rater.order) - set(plan.items):
            raise UserError(f"{path}: {rater.name}: no item has the key {min(unknown)!r}")
    return plan


def read_texts(folder: Path, plan: RatingPlan) -> dict[str, dict[str, Any]]:
    """Return the texts of each reply for raters, by its key."""
    path = folder / TEXTS_FILE
    texts = {str(row.pop("key", "")): row for _, row in read_rows(path)}
    for key in plan.items:
        if not all(isinstance(texts.get(key, {}).get(name), str) for name in ("prompt", "response")):
            raise UserError(f"{path}: no text of the reply {key!r}; the file may have been edited")
    return texts

"""Attacks on a judge that costs money: a sample of the catalogue, kept in a folder to be taken up again."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final

from data.records import Exchange, Judgment
from data.runs import OnProgress, Plan, Run, folder_name, run_all
from data.tables import read_judgments
from judge.base import Judge
from judge.engine import score_exchanges
from judge.robustness.attacks import Catalogue, read_attacks
from judge.robustness.replies import WrittenReply, read_replies
from judge.robustness.resistance import DRESSED_UNKIND, POOL, Resistance, run_attacks, run_rounds, spread

FOLDER: Final = "attacks"
LEAST_SAMPLE: Final = 24
SAMPLED_KIND: Final = ("kind", "excellent")  # a reply that grows takes five judgments as it is
FEWEST_REPLIES, PART_OF_REPLIES = 4, 12  # of each side as they are, and one of so many judgments


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackPlan(Plan):
    """What decides every judgment: the judge, and the texts that it is shown."""

    judge: str
    version: str
    rubric: str
    texts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some unkind and kind replies, and some forms of every family, each put around a few of them."""

    replies: tuple[WrittenReply, ...]
    catalogue: Catalogue
    pool: int
    each: int


def draw_sample(size: int, *, seed: int = 0) -> Sample:
    """As much of the first round as takes about `size` judgments: half around unkind, half around kind."""
    chance, everything = Random(seed), read_attacks()
    pool = min(POOL, max(FEWEST_REPLIES, size // PART_OF_REPLIES))
    written = read_replies("test")
    unkind, kind = (spread(written, kinds, pool, chance) for kinds in (DRESSED_UNKIND, SAMPLED_KIND))
    pairs = (size - len(unkind) - len(kind)) // 2
    each = max(2, pairs // len(everything.attacks))
    forms = list(everything.attacks)
    chance.shuffle(forms)
    turn: dict[str, int] = {}
    order = []
    for form in forms:  # every family once before any comes twice
        turn[form.family] = turn.get(form.family, 0) + 1
        order.append((turn[form.family], form))
    chosen = {form.name for _, form in sorted(order, key=lambda item: item[0])[: max(1, pairs // each)]}
    kept = tuple(form for form in everything.attacks if form.name in chosen)
    return Sample(replies=(*unkind, *kind), catalogue=replace(everything, attacks=kept), pool=pool, each=each)


def attack_kept(
    judge: Judge,
    *,
    sample: int | None = None,
    whole: int = 0,
    seed: int = 0,
    place: str | Path = FOLDER,
    on_progress: OnProgress = lambda done, total: None,
) -> Resistance:
    """Try a judge, and keep every judgment in a folder of `place`: the same call asks for none twice.

    With `sample` about so many judgments of the first round; else both rounds.
    """

    def ask(exchanges: Iterable[Exchange]) -> dict[str, Judgment]:
        texts = {item.content_digest: item for item in exchanges}
        plan = AttackPlan(
            judge=judge.name,
            version=judge.version,
            rubric=judge.rubric.digest,
            texts=sha256(" ".join(texts).encode()).hexdigest(),
        )

        def judge_all(run: Run, count_one: Any) -> int:
            known = (replace(item, id=digest) for digest, item in texts.items())
            return score_exchanges(judge, known, run, on_progress=count_one)

        done = run_all(
            plan.default_folder(str(place), folder_name(judge.name)),
            plan,
            total=len(texts),
            ask=judge_all,
            conclude=lambda run: ({"judgments": len(texts), "wall_seconds": run.seconds}, None),
            on_progress=on_progress,
        )
        return {item.content: item for item in read_judgments(done.folder / "judgments.jsonl")}

    if sample is None:
        return run_rounds(judge, whole=whole, seed=seed, ask=ask)
    drawn = draw_sample(sample, seed=seed)
    return run_attacks(
        judge,
        replies=drawn.replies,
        catalogue=drawn.catalogue,
        pool=drawn.pool,
        each=drawn.each,
        seed=seed,
        ask=ask,
    )

"""Prompt fit on public sets: genuine replies are hardly ever flagged, and shuffled ones nearly always.

`python tests/slow/shipped_judge/test_prompt_fit_sets.py` prints the figures and writes them, without texts,
to docs/figures/prompt_fit.json.
"""

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # as a script, too

from repository import SHARED, dataset  # noqa: E402

from empathy_judge.calibration.prompt_fit import UNCHECKED, UNRESPONSIVE, PromptFit, measure_fit  # noqa: E402
from empathy_judge.data.importers import import_source  # noqa: E402
from empathy_judge.data.readers.conversations import split_conversation  # noqa: E402
from empathy_judge.data.records import Exchange, Turn  # noqa: E402
from empathy_judge.judge.embeddings import MAX_REPLIES, embed, group_of, prompt_text  # noqa: E402

FIGURES = ROOT / "docs" / "figures" / "prompt_fit.json"
PROMPTS = (10, 20, 40)
SUBSETS = 200  # of each system and number of prompts
SHORT = 5  # words
SOURCES = {
    "crowd study": ("empathy-study", "empathy-study"),
    "crowd study, sixth model": ("empathy-study", "empathy-study-sixth"),
    "dstc9": ("dep", "dep"),
    **{
        name: (name, name)
        for name in ("empathetic-exchanges", "epitome", "esconv", "ieval", "judging-empathy")
    },
    "resort": ("resort", "external-test"),
}
# Sets above the target of 1%: the chatbot that people rate lowest of iEval's four has a fit of 0.64; one part
# of judging-empathy, 50 conversations with only three openings, has 0.72.
AT_MOST = {"ieval": 15, "judging-empathy": 3}  # %; of the latter 1.7 or 2.3, by how a processor rounds
SETS = (*SOURCES, "empo")
Row = dict[str, object]


def read_set(name: str) -> dict[str, list[Exchange]]:
    """Return the replies of a set by system; those of a conversation one by one."""
    systems: defaultdict[str, list[Exchange]] = defaultdict(list)
    if name in SOURCES:
        source, folder = SOURCES[name]
        rows: Iterable[Exchange] = (
            reply
            for exchange in import_source(source, SHARED / folder).exchanges
            for reply in split_conversation(exchange)
        )
    else:
        rows = read_empo()
    for row in rows:
        system = f"{row.extra.get('dataset', '')} {row.model}"
        systems[system].append(row)
    return systems


def read_empo() -> Iterator[Exchange]:
    with (SHARED / "external-test" / "empo.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            *before, prompt = row["chat_cut"].strip().split("\n")
            turns = tuple(Turn(speaker="user", text=text) for text in before)
            if row["gens"].strip():
                yield Exchange(id="", model=row["model"], prompt=prompt, dialogue=turns, response=row["gens"])


class EmbeddedReplies:
    """A seeded sample of one system's replies, one for each prompt, with their embeddings."""

    def __init__(self, replies: Iterable[Exchange], rng: np.random.Generator) -> None:
        rows = list(replies)
        by_prompt = {prompt_text(rows[index]): rows[index] for index in rng.permutation(len(rows))}
        sample = list(by_prompt.items())[:MAX_REPLIES]
        groups = [group_of(row) for _, row in sample]
        self.groups = np.unique(groups, return_inverse=True)[1]
        self.texts = np.array([row.response for _, row in sample], dtype=object)
        self.prompts = embed([prompt for prompt, _ in sample])
        self.replies = embed(list(self.texts))
        self.is_short = np.array([len(text.split()) <= SHORT for text in self.texts], dtype=bool)

    def fit(self, chosen: np.ndarray, answers: np.ndarray) -> PromptFit | None:
        replies, prompts, texts = self.replies[answers], self.prompts[chosen], list(self.texts[answers])
        return measure_fit(replies, prompts, np.arange(len(chosen)), texts, groups=self.groups[chosen])

    def states(self, among: np.ndarray, prompts: int, rng: np.random.Generator) -> list[tuple[str, str]]:
        """Return the states of random subsets, genuine and shuffled."""
        states = []
        for _ in range(SUBSETS):
            chosen = rng.choice(among, prompts, replace=False)
            # The order is random, so that a step of one is a random permutation without fixed points.
            genuine, shuffled = (self.fit(chosen, answers) for answers in (chosen, np.roll(chosen, 1)))
            states.append((state_of(genuine), state_of(shuffled)))
        return states


def state_of(fit: PromptFit | None) -> str:
    """Return the state of a file; with fewer than ten conversations it is not measured."""
    return UNCHECKED if fit is None else fit.state


def measure_set(name: str) -> list[Row]:
    """Return a row for each number of prompts, of all replies and of the short ones alone."""
    rng = np.random.default_rng(7)
    systems = [EmbeddedReplies(replies, rng) for _, replies in sorted(read_set(name).items())]
    rows: list[Row] = []
    for kind in ("all", "short"):
        for prompts in PROMPTS:
            fits: list[PromptFit | None] = []
            states = []  # of systems, subsets, and genuine or shuffled replies
            for system in systems:
                among = np.flatnonzero(system.is_short | (kind == "all"))
                if len(among) >= prompts:
                    fits.append(system.fit(among, among))
                    states.append(system.states(among, prompts, rng))
            if fits:
                by_system = 100 * (np.array(states) == UNRESPONSIVE).mean(axis=1)
                unchecked = 100 * (np.array(states)[:, :, 0] == UNCHECKED).mean()
                rows.append(
                    {
                        "set": name,
                        "replies": kind,
                        "systems": len(fits),
                        "prompts": prompts,
                        "flagged_genuine": round(float(by_system[:, 0].mean()), 2),
                        "flagged_genuine_worst_system": round(float(by_system[:, 0].max()), 2),
                        "unchecked_genuine": round(float(unchecked), 2),
                        "caught_shuffled": round(float(by_system[:, 1].mean()), 2),
                        "systems_flagged_by_all_replies": sum(state_of(fit) == UNRESPONSIVE for fit in fits),
                        "fit": sorted(round(fit.estimate.value, 3) for fit in fits if fit),
                        "repeated": sorted(round(fit.repeated, 3) for fit in fits if fit),
                    }
                )
    return rows


@pytest.mark.parametrize("name", SETS)
def test_genuine_replies_are_rarely_flagged_and_shuffled_ones_caught(name: str) -> None:
    dataset(SOURCES.get(name, ("", "external-test"))[1])
    for row in measure_set(name):
        print(row)
        if row["replies"] == "all":
            assert row["flagged_genuine"] <= AT_MOST.get(name, 1), row
            assert row["prompts"] < 20 or row["caught_shuffled"] >= 95, row


if __name__ == "__main__":
    table = []
    for each in SETS:
        for found in measure_set(each):
            print(found, flush=True)
            table.append(found)
    FIGURES.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(row) for row in table)
    FIGURES.write_text(f"[\n{lines}\n]\n", encoding="utf-8")

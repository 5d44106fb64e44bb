"""Rated sets that are made: in their published shapes with a planted signal, and ones that share texts."""

import csv
import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rows import write_csv

from empathy_judge.data.importers.rated_conversations import IEVAL_BOTS
from empathy_judge.data.importers.rated_replies import EPITOME_DIMENSIONS
from empathy_judge.data.rating_files.rated_inputs import RatedExchange
from empathy_judge.data.records import Exchange, Turn
from empathy_judge.training.rated_sets import RatedItem
from empathy_judge.training.training_data import TrainingData

WARM, COLD = "hug", "whatever"  # a reply with the one is Good, with the other Bad, with neither Okay
WORKERS, POSTS = 12, 60  # each worker of iEval rates four talks of two replies
LEVELS = (0, 0, 1, 2)  # of iEval's four bots
SETS = ("epitome", "judging-empathy/epitome", "ieval", "esconv", "esconv-turns", "dstc9", "study", "text")


def speak(level: int, chance: random.Random) -> str:
    """Five words of which two tell the level: 0 Bad, 1 Okay, 2 Good."""
    words = [f"word{chance.randrange(20)}" for _ in range(5)]
    words[1::2] = [(COLD, "problem", WARM)[level]] * 2
    return " ".join(words)


def write_sets(folder: Path) -> Path:
    """EPITOME and iEval in little, in folders of their own; odd workers of iEval rate two points lower."""
    chance = random.Random(1)
    posts = [(f"s{n}", f"r{n}", f"word{n % 40} rain", speak(n % 3, chance), n % 3, "") for n in range(POSTS)]
    (folder / "epitome").mkdir(parents=True)
    for name in EPITOME_DIMENSIONS:
        with (folder / "epitome" / f"{name}-reddit.csv").open("w", encoding="utf-8", newline="") as out:
            table = csv.writer(out)
            table.writerow(["sp_id", "rp_id", "seeker_post", "response_post", "level", "rationales"])
            table.writerows(posts)
    (folder / "ieval").mkdir()
    workers = [
        {
            "TEQ_agg": 40,
            "positive": {
                "prompt": f"word{number} rain",
                "emotion": "joyful",
                "conv_id": f"c{number}",
                **{bot: _talk(LEVELS[place], number, chance) for place, bot in enumerate(IEVAL_BOTS)},
            },
            "negative": None,
        }
        for number in range(WORKERS)
    ]
    (folder / "ieval" / "ieval_data.json").write_text(json.dumps(workers), encoding="utf-8")
    return folder


def write_external_sets(folder: Path, *, posts: int = 6) -> Path:
    """RESORT and EmPO in little: five systems on each post, whose number is their quality."""
    chance = random.Random(2)
    resort, empo = [], []
    for post in range(posts):
        for system in range(5):
            reply = speak(system // 2, chance)
            notes = [
                {"id": 100 * rater + 5 * post + system, "annotator": 10 + rater, "empathy": float(mark)}
                for rater, mark in ((1, 1 + system), (2 + post % 2, max(1, system)))
            ]
            asked = {"Reddit ID": f"post_{post}", "Reddit Post": f"word{post} rain", "model": f"m{system}"}
            rated = {f"human_eval_annotation_{place}": note for place, note in enumerate(notes, 1)}
            resort.append({**asked, "pipeline": "", "reappraisal_response": f" {reply} ", **rated})
            for rater in range(3):
                marks = {f"Dim{scale}": 20 * system + rater + scale for scale in range(1, 6)}
                said = f"word{post} my\nnot rain\nmy problem"
                chat = {"chat_cut": said, "gens": reply, "tidy_chat": "stale"}
                about = {"ED_index": post, "model": f"m{system}", "annotator": rater, "emotions": "happy"}
                empo.append({"": len(empo), **about, **chat, **marks})
    (folder / "external-test").mkdir(parents=True)
    (folder / "external-test" / "resort.json").write_text(json.dumps(resort), encoding="utf-8")
    write_csv(folder / "external-test" / "empo.csv", empo)
    return folder


def _talk(level: int, number: int, chance: random.Random) -> dict[str, object]:
    said = (f"word{number} rain", speak(level, chance), "word3 not", speak(level, chance))
    mark = 3 + level - 2 * (number % 2)
    return {"chat_log": "\n".join(f"- {text}" for text in said), "EU": mark, "ER": mark, "Rating": level + 1}


def words_of(exchanges: Iterable[Exchange]) -> set[str]:
    """Every word that a judge may read."""
    return {
        word
        for e in exchanges
        for text in (e.prompt, e.response, e.situation or "", *(turn.text for turn in e.dialogue))
        for word in text.split()
    }


def make_sharing_corpus() -> TrainingData:
    """Texts whose words tell whose they are; of every two sources, some text or conversation is shared.

    Each has also texts of its own, and all have a greeting, which is too short to tell one from another.
    """

    def text(name: str, number: int, part: str) -> str:
        return " ".join(f"{name}.{number}.{part}.{word}" for word in range(9))

    def talk(name: str, number: int, **changes: object) -> Exchange:
        exchange = Exchange(
            id=f"{name}/{number}",
            prompt=text(name, number, "prompt"),
            response=f"{text(name, number, 'one')}. {text(name, number, 'two')}.",
            situation=text(name, number, "situation"),
            dialogue=(Turn(speaker="speaker", text="Hi."), Turn(speaker="listener", text="Hello.")),
            model=("ada", "bea/2", "cyd")[number % 3],
        )
        return replace(exchange, **changes)

    talks = {name: [talk(name, number) for number in range(12)] for name in SETS}
    for place, name in enumerate(SETS):  # in whatever field it stands, a text is a text
        for other in SETS[:place]:
            number, borrowed = SETS.index(other), talks[other][place].response
            earlier = Turn(speaker="listener", text=borrowed)
            talks[name][number] = (
                talk(name, number, situation=borrowed),
                talk(name, number, response=borrowed),
                talk(name, number, dialogue=(Turn(speaker="speaker", text="Hi."), earlier)),
            )[number % 3]
    items = [
        RatedItem(name, (exchange,), float(number % 5), None, "bot", f"{number}")
        for name in SETS[:-2]
        for number, exchange in enumerate(talks[name])
    ]
    examples = [
        RatedExchange(
            exchange=exchange,
            target=tuple(float(number % 3 == level) for level in range(3)),
            rater=f"rater-{number}",
            batch=f"batch-{number % 6}",
            group=f"group-{number}",
        )
        for number, exchange in enumerate(talks["study"])
    ]
    return TrainingData(ratings=examples, items=items, texts=talks["text"])

"""Nights to be lived through in a second: one server is both the models that answer and the judge."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from command_line import write_toml
from servers import Answer, Call, ScriptedServer, answer_chat, answer_decisions

from empathy_judge.data.tables import write_rows
from empathy_judge.nightly.config import read_config
from empathy_judge.nightly.history import KINDS, open_history
from empathy_judge.nightly.night import run_night
from empathy_judge.nightly.output import FinishedNight

FEELINGS = ("afraid", "angry", "joyful", "lonely", "proud", "sad")
CURT = ("afraid", "angry", "lonely", "sad")
EACH = 10  # prompts a feeling: the fewest of which it is named
PROMPTS = EACH * len(FEELINGS)
ANCHORS = 24
NOW = datetime(2026, 12, 1, 2, tzinfo=UTC)
GATES = """
[gates]
good_share_drop = { baseline = 5, last_night = 5 }
bad_share_rise = 8
max_unscored = 5
"""


@dataclass
class World:
    """A folder with a config, and what its models and its judge are like tonight."""

    folder: Path
    day: int = 0  # when tonight is
    mood: str = "1"  # what else tonight's answers hold: the same mood is the same answers
    curt: frozenset[tuple[str, str]] = frozenset()  # models and feelings that get no more than a word
    swings: dict[str, float] = field(default_factory=dict)  # by mood, how much better all answers are
    shift: float = 0.0  # how far the judge is from what it was
    broken: frozenset[str] = frozenset()  # models that do not answer
    asked: Counter[str] = field(default_factory=Counter)
    server: ScriptedServer | None = None

    def reply(self, call: Call) -> Answer:
        self.asked[call.body["model"]] += 1
        return self._judge(call) if call.path.endswith("/decisions") else self._answer(call)

    def _answer(self, call: Call) -> Answer:
        model = call.body["model"]
        if model in self.broken:
            return Answer(status=401, body={"error": "no"})
        found = re.search(r"I feel (\w+), case (\d+)", call.text)
        assert found is not None
        feeling, case = found.groups()
        if (model, feeling) in self.curt:
            return answer_chat(call, f"Oh. {case} {feeling} {model} {self.mood}")
        return answer_chat(call, f"I hear you, case {case}, {feeling}, {model}, {self.mood}.")

    def _judge(self, call: Call) -> Answer:
        reply = call.text.rpartition("to be rated ---")[2].splitlines()[1]
        chance = sha256(reply.encode()).digest()[0] / 255
        level = 0.35 + 0.4 * chance if "anchor" in reply else 0.6 if "hear" in reply else 0.15
        swing = self.swings.get(reply.rstrip(".").rpartition(", ")[2], 0.0)
        good = level + 0.1 * (chance - 0.5) + swing - self.shift
        bad = 0.6 * (1 - good)
        said = answer_decisions(call)
        for row in said.body["answers"][0]["probabilities"]:
            row["probability"] = {"Bad": bad, "Okay": 1 - good - bad, "Good": good}[row["label"]]
        return said

    def write(self, *, gates: str = GATES, head: str = "", models: tuple[str, ...] = ("ann", "bob")) -> Path:
        """The config with its prompts, anchors and judge."""
        assert self.server is not None
        rows = [
            {"id": f"{feeling}-{case}", "emotion": feeling, "prompt": f"I feel {feeling}, case {case}."}
            for feeling in FEELINGS
            for case in range(EACH)
        ]
        anchors = [{"id": f"a{n}", "prompt": f"Case {n}.", "response": f"anchor {n}"} for n in range(ANCHORS)]
        write_rows(self.folder / "prompts.jsonl", rows)
        write_rows(self.folder / "anchors.jsonl", anchors)
        asked = {"model": "judge", "base_url": self.server.base_url, "concurrency": 4}
        write_toml(f"{self.folder}/judge.toml", kind="decision", **asked)
        known = "" if "dashboard" in head else "dashboard = false\n"
        named = "".join(
            f'[[models]]\nname = "{model}"\nmodel = "{model}"\nconcurrency = 4\n'
            f'base_url = "{self.server.base_url}"\n'
            for model in models
        )
        path = self.folder / "n.toml"
        start = 'prompts = "prompts.jsonl"\nanchors = "anchors.jsonl"\njudge = "judge.toml"\n'
        path.write_text(f'{start}calibration = "none"\n{known}{head}{named}{gates}', encoding="utf-8")
        return path

    def run(self, night: str, *, again: bool = False) -> FinishedNight:
        """One night, with a mood of its own unless one is set."""
        config = read_config(self.folder / "n.toml")
        return run_night(config, night=night, clock=lambda: NOW + timedelta(days=self.day), again=again)

    def export(self, path: Path | None = None) -> str:
        """All rows of the history, as text."""
        with open_history(path or self.folder / "nights.sqlite", must_exist=True) as history:
            return "".join(f"{json.dumps(row)}\n" for kind in KINDS for row in history.rows(kind))


@contextmanager
def start_world(folder: Path) -> Iterator[World]:
    """A world whose server ends with the `with` block."""
    folder.mkdir(parents=True, exist_ok=True)
    world = World(folder)
    with ScriptedServer(world.reply) as server:
        world.server = server
        yield world

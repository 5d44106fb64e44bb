"""A server that flaps: 429, 500, resets, silence and rubbish by a seeded schedule; none becomes a label."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result
from faults import seeds, tally
from servers import Answer, Call, Script, ScriptedServer, answer, known_probabilities

import cli
from data.tables import read_exchanges, read_judgments

Write = Callable[..., Path]
COUNT = 40
RUBBISH = (
    b"<html>Bad gateway",
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"answers": 7}',
    b'{"choices": [{}]}',
    b"\xff\xfe",
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def flapping(seed: int, met: Counter[str], said: list[Any], *, hangs: bool) -> Script:
    """Good and bad stretches; which call gets what follows from the seed and how often it came before."""

    def flap(call: Call) -> Answer:
        chance = Random(f"{seed} {call.repeat} {call.text}")
        kinds = ("fine", "429", "500", "503", "reset", "cut", "rubbish", *(("hang",) if hangs else ()))
        kind = chance.choices(kinds, (6, *(1 for _ in kinds[1:])))[0]
        met[kind] += 1
        if kind == "fine":
            said.append(known_probabilities(call.text))
            return answer(call)
        if kind == "429":
            return Answer(status=429, headers={"Retry-After": "0"}, body={"error": {"message": "slow down"}})
        if kind in ("500", "503"):
            return Answer(status=int(kind), headers={"Retry-After": "0"}, body={"error": {"message": "oh"}})
        if kind == "rubbish":
            return Answer(body=chance.choice(RUBBISH))
        whole = {"cut": Answer(body=answer(call).body, cut=True), "reset": Answer(raw=b"")}
        return whole.get(kind, Answer(hang=True))

    return flap


def write_judge(server: ScriptedServer, kind: str, **options: object) -> None:
    about = {
        "kind": kind,
        "model": "m",
        "base_url": server.base_url,
        "concurrency": 8,
        "retries": 1,
        **options,
    }
    Path("judge.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in about.items()))


def score(path: Path) -> Result:
    words = ["score", str(path), "--judge", "judge.toml", "--out", "run"]
    return CliRunner().invoke(cli.main, words, terminal_width=100)


@pytest.mark.parametrize("kind", ["decision", "prompted"])
def test_every_exchange_is_scored_once_or_unscored_with_a_reason(kind: str, write_responses: Write) -> None:
    path = write_responses(COUNT)
    exchanges = list(read_exchanges(path))
    for seed in seeds(2):
        shutil.rmtree("run", ignore_errors=True)
        met: Counter[str] = Counter()
        said: list[Any] = []
        with ScriptedServer(flapping(seed, met, said, hangs=False)) as server:
            write_judge(server, kind)
            done = score(path)
            for _ in range(20):  # a server that is down for long ends the command; what was judged is kept
                if done.exit_code != 5:
                    break
                assert "Traceback" not in done.output
                done = score(path)
            assert done.exit_code == 0, done.output
        found = list(read_judgments(Path("run/judgments.jsonl")))
        assert [item.id for item in found] == [item.id for item in exchanges], "each once, in order"
        for item in found:
            is_scored = item.label is not None
            tally("endpoint", "flapping", lost=not is_scored and not item.unscored)
            assert is_scored != bool(item.unscored)
            if is_scored and kind == "decision":
                assert any(item.probabilities == pytest.approx(one, abs=1e-5) for one in said)
            elif is_scored:
                assert item.label == "Good", "the one answer this server gives"
        assert len(met) == 7, "every fault was met"
        assert sum(item.unscored is None for item in found) > COUNT / 3


def test_silence_ends_with_its_time_and_is_no_label(write_responses: Write) -> None:
    met: Counter[str] = Counter()
    with ScriptedServer(flapping(1, met, [], hangs=True)) as server:
        write_judge(server, "decision", timeout=0.3, retries=0)
        path = write_responses(16)
        done = score(path)
        for _ in range(20):
            if done.exit_code != 5:
                break
            done = score(path)
        assert done.exit_code == 0, done.output
    assert met["hang"]
    found = list(read_judgments(Path("run/judgments.jsonl")))
    tally("endpoint", "silence")
    assert len(found) == 16
    assert all((item.label is None) == bool(item.unscored) for item in found)

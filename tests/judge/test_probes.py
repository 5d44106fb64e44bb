"""Probes through the real door: judges with known faults are found out, sound ones pass."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from repository import ROOT

from data.errors import UserError
from data.records import POSITIVE_EMOTIONS, Exchange, Judgment, judgment_of, unscored
from data.rubric import read_rubric
from data.tables import read_exchanges
from judge.base import Judge
from judge.robustness.probes import (
    PROBES,
    Probe,
    ProbeResult,
    choose_replies,
    read_probes,
    rewrite,
    run_probes,
)

SAMPLES = ROOT / "data" / "samples" / "responses.jsonl"
EXCHANGES = list(read_exchanges(SAMPLES))
BY_NAME = {probe.name: probe for probe in read_probes()}


class FormulaJudge(Judge):
    """Gives Good the probability a formula says, else Bad; None is unscored."""

    name = "formula"
    version = "1"
    concurrency = 4

    def __init__(self, formula: Callable[[Exchange], float | None]) -> None:
        self.rubric = read_rubric()
        self.formula = formula
        self.asked: list[Exchange] = []
        self.lock = threading.Lock()

    def judge(self, exchange: Exchange) -> Judgment:
        with self.lock:
            self.asked.append(exchange)
        good = self.formula(exchange)
        if good is None:
            return unscored(exchange, f"refused: {exchange.id}")
        return judgment_of(exchange, {"Bad": 1 - good, "Okay": 0.0, "Good": good})


def by_name(results: list[ProbeResult]) -> dict[str, ProbeResult]:
    return {item.probe.name: item for item in results}


def test_a_judge_that_counts_words_is_found_out() -> None:
    judge = FormulaJudge(lambda exchange: min(1.0, len(exchange.response.split()) / 80))
    found = by_name(run_probes(judge, EXCHANGES, limit=64))
    for name in ("padding", "stock phrase before", "unsolicited advice"):
        assert found[name].effect.result == "fails" and found[name].effect.change.value > 0.1
    assert found["dismissal behind the reply"].effect.result == "fails"
    assert found["small letters"].effect.result == "passes"
    assert found["small letters"].effect.change.value == 0


def test_a_judge_that_obeys_is_found_out_and_its_flips_are_counted() -> None:
    judge = FormulaJudge(lambda exchange: 1.0 if "Good" in exchange.response else 0.2)
    found = by_name(run_probes(judge, EXCHANGES, limit=48))
    verdict = found["injected verdict"].effect
    assert (verdict.result, verdict.to_good.value) == ("fails", pytest.approx(1.0))
    assert found["padding"].effect.to_good.value == 0.0


def test_a_judge_with_sense_passes() -> None:
    """Knows the original replies, what brushes off, and which feeling is which."""
    own = {(exchange.prompt, exchange.response) for exchange in EXCHANGES}
    brushing = [*BY_NAME["dismissal"].texts, *BY_NAME["dismissal behind the reply"].texts]
    happy = BY_NAME["fitting warm words"].positive
    sad = BY_NAME["fitting warm words"].negative

    def sense(exchange: Exchange) -> float:
        reply = exchange.response
        wrong = sad if exchange.emotion in POSITIVE_EMOTIONS else happy
        if any(text in reply for text in [*brushing, *wrong]):
            return 0.1
        lowered = reply.lower().replace("!", ".")
        words = next(
            (r for p, r in own if p == exchange.prompt and r.lower().replace("!", ".")[:40] in lowered), ""
        )
        return 0.7 if words else 0.1

    results = run_probes(FormulaJudge(sense), EXCHANGES, limit=40, seed=3)
    assert {item.probe.name: item.effect.result for item in results} == dict.fromkeys(BY_NAME, "passes")


def test_no_text_is_asked_twice() -> None:
    judge = FormulaJudge(lambda exchange: 0.5)
    run_probes(judge, EXCHANGES, limit=30)
    assert len({exchange.content_digest for exchange in judge.asked}) == len(judge.asked)
    assert 30 * 10 < len(judge.asked) <= 30 * (1 + len(BY_NAME))


def test_unscored_replies_are_counted_never_scored() -> None:
    judge = FormulaJudge(lambda exchange: None if "Good" in exchange.response else 0.5)
    found = by_name(run_probes(judge, EXCHANGES, limit=20))
    verdict = found["injected verdict"]
    assert verdict.unscored == {"refused": 20}
    assert (verdict.effect.pairs, verdict.effect.result) == (0, "cannot tell")
    assert found["padding"].effect.pairs == 20


def test_the_order_of_replies_changes_no_rewriting() -> None:
    padding = BY_NAME["padding"]
    texts = [rewrite(padding, exchange, EXCHANGES) for exchange in EXCHANGES]
    assert texts == [rewrite(padding, exchange, EXCHANGES[::-1]) for exchange in EXCHANGES]
    assert texts != [rewrite(padding, exchange, EXCHANGES, seed=1) for exchange in EXCHANGES]


def test_prompts_are_spread_before_any_comes_twice() -> None:
    chosen = choose_replies(EXCHANGES, 64, 0)
    assert len({exchange.prompt for exchange in chosen}) == 64
    assert len({exchange.model for exchange in chosen}) == 3


def test_rewritings_do_what_they_say() -> None:
    exchange = Exchange(id="1", prompt="My dog died.", response="Oh no. I'm sorry...", emotion="sad")
    other = replace(exchange, id="2", prompt="I won!", response="Great!")

    def turn(name: str) -> str:
        return rewrite(BY_NAME[name], exchange, [exchange, other]) or ""

    assert turn("capitals") == "OH NO. I'M SORRY..."
    assert turn("small letters") == "oh no. i'm sorry..."
    assert turn("exclamation and emoji").startswith("Oh no! I'm sorry... ")
    assert turn("another prompt's reply") == "Great!"
    assert turn("padding").startswith("Oh no. I'm sorry... ")
    assert turn("dismissal") in BY_NAME["dismissal"].texts
    fitting, wrong = turn("fitting warm words"), turn("warm words for the wrong feeling")
    assert fitting.removesuffix(" Oh no. I'm sorry...") in BY_NAME["fitting warm words"].negative
    place = BY_NAME["fitting warm words"].negative.index(fitting.removesuffix(" Oh no. I'm sorry..."))
    assert wrong == f"{BY_NAME['fitting warm words'].positive[place]} Oh no. I'm sorry..."
    unfelt = replace(exchange, emotion=None)
    assert rewrite(BY_NAME["fitting warm words"], unfelt, []) is None
    assert rewrite(BY_NAME["another prompt's reply"], unfelt, [other, unfelt]) == "Great!"
    assert rewrite(BY_NAME["another prompt's reply"], unfelt, [unfelt]) is None


def test_fitting_and_wrong_warm_words_are_the_same_words() -> None:
    assert BY_NAME["warm words for the wrong feeling"].positive == BY_NAME["fitting warm words"].positive
    assert BY_NAME["warm words for the wrong feeling"].negative == BY_NAME["fitting warm words"].negative


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no probes"),
        ("a = 1", "a table"),
        ("[a]\ndoes = 'after'\nshould = 'not up'\nlimit = 0.1\nwhy = ''", "either texts"),
        ("[a]\ndoes = 'fly'\nshould = 'not up'\nlimit = 0.1\nwhy = ''", "a: does"),
        ("[a]\ndoes = 'upper'\nshould = 'not up'\nlimit = -1\nwhy = ''", "limit"),
        ("[a]\ndoes = 'upper'\nshould = 'not up'\nlimit = 1\nwhy = ''\nagainst = 'b'", "against"),
        ("[a]\ndoes = 'upper'\nshould = 'not up'\nlimit = 1\nwhy = ''\ncolour = 'b'", "colour"),
        ("[a", "not TOML"),
    ],
)
def test_a_file_of_probes_is_checked(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "probes.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=says):
        read_probes(path)
    with pytest.raises(UserError, match="no such file"):
        read_probes(tmp_path / "none.toml")


def test_nothing_to_probe_is_refused() -> None:
    with pytest.raises(UserError, match="no responses"):
        run_probes(FormulaJudge(lambda exchange: 0.5), [])


def test_results_are_written() -> None:
    probe = Probe(name="loud", does="upper", should="not up", limit=0.1, why="")
    results = run_probes(
        FormulaJudge(lambda exchange: float(exchange.response.isupper())), EXCHANGES, limit=9, probes=[probe]
    )
    (row,) = json.loads(json.dumps([item.as_dict() for item in results], allow_nan=False))
    assert row["change"] == {"value": 2.0, "low": 2.0, "high": 2.0} and row["to_good"]["value"] == 1.0
    assert PROBES.name == "probes.toml"

"""Robustness: the catalogue and the written replies are sound, and judges with known flaws are found out."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from command_line import run, write_toml
from servers import ScriptedServer, answer

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, POSITIVE_EMOTIONS, Exchange, Judgment, judgment_of, unscored
from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.tables import SAMPLE_RESPONSES, read_exchanges
from empathy_judge.judge.base import Judge
from empathy_judge.judge.robustness import catalogue
from empathy_judge.judge.robustness.catalogue import KIND, UNKIND, Perturbation, read_replies, rewrite
from empathy_judge.judge.robustness.run import EACH, GROWN, POOL, Robustness, in_turns, measure_robustness

CATALOGUE = catalogue.read_perturbations()
FAMILIES = [item for item in CATALOGUE if item.family]
EXPECTED = {item.name: item for item in CATALOGUE if item.should}
ORDINARY = list(read_exchanges(SAMPLE_RESPONSES))
REPLY = Exchange(id="1", prompt="My dog died.", response="It was a dog. Get over it, Sam.")
EMOJI = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")


class FormulaJudge(Judge):
    """Gives the label, or Good and Bad with the probability, that a formula returns; None is unscored."""

    name, version, concurrency = "formula", "1", 2

    def __init__(self, formula: Callable[[Exchange], str | float | None]) -> None:
        self.rubric, self.formula = read_rubric(), formula

    def judge(self, exchange: Exchange) -> Judgment:
        answer = self.formula(exchange)
        if answer is None:
            return unscored(exchange, "refused")
        if isinstance(answer, float):
            return judgment_of(exchange, {"Bad": 1 - answer, "Okay": 0.0, "Good": answer})
        label, _, suspicion = answer.partition(" ")
        judgment = judgment_of(exchange, {name: float(name == label) for name in LABELS})
        return replace(judgment, rationale=f"suspected injection: {suspicion}") if suspicion else judgment


def measure(formula: Callable[[Exchange], str | float | None], **options: object) -> Robustness:
    judge = FormulaJudge(formula)

    def ask(texts: Iterable[Exchange]) -> dict[str, Judgment]:
        distinct = {item.content_digest: item for item in texts}
        return {judgment.content_digest: judgment for judgment in map(judge.judge, distinct.values())}

    return measure_robustness(judge, ORDINARY, ask=ask, **options)  # type: ignore[arg-type]


def right(exchange: Exchange) -> str:
    """The label of a judge that knows who was kind."""
    return "Good" if exchange.model in KIND else "Bad" if exchange.model in UNKIND else "Okay"


def target(found: Robustness, name: str) -> tuple[float, str]:
    (one,) = [item for item in found.targets if item.name.startswith(name)]
    return one.figure.value, one.result


def test_there_are_enough_perturbations_of_every_family_and_some_that_no_training_uses() -> None:
    assert len(FAMILIES) >= 150 and len(EXPECTED) >= 10
    test_only = {item.family for item in FAMILIES if item.is_test_only}
    assert test_only == catalogue.TEST_FAMILIES | {item.family for item in FAMILIES if item.round > 1}
    assert len({(item.template, item.texts, item.disguise) for item in FAMILIES}) == len(FAMILIES)
    assert [item.name for item in FAMILIES if not item.is_readable] == ["reply in rot13", "reply in base64"]


def test_written_replies_are_many_and_their_halves_never_mix() -> None:
    """Its own words decide the half of a reply: another rule would move replies that training has seen."""
    training, test = read_replies("training"), read_replies("test")
    first, second = ([reply for reply in test if reply.round == each] for each in (1, 2))
    both = (*training, *first)
    for half in (training, first):
        counts = Counter(reply.kind for reply in half)
        assert counts.keys() <= {*KIND, *UNKIND} and counts["growing"] >= 10
        assert all(counts[kind] >= 60 for kind in ("cruel", "insults", "excellent", "kind"))
    for reply in both:
        text = reply.text or reply.paragraphs[0]
        is_odd = sha256(f"{reply.prompt}\n{text}".encode()).digest()[0] % 2
        is_test = not reply.is_lesson and (reply.family in catalogue.TEST_REPLIES or not is_odd)
        assert reply.half == ("test" if is_test else "training")
    texts = [text for reply in (*both, *second) for text in (reply.text, *reply.paragraphs) if text]
    assert len(set(texts)) == len(texts)
    tested, lessons = ([reply for reply in both if reply.is_lesson is lesson] for lesson in (False, True))
    assert len({reply.prompt for reply in tested}) == len(tested) and len(lessons) == 450
    prompts = [{reply.prompt for reply in each} for each in (tested, lessons, second)]
    assert not prompts[0] & prompts[1] and not prompts[2] & (prompts[0] | prompts[1])
    # A cruel and an excellent answer to the same words: the prompt alone cannot tell the two apart.
    cruel, excellent = ({e.prompt for e in second if e.kind == kind} for kind in ("cruel", "excellent"))
    assert len(cruel & excellent) >= 45
    for stages in (reply.stages() for reply in both if reply.kind == "growing"):
        assert len(stages) == 5 and all(later.startswith(former) for former, later in pairwise(stages))


def test_every_perturbation_changes_a_reply_and_nothing_else_and_keeps_it_in_whole() -> None:
    replies = [reply.exchange(reply.stages()[0]) for reply in read_replies("test")[::9]]
    for item in FAMILIES:
        for reply in replies:
            changed = rewrite(item, reply)
            assert changed is not None and changed == rewrite(item, reply)
            assert replace(changed, id=reply.id, response=reply.response) == reply
            assert changed.response.strip() and len(changed.response) < 6000
            start, rest = catalogue.split_in_two(reply.response)
            whole = (reply.response, catalogue.DISGUISES.get(item.disguise, str)(reply.response))
            is_in = any(text in changed.response for text in whole)
            assert is_in or (start in changed.response and rest in changed.response), item.name
    item = Perturbation(name="a", family="f", template='{"x": {reply}, "y": {prompt}}')
    odd = rewrite(item, replace(REPLY, response="{prompt} \\1 {text}", prompt="{reply}"))
    assert odd is not None and odd.response == '{"x": {prompt} \\1 {text}, "y": {reply}}'


def test_rewrites_of_ordinary_replies_do_what_they_say() -> None:
    exchange = Exchange(id="1", prompt="My dog died.", response="Oh no. I'm sorry...", emotion="sad")
    other = replace(exchange, id="2", prompt="I won!", response="Great!")

    def text(name: str, **changes: str | None) -> str | None:
        changed = rewrite(EXPECTED[name], replace(exchange, **changes), [exchange, other])
        return changed and changed.response

    assert text("capitals") == "OH NO. I'M SORRY..."
    assert text("small letters") == "oh no. i'm sorry..."
    assert str(text("exclamation and emoji")).startswith("Oh no! I'm sorry... ")
    assert text("another prompt's reply") == "Great!"
    assert text("dismissal") in EXPECTED["dismissal"].texts
    fitting, wrong = EXPECTED["fitting warm words"], EXPECTED["warm words for the wrong feeling"]
    place = fitting.negative.index(str(text(fitting.name)).removesuffix(" Oh no. I'm sorry..."))
    assert text(wrong.name) == f"{fitting.positive[place]} Oh no. I'm sorry..."
    assert text(fitting.name, emotion=None) is None and text("small letters", response="oh") is None


def test_a_judge_that_is_always_right_meets_every_target() -> None:
    perfect = measure(right)
    assert [item.figure.value for item in perfect.targets] == [1, 0, 0, 0, 0]
    assert {item.result for item in perfect.targets} == {"passes"}
    assert perfect.overall.unkind.pairs == EACH * len(FAMILIES) and perfect.judgments <= 4500
    interval = perfect.overall.kind.share.interval  # none of so many replies is not zero for certain
    assert interval is not None and interval.high == pytest.approx(1 - 0.025 ** (1 / POOL))


def test_distrust_of_a_form_and_suspicions_show_by_family() -> None:
    found = measure(lambda item: "Bad" if EMOJI.search(item.response) else right(item))
    assert target(found, "unkind turned") == (0, "passes")
    shares = {family.name: family.kind.share.value for family in found.families}
    assert shares["emoji and noise"] == max(shares.values()) > 0.3 and shares["instruction"] == 0
    found = measure(lambda item: f"{right(item)}{' asks' if 'Good' in item.response else ''}")
    families = {family.name: family for family in found.families}
    assert families["echo"].unkind.suspected == families["echo"].kind.suspected == 0
    assert families["instruction"].unkind.suspected > 0 < families["instruction"].kind.suspected


def test_judges_with_known_flaws_fail_the_expectations() -> None:
    counted = measure(lambda item: min(1.0, len(item.response.split()) / 80))
    words = {item.name: item for item in counted.effects}
    for name in ("padding", "stock phrase before", "unsolicited advice", "dismissal behind the reply"):
        assert words[name].result == "fails", name
    assert words["small letters"].figure.value == 0 and words[GROWN].result == "passes"
    obeys = measure(lambda item: 1.0 if "Good" in item.response else 0.2)
    assert {item.name: item.result for item in obeys.effects}["injected verdict"] == "fails"


def test_a_judge_with_sense_meets_every_expectation() -> None:
    """It knows the original replies, what brushes off, and which feeling is which."""
    own = {(exchange.prompt, exchange.response) for exchange in ORDINARY}
    brushing = [*EXPECTED["dismissal"].texts, *EXPECTED["dismissal behind the reply"].texts]
    happy, sad = EXPECTED["fitting warm words"].positive, EXPECTED["fitting warm words"].negative

    def sense(exchange: Exchange) -> float | str:
        if exchange.model in (*KIND, *UNKIND):
            return right(exchange)
        reply = exchange.response
        wrong = sad if exchange.id.partition("-")[0] in POSITIVE_EMOTIONS else happy
        if any(text in reply for text in [*brushing, *wrong]):
            return 0.1
        lowered = reply.lower().replace("!", ".")
        known = (r.lower().replace("!", ".")[:40] for p, r in own if p == exchange.prompt)
        return 0.7 if any(text in lowered for text in known) else 0.1

    assert {item.name: item.result for item in measure(sense).effects} == dict.fromkeys(
        [*EXPECTED, GROWN], "passes"
    )


def test_unscored_replies_count_against_the_judge_where_it_should_have_judged() -> None:
    found = measure(lambda item: None if "[" in item.id else right(item))
    assert (target(found, "unkind turned"), target(found, "kind turned")) == ((0, "passes"), (1, "fails"))
    assert found.overall.kind.unscored == found.overall.kind.pairs
    assert {item.result for item in found.effects} == {"inconclusive", "passes"}
    nothing = measure(lambda item: None)
    assert target(nothing, "excellent called Bad")[1] == target(nothing, "plain insults")[1] == "fails"
    json.dumps(nothing.as_dict(), allow_nan=False)


def test_a_sample_has_both_sides_and_takes_keys_in_turns() -> None:
    found = measure(right, sample_size=300)
    assert 150 < found.judgments <= 330
    assert found.overall.unkind.pairs > 0 < found.overall.kind.pairs and len(found.families) > 15
    chosen = in_turns(ORDINARY, lambda item: item.prompt, Random(0))[:64]
    assert len({item.prompt for item in chosen}) == 64
    with pytest.raises(UserError, match="no replies"):
        measure_robustness(FormulaJudge(right), [], ask=lambda texts: {})


def test_the_command_prints_and_writes_the_results() -> None:
    done = run("robustness", "length", "--out", "out", code=1)
    assert "plain insults not" in done.output
    assert max(map(len, done.stdout.splitlines())) <= 80
    report = json.loads(Path("out/report.json").read_text())
    html = Path("out/report.html").read_text()
    assert report["judge"] == "length" and all(item["name"] in html for item in report["families"])
    assert json.loads(run("robustness", "length", "--json").stdout) == report


def test_a_run_that_reaches_its_budget_resumes_without_paying_twice() -> None:
    words = ["robustness", "judge.toml", "--sample", "24", "--json", "--max-cost"]
    with ScriptedServer(answer) as server:
        judge = {"kind": "decision", "model": "m", "base_url": server.base_url, "concurrency": 1}
        write_toml("judge.toml", **judge, **{"prices.input": 10.0, "prices.output": 0.0})  # a cent a call
        run(*words, 0.1, code=5)
        assert 5 < len(server.calls) <= 10
        for budget in (5, 0.001):  # after the first, nothing is left to pay for
            done = run(*words, budget)
            assert done.exit_code in (0, 1, 3), done.output
            assert len(server.calls) == json.loads(done.stdout)["judgments"] > 10

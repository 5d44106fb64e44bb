"""Attacks through the real door: flips known beforehand, and for each attack the fence as it is sent."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibrated import three_raters
from click.testing import CliRunner
from servers import Answer, Call, ScriptedServer, answer, answer_chat

import cli
from data.errors import BudgetSpent
from data.records import Exchange, Judgment, judgment_of, to_plain, unscored
from data.rubric import read_rubric
from data.tables import write_rows
from judge.llm.decision import DecisionJudge
from judge.llm.fencing import HIDDEN, ROLE_TOKEN, clean, fence_exchange
from judge.llm.program import HEADING
from judge.llm.prompted import PromptedJudge
from judge.robustness.attacks import (
    LIMIT,
    Attack,
    Catalogue,
    Gamed,
    crossed_share,
    dress_up,
    exact_share,
    read_attacks,
    run_attacks,
)
from reports.calibration.bias import attacks_page
from reports.calibration.calibration_page import make_page
from reports.markdown import as_markdown
from reports.terminal import print_page

CATALOGUE = read_attacks()
PLAIN = {reply.content_digest for reply in CATALOGUE.replies}
ONE = CATALOGUE.replies[8]
CERTAIN = {"Bad": (1.0, 0.0, 0.0), "Okay": (0.0, 1.0, 0.0), "Good": (0.0, 0.0, 1.0)}
LABELS = ("Bad", "Okay", "Good")


class KnownJudge:
    """Gives the label that a formula says; None is unscored, and a word after the label is a suspicion."""

    name = "known"
    version = "1"
    concurrency = 2

    def __init__(self, formula: Callable[[Exchange], str | None], *, stops_after: int | None = None) -> None:
        self.rubric = read_rubric()
        self.formula, self.stops_after, self.asked = formula, stops_after, 0

    def judge(self, exchange: Exchange) -> Judgment:
        if self.stops_after is not None and self.asked >= self.stops_after:
            raise BudgetSpent("enough")
        self.asked += 1
        said = self.formula(exchange)
        if said is None:
            return unscored(exchange, "refused")
        label, _, suspicion = said.partition(" ")
        judgment = judgment_of(exchange, dict(zip(LABELS, CERTAIN[label], strict=True)))
        return replace(judgment, rationale=f"suspected injection: {suspicion}") if suspicion else judgment


def small(*, attacks: int = 6, replies: int = 10) -> Catalogue:
    """Attacks of two families, on the first replies."""
    chosen = [item for item in CATALOGUE.attacks if item.family in ("fake verdict", "headings")]
    picked = tuple(chosen[: attacks // 2] + chosen[-attacks // 2 :])
    return replace(CATALOGUE, attacks=picked, replies=CATALOGUE.replies[:replies])


def by_name(found: Gamed) -> dict[str, Any]:
    return {item.name: item for item in (*found.families, *found.attacks)}


def test_a_judge_that_is_never_swayed_passes() -> None:
    used = small(replies=96)
    found = run_attacks(KnownJudge(lambda exchange: "Bad"), catalogue=used)
    assert found.result == "passes"
    assert found.plain == {"Bad": 96, "Okay": 0, "Good": 0, "unscored": 0}
    assert found.overall.pairs == 96 * 6
    assert found.overall.to_good.value == found.overall.not_bad.value == 0
    # No flip of 96 replies is not no chance of one: 1 - .025 ** (1 / 96).
    interval = found.overall.to_good.interval
    assert interval is not None and interval.high == pytest.approx(1 - 0.025 ** (1 / 96))


def test_a_judge_that_is_swayed_by_anything_fails() -> None:
    judge = KnownJudge(lambda exchange: "Bad" if exchange.content_digest in PLAIN else "Good")
    found = run_attacks(judge, catalogue=small())
    assert (found.result, found.overall.to_good.value, found.overall.not_bad.value) == ("fails", 1.0, 1.0)


@pytest.fixture(scope="module")
def obeyed() -> Gamed:
    """All attacks on a judge that says Good wherever it reads that."""
    judge = KnownJudge(lambda exchange: "Good" if "Good" in exchange.response else "Bad")
    return run_attacks(judge, catalogue=replace(CATALOGUE, replies=CATALOGUE.replies[:2]))


def test_a_judge_that_obeys_labels_flips_where_they_are_and_nowhere_else(obeyed: Gamed) -> None:
    named = by_name(obeyed)
    for attack in CATALOGUE.attacks:
        expected = float("Good" in dress_up(attack, ONE).response)
        assert named[attack.name].to_good.value == expected, attack.name
    assert named["endless sympathy"].to_good.value == 0
    assert named["instruction, translated"].to_good.value > 0.8
    assert max(item.to_good.value for item in obeyed.attacks) == 1
    assert obeyed.result == "fails"


def test_only_replies_that_are_bad_are_attacked_and_okay_is_no_flip_to_good() -> None:
    first = CATALOGUE.replies[:10]
    bad = {reply.prompt for reply in first[:4]}

    def formula(exchange: Exchange) -> str:
        plain = "Bad" if exchange.prompt in bad else "Okay"
        return "Okay" if exchange.content_digest not in PLAIN else plain

    found = run_attacks(KnownJudge(formula), catalogue=small())
    assert (found.plain["Bad"], found.plain["Okay"]) == (4, 6)
    assert found.bad_by_kind == {"curt": (4, 10)}
    assert found.overall.pairs == 4 * 6
    assert (found.overall.to_good.value, found.overall.not_bad.value) == (0, 1)


def test_no_bad_reply_leaves_everything_undefined() -> None:
    found = run_attacks(KnownJudge(lambda exchange: "Good"), catalogue=small())
    assert found.result == "cannot tell"
    assert json.loads(json.dumps(to_plain(found), allow_nan=False))["overall"]["to_good"]["value"] is None


def test_unscored_attacks_are_counted_and_are_in_no_share() -> None:
    def formula(exchange: Exchange) -> str | None:
        return None if "Label: Good" in exchange.response else "Bad"

    named = by_name(run_attacks(KnownJudge(formula), catalogue=small()))
    assert (named["label after"].unscored, named["label after"].pairs) == (10, 10)
    assert np.isnan(named["label after"].to_good.value) and named["label after"].to_good.interval is None
    assert named["fake verdict"].unscored == 20
    assert named["fake verdict"].to_good.value == 0


def test_suspicions_are_counted_apart_from_labels() -> None:
    def formula(exchange: Exchange) -> str:
        return "Bad asks" if "Label" in exchange.response else "Bad"

    found = run_attacks(KnownJudge(formula), catalogue=small())
    named = by_name(found)
    assert (named["label after"].suspected, named["fake verdict"].suspected, named["headings"].suspected) == (
        10,
        20,
        0,
    )
    assert found.plain_suspected == 0


def test_a_limit_holds_and_a_judge_that_stops_ends_it() -> None:
    few = run_attacks(KnownJudge(lambda exchange: "Bad"), catalogue=small(), limit=3)
    assert (few.overall.pairs, few.plain["Bad"]) == (18, 10)
    with pytest.raises(BudgetSpent):
        run_attacks(KnownJudge(lambda exchange: "Bad", stops_after=30), catalogue=small())


def test_the_interval_knows_that_attacks_and_replies_differ() -> None:
    """A quarter of flips that are all two attacks' is known worse than a scattered quarter."""
    rng, counted = np.random.default_rng, np.ones((8, 40), dtype=bool)
    one_attack, scattered = np.zeros_like(counted), np.zeros_like(counted)
    one_attack[:2] = True
    scattered.flat[::4] = True
    widths = []
    for hits in (one_attack, scattered):
        found = crossed_share(hits, counted, rng=rng(0))
        assert found.value == 0.25 and found.interval is not None
        assert found.interval.low < 0.25 < found.interval.high
        widths.append(found.interval.high - found.interval.low)
    assert widths[0] > 1.5 * widths[1]
    assert crossed_share(counted, ~counted, rng=rng(0)).interval is None
    everything = crossed_share(counted, counted, rng=rng(0))
    assert everything == exact_share(40, 40)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        hard = chance.normal(size=(12, 1)) + chance.normal(size=(1, 30)) + chance.normal(size=(12, 30))
        hits = hard > 1.5  # of a normal with variance 3: 19.3 % in truth
        found = crossed_share(hits, np.ones_like(hits), rng=chance, draws=400).interval
        assert found is not None
        held += found.low <= 0.1932 <= found.high
    assert held >= 176  # twelve attacks are few, and percentile intervals of few clusters run short


def test_the_page_fits_into_80_columns(
    obeyed: Gamed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_page(attacks_page(obeyed))
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    assert "more than the limit of 5" in " ".join(told.split())
    assert "The 10 worst attacks" in told
    assert all(f"\n{family} " in told for family in CATALOGUE.families)


def test_a_report_has_a_section_of_attacks_where_there_were_any() -> None:
    judge = KnownJudge(lambda exchange: "Good" if "Good" in exchange.response else "Bad")
    found = run_attacks(judge, catalogue=small())
    pages = [make_page(three_raters(), attacks=attacks) for attacks in (found, None)]
    (section,) = [section for page in pages for section in page.sections if section.name == "attacks"]
    assert [table.caption for table in section.tables][1] == "The 6 worst attacks"
    assert "Bad replies dressed up as good ones" in as_markdown(pages[0])


def test_the_command_attacks_a_judge_by_name() -> None:
    """The length judge calls nothing Bad, so nothing can be told: exit code 3."""
    told = CliRunner().invoke(cli.main, ["calibrate", "--attack", "length"], terminal_width=80)
    assert told.exit_code == 3 and "calls 0 Bad" in told.output
    found = CliRunner().invoke(cli.main, ["calibrate", "--attack", "majority", "--json"])
    report = json.loads(found.output)
    assert (report["judge"], report["limit"], report["result"]) == ("majority", LIMIT, "cannot tell")
    assert len(report["attacks"]) == len(CATALOGUE.attacks)
    unknown = CliRunner().invoke(cli.main, ["calibrate", "--attack", "lenght"])
    assert unknown.exit_code == 2 and "did you mean 'length'?" in unknown.output


def test_a_calibration_may_attack_a_judge_too(tmp_path: Path) -> None:
    rated = [(f"{model}-{at}", model, 1 + at % 3) for model in ("ada", "bea") for at in range(24)]
    theirs, ratings, out = tmp_path / "theirs.csv", tmp_path / "ratings.csv", tmp_path / "out"
    write_rows(theirs, ({"id": name, "model": model, "rating": level} for name, model, level in rated))
    write_rows(ratings, ({"id": name, "rater": name, "rating": level} for name, _, level in rated))
    arguments = ["calibrate", theirs, ratings, "--attack", "length", "--draws", 20, "--out", out]
    done = CliRunner().invoke(cli.main, [str(item) for item in arguments])
    assert done.exit_code in (0, 3), done.output
    assert json.loads((out / "report.json").read_text())["attacks"]["judge"] == "length"
    assert "Bad replies dressed up as good ones" in (out / "report.html").read_text()


# What is sent about each attack, by each kind of judge that asks a model.

KINDS = ("prompted", "analytic", "decisions", "systemone")


def make_judge(kind: str, base_url: str) -> PromptedJudge | DecisionJudge:
    if kind in ("decisions", "systemone"):
        return DecisionJudge(model="m", base_url=base_url, protocol=kind, retries=0)  # type: ignore[arg-type]
    return PromptedJudge(
        model="m", base_url=base_url, mode="direct" if kind == "prompted" else "analytic", retries=0
    )


def say(call: Call, label: str) -> Answer:
    """This label, in the form that was asked for."""
    if "messages" in call.body:
        fields = call.body["response_format"]["json_schema"]["schema"]["properties"]
        return answer_chat(
            call, json.dumps({name: label if "enum" in about else "So." for name, about in fields.items()})
        )
    told = answer(call)
    answers = told.body["answers"]
    overall = answers[0] if isinstance(answers, list) else answers["empathy"]
    if isinstance(answers, list):
        for row in overall["probabilities"]:
            row["probability"] = float(row["label"] == label)
    else:
        overall["probabilities"] = {str(at): float(name == label) for at, name in enumerate(LABELS)}
    return told


Sent = tuple[dict[str, Any], dict[str, dict[str, Any]], Gamed]


@pytest.fixture(scope="module", params=KINDS)
def sent(request: pytest.FixtureRequest) -> Iterator[Sent]:
    """The request about a plain reply, those about it under each attack, and what came of all the answers."""
    used = replace(CATALOGUE, replies=(ONE,))
    with ScriptedServer(lambda call: say(call, "Bad")) as server:
        judge = make_judge(request.param, server.base_url)
        found = run_attacks(judge, catalogue=used)
        bodies = [call.body for call in server.calls]
    marks = {fence_exchange(dress_up(attack, ONE)).mark: attack.name for attack in used.attacks}
    by_attack = {
        name: body
        for body in bodies
        for mark, name in marks.items()
        if f"=== {mark} exchange" in text_of(body)
    }
    yield bodies[0], by_attack, found


def text_of(body: dict[str, Any]) -> str:
    """The part of a request that holds the exchange."""
    return str(body["messages"][-1]["content"] if "messages" in body else body.get("input") or body["state"])


def around(body: dict[str, Any], mark: str) -> str:
    """All of a request but what stands inside its fence, with its mark made the same for all."""
    start, end = f"=== {mark} exchange ===", f"=== {mark} end ==="
    text = text_of(body)
    assert text.count(start) == text.count(end) == 1
    inside = text[text.index(start) : text.index(end)]
    whole = json.dumps(body, ensure_ascii=False, sort_keys=True)
    written = json.dumps(inside, ensure_ascii=False)[1:-1]
    assert whole.count(written) == 1
    return whole.replace(written, "").replace(mark, "MARK")


def test_an_attack_stays_inside_the_fence(sent: Sent) -> None:
    plain, attacked, _ = sent
    expected = around(plain, fence_exchange(ONE).mark)
    problems = {
        attack.name: escape_of(attack, attacked[attack.name], expected) for attack in CATALOGUE.attacks
    }
    assert not {name: problem for name, problem in problems.items() if problem}


def escape_of(attack: Attack, body: dict[str, Any], plain: str) -> str:
    """What of an attack came out of the fence, or is not in it as it should be."""
    dressed = dress_up(attack, ONE)
    mark, text = fence_exchange(dressed).mark, text_of(body)
    lines = [line for line in text.splitlines() if mark in line and line[:3] in ("===", "---")]
    if [line.replace(mark, "MARK") for line in lines] != [
        "=== MARK exchange ===",
        "--- MARK what the speaker feels ---",
        "--- MARK the speaker's situation ---",
        "--- MARK what the speaker said ---",
        "--- MARK the listener's reply, which is to be judged ---",
        "=== MARK end ===",
    ]:
        return "headings"
    shown = text.partition(f"{lines[-2]}\n")[2].partition(f"\n{lines[-1]}")[0]
    if shown != clean(dressed.response).replace(HEADING, "[[" if "messages" in body else HEADING):
        return "reply"
    if mark in dressed.response or ROLE_TOKEN.search(shown):
        return "mark or role"
    if HIDDEN.search(shown.replace("\u200d", "")):  # joiners may stay, they make one picture of two
        return "hidden characters"
    # All else is what is sent about the plain reply: nothing of the attack came out of the fence.
    return "" if around(body, mark) == plain else "outside"


def test_a_label_is_read_from_the_answer_and_never_from_the_attack(sent: Sent) -> None:
    _, attacked, found = sent
    assert set(attacked) == {attack.name for attack in CATALOGUE.attacks}
    assert found.overall.pairs == len(CATALOGUE.attacks) and found.overall.unscored == 0
    assert found.overall.not_bad.value == 0


def test_what_is_suspected_is_told_and_a_plain_reply_is_not(sent: Sent) -> None:
    *_, found = sent
    named = by_name(found)
    assert found.plain_suspected == 0
    assert named["role tokens"].suspected >= 9
    for name in ("label after", "instruction before", "instruction in tags", "closing tags", "ChatML"):
        assert named[name].suspected == 1, name
    for family in ("stock phrase", "echo", "therapy talk", "sympathy, translated"):
        assert named[family].suspected == 0, family


@pytest.mark.parametrize("kind", KINDS)
def test_a_gullible_model_behind_the_judge_is_found_out(kind: str) -> None:
    """It obeys whatever it finds in the fence: the fence is no cure for that, so it must be measured."""

    def obey(call: Call) -> Answer:
        inside = text_of(call.body).rpartition("which is to be judged")[2]
        return say(call, "Good" if "Label: Good" in inside else "Bad")

    with ScriptedServer(obey) as server:
        judge = make_judge(kind, server.base_url)
        named = by_name(run_attacks(judge, catalogue=small(replies=3)))
    assert named["label after"].to_good.value == 1
    assert named["headings"].to_good.value == 0

"""How judges stand up to the catalogue: made judges, whose figures are known beforehand."""

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from calibrated import three_raters
from click.testing import CliRunner

import cli
from calibration.bias.crossed_shares import exact_share
from data.errors import BudgetSpent
from data.records import LABELS, Exchange, Judgment, judgment_of, to_plain, unscored
from data.rubric import read_rubric
from data.tables import write_rows
from judge.base import Judge
from judge.robustness.attacks import dress_up, read_attacks
from judge.robustness.replies import KIND, UNKIND, read_replies
from judge.robustness.resistance import EACH, POOL, Resistance, run_attacks, run_rounds
from reports.calibration.attacks_page import BLIND, attacks_page
from reports.calibration.calibration_page import make_page
from reports.markdown import as_markdown
from reports.terminal import print_page

TEST = read_replies("test")
ATTACKS = read_attacks().attacks
IS_KIND = {reply.prompt: reply.kind in KIND for reply in TEST}
EMOJI = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")
CARING = re.compile(r"\b(sorry|here for you|understand|feel|love|care)\b", re.IGNORECASE)
Says = str | float | None  # a label, the probability of Good beside that of Okay, or unscored


class MadeJudge(Judge):
    """Says what a formula says."""

    name = "made"
    version = "1"
    concurrency = 2

    def __init__(self, formula: Callable[[Exchange], Says], *, stops_after: int | None = None) -> None:
        self.rubric = read_rubric()
        self.formula, self.stops_after, self.asked = formula, stops_after, 0

    def judge(self, exchange: Exchange) -> Judgment:
        if self.stops_after is not None and self.asked >= self.stops_after:
            raise BudgetSpent("enough")
        self.asked += 1
        said = self.formula(exchange)
        if said is None:
            return unscored(exchange, "refused")
        if isinstance(said, float):
            return judgment_of(exchange, {"Bad": 0.0, "Okay": 1 - said, "Good": said})
        label, _, suspicion = said.partition(" ")
        judgment = judgment_of(exchange, {name: float(name == label) for name in LABELS})
        return replace(judgment, rationale=f"suspected injection: {suspicion}") if suspicion else judgment


def right(exchange: Exchange) -> str:
    """What a judge should say that knows who was kind."""
    return "Good" if IS_KIND[exchange.prompt] else "Bad"


def target(found: Resistance, name: str) -> tuple[float, str]:
    (one,) = [item for item in found.targets if item.name.startswith(name)]
    return one.figure.value, one.result


@pytest.fixture(scope="module")
def perfect() -> Resistance:
    return run_attacks(MadeJudge(right))


@pytest.fixture(scope="module")
def distrustful() -> Resistance:
    """Right, but for everything with emoji, which is Bad."""
    return run_attacks(
        MadeJudge(lambda exchange: "Bad" if EMOJI.search(exchange.response) else right(exchange))
    )


@pytest.fixture(scope="module")
def naive() -> Resistance:
    """Good from two caring words on, Okay with one, else Bad."""
    return run_attacks(MadeJudge(count_caring))


def count_caring(exchange: Exchange) -> str:
    return LABELS[min(2, len(CARING.findall(exchange.response)))]


def test_a_judge_that_is_always_right_meets_every_target(perfect: Resistance) -> None:
    assert perfect.result == "met" and {item.result for item in perfect.targets} == {"met"}
    assert [item.figure.value for item in perfect.targets] == [1, 0, 0, 0, 0, 0]
    assert all(gap is None or gap.gap.value == 0 for gap in perfect.gaps.values())
    assert {item.good.value for item in perfect.best_of} == {0}
    for item in perfect.plain:
        assert (item.good.value, item.bad.value) == ((1, 0) if item.kind in KIND else (0, 1))
    # Nothing turned of so many replies is not no chance of it.
    interval = perfect.overall.kind.turned.interval
    assert interval is not None and interval.high == pytest.approx(1 - 0.025 ** (1 / POOL))


def test_both_rounds_are_told_side_by_side_and_either_decides(perfect: Resistance) -> None:
    """A judge that is right about the first round, and wrong about every reply of the second."""
    blind = MadeJudge(
        lambda item: "Good" if (item.model in KIND) == (item.prompt in IS_KIND) else "Bad",
    )
    found = run_rounds(blind)
    assert found.second is not None and (perfect.result, found.result) == ("met", "not met")
    assert to_plain(replace(found, second=None)) == to_plain(perfect)
    assert [item.figure.value for item in found.second.targets[:3]] == [0, 1, 1]
    assert f"Second round: {BLIND}" in as_markdown(attacks_page(found))


def test_who_distrusts_a_form_is_told_by_the_kind_replies_in_it(distrustful: Resistance) -> None:
    """The column of unkind replies looks perfect; the one of kind replies tells."""
    assert target(distrustful, "unkind turned") == (0, "met")
    plain = [reply for reply in TEST if reply.kind in KIND and not EMOJI.search(reply.stages()[0])]
    for attack, form in zip(ATTACKS, distrustful.forms, strict=True):
        is_seen = EMOJI.search(dress_up(attack, plain[0].exchange("So sorry. I am here.")).response)
        assert form.kind_turned == (form.kind if is_seen else 0), attack.name
    named = {family.name: family.kind.turned.value for family in distrustful.families}
    assert named["emoji and noise"] > 0.3 and named["instruction"] == 0
    assert named["emoji and noise"] == max(named.values())


def test_who_counts_kind_words_is_swayed_by_them_and_by_nothing_else(naive: Resistance) -> None:
    judged = {reply.prompt: count_caring(reply.exchange(reply.stages()[0])) for reply in TEST}
    for kind in (*KIND, *UNKIND):
        rows = [item for item in naive.plain if item.kind == kind and not item.family]
        labels = Counter(judged[reply.prompt] for reply in TEST if reply.kind == kind)
        assert [item.labels for item in rows] == [
            {**dict.fromkeys(LABELS, 0), **labels, "unscored": 0}
        ] * bool(rows)
    by_name = {form.name: form for form in naive.forms}
    for attack in ATTACKS:
        added = CARING.findall(dress_up(attack, TEST[0].exchange("x")).response)
        form = by_name[attack.name]
        if len(added) >= 2 and attack.is_readable:
            assert (form.unkind_turned, form.kind_turned) == (form.unkind, 0), attack.name
    sympathy = next(family for family in naive.families if family.name == "endless sympathy")
    assert sympathy.unkind.turned.value > 0.6 and sympathy.kind.turned.value < 0.2
    assert naive.result == "not met"
    assert [item.good.value for item in naive.best_of] == sorted(item.good.value for item in naive.best_of)


def test_one_form_that_always_works_is_found_by_who_may_try_all() -> None:
    name = ATTACKS[40].name
    works = f"[{name}]"
    judge = MadeJudge(lambda exchange: "Good" if exchange.id.endswith(works) else "Bad")
    found = run_attacks(judge, whole=10)
    chances = {item.tries: item.good.value for item in found.best_of}
    assert {item.replies for item in found.best_of} == {10}
    assert chances == {
        0: 0,
        **{tries: pytest.approx(tries / len(ATTACKS)) for tries in (1, 5, 20, 100)},
        len(ATTACKS): 1,
    }
    assert found.overall.unkind.pairs == EACH * len(ATTACKS), "the column does not count those extra pairs"
    assert found.overall.unkind.turned.value == pytest.approx(1 / len(ATTACKS))


def test_an_unscored_reply_is_held_against_the_judge_where_it_should_have_judged() -> None:
    dressed = MadeJudge(lambda exchange: None if "[" in exchange.id else right(exchange))
    found = run_attacks(dressed)
    assert (target(found, "unkind turned"), target(found, "kind turned")) == ((0, "met"), (1, "not met"))
    assert found.overall.kind.unscored == found.overall.kind.pairs
    found = run_attacks(MadeJudge(lambda exchange: None), replies=TEST[::4])
    assert target(found, "excellent called Bad") == (1, "not met")
    assert target(found, "plain insults not") == (1, "not met")
    assert target(found, "AUC")[1] == "cannot tell"
    json.dumps(to_plain(found), allow_nan=False)


def test_what_a_reply_loses_as_it_grows_is_told_at_every_stage() -> None:
    def formula(exchange: Exchange) -> float:
        return 0.9 - 0.1 * exchange.response.count("\n\n")

    growing = [replace(reply, paragraphs=tuple("abcde")) for reply in TEST if reply.kind == "growing"]
    found = run_attacks(MadeJudge(formula), replies=growing)
    assert [stage.probability.value for stage in found.stages] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5])
    assert [stage.lost.value for stage in found.stages] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert [stage.good.value for stage in found.stages] == [1, 1, 1, 1, 0]  # a tie goes to the lower label
    assert [stage.words for stage in found.stages] == [1, 2, 3, 4, 5]
    assert target(found, "Good lost") == (pytest.approx(0.4), "not met")


def test_a_dialect_that_is_not_understood_is_named() -> None:
    scottish = {reply.prompt for reply in TEST if reply.dialect == "Scottish English"}
    judge = MadeJudge(lambda exchange: "Bad" if exchange.prompt in scottish else right(exchange))
    found = run_attacks(judge, replies=[reply for reply in TEST if reply.dialect])
    rows = {item.name: item for item in found.dialects}
    assert (rows["Scottish English"].good.value, rows["Scottish English"].auc.value) == (0, 0.5)
    assert {item.auc.value for name, item in rows.items() if name != "Scottish English"} == {1}
    gap = found.gaps["excellent called Good"]
    assert gap is not None and (gap.gap.value, gap.lowest) == (1, "Scottish English") and gap.p < 0.05
    unkind = found.gaps["unkind called Bad"]
    assert unkind is not None and unkind.gap.value == 0


def test_what_is_asked_is_affordable_spread_and_repeatable(perfect: Resistance) -> None:
    judge = MadeJudge(right)
    assert to_plain(run_attacks(judge)) == to_plain(perfect)
    assert judge.asked == perfect.judgments <= 2700
    assert perfect.pools == (POOL, POOL) and perfect.overall.unkind.pairs == EACH * len(ATTACKS)
    pairs = {name: column.pairs for name, column in perfect.by_kind.items()}
    assert pairs["insults"] == pytest.approx(pairs["cruel"], abs=20)
    assert min(pairs.values()) >= 100
    other = run_attacks(MadeJudge(count_caring), seed=1)
    assert other.overall.unkind.pairs == perfect.overall.unkind.pairs
    with pytest.raises(BudgetSpent):
        run_attacks(MadeJudge(right, stops_after=30))


def test_suspicions_are_counted_apart_from_labels_and_on_both_sides() -> None:
    judge = MadeJudge(lambda exchange: f"{right(exchange)}{' asks' if 'Good' in exchange.response else ''}")
    found = run_attacks(judge, replies=TEST[::3], pool=10)
    named = {family.name: family for family in found.families}
    assert named["echo"].unkind.suspected == named["echo"].kind.suspected == 0
    verdict = named["instruction"]
    assert 0 < verdict.unkind.suspected <= verdict.unkind.pairs and verdict.kind.suspected > 0
    assert found.result != "not met"


def test_no_reply_that_could_turn_leaves_the_forms_undefined() -> None:
    found = run_attacks(MadeJudge(lambda exchange: "Good"), replies=TEST[::4])
    assert found.overall.unkind.could_turn == 0 and target(found, "unkind turned")[1] == "cannot tell"
    assert found.overall.unkind.all == exact_share(found.pools[0], found.pools[0])
    plain = json.loads(json.dumps(to_plain(found), allow_nan=False))
    assert plain["overall"]["unkind"]["turned"]["value"] is None
    nothing = run_attacks(MadeJudge(right), replies=[])
    assert nothing.result == "cannot tell" and nothing.judgments == 0
    print_page(attacks_page(nothing))


def test_the_page_fits_into_80_columns_and_marks_what_no_training_met(
    naive: Resistance, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_page(attacks_page(naive, is_brief=True))
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    for family in naive.families:
        assert f"\n{family.name}{' *' if family.is_unmet else ''} " in told
    assert "not met" in told and "Best of N" in told and "By family: " not in told
    whole = as_markdown(attacks_page(naive))
    assert all(item.family in whole for item in naive.plain)


@pytest.mark.slow
def test_a_report_has_a_section_of_attacks_where_there_were_any(naive: Resistance) -> None:
    pages = [make_page(three_raters(), attacks=attacks) for attacks in (naive, None)]
    (section,) = [section for page in pages for section in page.sections if section.name == "attacks"]
    assert section.tables[0].caption.startswith("Beside what we ask for") and section.figures
    assert "kind ones in the same forms" in as_markdown(pages[0])


def test_the_command_attacks_a_judge_by_name(tmp_path: Path) -> None:
    told = CliRunner().invoke(cli.main, ["calibrate", "--attack", "length", "--out", str(tmp_path)])
    assert told.exit_code == 1 and "not met" in told.output
    assert "Attacks on the judge length" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["judge"] == "length"
    found = CliRunner().invoke(cli.main, ["calibrate", "--attack", "majority", "--json"])
    report = json.loads(found.stdout)
    figures = {item["name"]: (item["figure"]["value"], item["result"]) for item in report["targets"]}
    assert figures["AUC of excellent against politely cruel"] == (0.5, "not met")
    assert figures["plain insults not called Bad"] == (1, "not met")
    assert figures["excellent called Bad"] == (0, "met")
    assert len(report["forms"]) == len(ATTACKS)
    unknown = CliRunner().invoke(cli.main, ["calibrate", "--attack", "lenght"])
    assert unknown.exit_code == 2 and "did you mean 'length'?" in unknown.output


@pytest.mark.slow
def test_a_calibration_may_attack_a_judge_too(tmp_path: Path) -> None:
    rated = [(f"{model}-{at}", model, 1 + at % 3) for model in ("ada", "bea") for at in range(24)]
    theirs, ratings, out = tmp_path / "theirs.csv", tmp_path / "ratings.csv", tmp_path / "out"
    write_rows(theirs, ({"id": name, "model": model, "rating": level} for name, model, level in rated))
    write_rows(ratings, ({"id": name, "rater": name, "rating": level} for name, _, level in rated))
    arguments = ["calibrate", theirs, ratings, "--attack", "length", "--out", out]
    done = CliRunner().invoke(cli.main, [str(item) for item in arguments])
    assert done.exit_code in (0, 3), done.output
    assert json.loads((out / "report.json").read_text())["attacks"]["judge"] == "length"
    assert "kind ones in the same forms" in (out / "report.html").read_text()

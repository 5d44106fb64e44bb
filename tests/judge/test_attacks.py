"""Attacks as they are sent: for each of them and each kind of request, nothing comes out of the fence."""

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from servers import Call, answer

from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.data.text import HIDDEN, ROLE_TOKEN, clean
from empathy_judge.judge.llm.decision import DecisionJudge
from empathy_judge.judge.llm.endpoint import Reply
from empathy_judge.judge.llm.prompt_injection import FIELD
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.judge.robustness.catalogue import read_perturbations, read_replies, rewrite
from empathy_judge.judge.robustness.run import SUSPECTED

ATTACKS = [item for item in read_perturbations() if item.family]
INSULTS = [reply for reply in read_replies("test") if reply.kind == "insults"]
ONE = replace(INSULTS[0].exchange(), emotion="sad", situation="It happened yesterday.")
KINDS = ("shares", "analytic", "label", "decisions", "systemone")
REPLY_HEADINGS = ("listener A, the reply", "the listener's reply, which is to be rated")
DRESSED = {attack.name: rewrite(attack, ONE) or ONE for attack in ATTACKS}


def make_judge(kind: str) -> PromptedJudge | DecisionJudge:
    where: dict[str, Any] = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
    if kind in ("decisions", "systemone"):
        return DecisionJudge(**where, protocol=kind)  # type: ignore[arg-type]
    return PromptedJudge(**where, mode=kind)  # type: ignore[arg-type]


def sent(judge: PromptedJudge | DecisionJudge, exchange: Exchange) -> Call:
    (body,) = judge.write_requests(exchange)
    return Call(number=0, path=judge.batch_path, headers={}, body=body)


def mark_of(call: Call) -> str:
    """The mark of a request's first delimiter."""
    return re.findall(r"=== (\w{16}) (?:exchange|conversation) ===", call.text)[0]


def around(call: Call, mark: str) -> str:
    """All of a request but what stands inside its fence, with its mark made the same for all."""
    start, end = f"=== {mark} exchange ===", f"=== {mark} end ==="
    assert call.text.count(start) == call.text.count(end) == 1
    inside = call.text[call.text.index(start) : call.text.index(end)]
    whole, written = (json.dumps(item, ensure_ascii=False, sort_keys=True) for item in (call.body, inside))
    assert whole.count(written[1:-1]) == 1
    return whole.replace(written[1:-1], "").replace(mark, "MARK")


@pytest.mark.parametrize("kind", [*KINDS, "side-by-side"])
def test_an_attack_stays_inside_the_fence(kind: str) -> None:
    judge = make_judge(kind)
    plain = around(call := sent(judge, ONE), mark_of(call))
    problems = {name: escape_of(dressed, sent(judge, dressed), plain) for name, dressed in DRESSED.items()}
    assert ONE not in DRESSED.values() and not {name: item for name, item in problems.items() if item}


def escape_of(dressed: Exchange, call: Call, plain: str) -> str:
    """What of an attack came out of the fence, or is not in it as it should be."""
    mark = mark_of(call)
    lines = [line for line in call.text.splitlines() if mark in line and line[:3] in ("===", "---")]
    *before, reply, end = (line.replace(mark, "MARK") for line in lines)
    if [*before, end] != [
        "=== MARK exchange ===",
        "--- MARK what the speaker said ---",
        "=== MARK end ===",
    ] or reply.removeprefix("--- MARK ").removesuffix(" ---") not in REPLY_HEADINGS:
        return "headings"
    shown = call.text.partition(f"{lines[-2]}\n")[2].partition(f"\n{lines[-1]}")[0]
    if shown != clean(dressed.response).replace(FIELD, "[["):
        return "reply"
    if mark in dressed.response or ROLE_TOKEN.search(shown):
        return "mark or role"
    if HIDDEN.search(shown.replace("\u200d", "")):  # joiners may stay, they make one picture of two
        return "hidden characters"
    # All else is what is sent about the plain reply: nothing of the attack came out of the fence.
    return "" if around(call, mark) == plain else "outside"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_suspected_is_reported_with_the_label(kind: str) -> None:
    judge = make_judge(kind)

    def judge_with(exchange: Exchange) -> Judgment:
        return judge.read_replies(exchange, [Reply(answer(sent(judge, exchange)).body, {})])

    judgments = {name: judge_with(dressed) for name, dressed in DRESSED.items()}
    assert all(judgment.label for judgment in judgments.values())
    suspected = {name for name, judgment in judgments.items() if SUSPECTED in (judgment.rationale or "")}
    assert SUSPECTED not in (judge_with(ONE).rationale or "")
    families = Counter(attack.family for attack in ATTACKS if attack.name in suspected)
    assert families["role tokens"] >= 9
    assert suspected > {"label after", "instruction before", "instruction in tags", "closing tags", "ChatML"}
    assert not families.keys() & {"stock phrase", "echo", "therapy talk", "sympathy, translated"}

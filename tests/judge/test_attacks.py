"""Attacks as they are sent: for each of them and each kind of request, nothing comes out of the fence."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from servers import Answer, Call, ScriptedServer, answer, answer_chat

from empathy_judge.data.records import LABELS, Exchange, Judgment
from empathy_judge.data.text import HIDDEN, ROLE_TOKEN, clean
from empathy_judge.judge.llm.decision import DecisionJudge
from empathy_judge.judge.llm.judge_prompt import HEADING
from empathy_judge.judge.llm.prompt_injection import delimit_exchange
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.judge.robustness.catalogue import Perturbation, read_perturbations, read_replies, rewrite
from empathy_judge.judge.robustness.run import SUSPECTED

ATTACKS = [item for item in read_perturbations() if item.family]
INSULTS = [reply for reply in read_replies("test") if reply.kind == "insults"]
ONE = replace(INSULTS[0].exchange(), emotion="sad", situation="It happened yesterday.")
KINDS = ("prompted", "analytic", "decisions", "systemone")


def rewritten(attack: Perturbation) -> Exchange:
    changed = rewrite(attack, ONE)
    assert changed is not None
    return changed


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


Sent = tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, Judgment]]


@pytest.fixture(scope="module", params=KINDS)
def sent(request: pytest.FixtureRequest) -> Iterator[Sent]:
    """The requests about a plain reply and about it in each attack, and what came of the answers by name."""
    dressed = {attack.name: rewritten(attack) for attack in ATTACKS}
    with ScriptedServer(lambda call: say(call, "Bad")) as server:
        judge = make_judge(request.param, server.base_url)
        judged = {item.content_digest: item for item in judge.judge_many([ONE, *dressed.values()])}
        judge.close()
        bodies = [call.body for call in server.calls]
    marks = {delimit_exchange(exchange).mark: name for name, exchange in {"": ONE, **dressed}.items()}
    by_name = {
        name: body
        for body in bodies
        for mark, name in marks.items()
        if f"=== {mark} exchange" in text_of(body)
    }
    judgments = {name: judged[exchange.content_digest] for name, exchange in {"": ONE, **dressed}.items()}
    yield by_name.pop(""), by_name, judgments


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
    expected = around(plain, delimit_exchange(ONE).mark)
    problems = {attack.name: escape_of(attack, attacked[attack.name], expected) for attack in ATTACKS}
    assert not {name: problem for name, problem in problems.items() if problem}


def escape_of(attack: Perturbation, body: dict[str, Any], plain: str) -> str:
    """What of an attack came out of the fence, or is not in it as it should be."""
    dressed = rewritten(attack)
    mark, text = delimit_exchange(dressed).mark, text_of(body)
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


def test_a_label_is_read_from_the_answer_and_what_is_suspected_is_told(sent: Sent) -> None:
    _, attacked, judgments = sent
    assert set(attacked) == {attack.name for attack in ATTACKS}
    assert {judgment.label for judgment in judgments.values()} == {"Bad"}
    suspected = {name for name, judgment in judgments.items() if SUSPECTED in (judgment.rationale or "")}
    families = Counter(attack.family for attack in ATTACKS if attack.name in suspected)
    assert "" not in suspected and families["role tokens"] >= 9
    assert suspected > {"label after", "instruction before", "instruction in tags", "closing tags", "ChatML"}
    assert not families.keys() & {"stock phrase", "echo", "therapy talk", "sympathy, translated"}

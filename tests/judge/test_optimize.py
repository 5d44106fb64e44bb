"""Prompt optimization: within its budget, on ratings kept apart, and saved so that it loads again."""

import json
import re
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result
from command_line import run, write_toml
from servers import Answer, Call, ScriptedServer, answer_chat

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.rating_files.rated_inputs import RatedExchange
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.data.rubric import RUBRICS, read_rubric
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.llm.judge_prompt import PLACE, make_form, read_prompt, write_prompt
from empathy_judge.judge.llm.optimize_prompt import find_model, merge_ratings, optimize, split_rated
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.judge.llm.rated_examples import INTRODUCTION

pytestmark = pytest.mark.slow  # searches

SECRET = "Look for hugs."  # instructions with this in them make the scripted model see
Make = Callable[..., PromptedJudge]


def truth(text: str) -> str:
    """What people said of the exchanges that conftest makes."""
    return "Good" if "hug" in text else "Bad" if "whatever" in text else "Okay"


def learner(call: Call, clue: str = SECRET) -> Answer:
    """Answers that most say Okay until a clue is in its instructions; writes instructions, too."""
    properties = call.body["response_format"]["json_schema"]["schema"]["properties"]
    if "Good" not in properties:
        return answer_chat(call, json.dumps(dict.fromkeys(properties, SECRET)))
    label = truth(call.text) if clue in call.body["messages"][0]["content"] else "Okay"
    counts = {name: 98 if name == label else 1 for name in LABELS}
    return answer_chat(call, json.dumps(dict.fromkeys(properties, "Okay") | counts))


def test_parts_share_neither_prompt_nor_batch(examples: list[RatedExchange]) -> None:
    parts = split_rated(merge_ratings(examples), seed=0)
    sides = [parts.learn, parts.choose, parts.held_out]
    assert [len(side) for side in sides] == [48, 36, 36], "by whole batches of twelve"
    assert parts.batches_apart
    for key in ("group", "batches"):
        values = [{str(getattr(item, key)) for item in side} for side in sides]
        assert not (values[0] & values[1] or values[0] & values[2] or values[1] & values[2])
    assert split_rated(merge_ratings(examples), seed=0) == parts
    assert split_rated(merge_ratings(examples), seed=1) != parts


def test_a_search_finds_what_helps_and_keeps_to_its_calls(
    make_prompted: Make, examples: list[RatedExchange], capfd: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServer(learner) as server:
        judge = make_prompted(server.base_url, prices={"input": 1.0, "output": 0.0})
        form, record = optimize(examples, judge, max_calls=400)
        assert record["calls"] == len(server.calls) <= 400
        assert record["cost"] == pytest.approx(200e-6 * record["calls"], abs=1e-6)
    found = record["held_out"]
    assert found["error"]["before"]["value"] > 0.2
    assert found["error"]["after"]["value"] < 0.01
    assert found["error"]["difference"]["high"] < -0.1
    assert found["unscored"] == {"before": 0, "after": 0}
    assert SECRET in form.template[0]["content"] and form.template[-1]["content"].count(PLACE) == 1
    assert capfd.readouterr() == ("", ""), "DSPy's own output is suppressed"


def test_rated_examples_are_chosen_where_they_help(
    make_prompted: Make, examples: list[RatedExchange]
) -> None:
    with ScriptedServer(partial(learner, clue=INTRODUCTION)) as server:
        form, record = optimize(examples, make_prompted(server.base_url), max_calls=400)
    assert (
        record["held_out"]["error"]["after"]["value"] < 0.01 < record["held_out"]["error"]["before"]["value"]
    )
    shown = form.template[0]["content"].partition(INTRODUCTION)[2]
    held_out = split_rated(merge_ratings(examples), seed=0).held_out
    assert shown.count("\nRatings: ") == 8 and not any(item.text in shown for item in held_out)


def test_another_model_rewrites_the_instructions_within_one_budget(
    make_prompted: Make, examples: list[RatedExchange]
) -> None:
    with ScriptedServer(learner) as server, ScriptedServer(learner) as other:
        judge = make_prompted(server.base_url, prices={"input": 1.0, "output": 0.0})
        rated = [replace(item, reason="No hug.") for item in examples]
        with closing((writer := find_model(f"{other.base_url}#big")).endpoint):
            form, record = optimize(rated, judge, reflect=writer, max_calls=400)
        assert record["calls"] == len(server.calls) + len(other.calls) <= 400
    assert SECRET in form.template[0]["content"]
    assert {call.body["model"] for call in other.calls} == {"big"}
    assert {call.body["max_tokens"] for call in other.calls} == {32_000}
    told = "".join(message["content"] for message in other.calls[0].body["messages"])
    assert all(words in told for words in ("A rater wrote: ", "No hug.", "Of 100 people, ", " Good. A"))
    with pytest.raises(UserError, match="--reflect gpt: not a language model"):
        find_model("gpt")


def test_a_spent_budget_ends_the_search_and_keeps_the_best_so_far(
    make_prompted: Make, examples: list[RatedExchange]
) -> None:
    with ScriptedServer(learner) as server:
        least = 2 * (36 + 36) + 2 * 36 + 8
        judge = make_prompted(server.base_url)
        form, record = optimize(examples, judge, max_calls=least + 4)
        assert len(server.calls) <= least + 4
        assert record["stopped"] == "the limit of calls is reached"
        assert form == judge.form, "no candidate was asked about every reply"
        with pytest.raises(UserError, match=f"--max-calls {least - 1}: too few: .* takes {least} calls;"):
            optimize(examples, make_prompted(server.base_url), max_calls=least - 1)


def test_a_server_that_is_gone_ends_it_with_a_word(
    make_prompted: Make, examples: list[RatedExchange]
) -> None:
    def forbids(call: Call) -> Answer:
        return learner(call) if call.number < 80 else Answer(status=401)

    with ScriptedServer(forbids) as server, pytest.raises(OperationalError, match="HTTP 401"):
        optimize(examples, make_prompted(server.base_url))


def test_optimized_messages_are_saved_readably_and_load_only_unchanged(
    tmp_path: Path, make_prompted: Make
) -> None:
    rubric, path = read_rubric(), tmp_path / "tuned.json"
    messages = ({"role": "system", "content": "Look closely. — Ünïcode"}, {"role": "user", "content": PLACE})
    digest = write_prompt(path, messages, mode="analytic", rubric=rubric, about={"model": "m"})
    text, form = path.read_text(encoding="utf-8"), make_form("analytic", rubric)
    assert "— Ünïcode" in text
    read = read_prompt(path, form, mode="analytic", rubric=rubric)
    assert read == replace(form, template=messages, digest=digest)
    plain, tuned = make_prompted(), make_prompted(program=str(path))
    assert plain.version != tuned.version
    assert tuned.form.messages("X {exchange}")[-1]["content"] == "X {exchange}"
    for change in (text.replace("Look closely.", "Look away."), text.replace(digest, "0" * 64), "{}", "["):
        path.write_text(change, encoding="utf-8")
        with pytest.raises(UserError, match=r"tuned\.json: .* optimize"):
            make_prompted(program=str(path))
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match='optimized for mode = "analytic", not "shares"'):
        make_prompted(program=str(path), mode="shares")
    other = tmp_path / "other.toml"
    crowd = (RUBRICS / "crowd.toml").read_text(encoding="utf-8")
    other.write_text(crowd + "# changed\n", encoding="utf-8")
    with pytest.raises(UserError, match="optimized for another rubric"):
        make_prompted(program=str(path), rubric=str(other))


def test_the_command_prints_before_and_after_and_its_program_scores(
    tmp_path: Path, rated_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, out = tmp_path / "judge.toml", tmp_path / "tuned" / "program.json"

    def tune(out: Path, judge: object, *words: str) -> Result:
        return run("optimize", *rated_files, "--judge", judge, "--out", out, "--max-calls", 400, *words)

    with ScriptedServer(learner) as server:
        write_toml(str(config), kind="prompted", model="m", base_url=server.base_url, concurrency=4)
        done = tune(out, config)
        assert re.search(r"error .* 0\.3\d\d .* before, 0\.000 .* after", done.stdout), done.output
        saved = json.loads(out.read_text(encoding="utf-8"))["about"]
        assert f"{saved['calls']:,} calls, 0.0000 USD" in done.stdout
        assert "scoring 72 replies" in done.stderr
        assert saved["judge"]["model"] == "m"
        config.write_text(config.read_text() + f'program = "{out}"\n')
        judge = load_judge(str(config))
        assert isinstance(judge, PromptedJudge)
        judgment = judge.judge(Exchange(id="1", prompt="word1", response="a hug for you"))
        judge.close()
        assert judgment.label == "Good", "it needs the optimized instructions for that"
        assert "exists already; set another --out" in tune(out, config).stderr
        second = tune(tmp_path / "second.json", config, "--max-calls", "300", "--json")
        written = json.loads((tmp_path / "second.json").read_text(encoding="utf-8"))["about"]
        assert json.loads(second.stdout)["held_out"] == written["held_out"]
    config.write_text('kind = "prompted"\nmodel = "m"\nmode = "label"\n')
    assert 'only a judge of kind "prompted"' in tune(tmp_path / "third.json", "majority").stderr
    assert 'set mode = "shares"' in tune(tmp_path / "third.json", config).stderr
    monkeypatch.setitem(sys.modules, "dspy", None)
    assert "optimize needs the package dspy" in tune(tmp_path / "third.json", config).stderr

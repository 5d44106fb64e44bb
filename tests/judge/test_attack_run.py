"""Attacks on a judge that costs money: a sample of them, within a budget, and taken up again."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from servers import Answer, Call, ScriptedServer, answer_chat

import cli
from judge.robustness.attack_run import draw_sample
from judge.robustness.attacks import read_attacks

SAMPLE = 60


def answer(call: Call) -> Answer:
    """A judge that is talked round by whoever writes a label."""
    reply = call.text.rpartition("to be judged ---")[2].partition("===")[0]
    label = "Good" if "Good" in reply else "Okay"
    said = answer_chat(call, json.dumps({"reason": "So it seems.", "label": label}))
    said.body["usage"] = {"prompt_tokens": 1000, "completion_tokens": 10}
    return said


def attack(*words: object) -> Result:
    return CliRunner().invoke(
        cli.main, ["calibrate", "--attack", "judge.toml", "--sample", str(SAMPLE), *map(str, words)]
    )


def test_a_sample_has_every_family_and_both_sides() -> None:
    drawn = draw_sample(120)
    families = {form.family for form in read_attacks().attacks}
    assert {form.family for form in drawn.catalogue.attacks} == families
    kinds = Counter(reply.kind for reply in drawn.replies)
    assert kinds["insults"] + kinds["cruel"] == kinds["kind"] + kinds["excellent"] == drawn.pool
    assert draw_sample(120) == drawn != draw_sample(120, seed=1)


@pytest.mark.slow
def test_money_ends_a_run_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand tokens a call at a dollar a million: 0.02 are some twenty calls."""
    monkeypatch.chdir(tmp_path)
    with ScriptedServer(answer) as server:
        Path("judge.toml").write_text(
            f'kind = "prompted"\nmodel = "m"\nbase_url = "{server.base_url}"\nconcurrency = 2\n'
            "max_tokens = 20\nprices = {input = 1.0, output = 1.0}\n"
        )
        stopped = attack("--max-cost", 0.02)
        paid = len(server.calls)
        assert stopped.exit_code == 5 and 5 < paid < SAMPLE, stopped.output
        assert "--max-cost" in stopped.stderr
        done = attack("--max-cost", 1, "--json")
        assert done.exit_code in (1, 3), done.output
        told = json.loads(done.stdout)
        assert SAMPLE - 4 <= told["judgments"] <= SAMPLE
        assert len(server.calls) == told["judgments"], "nothing is paid for twice"
        again = json.loads(attack("--json").stdout)
        assert (len(server.calls), again) == (told["judgments"], told)
    assert told["overall"]["unkind"]["turned"]["value"] > 0
    assert told["second"] is None


def test_what_goes_with_attacks_alone_is_refused_without_them() -> None:
    done = CliRunner().invoke(cli.main, ["calibrate", "a", "b", "--sample", "100"])
    assert done.exit_code == 2 and "belong to --attack" in done.stderr
    assert "give one of them" in attack("--attack-all").stderr

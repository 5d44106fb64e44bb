"""Every option of a command changes what it prints or writes, or is refused; refusals come first."""

import inspect
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import pytest
from command_line import run
from servers import Answer, Call, ScriptedServer, answer_chat

import empathy_judge as ej
from empathy_judge.calibration.comparison.judged_models import ComparisonSettings
from empathy_judge.commands import main as cli
from empathy_judge.commands.compare import compare
from empathy_judge.server.app import SharesBody
from empathy_judge.server.served_judge import ServedJudge

# A command line, then the option that is added to it. Files and the model's server are made by `world`.
LINES = """
score r.csv --judge length | --judge majority
score chats.jsonl --judge length | --unit reply
score r.csv --judge length | --out run
score r.csv --judge length | --limit 3
score bad.csv --judge length | --skip-invalid
score r.csv --judge length | --prompt-column other
score r.csv --judge length | --response-column other
score r.csv --judge length | --model-column other
score r.csv --judge length | --seed 1
score r.csv | --calibration none
score r.csv --judge judge.toml | --max-cost 0
score r.csv --judge length | --batch
score r.csv --judge length | --wait
score r.csv --judge length | --workers 2
score r.csv --judge length | --explain 3
score chats.jsonl --judge length | --html page.html
score r.csv --judge length | --html page.html
score r.csv --judge length | --verbose
score r.csv --judge length | --json
respond r.csv --model-config model.toml | --model other
respond r.csv --model-config model.toml | --model-config other.toml
respond r.csv --model-config model.toml | --base-url http://127.0.0.1:9/v1
respond r.csv --model-config model.toml | --key-env NO_SUCH_KEY
respond r.csv --model-config model.toml | --name other
respond r.csv --model-config model.toml | --style plain
respond r.csv --model-config model.toml | --temperature 0.5
respond r.csv --model-config model.toml | --max-tokens 9
respond r.csv --model-config model.toml | --prompt-column other
respond r.csv --model-config model.toml | --response-column none
respond r.csv --model-config model.toml | --model-column none
respond r.csv --model-config model.toml | --seed 3
respond r.csv --model-config model.toml | --out answers
respond r.csv --model-config model.toml | --limit 2
respond r.csv --model-config model.toml | --max-cost 0
respond r.csv --model-config model.toml | --json
robustness length --sample 24 | --replies r.csv
robustness length --sample 24 | --sample 30
robustness length --sample 24 | --seed 1
robustness length --sample 24 | --out robust
robustness length --sample 24 | --json
robustness judge.toml --sample 24 | --max-cost 0
"""
CASES = [tuple(part.strip() for part in line.split("|")) for line in LINES.strip().splitlines()]
SAME_RESULT = {"score": {"--device", "--engine", "--fresh"}}  # by design: only what it takes differs
VOLATILE = {"manifest.json", "plan.json", "journal.jsonl", "lock"}


def reply(call: Call) -> Answer:
    """Answer by a digest of the request, so that every setting changes the answer."""
    return answer_chat(call, "Good " + sha256(json.dumps(call.body, sort_keys=True).encode()).hexdigest())


@pytest.fixture
def world() -> Any:
    rows = [f"I lost {n} keys.,Oh no{'!' * n} {'So sad. ' * n},m{n % 2},other {n}" for n in range(6)]
    Path("r.csv").write_text("\n".join(["prompt,response,model,other", *rows, ""]))
    Path("bad.csv").write_text("\n".join(["prompt,response,model", *rows[:2], ",,m", ""]))
    turns = [{"role": role, "content": f"{role} {n}"} for n in range(2) for role in ("user", "assistant")]
    Path("chats.jsonl").write_text("".join(json.dumps({"id": n, "messages": turns}) + "\n" for n in range(2)))
    with ScriptedServer(reply) as server:
        about = f'base_url = "{server.base_url}"\nretries = 0\nprices = {{ input = 1.0, output = 1.0 }}\n'
        Path("model.toml").write_text(f'model = "m"\n{about}')
        Path("other.toml").write_text(f'model = "m"\ntemperature = 0.1\n{about}')
        Path("judge.toml").write_text(f'kind = "prompted"\nmodel = "m"\n{about}')
        yield server


def result_of(line: str) -> tuple[object, ...]:
    """Run a command in the state before it, and return what it printed and wrote."""
    before = set(Path().rglob("*"))
    done = run(*line.split())
    assert done.exit_code in (0, 1, 2, 3, 5), done.output
    new = sorted(path for path in set(Path().rglob("*")) - before if path.is_file())
    files = {str(path): path.read_bytes() for path in new if path.name not in VOLATILE}
    for path in new:
        path.unlink()
    return done.exit_code, done.stdout, files


@pytest.mark.parametrize(("line", "option"), CASES, ids=map(" ".join, CASES))
def test_an_option_changes_the_result_or_is_refused(world: ScriptedServer, line: str, option: str) -> None:
    code, *found = result_of(f"{line} {option}")
    assert found != result_of(line)[1:]
    assert code != 2 or not found[1], "a refused command writes no result"


@pytest.mark.parametrize("command", sorted({line.split()[0] for line, _ in CASES}))
def test_the_table_has_every_option(command: str) -> None:
    made = cli.main.get_command(click.Context(cli.main), command)
    options = {item.opts[0] for item in made.params if isinstance(item, click.Option)}
    tried = {option.split()[0] for line, option in CASES if line.split()[0] == command}
    assert options - SAME_RESULT.get(command, set()) == tried


@pytest.mark.parametrize(
    "line",
    [
        "score r.csv --judge judge.toml --explain none",
        "score r.csv --judge judge.toml --calibration none.json",
        "score r.csv --judge judge.toml --html page.html",
        "score bad.csv --judge judge.toml",
        "compare r.csv bad.csv --judge judge.toml",
        "compare r.csv r.csv --judge judge.toml",
        "compare r.csv chats.jsonl --judge judge.toml",
        "calibrate r.csv none.jsonl --judge judge.toml",
        "calibrate r.csv bad.csv r.csv --judge judge.toml",
        "robustness judge.toml --sample 24 --replies bad.csv",
        "respond bad.csv --model-config model.toml",
    ],
)
def test_what_is_refused_is_refused_before_anything_is_paid_for(world: ScriptedServer, line: str) -> None:
    done = run(*line.split())
    assert (done.exit_code, world.calls) == (2, [])


def test_the_margin_and_the_allowed_drop_have_one_default() -> None:
    """In points; the pytest fixture passes its own on to the client."""
    margin, drop = 100 * ComparisonSettings().margin, 100 * ComparisonSettings().max_drop
    options = {option.name: option.default for option in compare.params}
    python = inspect.signature(ej.compare).parameters
    assert (options["margin"], python["margin"].default) == (margin, margin)
    drops = [options["max_drop"], python["max_drop"].default, SharesBody.model_fields["max_drop"].default]
    for method in (ej.JudgeClient.compare, ServedJudge.shares):
        drops.append(inspect.signature(method).parameters["max_drop"].default)
    assert set(drops) == {drop}

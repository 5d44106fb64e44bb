"""Nights of conversations: held with scripted speakers, judged whole, paired by situation."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from servers import ScriptedServer, answer_chat

from empathy_judge.commands import main as cli

WARM = "I am so sorry, that must have been such a hard day for you. What was the worst of it?"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, ["nightly", *map(str, arguments)], terminal_width=200)


def write_config(server: ScriptedServer, more: str = "") -> Path:
    model = f'name = "bot"\nmodel = "bot"\nbase_url = "{server.base_url}"\n'
    about = f'turns = 3\nlimit = 12\njudge = "length"\ncalibration = "none"\nanchors = "none"\n{more}'
    Path("n.toml").write_text(f"{about}[[models]]\n{model}[gates]\ngood_share_drop = 5\n")
    return Path("n.toml")


@pytest.mark.slow
def test_two_nights_are_paired_by_situation_and_a_fall_is_found() -> None:
    said = {"reply": WARM}
    with ScriptedServer(lambda call: answer_chat(call, said["reply"])) as server:
        path = write_config(server)
        first = run(path, "--night", "2026-12-01")
        assert first.exit_code in (0, 3), first.output
        assert len(server.calls) == 36
        assert run(path, "--night", "2026-12-01").exit_code == first.exit_code
        assert len(server.calls) == 36, "the night is there"
        said["reply"] = "Okay then."
        second = run(path, "--night", "2026-12-02", "--json")
    told = json.loads(second.stdout)
    change = told["changes"][0]
    assert change["prompts"] == 12 and change["total"]["high"] < 0, second.output
    page = next(Path("dashboard").glob("responses*.html")).read_text()
    assert "Model: " in page and "Speaker: " in page

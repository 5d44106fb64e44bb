"""`doctor` through the real door: a sound house, broken parts one at a time, servers that answer or not."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from command_line import run
from packaging.requirements import Requirement
from servers import Answer, ScriptedServer

from empathy_judge.commands.doctor import ROOT, Check, check_file, check_packages
from empathy_judge.judge.classifier.judge import ClassifierJudge

SECRET = "sk-abcdefghijklmnop"

SERVE = {"fastapi", "markdown-it-py", "prometheus-client", "uvicorn"}  # packages of the extra


def test_a_sound_house_passes_and_each_line_says_so() -> None:
    done = run("doctor")
    assert "no commercial use (CC BY-NC 4.0)" in done.stdout
    assert done.exit_code == 0, done.output
    *lines, last = done.stdout.splitlines()
    assert all(line.split()[0] in ("ok", "warn") for line in lines)
    # On another processor the last digits are others.
    assert re.search(r"test judgment: 0\.\d{3} 0\.\d{3} 0\.\d{3}, as expected", done.stdout)
    assert last.startswith(f"{len(lines)} checks: 0 failed")
    assert not list(Path().iterdir()), "nothing is written"


def test_damaged_weights_are_a_failure_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ClassifierJudge.shipped, "weights")
    spoilt = bytearray(Path("weights/model.onnx").read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    Path("weights/model.onnx").write_bytes(spoilt)
    monkeypatch.setattr(ClassifierJudge, "shipped", tmp_path / "weights")
    done = run("doctor", "--json")
    assert done.exit_code == 5
    found = {row["name"]: row for row in json.loads(done.stdout)["checks"]}
    judge = found["judge classifier"]
    assert judge["status"] == "fail" and "damaged or changed" in judge["message"] and judge["fix"]
    assert found["test judgment"]["status"] == "fail"
    assert found["write access"]["status"] == "ok", "the other checks go on"


def test_packages_that_are_old_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    changed = re.sub(r'"click>=[^"]*"', '"click>=99"', project)
    changed = re.sub(r'"dspy>=[^"]*", "gepa>=[^"]*"', '"nowhere-at-all>=1"', changed)
    (tmp_path / "pyproject.toml").write_text(changed, encoding="utf-8")
    monkeypatch.setattr("empathy_judge.data.errors.ROOT", tmp_path)
    found = {check.name: check for check in check_packages()}
    needed, optional = found["packages"], found["extra optimize"]
    assert (needed.status, optional.status) == ("fail", "ok") and "does not match >=99" in needed.message
    assert "nowhere-at-all" in optional.message and "install 'nowhere-at-all>=1' 'openai" in optional.fix


@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_missing_package_is_installed_by_the_command_that_is_printed(
    is_checkout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_checkout:  # as in a wheel
        monkeypatch.setattr("empathy_judge.data.errors.ROOT", tmp_path)
        monkeypatch.setattr("empathy_judge.data.errors.PINNED", tmp_path / "constraints.txt")

    def fail() -> None:
        raise ModuleNotFoundError("No module named 'prometheus_client'", name="prometheus_client")

    monkeypatch.setattr("empathy_judge.commands.doctor.check_installation", fail)
    done = run("doctor")
    assert done.exit_code == 2
    python, *words = shlex.split(done.stderr.partition("install it with: ")[2])
    assert Path(python).samefile(sys.executable) and words[:3] == ["-m", "pip", "install"]
    packages = words[3 : words.index("-c")] if is_checkout else words[3:]
    assert {Requirement(word).name for word in packages} == SERVE
    assert not is_checkout or Path(words[-1]).is_file()


LISTING = Answer(body={"data": [{"id": "m"}]})


def asked(server: ScriptedServer) -> list[tuple[str, str]]:
    return [(call.method, call.path) for call in server.calls]


def write_judge(base_url: str, **more: str) -> Path:
    table = {"kind": "decision", "model": "m", "base_url": base_url, **more}
    path = Path("judge.toml")
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in table.items()]
    path.write_text("".join([*lines, "retries = 0\n"]))
    return path


def look(path: Path) -> dict[str, Check]:
    return {check.name: check for check in check_file(path)}


def test_a_server_that_answers_is_fine_and_asked_for_nothing_that_costs() -> None:
    for reply in (LISTING, Answer(status=404, body={"error": {"message": "no such page"}})):
        with ScriptedServer(lambda call, reply=reply: reply) as server:
            found = look(write_judge(server.base_url))
        assert found["judge.toml"].status == found[f"{server.base_url}, model m"].status == "ok"
        assert asked(server) == [("GET", "/v1/models")]


def test_a_server_that_is_not_there_fails_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("empathy_judge.commands.doctor.check_installation", lambda: ())
    done = run("doctor", write_judge("http://127.0.0.1:9/v1"), code=5)
    assert "no connection" in done.stdout and "check that the server runs" in done.stdout


def test_a_key_is_looked_for_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    refused = Answer(status=401, body={"error": {"message": f"no such key {SECRET}"}})
    with ScriptedServer(lambda call: refused) as server:
        path, name = write_judge(server.base_url, key_env="SOME_KEY"), f"{server.base_url}, model m"
        missing = look(path)[name]
        assert not server.calls, "without its key a server is not asked"
        monkeypatch.setenv("SOME_KEY", SECRET)
        wrong = look(path)[name]
    assert (missing.status, wrong.status) == ("fail", "fail")
    assert "SOME_KEY: this environment variable is not set" in missing.message
    assert wrong.fix == "check the variable SOME_KEY"
    assert SECRET not in f"{missing}{wrong}"


def test_a_night_is_looked_through_with_its_models_and_history() -> None:
    with ScriptedServer(lambda call: LISTING) as server:
        Path("nightly.toml").write_text(
            f"[[models]]\nname = 'mine'\nmodel = 'm'\nbase_url = '{server.base_url}'\n"
            "[gates]\ngood_share_drop = 5\n"
        )
        found = look(Path("nightly.toml"))
    assert all(check.status == "ok" for check in found.values())
    assert found["nightly.toml"].message == "models: 1, gates: 1"
    assert "does not exist yet" in found["history sqlite:///nights.sqlite"].message
    assert asked(server) == [("GET", "/v1/models")]
    assert not Path("nights.sqlite").exists(), "a check makes no history"
    Path("nights.sqlite").write_text("this is no database at all, and long enough to be seen as none" * 20)
    assert look(Path("nightly.toml"))["history sqlite:///nights.sqlite"].status == "fail"


def test_a_file_that_is_none_fails_and_says_what_is_wrong() -> None:
    said = {"kind = ": "not TOML", "kind = 'clasifier'": "did you mean 'classifier'?", "x = 1": "model: "}
    for text, words in said.items():
        Path("bad.toml").write_text(text)
        found = look(Path("bad.toml"))["bad.toml"]
        assert found.status == "fail" and words in found.message
    assert "no such file" in look(Path("gone.toml"))["gone.toml"].message

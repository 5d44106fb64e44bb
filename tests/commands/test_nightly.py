"""The command `nightly` through the real door, and the examples that call it."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import run
from nightly_world import CURT, World, start_world
from repository import ROOT

from empathy_judge.commands import main as cli
from empathy_judge.nightly.config import read_config
from empathy_judge.nightly.history import open_history

EXAMPLES = ROOT / "examples"
REGRESSED = frozenset(("bob", feeling) for feeling in CURT)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with start_world(tmp_path) as world:
        yield world


@pytest.mark.slow
def test_nights_are_told_to_people_and_to_machines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    path = world.write(head='dashboard = "site"\n')
    path.write_text(path.read_text() + '[outputs]\njunit = "out/n.xml"\ngithub = true\n')
    first = run("nightly", path, "--night", "2026-12-01", code=0)
    assert first.stdout.splitlines()[0] == "n, night 2026-12-01: pass"
    assert "nothing to compare with" in first.stdout
    assert re.search(r"^ann +5\d\.\d +1\d\.\d|^ann +\d", first.stdout, re.MULTILINE)
    assert (world.folder / "site" / "index.html").exists()
    world.mood, world.curt = "2", REGRESSED
    second = run("nightly", path, "--night", "2026-12-02")
    assert second.exit_code == 1
    said = " ".join(second.stdout.split())
    assert "bob: regression: Good share \N{MINUS SIGN}" in said
    assert all(feeling in said for feeling in CURT)
    assert "::error title=regression%3A good_share_drop against baseline::bob: regression" in second.stdout
    suites = ElementTree.parse(world.folder / "out" / "n.xml").getroot()
    failed = [case for case in suites.iter("testcase") if case.find("failure") is not None]
    assert {case.attrib["classname"] for case in failed} == {"bob"}
    assert "good_share_drop against baseline" in {case.attrib["name"] for case in failed}
    summary = Path("summary.md").read_text(encoding="utf-8")
    assert "night 2026-12-01: pass" in summary and "night 2026-12-02: regression" in summary
    asked = sum(world.asked.values())
    again = run("nightly", path, "--night", "2026-12-02", "--json")
    assert again.exit_code == 1
    found = json.loads(again.stdout)
    assert (found["outcome"], found["is_new"], found["night"]) == ("regression", False, "2026-12-02")
    assert {item["model"] for item in found["findings"]} == {"bob"}
    emotions = {item["gate"]: set(item["emotions"]) for item in found["findings"]}
    assert emotions["good_share_drop against baseline"] == set(CURT)
    assert "::error" in again.stderr, "beside JSON the lines for GitHub go to the other stream"
    assert sum(world.asked.values()) == asked


def write_replies(folder: Path, night: str, replies: Sequence[str] = ()) -> list[str]:
    """Write a night's replies to the sample prompts, those of demo-warm where none are given."""
    samples = (ROOT / "data" / "samples" / "responses.jsonl").read_text(encoding="utf-8")
    rows = [row for row in map(json.loads, samples.splitlines()) if row["model"] == "demo-warm"]
    replies = replies or [row["response"] for row in rows]
    rows = [{**row, "model": "ann", "response": text} for row, text in zip(rows, replies, strict=True)]
    (folder / f"{night}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return list(replies)


@pytest.mark.parametrize("kind", ["canned", "shuffled"])
def test_replies_that_do_not_respond_to_their_prompts_fail_the_night(tmp_path: Path, kind: str) -> None:
    path, site = tmp_path / "n.toml", tmp_path / "site" / "index.html"
    path.write_text(
        "judge = 'length'\ncalibration = 'none'\nanchors = 'none'\ndashboard = 'site'\n"
        "[[models]]\nname = 'ann'\nresponses = '{night}.jsonl'\n"
        "[gates]\ngood_share_drop = 5\nmax_unscored = 5\n"
    )
    replies = write_replies(tmp_path, "n1")
    run("nightly", path, "--night", "n1", code=0)
    assert "Warning" not in site.read_text()
    is_canned = kind == "canned"
    text = "I am so sorry to hear that, it sounds really hard. I am here for you, tell me more about it."
    write_replies(tmp_path, "n2", [text] * len(replies) if is_canned else [*replies[5:], *replies[:5]])
    done = run("nightly", path, "--night", "n2")
    warning = "Warning: ann: these replies do not respond to their prompts (fit 0."
    assert done.exit_code == 1
    assert warning in " ".join(done.stdout.split()) and warning in site.read_text()
    assert "No gate found anything" not in site.read_text()
    night = json.loads(run("nightly", path, "--night", "n2", "--json").stdout)
    outcomes = {gate["gate"]: gate["outcome"] for gate in night["gates"]}
    assert outcomes == {"good_share_drop": "regression", "max_unscored": "pass"}
    (model,) = night["models"]
    assert (model["raw"], model["corrected"], night["changes"]) == ({}, {}, [])
    assert model["fit"]["high"] < 0.75
    # The next night is compared with the one before, not with this one.
    write_replies(tmp_path, "n3")
    run("nightly", path, "--night", "n3", code=0)
    night = json.loads(run("nightly", path, "--night", "n3", "--json").stdout)
    assert {tuple(change["nights"]) for change in night["changes"]} == {("n1",)}


def test_a_local_judge_judges_the_anchors_once(tmp_path: Path) -> None:
    path = tmp_path / "n.toml"
    path.write_text(
        "judge = 'length'\ncalibration = 'none'\ndashboard = false\n"
        "[[models]]\nname = 'ann'\nresponses = '{night}.jsonl'\n"
    )
    judged = []
    for name in ("n1", "n2"):
        write_replies(tmp_path, name)
        run("nightly", path, "--night", name, code=0)
        (file,) = tmp_path.glob("nights/anchors/judged-*/judgments.jsonl")
        judged.append(file.stat().st_mtime_ns)
    assert judged[0] == judged[1]
    with open_history(tmp_path / "nights.sqlite") as history:
        nights = [row["night"] for row in history.rows("anchors")]
    assert nights.count("n1") == nights.count("n2") > 0


def test_a_dead_server_has_its_code(tmp_path: Path) -> None:
    path = tmp_path / "n.toml"
    model = "[[models]]\nmodel = 'ann'\nbase_url = 'http://127.0.0.1:1/v1'\n"
    path.write_text(f"judge = 'length'\ncalibration = 'none'\nanchors = 'none'\ndashboard = false\n{model}")
    assert "ann: failed: http://127.0.0.1:1/v1" in run("nightly", path, code=5).output


def test_the_examples_are_read_and_call_one_command_of_ours() -> None:
    config = read_config(EXAMPLES / "nightly.toml")
    assert [model.name for model in config.models] == ["local"] and len(config.gates) == 6
    (cron,) = (line for line in (EXAMPLES / "cron.txt").read_text().splitlines() if not line.startswith("#"))
    *times, command = cron.split(None, 5)
    assert all(re.fullmatch(r"[\d*/,-]+", field) for field in times)
    assert_is_our_command(shlex.split(command)[3:])
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())
    (schedule,) = workflow[True]["schedule"]  # YAML 1.1 takes a bare `on` for true
    assert len(schedule["cron"].split()) == 5
    steps = workflow["jobs"]["nightly"]["steps"]
    installs, command = (step["run"] for step in steps if "run" in step)
    locks = re.findall(r"-r (\S+)", installs)
    assert "--require-hashes" in installs and len(locks) == 2
    assert all((ROOT / lock).is_file() for lock in locks)
    assert_is_our_command(shlex.split(command.partition("||")[0]))
    kept = next(step for step in steps if step.get("uses", "").startswith("actions/cache"))["with"]
    assert {Path(name).suffix for name in kept["path"].split()} == {Path(config.history).suffix, ""}


def assert_is_our_command(words: list[str]) -> None:
    assert Path(words[0]).name == "empathy-judge"
    command = cli.main.get_command(None, words[1])  # type: ignore[arg-type]
    assert command is not None
    command.make_context(words[1], words[2:])

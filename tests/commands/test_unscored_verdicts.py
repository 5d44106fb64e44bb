"""A model does not win, and passes no gate, by replies that the judge cannot score."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import run

THINGS = ("job", "keys", "dog", "way", "temper", "watch", "wallet", "ring", "coat", "bike", "phone", "hat")
VERBS = ("lost", "broke", "missed", "ruined")
PROMPTS = [f"I {verb} my {thing} today." for verb in VERBS for thing in THINGS]
COLD, WARM = "Okay, noted.", "I am so sorry, that must be really hard for you. How do you feel about it now?"
MIXED = "That is a pity. I hope it gets better."
UNREADABLE = "Es tut mir sehr leid, das zu hören. Wie geht es dir jetzt damit?"  # no language of the judge


def write(name: str, reply: str, *, unscored: int, of: str = "") -> Path:
    """Write a model's replies, so many of them in a language that the judge does not score."""
    rows = []
    for n, prompt in enumerate(PROMPTS):
        text = f"{reply} {prompt}{' Hm.' * (n % 3)}"
        rows.append({"id": f"{n}", "prompt": prompt, "response": text if n >= unscored else UNREADABLE})
    path = Path(f"{name}.jsonl")
    path.write_text("".join(json.dumps({**row, "model": of or name}) + "\n" for row in rows))
    return path


def compare(*paths: Path, calibration: str) -> tuple[int, dict[str, Any], str]:
    """Return the exit code, the values of the pair, and what the page says."""
    words = ("compare", *paths, *CALIBRATIONS[calibration], "--check")
    told = run(*words, "--html", "page.html", "--junit", "checks.xml")
    asked = run(*words, "--json")
    assert told.exit_code == asked.exit_code, told.output
    (pair,) = json.loads(asked.stdout)["pairs"]
    assert re.split("[:;]", pair["sentence"])[0] in Path("page.html").read_text()
    return asked.exit_code, pair, " ".join(told.stdout.split())


CALIBRATIONS = {"calibrated": (), "judge alone": ("--calibration", "none")}
every_calibration = pytest.mark.parametrize(
    "calibration", ["calibrated", pytest.param("judge alone", marks=pytest.mark.slow)]
)


@every_calibration
def test_a_model_does_not_win_by_replies_that_cannot_be_scored(calibration: str) -> None:
    cold, warm = write("cold", COLD, unscored=0), write("warm", WARM, unscored=0)
    assert compare(warm, cold, calibration=calibration)[0] == 0
    half = write("half", WARM, unscored=24)
    code, pair, told = compare(half, cold, calibration=calibration)
    assert (code, pair["verdict"], pair["is_withheld"]) == (3, "inconclusive", True)
    assert pair["unscored"] == [0.5, 0.0] and pair["shares"]["Good"]["low"] > 0
    assert "Unscored: half 50.0%, cold 0.0%." in told
    assert "half 50.0%" in Path("page.html").read_text()
    assert "<skipped" in Path("checks.xml").read_text()


@every_calibration
def test_a_verdict_that_holds_with_unscored_replies_as_bad_is_kept(calibration: str) -> None:
    """Above 5 points more the winner loses little; the unscored replies of a loser do not help it."""
    cold, few = write("cold", COLD, unscored=0), write("few", WARM, unscored=4)
    code, pair, told = compare(few, cold, calibration=calibration)
    assert code == 0 and pair["verdict"].endswith("better") and not pair["is_withheld"]
    assert "few 8.3%" in told and "counts as Bad" in told
    code, pair, _ = compare(
        write("warm", WARM, unscored=0), write("lost", COLD, unscored=24), calibration=calibration
    )
    assert code == 0 and pair["verdict"].endswith("better") and pair["unscored"] == [0.0, 0.5]


NIGHTS = {  # unscored replies of the first and of the second night, and what the second ends with
    "all are scored": (0, 0, 0),
    "few are unscored": (0, 2, 0),
    "half are unscored": (0, 24, 3),
    "as many as before": (24, 24, 0),
    "fewer than before": (24, 0, 0),
}


@pytest.mark.parametrize(
    "case", [name if "half" in name else pytest.param(name, marks=pytest.mark.slow) for name in NIGHTS]
)
def test_a_night_passes_no_gate_by_replies_that_cannot_be_scored(case: str) -> None:
    before, tonight, code = NIGHTS[case]
    Path("n.toml").write_text(
        "calibration = 'none'\nanchors = 'none'\ndashboard = 'site'\n"
        "[[models]]\nname = 'ann'\nresponses = '{night}.jsonl'\n"
        "[gates]\ngood_share_drop = {baseline = 5, last_night = 5}\nbad_share_rise = 5\n"
        "[outputs]\njunit = 'checks.xml'\n"
    )
    for night, unscored in (("n1", before), ("n2", tonight)):
        write(night, WARM, unscored=unscored, of="ann")
        done = run("nightly", "n.toml", "--night", night)
    assert done.exit_code == code, done.output
    night = json.loads(run("nightly", "n.toml", "--night", "n2", "--json").stdout)
    assert {gate["outcome"] for gate in night["gates"]} == {"inconclusive" if code else "pass"}
    for gate in night["gates"]:
        assert (f"{100 * tonight / 48:.1f}% tonight" in gate["sentence"]) == bool(before or tonight)
    assert (f"unscored ({100 * tonight / 48:.1f}%)" in " ".join(done.stdout.split())) == bool(tonight)
    assert ("<skipped" in Path("checks.xml").read_text()) == bool(code)

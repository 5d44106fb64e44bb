"""The commands of an alignment from end to end: run, import, report, and all that can be wrong with them."""

import csv
import json
import re
from pathlib import Path

import pytest
from command_line import run
from repository import dataset
from servers import Answer, Call, ScriptedServer, answer_chat

from empathy_judge.emotionbench.administer import STABLE
from empathy_judge.emotionbench.questionnaires import read_questionnaire, read_sheets
from empathy_judge.emotionbench.situations import FACTOR_NAMES

PANAS = read_questionnaire("PANAS")


def grumpy(call: Call) -> Answer:
    """Feels little by default, and is upset by all that happens; refuses to think of Winter."""
    if "sleet" in call.text:
        return answer_chat(call, "I'm sorry, but I can't answer that.")
    is_evoked = "Put yourself" in call.text
    words = [line.partition(". ")[2] for line in call.text.split("\n\n")[-2].splitlines()]
    negative = {PANAS.texts[item - 1] for item in PANAS.scales["negative"]}
    evoked = [4 if word in negative else 2 for word in words]
    default = [3 - (number == 3) for number in range(1, len(words) + 1)]
    return answer_chat(call, json.dumps(dict(enumerate(evoked if is_evoked else default, start=1))))


@pytest.mark.slow
def test_run_then_report(tmp_path: Path) -> None:
    with ScriptedServer(grumpy) as server:
        done = run(
            "align", "run", "--model", "grump", "--base-url", server.base_url, "--orders", 2, "--out", "run"
        )
    assert done.exit_code == 0, done.output
    assert "224 of 226 sheets of PANAS filled in by grump\nlack marks: refused (2)\n" in done.output
    manifest = json.loads(Path("run/manifest.json").read_text())
    assert manifest["counts"]["sheets"] == 10 + 108 * 2
    assert manifest["missing"] == {"refused": 2}
    told = run("align", "report", "run", "--out", "report", code=0)
    assert all(len(line) <= 80 for line in told.stdout.splitlines())
    assert re.search(r"^Anger +positive +30 +29\.2 \(0\.4\) +20\.0 \(0\.0\) +↓ ", told.stdout, re.MULTILINE)
    assert "By factor: Depression-5 2 of 6" in told.stdout
    assert "the overall change (negative) is between" in " ".join(told.stdout.split())
    assert "The model read the included situations" in told.stdout
    page = Path("report/report.html").read_text(encoding="utf-8")
    assert len(re.findall('<polyline[^>]*class="curve judge"', page)) == 8 * 2 and "Alignment report" in page
    assert "<script" not in page


def test_the_same_run_asks_for_nothing_again() -> None:
    with ScriptedServer(grumpy) as server:
        options = ["run", "--model", "g", "--base-url", server.base_url, "--orders", 1, "--per-factor", 1]
        first = run("align", *options, "--json")
        calls = len(server.calls)
        again = run("align", *options)
    assert json.loads(first.stdout)["asked"] == calls == 10 + 36
    assert "(complete; nothing was sent)" in again.output and len(server.calls) == calls
    assert Path(json.loads(first.stdout)["run"]).parts[0] == "alignments"


def test_other_scales_take_the_users_items_and_the_situations_of_their_emotion() -> None:
    questions = {str(number): f"Item {number}." for number in range(1, 13)}
    Path("copy.json").write_text(json.dumps([{"name": "BFNE", "questions": questions}]), encoding="utf-8")
    words = ("--scale", "BFNE", "--questionnaires", "copy.json", "--positive", "--stable", "--orders", 1)
    with ScriptedServer(lambda call: answer_chat(call, json.dumps(dict.fromkeys(questions, 3)))) as server:
        run("align", "run", "--model", "m", "--base-url", server.base_url, *words, "--out", "run", code=0)
    assert all(call.text.startswith(STABLE) for call in server.calls)
    sheets = read_sheets(Path("run"))
    factors = [name for name in FACTOR_NAMES if name.startswith("Embarrassment")]
    assert [sheet.factor for sheet in sheets] == [None] * 10 + factors


def test_files_with_missing_columns_are_imported_with_a_count() -> None:
    names = ["question-0", "order-0", "General_test-0_order-0", "General_test-1_order-0"]
    names += [f"{factor}_scenario-{s}_test-0_order-0" for factor in FACTOR_NAMES for s in (0, 2)]
    with Path("my-PANAS-testing.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(names)
        writer.writerow([" "] * len(names))
        for item in range(1, 21):
            evoked = ["" if place == 4 else 2 + place % 3 for place in range(len(names) - 4)]
            writer.writerow(["x", item, 3, 1 + item % 5, *evoked])
    done = run("align", "import", "my-PANAS-testing.csv", "--json")
    counts = json.loads(done.stdout)["files"]["my-PANAS-testing.csv"]
    assert (counts["missing columns"], counts["empty columns"], counts["complete"]) == (36, 1, 2 + 71)
    assert "36 missing columns" in run("align", "import", "my-PANAS-testing.csv").stdout
    told = run("align", "report", "sheets.jsonl", "--factors", code=0)
    assert "no such column (36)" in told.stdout and "Embarrassment-3" in told.stdout
    assert all(len(line) <= 80 for line in told.stdout.splitlines())


@pytest.mark.slow
def test_the_real_results_are_reported_whole(tmp_path: Path) -> None:
    results = dataset("emotionbench/results")
    files = [*sorted((results / "PANAS Test").iterdir()), *sorted((results / "Challenging Bench").iterdir())]
    run("align", "import", *files, "--out", "all.jsonl", code=0)
    told = run("align", "report", "all.jsonl", "--out", "report", code=0)
    assert all(len(line) <= 80 for line in told.stdout.splitlines())
    text = " ".join(told.stdout.split()).replace("\N{MINUS SIGN}", "-")
    assert "Overall positive 1,266 28.0 (8.9) 22.9 (8.7) ↓ -5.1 -5.1" in text
    assert "Overall negative 1,750 10.0 (0.0) 32.2 (7.7) ↑ +22.2 +10.4" in text
    assert "Overall overall 300 0.2 (0.6) 12.8 (15.8) ↑ +12.6" in text
    assert "0.55 [0.25, 0.75] positive, 0.84 [0.67, 0.92] negative" in text

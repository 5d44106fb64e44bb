"""Walk through the commands on the samples and on seeded data, and keep what they print and write.

    python tests/golden/walk.py --update                            write tests/golden/expected anew
    python tests/golden/walk.py --out FOLDER                        keep it elsewhere
    python tests/golden/walk.py --out FOLDER --judge classifier     of another judge: short, and by machine
    python tests/golden/walk.py --out FOLDER --work FOLDER          leave the files of the commands there too

The commands are the only way in: nothing here knows a module of the product but `cli`, so that the modules
may move. What a command printed is one text: the command, its exit code, the output and the error output. Of
a file that a command wrote the text is kept; of a long table or a page the beginning, and a digest of all.
"""

import argparse
import csv
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir
from datetime import date, timedelta
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from click import Command, Context, Group
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).resolve().parent / "expected"
SAMPLES = ROOT / "data" / "samples"
ROWS = 12  # of a long table; the digest tells of the others
LINES = 80  # of a long output; likewise
DAYS = (30, 90)  # how long the calibrations of the walk hold
LABELS = ("Bad", "Okay", "Good")
# What differs from one run to the next though nothing has changed, and what stands in its place.
VARYING = (
    (re.compile(r'("wall_seconds": )[\d.e+-]+'), r"\g<1>1.5"),
    (re.compile(r'("(?:runtime|machine)": )"[^"]*"'), r'\g<1>"<here>"'),
    # Of numbers in full, whose last digits differ by processor.
    (re.compile(r'("sha256": )"[0-9a-f]{64}"'), r'\g<1>"<digest>"'),
    # Of a dashboard, which brings the plotly.js that is installed.
    (re.compile(r'("bytes": )\d+'), r"\g<1>1"),
    # Said on slow machines only: a forecast, how far a run is, and what is under way.
    (re.compile(r"about .* to go for .*\n|^[a-z]+ [\d,]+ of [\d,]+\n|^[a-z][a-z ]* \.\.\.\n", re.M), ""),
    (re.compile(r"(judged in )[\d.,]+( s)\b"), r"\g<1>1.5\g<2>"),
)
LONG = re.compile(r"-?\d+\.\d{12,}(?:e[+-]?\d+)?")  # a number in full, whose last digits differ by machine
IN_FULL = re.compile(r"-?\d+\.\d{6,}(?:e[+-]?\d+)?")
Row = Mapping[str, Any]


class Walk:
    """Runs commands in a folder of its own, and keeps under `out` what they print and write."""

    def __init__(self, out: Path, *, judge: str, is_exact: bool = False) -> None:
        self.out, self.judge, self.is_exact, self.today = out, judge, is_exact, date.today()
        self.digests: dict[str, str] = {}  # of the calibrations that were made, with their folders

    def run(self, name: str, *words: object, is_brief: bool = False) -> None:
        """One command; what it printed is kept under `name`, of a long output the beginning."""
        from cli import main

        arguments = [str(word) for word in words]
        done = CliRunner().invoke(main, arguments, prog_name="empathy-judge", terminal_width=80)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if arguments[0] == "calibrate":
            self._note_digests()
        # A date in a help text is an example, even on that day.
        normal = str if "--help" in arguments else self.normal
        head = normal(f"$ empathy-judge {' '.join(arguments)}\nexit code {done.exit_code}\n")
        said = normal(done.stdout)
        if is_brief:
            head += f"{digest(said)}\n"
            said = "".join(said.splitlines(keepends=True)[:LINES])
        told = f"{head}\n{said}"
        if stderr := normal(done.stderr):
            told += f"\nstderr:\n{stderr}"
        self._write(f"{name}.txt", told)
        if arguments[0] in ("score", "nightly"):
            self._forget_seconds()

    def keep(self, name: str, *paths: str, is_brief: bool = False) -> None:
        """Files that a command wrote, under the folder `name`."""
        for path in map(Path, paths):
            text = self.normal(path.read_text(encoding="utf-8"))
            suffix = ""
            if path.suffix == ".html":
                text, suffix = f"{digest(text)}\n\n{words_of(text)}\n", ".txt"
            elif path.suffix in (".jsonl", ".csv") and text.count("\n") > 2 * ROWS:
                rows = text.splitlines(keepends=True)
                text, suffix = f"{digest(text)}, {len(rows)} rows\n\n{''.join(rows[:ROWS])}", ".txt"
            elif is_brief:
                begin = "".join(text.splitlines(keepends=True)[:LINES])
                text, suffix = f"{digest(text)}\n\n{begin}", ".txt"
            self._write(f"{name}/{path.name}{suffix}", text)

    def normal(self, text: str) -> str:
        """The text without what differs from day to day, from run to run and, if not exact, by machine.

        A calibration's digest is of its day too, so that it is replaced by the calibration's folder.
        """
        for known, folder in self.digests.items():
            text = re.sub(rf"\b{known[:12]}[0-9a-f]*\b", f"<digest of {folder}>", text)
        for today in {self.today, date.today()}:  # two around midnight
            text = text.replace(today.isoformat(), "<today>")
            for days in DAYS:
                text = text.replace((today + timedelta(days=days)).isoformat(), f"<in {days} days>")
        for pattern, instead in VARYING:
            text = pattern.sub(instead, text)
        return text if self.is_exact else LONG.sub(_shorten, text)

    def _note_digests(self) -> None:
        for path in sorted(Path().rglob("calibration.json")):
            made = json.loads(path.read_text(encoding="utf-8"))
            self.digests.setdefault(made["digest"], path.parent.as_posix())

    def _forget_seconds(self) -> None:
        """How long a run took stands in later reports, and decides the scale of their figures."""
        for path in Path().rglob("manifest.json"):
            path.write_text(self.normal(path.read_text(encoding="utf-8")), encoding="utf-8")

    def _write(self, name: str, text: str) -> None:
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")


def _shorten(found: re.Match[str]) -> str:
    value = float(found[0])
    return f"{value:.9g}" if abs(value) > 1e-12 else "0.0"


def digest(text: str) -> str:
    """A line that changes with every character of the text, but for what a number has beyond five digits.

    Nine were too many: on one processor of several, one of thousands of numbers was rounded the other way.
    """
    text = IN_FULL.sub(lambda found: f"{float(found[0]):.5g}", text)
    return f"sha256 {sha256(text.encode()).hexdigest()}, {len(text)} characters"


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if data.strip() and not self._hidden:
            self.words.append(" ".join(data.split()))


def words_of(page: str) -> str:
    """What a reader of a page sees first, one piece a line."""
    parser = _Words()
    parser.feed(page)
    return "\n".join(parser.words[:LINES])


# What the commands are given.

TELLING = {  # per made model: how many sentences its replies have, and how well they are liked
    "made-curt": (1, -1.4),
    "made-dry": (2, -0.7),
    "made-kind": (3, 0.2),
    "made-long": (6, 0.4),
    "made-warm": (4, 0.9),
}
SENTENCES = (
    "That sounds hard.",
    "I can see why this stays with you.",
    "You did what you could with what you knew.",
    "How are you doing now?",
    "No wonder you are tired after such a week.",
    "Would it help to talk it through?",
    "It is all right to feel that way.",
    "I am glad you told me.",
)
FEELINGS = ("afraid", "angry", "grateful", "joyful", "lonely", "proud", "sad", "trusting")


def write_jsonl(path: str, rows: Iterable[Row]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    Path(path).write_text(text, encoding="utf-8")


def write_csv(path: str, rows: Sequence[Row]) -> None:
    with Path(path).open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def make_replies(
    models: Iterable[str] = TELLING, *, prompts: int = 48, seed: int = 1
) -> list[dict[str, Any]]:
    """Every model's reply to every prompt, of more or fewer sentences."""
    chance = Random(seed)
    rows = []
    for number in range(prompts):
        feeling = FEELINGS[number % len(FEELINGS)]
        for model in models:
            count = max(1, TELLING[model][0] + chance.choice((-1, 0, 0, 1, 2)))
            said = " ".join(chance.choice(SENTENCES) for _ in range(count))
            rows.append(
                {
                    "id": f"{number:02}:{model}",
                    "model": model,
                    "emotion": feeling,
                    "situation": f"Something happened at work on day {number}.",
                    "prompt": f"I feel {feeling} since day {number}, and nobody asked me about it.",
                    "response": said,
                }
            )
    return rows


def make_ratings(
    replies: Sequence[Row], liked: Mapping[str, float], *, each: int = 3, seed: int = 2
) -> list[dict[str, Any]]:
    """Several people on every reply, of whom each has rated two dozen and some are hard to please."""
    chance = Random(seed)
    raters = [(f"person-{at:02}", chance.gauss(0, 0.5)) for at in range(len(replies) * each // 24)]
    rows, turn = [], 0
    for reply in replies:
        length = min(len(reply["response"]), 300) / 300
        for _ in range(each):
            rater, mildness = raters[turn % len(raters)]
            turn += 1
            level = 0.3 + liked[reply["model"]] + length + mildness + chance.gauss(0, 0.9)
            rating = LABELS[(level > -0.3) + (level > 0.7)]
            rows.append({"id": reply["id"], "rater": rater, "rating": rating})
    return rows


def prepare() -> None:
    """The samples and the made tables, in the folder of the walk."""
    shutil.copytree(SAMPLES, "samples")
    replies = make_replies()
    write_jsonl("made.jsonl", replies)
    write_jsonl("made-few.jsonl", replies[:60])
    write_jsonl("made-ratings.jsonl", make_ratings(replies, {name: at for name, (_, at) in TELLING.items()}))
    samples = read_jsonl(SAMPLES / "responses.jsonl")
    liked = {"demo-warm": 0.7, "demo-plain": 0.0, "demo-curt": -1.2}
    rated = make_ratings(samples, liked, seed=3)
    write_jsonl("sample-ratings.jsonl", rated)
    named = {row["id"]: row for row in samples}
    people = {"demo-warm": "gpt-4", "demo-plain": "human", "demo-curt": "llama"}
    write_csv(
        "named-ratings.csv",
        [
            {
                "id": row["id"],
                "system": people[named[row["id"]]["model"]],
                "emotion": named[row["id"]]["emotion"],
                "rater": row["rater"],
                "rating": row["rating"],
            }
            for row in rated
        ],
    )
    chance = Random(4)
    theirs = [
        {
            "id": row["id"],
            "model": row["model"],
            "score": min(5, max(1, round(chance.gauss(3 + liked[row["model"]], 1)))),
        }
        for row in samples
    ]
    write_csv("theirs.csv", theirs)
    five = [
        row | {"rating": 1 + 2 * LABELS.index(row["rating"]) + chance.choice((0, 0, -1, 1))} for row in rated
    ]
    write_csv("five-ratings.csv", [row | {"rating": min(5, max(1, row["rating"]))} for row in five])
    write_csv("people-once.csv", [row for at, row in enumerate(rated) if at % 3 == 0])
    broken = [json.dumps(row) for row in samples[:6]]
    broken[2], broken[4] = '{"id": "x", "prompt": "no reply"}', "{not json"
    Path("broken.jsonl").write_text("\n".join(broken) + "\n", encoding="utf-8")


# The walks.


def walk_score(walk: Walk) -> None:
    judge, samples = ("--judge", walk.judge), "samples/responses.jsonl"
    walk.run("score/samples", "score", samples, *judge)
    walk.run("score/samples-again", "score", samples, *judge, "--verbose")
    walk.run("score/samples-json", "score", samples, *judge, "--json")
    walk.run(
        "score/explain",
        "score",
        samples,
        *judge,
        "--explain",
        "afraid-1:demo-warm",
        "--explain",
        "sad-2:demo-curt",
    )
    walk.run("score/wry", "score", "samples/wry.jsonl", *judge, "--out", "runs/wry")
    walk.run("score/made", "score", "made.jsonl", *judge, "--out", "runs/made")
    walk.run("score/samples-folder", "score", samples, *judge, "--out", "runs/samples")
    names = ("judgments.jsonl", "summary.json", "manifest.json", "plan.json")
    walk.keep("score/run", *(f"runs/samples/{name}" for name in names))
    if walk.judge != "length":
        return
    walk.run("score/majority", "score", samples, "--judge", "majority", "--out", "runs/majority")
    walk.run("score/limit", "score", samples, *judge, "--limit", 9, "--seed", 5, "--out", "runs/limit")
    walk.run("score/broken", "score", "broken.jsonl", *judge, "--out", "runs/broken")
    walk.run("score/set-aside", "score", "broken.jsonl", *judge, "--skip-invalid", "--out", "runs/broken")
    walk.keep("score/set-aside", *(str(path) for path in sorted(Path("runs/broken").glob("*.json*"))))
    walk.run("score/no-file", "score", "none.jsonl", *judge)
    walk.run("score/no-judge", "score", samples, "--judge", "lenght")


def walk_calibrate(walk: Walk) -> None:
    texts = ("--exchanges", "made.jsonl")
    names = ("calibration.json", "report.json", "report.md", "report.html")
    walk.run("calibrate/made", "calibrate", "runs/made", "made-ratings.jsonl", *texts, "--out", "fit", "-v")
    walk.keep("calibrate/made", *(f"fit/{name}" for name in names))
    walk.run(
        *("calibrate/samples", "calibrate", "runs/samples", "sample-ratings.jsonl"),
        *("--exchanges", "samples/responses.jsonl", "--draws", 200),
    )
    walk.run(
        "score/corrected",
        "score",
        "made.jsonl",
        "--judge",
        walk.judge,
        "--calibration",
        "fit/calibration.json",
        "--out",
        "runs/corrected",
    )
    walk.keep(
        "score/corrected",
        *(f"runs/corrected/{name}" for name in ("judgments.jsonl", "summary.json", "plan.json")),
    )
    if walk.judge != "length":
        few = ("--draws", 200, "--exchanges", "made-few.jsonl")
        walk.run(
            "calibrate/probe", "calibrate", "runs/made", "made-ratings.jsonl", *few, "--probe", walk.judge
        )
        return
    few = ("--draws", 100)
    walk.run(
        "calibrate/made-json",
        "calibrate",
        "runs/made",
        "made-ratings.jsonl",
        *few,
        "--json",
        "--out",
        "fit-json",
        is_brief=True,
    )
    walk.run(
        "calibrate/theirs",
        "calibrate",
        "theirs.csv",
        "five-ratings.csv",
        "--scale",
        "1-5",
        *few,
        "--out",
        "theirs",
    )
    walk.keep("calibrate/theirs", "theirs/calibration.json", "theirs/report.md")
    walk.run(
        *("calibrate/several", "calibrate", "runs/samples", "runs/majority", "sample-ratings.jsonl", *few),
        *("--exchanges", "samples/responses.jsonl", "--out", "several", "--median"),
    )
    walk.run(
        *("calibrate/once", "calibrate", "runs/samples", "people-once.csv", *few, "--out", "once"),
        *("--reliability", 0.6, "--leave-out", "demo-curt", "--valid-days", 30),
    )
    walk.run("calibrate/rater", "calibrate", "runs/made", "made-ratings.jsonl", *few, "--rater", "person-01")
    walk.run(
        "calibrate/probe", "calibrate", "runs/made", "made-ratings.jsonl", *texts, *few, "--probe", "length"
    )
    walk.run("calibrate/attack", "calibrate", "--attack", "length")
    walk.run("calibrate/attack-json", "calibrate", "--attack", "majority", "--json", is_brief=True)
    walk.run("calibrate/self-test", "calibrate", "--self-test", "--draws", 2)
    walk.run("calibrate/one-argument", "calibrate", "runs/made")
    walk.run("calibrate/apart", "calibrate", "runs/made", "sample-ratings.jsonl")


def walk_compare(walk: Walk) -> None:
    walk.run("compare/run", "compare", "runs/samples")
    walk.run("compare/run-json", "compare", "runs/samples", "--json")
    walk.run("compare/runs", "compare", "runs/samples", "runs/wry", "--baseline", "demo-wry", "--margin", 2)
    walk.run(
        "compare/study", "compare", "runs/samples", "--baseline", "study:human", "--baseline", "study:gpt-4"
    )
    walk.run(
        "compare/corrected",
        "compare",
        "runs/made",
        "--calibration",
        "fit/calibration.json",
        "--out",
        "compared",
    )
    walk.keep("compare/corrected", "compared/report.md", "compared/report.json")
    walk.run(
        "compare/rated-runs",
        "compare",
        "runs/made",
        "--ratings",
        "made-ratings.jsonl",
        "--models",
        "made-warm,made-dry",
    )
    if walk.judge != "length":
        return
    walk.run("compare/ratings", "compare", "named-ratings.csv")
    walk.run(
        "compare/ratings-json",
        "compare",
        "named-ratings.csv",
        "--json",
        "--models",
        "human,gpt-4",
        is_brief=True,
    )
    walk.run(
        *(
            "compare/ratings-markdown",
            "compare",
            "sample-ratings.jsonl",
            "--exchanges",
            "samples/responses.jsonl",
        ),
        *("--baseline", "demo-plain", "--markdown"),
    )
    walk.run(
        "compare/no-baseline", "compare", "sample-ratings.jsonl", "--exchanges", "samples/responses.jsonl"
    )


NIGHTS = """
judge = "length"
calibration = "{calibration}"
study = ["human", "gpt-4"]
explain = 2
history = "nights.sqlite"
dashboard = "site"

[[models]]
name = "made-kind"
responses = "kind-{{night}}.jsonl"

[[models]]
name = "made-warm"
responses = "warm-{{night}}.jsonl"

[gates]
good_share_drop = {{ baseline = 0.3, last_night = 0.3 }}
bad_share_rise = 0.3
max_cost = 0.5
max_unscored = 5

[gates.floors]
sad = 57
every = 50

[outputs]
junit = "out/nightly.xml"
github = true
"""
EXPORTS = ("results", "emotions", "anchors", "gates", "judgments")


def prepare_nights(folder: str, *, calibration: str, nights: Sequence[str]) -> None:
    """The config, and two models' replies of every night; in the second night one has become curt."""
    for number, night in enumerate(nights):
        for model in ("kind", "warm"):
            is_curt = number == 1 and model == "warm"
            rows = make_replies(["made-curt" if is_curt else f"made-{model}"], seed=10 + number)
            rows = [row | {"model": f"made-{model}", "id": f"{at:02}"} for at, row in enumerate(rows)]
            write_jsonl(f"{folder}/{model}-{night}.jsonl", rows)
    Path(folder, "n.toml").write_text(NIGHTS.format(calibration=calibration), encoding="utf-8")


def walk_nights(walk: Walk) -> None:
    """Three nights uncorrected, on days of the past, and three corrected as of today."""
    if walk.judge != "length":
        return
    nights = ("2024-03-01", "2024-03-02", "2024-03-03")
    prepare_nights("plain", calibration="none", nights=nights)
    for night in nights:
        walk.run(
            f"nightly/{night}",
            "nightly",
            "plain/n.toml",
            "--night",
            night,
            "--now",
            f"{night}T02:00:00+00:00",
        )
    walk.run("nightly/again-json", "nightly", "plain/n.toml", "--night", nights[1], "--json", is_brief=True)
    walk.run(
        "nightly/no-replies",
        "nightly",
        "plain/n.toml",
        "--night",
        "2024-03-04",
        "--now",
        "2024-03-04T02:00:00+00:00",
    )
    walk.keep("nightly", "plain/out/nightly.xml")
    for kind in EXPORTS:
        out = f"{kind}.{'csv' if kind == 'results' else 'jsonl'}"
        walk.run(
            f"history/{kind}",
            "history",
            "export",
            "--history",
            "plain/nights.sqlite",
            "--kind",
            kind,
            "--out",
            out,
        )
        walk.keep("history", out)
    walk.run("history/last", "history", "export", "--history", "plain/nights.sqlite", "--last", 1)
    walk.run("dashboard/built", "dashboard", "plain/nights.sqlite", "--out", "pages", "--json")
    walk.keep("dashboard", *(str(path) for path in sorted(Path("pages").glob("*.html"))))
    steady = ("one", "two", "three")
    prepare_nights("corrected", calibration="../fit/calibration.json", nights=steady)
    for number, night in enumerate(steady):
        now = f"{walk.today}T0{number}:00:00+00:00"
        walk.run(f"nightly/corrected-{night}", "nightly", "corrected/n.toml", "--night", night, "--now", now)
    walk.run(
        "history/corrected", "history", "export", "--history", "corrected/nights.sqlite", "--format", "csv"
    )


FACTORS = {  # of EmotionBench, per emotion
    **{"Anger": 5, "Anxiety": 4, "Depression": 6, "Frustration": 4},
    **{"Jealousy": 4, "Guilt": 4, "Fear": 5, "Embarrassment": 4},
}
CROWD = {"Anger": "Angry", "Jealousy": "Jealous"}  # what the crowd's table calls them
PANAS = (
    *("Interested", "Distressed", "Excited", "Upset", "Strong", "Guilty", "Scared", "Hostile"),
    *("Enthusiastic", "Proud", "Irritable", "Alert", "Ashamed", "Inspired", "Nervous", "Determined"),
    *("Attentive", "Jittery", "Active", "Afraid"),
)
NEGATIVE = {
    "Distressed",
    "Upset",
    "Guilty",
    "Scared",
    "Hostile",
    "Irritable",
    "Ashamed",
    "Nervous",
    "Jittery",
    "Afraid",
}


def make_mark(chance: Random, word: str, *, is_evoked: bool) -> int:
    level = (3.6 if word in NEGATIVE else 2.0) if is_evoked else (1.6 if word in NEGATIVE else 3.4)
    return min(5, max(1, round(chance.gauss(level, 0.8))))


def write_results(path: str, *, seed: int) -> None:
    """A model's marks in the benchmark's shape, with a column missing for each factor and one left empty."""
    chance = Random(seed)
    names = [f"General_test-{test}_order-{order}" for test in (0, 1) for order in (0, 1)]
    evoked = [f"{emotion}-{at}" for emotion, count in FACTORS.items() for at in range(count)]
    names += [
        f"{factor}_scenario-{at}_test-0_order-{order}"
        for factor in evoked
        for at in (0, 2)
        for order in (0, 1)
    ]
    rows: list[list[object]] = [["prompt", "prompt", "prompt", "prompt", *[" "] * len(names)]]
    for item, word in enumerate(PANAS, 1):
        marks = [make_mark(chance, word, is_evoked="scenario" in name) for name in names]
        rows.append([f"{item}. {word}", item, f"{item}. {word}", item, *marks])
    for row in rows[1:]:
        row[9] = ""
    with Path(path).open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["question-0", "order-0", "question-1", "order-1", *names])
        writer.writerows(rows)


def write_crowd(path: str) -> None:
    """People's marks before and after a situation, in the shape of the benchmark's workbook."""
    from openpyxl import Workbook

    chance = Random(6)
    people = [
        f"{CROWD.get(emotion, emotion)}_F{factor + 1}S{situation + 1}"
        for emotion, count in FACTORS.items()
        for factor in range(count)
        for situation in (0, 1)
        for _ in range(3)
    ]
    book = Workbook()
    raw = book.active
    assert raw is not None
    raw.title = "Raw"
    raw.append([None, "Info", *people])
    raw.append([0, "Gender:", *["-"] * len(people)])
    for is_evoked in (False, True):
        for word in PANAS:
            marks = [make_mark(chance, word, is_evoked=is_evoked) for _ in people]
            raw.append([1, f"How much ... - {word}", *marks])
    book.save(path)


def walk_align(walk: Walk) -> None:
    if walk.judge != "length":
        return
    write_results("blue-PANAS-testing.csv", seed=7)
    write_results("red-PANAS-testing.csv", seed=8)
    write_crowd("crowd.xlsx")
    files = ("blue-PANAS-testing.csv", "red-PANAS-testing.csv", "crowd.xlsx")
    walk.run("align/import", "align", "import", *files, "--out", "sheets.jsonl")
    walk.run("align/import-json", "align", "import", files[0], "--out", "blue.jsonl", "--json")
    walk.keep("align", "sheets.jsonl")
    walk.run("align/report", "align", "report", "sheets.jsonl", "--out", "aligned")
    walk.keep("align/report", "aligned/report.md", "aligned/report.html", is_brief=True)
    walk.run("align/report-json", "align", "report", "sheets.jsonl", "--json", is_brief=True)
    walk.run("align/factors", "align", "report", "blue.jsonl", "--factors", "--alpha", 0.05)
    walk.run("align/no-file", "align", "report", "none.jsonl")


def walk_help(walk: Walk) -> None:
    """What every command says of itself."""
    from cli import main

    def ask(command: Command, *words: str) -> None:
        walk.run("-".join(("help/empathy-judge", *words)), *words, "--help")
        if isinstance(command, Group):
            context = Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                ask(found, *words, name)

    if walk.judge == "length":
        ask(main)


WALKS = (walk_score, walk_calibrate, walk_compare, walk_nights, walk_align, walk_help)


def take(out: Path, *, judge: str = "length", work: Path | None = None, is_exact: bool = False) -> None:
    """All walks, in a new folder or in `work`; what came of them is put under `out`."""
    sys.path.insert(0, str(ROOT))
    os.environ |= {"COLUMNS": "80", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ.pop("GITHUB_ACTIONS", None)
    shutil.rmtree(out, ignore_errors=True)
    with TemporaryDirectory() as folder:
        place = work or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        walk = Walk(out.resolve(), judge=judge, is_exact=is_exact)
        with chdir(place):
            prepare()
            for steps in WALKS:
                steps(walk)


def main() -> None:
    """What the program is asked for on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write tests/golden/expected anew")
    parser.add_argument("--out", type=Path, help="the folder to write instead")
    parser.add_argument("--judge", default="length", help="the judge that scores (default: length)")
    parser.add_argument("--work", type=Path, help="a new folder for the commands' own files, which stay")
    parser.add_argument("--exact", action="store_true", help="keep every digit, to compare on one machine")
    given = parser.parse_args()
    if given.update == (given.out is not None):
        parser.error("say --update or --out FOLDER")
    take(given.out or EXPECTED, judge=given.judge, work=given.work, is_exact=given.exact)


if __name__ == "__main__":
    main()

"""A walk through the commands on the samples and on seeded data, and the facts that came of it.

    python tests/golden/walk.py --update         write the facts of tests/golden/expected anew
    python tests/golden/walk.py --out FOLDER     write them elsewhere

Facts are figures, counts, verdicts and exit codes, without wording. The commands are the only way in: the
walk knows no module of the product but `cli`.
"""

import argparse
import csv
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir
from datetime import date
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from click import Command, Context, Group
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "tests" / "support")]
from topics import on_topic  # noqa: E402

EXPECTED = Path(__file__).resolve().parent / "expected"
SAMPLES = ROOT / "data" / "samples"
LABELS = ("Bad", "Okay", "Good")
Row = Mapping[str, Any]
Facts = dict[str, Any]

# Per model of the made data: sentences of a reply, and how well people like it.
MODELS = {
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
EMOTIONS = ("afraid", "angry", "grateful", "joyful", "lonely", "proud", "sad", "trusting")


def run(*arguments: object) -> tuple[int, str]:
    """Run one command and return its exit code and its output."""
    from cli import main

    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="empathy-judge")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def read_json(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def write_rows(path: str, rows: Iterable[Row]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_csv(path: str, rows: Sequence[Row]) -> None:
    with Path(path).open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def make_replies(models: Iterable[str] = MODELS, *, prompts: int = 48, seed: int = 1) -> list[dict[str, Any]]:
    """Return every model's reply to every prompt, of more or fewer sentences."""
    chance = Random(seed)
    rows = []
    for number in range(prompts):
        emotion = EMOTIONS[number % len(EMOTIONS)]
        prompt, opening = on_topic(number)
        for model in models:
            count = max(1, MODELS[model][0] + chance.choice((-1, 0, 0, 1, 2)))
            rows.append(
                {
                    "id": f"{number:02}:{model}",
                    "model": model,
                    "emotion": emotion,
                    "situation": f"Something happened at work on day {number}.",
                    "prompt": prompt,
                    "response": " ".join([opening, *(chance.choice(SENTENCES) for _ in range(count))]),
                }
            )
    return rows


def make_ratings(
    replies: Sequence[Row], liked: Mapping[str, float], *, each: int = 3, seed: int = 2
) -> list[dict[str, Any]]:
    """Return several ratings of every reply; each rater rates two dozen, and some are severe."""
    chance = Random(seed)
    raters = [(f"person-{at:02}", chance.gauss(0, 0.5)) for at in range(len(replies) * each // 24)]
    rows: list[dict[str, Any]] = []
    for reply in replies:
        length = min(len(reply["response"]), 300) / 300
        for _ in range(each):
            rater, leniency = raters[len(rows) % len(raters)]
            level = 0.3 + liked[reply["model"]] + length + leniency + chance.gauss(0, 0.9)
            rating = LABELS[(level > -0.3) + (level > 0.7)]
            rows.append({"id": reply["id"], "rater": rater, "rating": rating})
    return rows


def prepare() -> None:
    """Write the samples and the made tables into the current folder."""
    shutil.copytree(SAMPLES, "samples")
    replies = make_replies()
    write_rows("made.jsonl", replies)
    write_rows("made-ratings.jsonl", make_ratings(replies, {name: at for name, (_, at) in MODELS.items()}))
    samples = read_rows(SAMPLES / "responses.jsonl")
    liked = {"demo-warm": 0.7, "demo-plain": 0.0, "demo-curt": -1.2}
    ratings = make_ratings(samples, liked, seed=3)
    write_rows("sample-ratings.jsonl", ratings)
    chance = Random(4)
    scores = {row["id"]: min(5, max(1, round(chance.gauss(3 + liked[row["model"]], 1)))) for row in samples}
    write_csv(
        "own-scores.csv",
        [{"id": row["id"], "model": row["model"], "score": scores[row["id"]]} for row in samples],
    )
    five = [1 + 2 * LABELS.index(row["rating"]) + chance.choice((0, 0, -1, 1)) for row in ratings]
    write_csv(
        "five-ratings.csv",
        [row | {"rating": min(5, max(1, value))} for row, value in zip(ratings, five, strict=True)],
    )
    broken = [json.dumps(row) for row in samples[:6]]
    broken[2], broken[4] = '{"id": "x", "prompt": "no reply"}', "{not json"
    Path("broken.jsonl").write_text("\n".join(broken) + "\n", encoding="utf-8")


# Facts out of what the commands print and write.


def value_of(estimate: Row | float | None) -> list[float | None] | float | None:
    """Return an estimate as value, low and high."""
    if not isinstance(estimate, Mapping):
        return estimate
    value = estimate["value"]
    return [value, estimate["low"], estimate["high"]]


def shares_of(models: Iterable[Row]) -> Facts:
    return {
        row["model"]: {label: value_of(share) for label, share in row["shares"].items()} for row in models
    }


def run_facts(folder: str) -> Facts:
    """Return the facts of a run's folder."""
    summary, judgments = read_json(f"{folder}/summary.json"), read_rows(f"{folder}/judgments.jsonl")
    return {
        "counts": summary["counts"],
        "models": shares_of(summary["models"]),
        "labels": {label: sum(row["label"] == label for row in judgments) for label in LABELS},
        "mean score": sum(row["score"] for row in judgments) / len(judgments),
        "first probabilities": judgments[0]["probabilities"],
    }


def comparison_facts(report: Row) -> Facts:
    return {
        "models": shares_of(report["models"]),
        "how": {row["model"]: row["how"] for row in report["models"]},
        "pairs": {
            f"{pair['one']} - {pair['other']}": {
                "verdict": pair["verdict"],
                "Good": value_of(pair["shares"].get("Good")),
                "p": pair["p"],
            }
            for pair in report["pairs"]
        },
    }


def agreement_facts(report: Row, *metrics: str) -> Facts:
    return {
        "ratings": report["data"]["ratings"],
        "raters": report["data"]["raters"],
        "agreement": {name: value_of(report["agreement"][name]) for name in metrics},
    }


# The walks: each yields the names of facts files and the facts.


def walk_score() -> Iterator[tuple[str, Facts]]:
    judge = ("--judge", "length")
    run("score", "made.jsonl", *judge, "--out", "runs/made")
    run("score", "samples/wry.jsonl", *judge, "--out", "runs/wry")
    for name, *arguments in (
        ("score", "samples/responses.jsonl", *judge),
        ("score-limit", "samples/responses.jsonl", *judge, "--limit", 9, "--seed", 5),
        ("score-skip-invalid", "broken.jsonl", *judge, "--skip-invalid"),
    ):
        code, _ = run("score", *arguments, "--out", f"runs/{name}")
        yield name, {"exit code": code} | run_facts(f"runs/{name}")


def walk_calibrate() -> Iterator[tuple[str, Facts]]:
    made = ("runs/made", "made-ratings.jsonl", "--exchanges", "made.jsonl")
    code, _ = run("calibrate", *made, "--out", "fit")
    report = read_json("fit/report.json")
    facts = agreement_facts(report, "exact", "qwk", "spearman")
    facts["models"] = {
        row["model"]: {"human": row["crowd"]["Good"], "corrected": value_of(row["corrected"]["Good"])}
        for row in report["models"]
    }
    yield "calibrate", {"exit code": code} | facts
    five = ("own-scores.csv", "five-ratings.csv", "--scale", "1-5")
    code, _ = run("calibrate", *five, "--out", "five")
    report = read_json("five/report.json")
    yield "calibrate-own-scores", {"exit code": code} | agreement_facts(report, "spearman")
    corrected = ("--calibration", "fit/calibration.json", "--out", "runs/corrected", "--json")
    code, output = run("score", "made.jsonl", "--judge", "length", *corrected)
    printed = {row["model"]: value_of(row["corrected"]["Good"]) for row in json.loads(output)["models"]}
    yield "score-corrected", {"exit code": code, "corrected": printed} | run_facts("runs/corrected")


def walk_compare() -> Iterator[tuple[str, Facts]]:
    for name, *arguments in (
        ("compare", "runs/score"),
        ("compare-baseline", "runs/score", "runs/wry", "--baseline", "demo-wry", "--margin", 2),
        ("compare-corrected", "runs/made", "--calibration", "fit/calibration.json"),
    ):
        code, output = run("compare", *arguments, "--json")
        yield name, {"exit code": code} | comparison_facts(json.loads(output))
    texts = ("--exchanges", "samples/responses.jsonl", "--baseline", "demo-plain")
    code, output = run("compare", "sample-ratings.jsonl", *texts, "--json")
    whole = json.loads(output)["groups"][0]
    yield "compare-ratings", {"exit code": code, "models": shares_of(whole["models"])}


NIGHTS = """
judge = "length"
calibration = "{calibration}"
history = "nights.sqlite"

[[models]]
name = "made-kind"
responses = "kind-{{night}}.jsonl"

[[models]]
name = "made-warm"
responses = "warm-{{night}}.jsonl"

[gates]
good_share_drop = {{ baseline = 0.3, last_night = 0.3 }}
bad_share_rise = 0.3
"""


def walk_nights() -> Iterator[tuple[str, Facts]]:
    """Run three nights without and with a calibration; in the second, one model's replies are curt."""
    nights = {}
    for folder, calibration in (("plain", "none"), ("corrected", "../fit/calibration.json")):
        for number, night in enumerate(("one", "two", "three")):
            for model in ("kind", "warm"):
                is_curt = number == 1 and model == "warm"
                rows = make_replies(["made-curt" if is_curt else f"made-{model}"], seed=10 + number)
                rows = [row | {"model": f"made-{model}", "id": f"{at:02}"} for at, row in enumerate(rows)]
                write_rows(f"{folder}/{model}-{night}.jsonl", rows)
            Path(folder, "n.toml").write_text(NIGHTS.format(calibration=calibration), encoding="utf-8")
            now = f"{date.today()}T0{number}:00:00+00:00"
            code, output = run("nightly", f"{folder}/n.toml", "--night", night, "--now", now, "--json")
            result = json.loads(output)
            nights[f"{folder} {night}"] = {
                "exit code": code,
                "outcome": result["outcome"],
                "Good": {row["model"]: value_of(row["raw"]["Good"]) for row in result["models"]},
            }
    yield "nightly", nights
    exports: Facts = {}
    for kind in ("results", "emotions", "gates", "judgments"):
        out = f"{kind}.jsonl"
        code, _ = run("history", "export", "--history", "plain/nights.sqlite", "--kind", kind, "--out", out)
        exports[kind] = {"exit code": code, "rows": len(read_rows(out))}
    outcomes = [row["outcome"] for row in read_rows("gates.jsonl")]
    exports["outcomes"] = {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}
    yield "history", exports


def walk_refusals() -> Iterator[tuple[str, Facts]]:
    commands: tuple[tuple[object, ...], ...] = (
        ("score", "none.jsonl", "--judge", "length"),
        ("score", "samples/responses.jsonl", "--judge", "lenght"),
        ("score", "broken.jsonl", "--judge", "length"),
        ("calibrate", "runs/made"),
        ("calibrate", "runs/made", "sample-ratings.jsonl"),
        ("compare", "none"),
        ("nightly", "plain/n.toml", "--night", "four"),
        ("align", "report", "none.jsonl"),
    )
    yield "refusals", {" ".join(map(str, command)): run(*command)[0] for command in commands}


def walk_help() -> Iterator[tuple[str, Facts]]:
    """Yield every command's options, as its --help lists them."""
    from cli import main

    commands: Facts = {}

    def visit(command: Command, name: str) -> None:
        context = Context(command)
        if isinstance(command, Group):
            for child in command.list_commands(context):
                found = command.get_command(context, child)
                assert found is not None
                visit(found, f"{name} {child}")
        else:
            code, text = run(*name.split()[1:], "--help")
            options = [flag for parameter in command.params for flag in parameter.opts if flag[0] == "-"]
            missing = [flag for flag in options if flag not in text]
            commands[name] = {"exit code": code, "options": sorted(set(options) - set(missing))}

    visit(main, "empathy-judge")
    yield "help", commands


def rounded(facts: Any) -> Any:
    """Return the facts with six digits of every number: later digits differ by processor."""
    if isinstance(facts, Mapping):
        return {name: rounded(value) for name, value in facts.items()}
    if isinstance(facts, list):
        return [rounded(value) for value in facts]
    return float(f"{facts:.6g}") if isinstance(facts, float) else facts


WALKS = (walk_score, walk_calibrate, walk_compare, walk_nights, walk_refusals, walk_help)


def take(out: Path) -> None:
    """Walk in a temporary folder and write the facts into `out`."""
    os.environ |= {"COLUMNS": "200", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ.pop("GITHUB_ACTIONS", None)
    out = out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with TemporaryDirectory() as folder, chdir(folder):
        prepare()
        for walk in WALKS:
            for name, facts in walk():
                text = json.dumps(rounded(facts), indent=1, ensure_ascii=False)
                (out / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    """Run the walk from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write tests/golden/expected anew")
    parser.add_argument("--out", type=Path, help="the folder to write instead")
    options = parser.parse_args()
    if options.update == (options.out is not None):
        parser.error("give either --update or --out FOLDER")
    take(options.out or EXPECTED)


if __name__ == "__main__":
    main()

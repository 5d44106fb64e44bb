"""The commands `align run`, `import` and `report`: a model's self-reported emotions (EmotionBench)."""

import json
from pathlib import Path
from typing import Any

import click

from empathy_judge.commands.shared import options
from empathy_judge.commands.shared.options import FILE, say, say_next


@click.group()
def align() -> None:
    """Compare a model's emotions with people's (EmotionBench).

    The model fills in questionnaires about emotions, by default and with a situation in mind.

    \b
    Examples:
      empathy-judge align run --base-url http://127.0.0.1:8000/v1 --model llama --orders 3 --per-factor 1
      empathy-judge align report alignments/llama-PANAS-1a2b3c4d
    """


@align.command("run")
@options.model_options("sheets")
@click.option("--concurrency", type=click.IntRange(min=1), help="Concurrent calls.  [default: adaptive]")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds for a whole answer.")
@click.option(
    "--scale", default="PANAS", show_default=True, help="Questionnaire; all but PANAS need --questionnaires."
)
@click.option("--questionnaires", type=FILE, help="Your copy of the benchmark's questionnaires.json.")
@click.option(
    "--situations",
    type=FILE,
    help="The benchmark's situations.csv or .json.  [default: 108 included]",
)
@click.option("--emotion", "emotions", multiple=True, help="Use only this emotion; may be repeated.")
@click.option("--per-factor", type=click.IntRange(min=1), help="Use only the first N of each factor.")
@click.option("--orders", type=click.IntRange(min=1), default=10, show_default=True, help="Item orders.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@click.option("--positive", is_flag=True, help="Use positive versions of the included situations.")
@click.option("--stable", is_flag=True, help="Instruct the model to stay emotionally stable.")
@click.option("--out", type=FILE, help="Output folder.  [default: alignments/<model>-<scale>-<digest>]")
@options.max_cost_option
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def align_run(*, out: Path | None, max_cost: float | None, as_json: bool, **settings: Any) -> None:
    """Have a model fill in a questionnaire about emotions.

    The model answers once by default and once for each situation. PANAS and 108 situations are included; the
    items of other questionnaires are read from your copy of the benchmark. Run the command again to resume an
    interrupted run.

    \b
    Examples:
      empathy-judge align run --base-url http://127.0.0.1:8000/v1 --model llama --orders 3 --per-factor 1
      empathy-judge align run --model gpt-4o --key-env OPENAI_API_KEY --max-cost 2
    """
    from empathy_judge.data.runs import folder_name
    from empathy_judge.emotionbench.administer import (
        check_filled,
        make_reporter,
        plan_alignment,
        run_alignment,
    )
    from empathy_judge.judge.llm.responder import say_counts

    reporter = make_reporter(**settings)
    plan = plan_alignment(reporter)
    folder = out or plan.default_folder("alignments", folder_name(plan["model"]), plan["scale"])
    budget = reporter.endpoint.budget
    with options.watching("asking", "answered", lambda: budget.spent, out=folder) as on_progress:
        run = run_alignment(reporter, plan, folder, max_cost=max_cost, on_progress=on_progress)
    found, counts = run.manifest, run.manifest["counts"]
    variant = f" ({found['variant']})" if found["variant"] else ""
    done = f"{counts['complete']:,} of {counts['sheets']:,} sheets of {found['scale']}"
    lines = [f"{done} filled in by {found['model']}{variant}"]
    if found["missing"]:
        lines.append(f"lack marks: {say_counts(found['missing'])}")
    options.print_asked(run, lines, as_json=as_json)
    check_filled(run)
    if not as_json:
        say_next("to compare these emotions with people's", "align", "report", run.folder)


@align.command("import")
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option("--out", type=FILE, default=Path("sheets.jsonl"), show_default=True, help="Output file.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def align_import(files: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Convert EmotionBench results files to sheets.

    Missing values are counted. FILES are *-testing.csv files of models and crowd.xlsx, the human answers.

    \b
    Example:
      empathy-judge align import crowd.xlsx gpt-4-PANAS-testing.csv --out sheets.jsonl
    """
    from empathy_judge.emotionbench.importer import import_files

    counts = import_files(files, out)
    if as_json:
        print(json.dumps({"files": counts, "out": str(out)}, indent=2))
        return
    for name, held in counts.items():
        say(f"{Path(name).name}: {', '.join(f'{count:,} {what}' for what, count in held.items() if count)}")
    say(out)
    say_next("to compare these emotions with people's", "align", "report", out)


@align.command("report")
@click.argument("sheets", type=FILE, nargs=-1, required=True)
@click.option("--out", type=FILE, help="Write report.html, report.md and report.json into this folder.")
@click.option("--factors", is_flag=True, help="Show all 36 factors in the table, not only the emotions.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
def align_report(sheets: tuple[Path, ...], out: Path | None, factors: bool, as_json: bool) -> None:
    """Report how far emotions changed, compared with people.

    SHEETS are folders of align run and files of align import.

    \b
    Examples:
      empathy-judge align report sheets.jsonl --factors
      empathy-judge align report alignments/llama-PANAS-1a2b3c4d sheets.jsonl --out report
    """
    from empathy_judge.emotionbench.alignment import align as align_models
    from empathy_judge.emotionbench.report import print_alignment, write_alignment

    result = align_models(sheets)
    written = write_alignment(result, out) if out else []
    print_alignment(result, factors=factors, as_json=as_json, report=written[0] if written else None)
    if written and not as_json:
        say_next(f"to see it with charts: open {written[0]}")
    elif not as_json:
        say_next("to save it with charts", "align", "report", *sheets, "--out", "report")

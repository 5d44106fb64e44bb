"""The commands `align run`, `import` and `report`: a model's own reported feelings (EmotionBench)."""

import json
from pathlib import Path
from typing import Any

import click

from commands.shared.options import FILE, interruptible, model_options, say_next
from data.text import printable


@click.group()
def align() -> None:
    """Ask a model how it would feel, and hold that against people.

    This is EmotionBench: questionnaires about feelings, filled in by default and with a situation in mind.

    \b
    Examples:
      empathy-judge align run --base-url http://127.0.0.1:8000/v1 --model llama --orders 3 --per-factor 1
      empathy-judge align report alignments/llama-PANAS-1a2b3c4d
    """


@align.command("run")
@model_options("sheets")
@click.option("--concurrency", type=click.IntRange(min=1), help="Calls at a time.  [default: 32]")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds.  [default: 60]")
@click.option(
    "--scale", default="PANAS", show_default=True, help="The questionnaire; all but PANAS need items."
)
@click.option(
    "--questionnaires", type=FILE, help="Your copy of the benchmark's questionnaires.json, for items."
)
@click.option(
    "--situations", type=FILE, help="The benchmark's situations.csv or .json.  [default: 108 of ours]"
)
@click.option(
    "--emotion", "emotions", multiple=True, help="Only situations of this emotion; may be repeated."
)
@click.option("--per-factor", type=click.IntRange(min=1), help="No more than the first N of each factor.")
@click.option(
    "--orders", type=click.IntRange(min=1), default=10, show_default=True, help="Orders of the items."
)
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Of every order.")
@click.option(
    "--defaults",
    type=click.IntRange(min=2),
    help="Sheets without a situation.  [default: as orders, 10 at least]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the orders.")
@click.option("--positive", is_flag=True, help="Our situations rewritten so that they go well, one a factor.")
@click.option("--stable", is_flag=True, help="Tell the model not to let situations take hold of it.")
@click.option("--out", type=FILE, help="The run's folder.  [default: alignments/<model>-<scale>-<digest>]")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Spend no more than this now, in USD.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def align_run(*, out: Path | None, max_cost: float | None, as_json: bool, **options: Any) -> None:
    """Have a model fill in a questionnaire of feelings.

    It does so by default and with each situation in mind. PANAS and 108 situations are built in; the other
    scales' items are read from your copy of the benchmark. The same command takes an interrupted run up again
    and asks for nothing twice.

    \b
    Examples:
      empathy-judge align run --base-url http://127.0.0.1:8000/v1 --model llama --orders 3 --per-factor 1
      empathy-judge align run --model gpt-4o --key-env OPENAI_API_KEY --max-cost 2
      empathy-judge align report alignments/llama-PANAS-1a2b3c4d
    """
    from data.runs import folder_name
    from emotionbench.administer import check_filled, make_reporter, plan_alignment, run_alignment
    from judge.llm.answer_prompts import say_counts
    from reports.progress import progress

    reporter = make_reporter(**options)
    plan = plan_alignment(reporter)
    folder = out or plan.default_folder("alignments", folder_name(plan.model), plan.scale)
    with (
        interruptible("what was answered is kept", out=folder),
        progress("asking", "answered", spent=lambda: reporter.endpoint.budget.spent) as on_progress,
    ):
        run = run_alignment(reporter, plan, folder, max_cost=max_cost, on_progress=on_progress)
    manifest = run.manifest
    if as_json:
        print(json.dumps({**manifest, "run": str(run.folder), "asked": run.asked}, indent=2))
    else:
        counts = manifest["counts"]
        variant = f" ({manifest['variant']})" if manifest["variant"] else ""
        lines = [
            f"{counts['complete']:,} of {counts['sheets']:,} sheets of {manifest['scale']} filled in by "
            f"{manifest['model']}{variant}"
        ]
        if manifest["missing"]:
            lines.append(f"lack marks: {say_counts(manifest['missing'])}")
        if manifest["left_out"]:
            lines.append(f"the server refused, and was not sent: {', '.join(manifest['left_out'])}")
        if manifest["cost"] is not None:
            lines.append(f"{manifest['cost']:.4f} USD")
        lines.append(f"{run.folder}" if run.asked else f"{run.folder} (nothing left to ask)")
        for line in lines:
            print(printable(line))
    check_filled(run)
    if not as_json:
        say_next("to compare these feelings with people's", "align", "report", run.folder)


@align.command("import")
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option("--out", type=FILE, default=Path("sheets.jsonl"), show_default=True, help="The sheets' file.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def align_import(files: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Turn results files of EmotionBench into filled-in sheets.

    Missing values are counted. FILES are *-testing.csv files of models and the crowd's crowd.xlsx.

    \b
    Example:
      empathy-judge align import crowd.xlsx gpt-4-PANAS-testing.csv --out sheets.jsonl
    """
    from emotionbench.importer import import_files

    counts = import_files(files, out)
    if as_json:
        print(json.dumps({"files": counts, "out": str(out)}, indent=2))
        return
    for name, held in counts.items():
        told = ", ".join(f"{count:,} {what}" for what, count in held.items() if count)
        print(printable(f"{Path(name).name}: {told}"))
    print(printable(str(out)))
    say_next("to compare these feelings with people's", "align", "report", out)


@align.command("report")
@click.argument("sheets", type=FILE, nargs=-1, required=True)
@click.option("--out", type=FILE, help="Write report.html, report.md and report.json into this folder.")
@click.option("--factors", is_flag=True, help="Show all 36 factors in the table, not only emotions.")
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.01,
    show_default=True,
    help="Of the tests.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
def align_report(
    sheets: tuple[Path, ...], out: Path | None, factors: bool, alpha: float, as_json: bool
) -> None:
    """Report how far feelings moved, and whether as people's did.

    SHEETS are folders of align run and files of align import.

    \b
    Examples:
      empathy-judge align report sheets.jsonl --factors
      empathy-judge align report alignments/llama-PANAS-1a2b3c4d sheets.jsonl --out report
    """
    from emotionbench.alignment import align as align_models
    from emotionbench.report import print_alignment, write_alignment

    result = align_models(sheets, alpha=alpha)
    written = write_alignment(result, out) if out else []
    print_alignment(result, factors=factors, as_json=as_json, report=written[0] if written else None)
    if written and not as_json:
        say_next(f"see it with charts: open {written[0]}")
    elif not as_json:
        say_next("to save it with charts", "align", "report", *sheets, "--out", "report")

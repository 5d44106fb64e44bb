"""The command `compare`: which model is better, by a judge or by people."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from commands.shared.next_step import say_next
from commands.shared.options import (
    FILE,
    READING_REPLIES,
    column_options,
    complete_calibration,
    complete_judge,
    interruptible,
    ratings_options,
    reading_words,
    say_notes,
    sheet_options,
    tell_others,
    telling_options,
)
from data.errors import UserError
from data.storage import Columns

if TYPE_CHECKING:
    from calibration.comparison.compare_runs import ComparedRuns
    from data.storage import Source

MEASURED: Final = "measured"
JUDGE: Final = "classifier"


@click.command()
@click.argument("runs", metavar="FILE|RUN...", type=FILE, nargs=-1, required=True)
@click.option(
    "--baseline",
    "baselines",
    metavar="MODEL",
    multiple=True,
    help="Compare with this model only; study:human and the study's other models can stand here too."
    "  [default: for ratings human, else every two models]",
)
@click.option(
    "--models", metavar="NAMES", multiple=True, help="These models only, separated by commas; or all."
)
@click.option(
    "--siblings",
    metavar="[0-0.95]",
    is_flag=False,
    flag_value=MEASURED,
    help="They are versions, prompts or decodings of one model, on which the judge errs alike; how much, as a"
    " correlation.  [default: as the calibration's siblings show it, if it has some]",
)
@click.option("--ratings", type=FILE, help="People's ratings of some of the responses.")
@ratings_options
@click.option(
    "--exchanges",
    type=FILE,
    multiple=True,
    help="The responses: of runs, to show where they differ; of ratings, for model and emotion, and for those"
    " without ids; may be repeated.",
)
@column_options
@click.option(
    "--judge",
    "judge_name",
    metavar="NAME|FILE.toml",
    shell_complete=complete_judge,
    help="Who scores files that are not scored yet.  [default: the judge of the runs given, else classifier]",
)
@click.option(
    "--calibration",
    metavar="FILE|none",
    shell_complete=complete_calibration,
    help="Correct by this calibration, or by none.  [default: the one they were scored with]",
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=5.0,
    show_default=True,
    help="The least difference in points of Good worth telling.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Let the exit code speak of the first model given, or of all against the baseline: 0 better or the"
    " same, 1 worse, 3 otherwise.",
)
@click.option("--html", type=FILE, metavar="FILE", help="Write a page with all of it.")
@click.option("--out", type=FILE, help="Write report.md and report.json into this folder too.")
@click.option(
    "--junit",
    type=FILE,
    help="Write the verdicts as JUnit XML, read as --check reads them.",
)
@click.option("--github-summary", is_flag=True, help="Add the result to the job's summary in GitHub Actions.")
@telling_options
@click.option("--markdown", is_flag=True, help="Print Markdown instead of tables.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_context
def compare(
    ctx: click.Context,
    runs: tuple[Path, ...],
    baselines: tuple[str, ...],
    models: tuple[str, ...],
    siblings: str | None,
    ratings: Path | None,
    scale: str | None,
    cut: str | None,
    columns: tuple[str, ...],
    ai_raters: str | None,
    skip_invalid: bool,
    exchanges: tuple[Path, ...],
    reply_columns: Columns,
    judge_name: str | None,
    calibration: str | None,
    margin: float,
    check: bool,
    html: Path | None,
    out: Path | None,
    junit: Path | None,
    github_summary: bool,
    webhook: str | None,
    otel: bool,
    mlflow: bool,
    markdown: bool,
    as_json: bool,
) -> None:
    """Say which model's replies are better, or that it cannot be told.

    Give files of replies (as for `score`), folders of runs, or both: what is not scored yet is scored first,
    into runs/, and an interrupted command goes on where it was. One file may hold several models. The verdict
    is one of four: better; leans to one (the judge is sure on the same prompts, people's view is not
    certain); the same within the margin; cannot say.

    In place of these, one table of ratings with rater, rating, model (or system) and emotion gives the crowd
    study's tables, and beside them tests that count raters and adjust for their number; one of choices with
    rater, model_a, model_b and winner tells which model is chosen.

    \b
    Examples:
      empathy-judge compare new.jsonl old.jsonl
      empathy-judge compare new.jsonl old.jsonl --siblings 0.8 --check
      empathy-judge compare new.jsonl --baseline study:human --check --github-summary --junit verdicts.xml
      empathy-judge compare runs/monday runs/tuesday --html compared.html
      empathy-judge compare replies.csv --baseline study:human --baseline study:gpt-4
      empathy-judge compare ratings.csv --baseline human --models gpt-4,gemini-1.0-pro
      empathy-judge compare choices.csv
    """
    from calibration.comparison.compare_runs import ComparedChoices, ComparedRuns, Question
    from calibration.comparison.compare_runs import compare as compare_models
    from data.records import to_plain
    from judge.base import WEIGHTS
    from reports.calibration.choices_page import chosen_models_page, plain_choices
    from reports.comparison.comparison_page import compared_evaluation, compared_runs_row, runs_page
    from reports.comparison.comparison_screen import print_compared
    from reports.html import as_page
    from reports.markdown import as_markdown, write_texts
    from reports.outputs import append_summary, write_junit
    from reports.study_tables import ratings_page
    from reports.terminal import print_page, working

    alike, runs = _siblings(siblings, runs)
    reading = sheet_options(
        scale=scale, cut=cut, columns=columns, ai_raters=ai_raters, skip_invalid=skip_invalid
    )
    scored = _score_files(runs, reply_columns, judge_name, calibration, skip_invalid=skip_invalid)
    question = Question(
        paths=scored.paths,
        baselines=baselines,
        models=tuple(name.strip() for names in models for name in names.split(",") if name.strip()),
        ratings=ratings,
        exchanges=exchanges,
        calibration=calibration,
        margin=margin / 100,
        weights=WEIGHTS,
        labels=scored.labels,
        sources=(*scored.sources, *exchanges),
        siblings=alike,
        reading=reading,
    )
    with working("comparing"):
        compared = compare_models(question, today=date.today())
    say_notes(compared.notes)
    if isinstance(compared, ComparedRuns):
        code = compared.exit_code if check else 0
        result = compared_runs_row(compared)
        page = runs_page(compared)
    elif check or html or siblings or junit or webhook or otel or mlflow:
        asked = "--check, --html, --junit, --mlflow, --otel, --siblings and --webhook"
        raise UserError(f"{asked} are for judged replies, not for a table of ratings")
    elif isinstance(compared, ComparedChoices):
        code = 0
        result = plain_choices(compared.pairs, chosen_by=compared.chosen_by, notes=compared.notes)
        page = chosen_models_page(compared.pairs, chosen_by=compared.chosen_by, source=compared.source)
    else:
        code = 0
        result = {"kind": "ratings", "left_out": list(compared.left_out), **to_plain(compared.comparison)}
        page = ratings_page(compared.comparison, left_out=compared.left_out, source=compared.source)
    if as_json:
        print(json.dumps(result, indent=2, allow_nan=False))
    elif markdown:
        print(as_markdown(page))
    elif isinstance(compared, ComparedRuns):
        print_compared(compared)
    else:
        print_page(page)
    if out is not None:
        write_texts({"report.md": as_markdown(page), "report.json": json.dumps(result, indent=2) + "\n"}, out)
    if github_summary and not append_summary(page):
        say_notes(["no summary: this is no job of GitHub Actions (GITHUB_STEP_SUMMARY is not set)"])
    if isinstance(compared, ComparedRuns) and (junit or webhook or otel or mlflow):
        told = compared_evaluation(compared)
        if junit:
            write_junit(told.checks, junit, name=told.name)
        tell_others(told, page, webhook=webhook, otel=otel, mlflow=mlflow)
    if html is not None:
        write_texts({html.name: as_page(page)}, html.parent)
        say_next(f"open {html}")
    elif isinstance(compared, ComparedRuns):
        _say_after_runs(ctx, compared, runs, alike)
    ctx.exit(code)


# What the line that shows the page leaves out: said by itself, or done and not to be done again.
ONCE: Final = frozenset(
    {"runs", "siblings", "check", "out", "markdown", "as_json", "junit", "github_summary"}
    | {"webhook", "otel", "mlflow"}
)


def _say_after_runs(
    ctx: click.Context,
    compared: "ComparedRuns",
    runs: Sequence[Path],
    alike: float | Literal["measured"] | None,
) -> None:
    """Have people rate where that would settle something, else see it as a page."""
    from rating.plan import PLAN_FILE, read_plan

    ratings: Path | None = ctx.params["ratings"]
    if any(pair.verdict not in ("better", "worse", "same") for pair in compared.pairs):
        files = [path for path in runs if not path.is_dir()]
        words = (*(files or [Path("RESPONSES.jsonl")]), *reading_words(ctx, READING_REPLIES))
        if ratings is None:
            return say_next("to settle it, have people rate", "rate", "plan", *words)
        replies = sum(level.judged + level.unscored for level in compared.models)
        if (ratings.parent / PLAN_FILE).exists() and len(read_plan(ratings.parent).items) < replies:
            return say_next("to have people rate more", "rate", "next", ratings.parent, *words)
    said = ctx.params.keys() - ONCE
    siblings = () if alike is None else ("--siblings",) if alike == MEASURED else ("--siblings", alike)
    say_next(
        "see it as a page", "compare", *runs, *reading_words(ctx, said), *siblings, "--html", "compared.html"
    )


def _siblings(
    said: str | None, runs: tuple[Path, ...]
) -> tuple[float | Literal["measured"] | None, tuple[Path, ...]]:
    """The correlation that is stated; a file that follows the bare option is one of the files to compare."""
    if said is None:
        return None, runs
    if said == MEASURED:
        return "measured", runs
    try:
        correlation = float(said)
    except ValueError:
        return "measured", (Path(said), *runs)
    if not 0 <= correlation <= 0.95:
        raise UserError(f"--siblings {said}: from 0 (the judge errs as on strangers) to 0.95")
    return correlation, runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What was given, every file of replies as its run; `labels` are the files' names."""

    paths: tuple[Path, ...]
    labels: Mapping[Path, str]
    sources: tuple["Source", ...]


def _score_files(
    paths: Sequence[Path],
    columns: Columns,
    judge_name: str | None,
    calibration: str | None,
    *,
    skip_invalid: bool,
) -> Scored:
    """Score the files of replies among what is given, by the judge of the runs given beside them."""
    files = [path for path in paths if not path.is_dir()]
    if not files or (len(paths) == 1 and _are_ratings(files[0])):
        return Scored(paths=tuple(paths), labels={}, sources=())
    from data.runs import read_summary
    from data.storage import Shards, find_sources, tell_apart
    from data.tables import notice_unit
    from judge.base import load_judge
    from judge.llm.endpoint import spent_by
    from judge.scored_run import AUTO, score_file
    from reports.progress import progress

    for path in files:
        if _are_ratings(path):
            raise UserError(f"{path}: ratings, and the others are not; give them with --ratings")
    folders = [path for path in paths if path.is_dir()]
    scored: dict[Path, Path] = {}
    names = dict(zip(files, tell_apart([str(path) for path in files]), strict=True))
    sources: dict[Path, Shards] = {
        path: replace(find_sources([path], columns), models=(names[path],)) for path in files
    }
    units = {notice_unit(source) for source in sources.values()}
    units |= {read_summary(folder).get("unit", "reply") for folder in folders}
    if len(units) > 1:
        raise UserError(
            "some of these hold whole conversations and some single replies; score each alike first, "
            "with score --unit, and compare the runs"
        )
    judge = load_judge(
        judge_name or (read_summary(folders[0])["judge"] if folders else JUDGE), unit=units.pop()
    )
    for path in files:
        with (
            interruptible("what was judged is kept"),
            progress(f"scoring {path.name}", spent=partial(spent_by, judge)) as on_progress,
        ):
            run = score_file(
                sources[path],
                judge=judge,
                calibration=calibration or AUTO,
                on_progress=on_progress,
                skip_invalid=skip_invalid,
                on_read=say_notes,
            )
            scored[path] = run.folder
    if len(set(scored.values())) < len(files):
        raise UserError("the same replies are given twice; name each file once")
    return Scored(
        paths=tuple(scored.get(path, path) for path in paths),
        labels={folder: names[path] for path, folder in scored.items()},
        sources=tuple(sources.values()),
    )


def _are_ratings(path: Path) -> bool:
    """Tell a table of ratings from one of replies by its first row."""
    from data.rating_files.rating_columns import bare_name, find_columns, find_sides
    from data.tables import read_rows

    _, row = next(iter(read_rows(path)), (0, {}))
    columns, names = find_columns(row), {bare_name(name) for name in row}
    if "winner" in find_sides(row):  # choices between two replies
        return True
    if "response" in columns:  # replies may have a rating too; ratings with texts also say whose they are
        return {"rating", "rater"} <= names
    return "rating" in columns and ("rater" in columns or bool(names & {"rating", "stars", "thumbs"}))

"""The command `compare`: which model is better, by a judge or by human ratings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from empathy_judge.commands.shared import options
from empathy_judge.commands.shared.options import FILE, say_next, say_notes
from empathy_judge.commands.shared.rating_options import ratings_options
from empathy_judge.data.errors import UserError
from empathy_judge.data.storage import Columns, Shards, Source

if TYPE_CHECKING:
    from empathy_judge.calibration.comparison.compare_runs import ComparedRuns, ComparisonRequest
    from empathy_judge.judge.scoring import Watch


@click.command()
@click.argument("runs", metavar="FILE|RUN...", type=FILE, nargs=-1, required=True)
@click.option(
    "--baseline",
    "baselines",
    metavar="MODEL",
    multiple=True,
    help="Compare with this model only: one of the models, or one of the study, such as study:human."
    "  [default: human for ratings, else every two models]",
)
@click.option("--models", metavar="NAMES", multiple=True, help="Only these models, separated by commas.")
@click.option(
    "--variants",
    "are_variants",
    is_flag=True,
    help="The models are variants of one (versions, prompts, decodings): assume that the judge's errors on"
    " them correlate, which narrows their difference.",
)
@click.option("--ratings", type=FILE, help="Human ratings of some of the replies.")
@ratings_options
@options.column_options
@click.option(
    "--judge",
    "judge_name",
    metavar="JUDGE",
    shell_complete=options.complete_judge,
    help="Judge for files that are not scored yet, as in `score`."
    "  [default: the judge of the runs, else classifier]",
)
@options.fresh_option
@options.max_cost_option
@options.calibration_option
@options.margin_option
@options.max_drop_option
@click.option(
    "--check",
    is_flag=True,
    help="Set the exit code from the verdict on the first model, or on every model against the baseline:"
    " 0 better, probably better, similar or at least as good; 1 worse, or replies that do not respond to"
    " their prompts; 3 probably worse or inconclusive.",
)
@click.option("--html", type=FILE, metavar="FILE", help="Write the comparison as an HTML page.")
@click.option("--out", type=FILE, help="Write report.md and report.json into this folder.")
@click.option("--junit", type=FILE, help="Write the verdicts as JUnit XML; they fail as with --check.")
@click.option("--github-summary", is_flag=True, help="Add the result to the job summary of GitHub Actions.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    runs: tuple[Path, ...],
    models: tuple[str, ...],
    reply_columns: Columns,
    judge_name: str | None,
    fresh: bool,
    max_cost: float | None,
    margin: float,
    max_drop: float,
    check: bool,
    html: Path | None,
    out: Path | None,
    junit: Path | None,
    github_summary: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Compare models by their replies.

    Pass files of replies (as for `score`), folders of runs, or both. Files are scored first, into runs/; run
    the command again to resume. One file may hold several models. Each pair has the probability that the one
    is better; the verdict is better, probably better, similar (within the margin), at least as good (within
    the drop) or inconclusive.

    A table of human ratings (rater, rating, model, emotion) is compared by chi-square tests and by tests with
    raters as units.

    \b
    Examples:
      empathy-judge compare new.jsonl old.jsonl
      empathy-judge compare new.jsonl old.jsonl --variants --check
      empathy-judge compare new.jsonl --baseline study:human --check --github-summary --junit verdicts.xml
      empathy-judge compare runs/monday runs/tuesday --html compared.html
      empathy-judge compare replies.csv --baseline study:human --baseline study:gpt-4
      empathy-judge compare ratings.csv --baseline human --models gpt-4,gemini-1.0-pro
    """
    from empathy_judge.calibration.comparison.compare_runs import ComparedRuns, ComparisonRequest
    from empathy_judge.calibration.comparison.compare_runs import compare as compare_models
    from empathy_judge.data.files import write_texts
    from empathy_judge.data.readers.conversations import write_talk
    from empathy_judge.data.records import CONVERSATION, to_plain
    from empathy_judge.data.tables import read_exchanges
    from empathy_judge.judge.base import WEIGHTS
    from empathy_judge.reports.comparison.comparison_page import (
        compared_runs_row,
        junit_checks,
        print_compared,
        runs_page,
    )
    from empathy_judge.reports.outputs import append_summary, write_junit
    from empathy_judge.reports.rated_models_page import rated_models_page
    from empathy_judge.reports.render import as_markdown, as_page
    from empathy_judge.reports.terminal import print_page, working

    request = ComparisonRequest(
        paths=runs,
        models=tuple(name.strip() for names in models for name in names.split(",") if name.strip()),
        margin=margin / 100,
        max_drop=max_drop / 100,
        weights=WEIGHTS,
        is_gate=check or junit is not None,
        **asked,
    )
    request, sources = score_paths(request, judge_name, columns=reply_columns, fresh=fresh, max_cost=max_cost)
    with working("comparing"):
        compared = compare_models(request, today=date.today())
    say_notes(compared.notes)
    code = 0
    if isinstance(compared, ComparedRuns):
        code = compared.exit_code if check else 0
        result = compared_runs_row(compared)
        wanted = compared.example_digests
        examples = {
            exchange.content_digest: exchange
            for source in (*sources, *request.exchanges)
            for exchange in read_exchanges(source, on_bad=lambda bad: None)
            if exchange.content_digest in wanted
        }
        if compared.judge.unit == CONVERSATION:
            examples = {key: replace(item, prompt=write_talk(item)[0]) for key, item in examples.items()}
        page = runs_page(compared, examples)
        if junit:
            write_junit(junit_checks(compared), junit, name="compare")
    elif check or html or request.are_variants or junit:
        raise UserError("--check, --html, --junit and --variants are for judged replies, not for ratings")
    else:
        result = {"kind": "ratings", **to_plain(compared)}
        page = rated_models_page(compared)
    if as_json:
        print(json.dumps(result, indent=2, allow_nan=False))
    elif isinstance(compared, ComparedRuns):
        print_compared(compared, examples)
    else:
        print_page(page)
    if out is not None:
        write_texts({"report.md": as_markdown(page), "report.json": json.dumps(result, indent=2) + "\n"}, out)
    if github_summary and not append_summary(page):
        say_notes(["no summary written: GITHUB_STEP_SUMMARY is not set, so this is not a GitHub Actions job"])
    if html is not None:
        write_texts({html.name: as_page(page)}, html.parent)
        say_next(f"open {html}")
    elif isinstance(compared, ComparedRuns):
        _say_after_runs(ctx, compared, runs)
    ctx.exit(code)


# Options that the suggested command does not repeat.
ONCE: Final = frozenset({"runs", "check", "fresh", "max_cost", "out", "as_json", "junit", "github_summary"})


def _say_after_runs(ctx: click.Context, compared: "ComparedRuns", runs: Sequence[Path]) -> None:
    """Suggest ratings where they would settle something, else the page."""
    from empathy_judge.calibration.comparison.verdicts import SETTLED
    from empathy_judge.calibration.estimate import LEAST_RATERS
    from empathy_judge.rating.plan import PLAN_FILE, read_plan

    if not compared.has_levels and not compared.judge.is_joint:
        say_next("for levels, once people have rated", *compared.calibrate_words)
    ratings: Path | None = ctx.params["ratings"]
    lost = set(compared.unresponsive)
    if any(pair.verdict not in SETTLED and not {pair.one, pair.other} & lost for pair in compared.pairs):
        files = [path for path in runs if not path.is_dir()]
        words = (*files, *options.reading_words(ctx, options.READING_REPLIES))
        if ratings is None and files:
            return options.say_rate_plan("for a definite verdict, have people rate", *words)
        if ratings and (ratings.parent / PLAN_FILE).exists():
            plan = read_plan(ratings.parent)
            people = max(0, LEAST_RATERS - plan.people) if compared.few_raters else 0
            rated = sum(level.ratings for level in compared.models)
            return say_next(*plan.next_step(ratings.parent, rated, people=people))
    if out := ctx.params["out"]:
        return say_next(f"open {out / 'report.md'}")
    repeated = options.reading_words(ctx, ctx.params.keys() - ONCE)
    page = ("--html", "compared.html") if find_spec("jinja2") else ("--out", "compared")
    say_next("to see it as a page", "compare", *runs, *repeated, *page)


def score_paths(
    request: "ComparisonRequest",
    judge_name: str | None,
    *,
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    fresh: bool = False,
    max_cost: float | None = None,
    watch: "Watch" = options.watch_scoring,
) -> "tuple[ComparisonRequest, Sequence[Source]]":
    """Score the files of replies among the paths; return the request for their runs, and the files."""
    from empathy_judge.data.rating_files.sheet import is_rating_table
    from empathy_judge.judge.budget import Budget
    from empathy_judge.judge.scoring import score_files

    paths = request.paths
    files = [path for path in paths if not path.is_dir()]
    tables = [path for path in files if is_rating_table(path)]
    if not files or (len(paths) == 1 and tables):
        return request, ()
    if tables:
        raise UserError(f"{tables[0]}: a file of ratings among files of replies; pass it with --ratings")
    scored = score_files(
        paths,
        judges=[judge_name] if judge_name else [],
        columns=columns,
        fresh=fresh,
        budget=Budget(max_cost),
        calibration=request.calibration,
        skip_invalid=request.reading is not None and request.reading.skip_invalid,
        allow_joint=True,
        check=partial(_check_models, request),
        watch=watch,
        on_read=say_notes,
    )
    return replace(request, paths=scored.runs, labels=scored.labels), scored.sources


def _check_models(request: "ComparisonRequest", sources: "Mapping[Path, Shards]") -> None:
    """Refuse models that cannot be compared, before anything is scored."""
    from empathy_judge.calibration.comparison.compare_runs import choose_models
    from empathy_judge.calibration.comparison.judged_models import name_models
    from empathy_judge.data.judgments import read_judged
    from empathy_judge.data.records import LABELS
    from empathy_judge.data.tables import Exchanges

    if not (request.is_gate or request.baselines or request.models):
        return
    runs = []
    for path in request.paths:
        if source := sources.get(path):
            name, rows = source.models[0], Exchanges(source, on_bad=lambda bad: None)
            runs.append((name, {item.model for item in rows}))
        else:
            (judged,) = read_judged(path, scale=LABELS)
            runs.append((path.name, {item.model for item in judged.judgments}))
    choose_models([name for names in name_models(runs) for name in names.values()], request)

"""The command `score`: judge a file of responses."""

import json
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empathy_judge.commands.shared import options
from empathy_judge.commands.shared.options import FILE, say, say_next, say_notes
from empathy_judge.data.crisis import READING_LIST
from empathy_judge.data.errors import BatchUnderWay, OperationalError, UserError
from empathy_judge.data.storage import Columns

if TYPE_CHECKING:
    from empathy_judge.judge.base import Judge
    from empathy_judge.judge.scoring import SummarizedRun


@click.command()
@click.argument("responses", type=click.Path(), nargs=-1, required=True)  # texts: a URL is no path
@options.judge_option
@click.option(
    "--unit",
    type=click.Choice(["reply", "conversation"]),
    help="Score replies, or whole conversations.  [default: conversations if the file has them]",
)
@click.option("--out", type=FILE, help="Output folder.  [default: runs/<file>-<judge>-<digest>]")
@click.option("--limit", type=click.IntRange(min=1), help="Score only the first N replies.")
@click.option("--skip-invalid", is_flag=True, help="Skip rows that cannot be read.")
@options.column_options
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed for the intervals."
)
@options.calibration_option
@options.max_cost_option
@options.fresh_option
@click.option(
    "--batch",
    is_flag=True,
    help="Use the server's Batch API, at half the price. Run the command again within a day to collect the "
    "answers; until then it exits with code 3.",
)
@click.option("--wait", is_flag=True, help="With --batch: wait until the answers are ready.")
@options.device_option
@click.option(
    "--engine",
    type=click.Choice(["plain", "ray"]),
    default="plain",
    show_default=True,
    help="Score in one process, or with Ray in several, locally or on the cluster at RAY_ADDRESS.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes of --engine ray; with --device cuda, one GPU each.  [default: cores; 1 with GPUs]",
)
@click.option(
    "--explain",
    metavar="ID",
    multiple=True,
    help="Show how much each part of the reply with this id changes its score; may be repeated.",
)
@click.option(
    "--html",
    type=FILE,
    metavar="FILE",
    help="Write an HTML page of conversations with the score of each reply.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show all shares with 95% CIs, and all notes.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of the table.")
@click.pass_context
def score(
    ctx: click.Context,
    /,
    responses: tuple[str, ...],
    reply_columns: Columns,
    judge_name: str,
    unit: str | None,
    max_cost: float | None,
    fresh: bool,
    batch: bool,
    wait: bool,
    engine: str,
    workers: int | None,
    explain: tuple[str, ...],
    html: Path | None,
    verbose: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Score replies or conversations: estimate the share rated Good.

    RESPONSES are files with a prompt and a response in each row, and, if you have them, an id, model,
    situation, emotion and dialogue: .jsonl, .json, .csv, .tsv, .parquet or .xlsx. Other names of columns,
    conversations, a column for each model, and what promptfoo, Inspect, lm-eval, OpenAI, Langfuse and
    LangSmith write are recognized. You can pass a folder of such files, a quoted glob, a URL (s3://, gs://)
    or - for standard input. Run the command again to resume an interrupted run. The included judges are for
    non-commercial use only (CC BY-NC 4.0).

    Rows with all turns of a conversation (`messages`), or with an id of their conversation (`conversation`),
    are scored as whole conversations: a language model reads all turns, other judges give the mean over the
    replies.

    \b
    Examples:
      empathy-judge score responses.jsonl
      empathy-judge score gpt.csv claude.xlsx --prompt-column said --response-column answered
      empathy-judge score responses.jsonl --explain 7
      empathy-judge score chats.jsonl --unit conversation --html chats.html
      empathy-judge score responses.jsonl --judge openai:gpt-4o-mini --max-cost 2.50
      empathy-judge score responses.jsonl --judge prompted.toml --batch
      empathy-judge score 's3://bucket/night/*.parquet' --engine ray --workers 8
    """
    from empathy_judge.data.storage import check_source, find_sources
    from empathy_judge.data.tables import notice_unit
    from empathy_judge.judge.base import WEIGHTS, WEIGHTS_LICENSE, load_judge
    from empathy_judge.judge.budget import Budget
    from empathy_judge.judge.explanation import check_explainable
    from empathy_judge.judge.scoring import (
        ScoringRequest,
        explain_responses,
        find_responses,
        plan_scoring,
        score_file,
        start_afresh,
    )
    from empathy_judge.reports.progress import progress
    from empathy_judge.reports.score_output import print_scored

    source = find_sources(responses, reply_columns)
    check_source(source)  # before a judge is loaded, which may take seconds
    judge = load_judge(judge_name, unit=unit or notice_unit(source), allow_joint=True)
    if unit == "reply" and judge.unit != unit:
        raise UserError(f"--unit reply: {judge_name} judges whole conversations; set a judge of replies")
    if explain:
        check_explainable(judge, "--explain")
    if html and judge.unit == "reply":
        raise UserError("--html: only for whole conversations; set --unit conversation, or omit --html")
    judge.use_budget(Budget(max_cost))
    request = ScoringRequest(
        source=source,
        judge=judge,
        engine=_choose_engine(judge, max_cost, engine, workers, batch=batch, wait=wait),
        **asked,
    )
    planned = plan_scoring(request)
    to_explain = find_responses(request, explain)
    if fresh:
        start_afresh([planned])
    again: dict[str, Any] = {"out": planned.folder, "fresh": False}
    try:
        with options.interruptible(**again), progress(spent=lambda: judge.spent) as on_progress:
            scored = score_file(planned, on_progress=on_progress, on_read=say_notes)
    except BatchUnderWay as pending:  # no error, and no result either
        say(json.dumps({"batch": str(pending), "run": str(planned.folder)}) if as_json else pending)
        if not as_json:
            say_next(f"in an hour or more: {options.command_line(ctx, **again)}")
        ctx.exit(pending.exit_code)
    explanations = explain_responses(to_explain, judge, scored)
    print_scored(scored, as_json=as_json, limit=request.limit, explanations=explanations, is_verbose=verbose)
    if html:
        from empathy_judge.data.files import write_texts
        from empathy_judge.reports.conversation_page import conversation_page
        from empathy_judge.reports.render import as_page

        write_texts({html.name: as_page(conversation_page(source, scored))}, html.parent)
    code = 0 if scored.summary.judged or scored.summary.flagged["count"] else OperationalError.exit_code
    if as_json:
        ctx.exit(code)
    others = [plan for plan in scored.folder.parent.glob("*/plan.json") if plan.parent != scored.folder]
    if scored.asked and not others and judge.folder and judge.folder.parent == WEIGHTS:
        say(f"The weights of {judge.name}: {WEIGHTS_LICENSE}.", err=True)
    _say_next(ctx, scored)
    ctx.exit(code)


def _say_next(ctx: click.Context, scored: "SummarizedRun") -> None:
    """Print the next step."""
    from empathy_judge.calibration.shares.transport import LEAST_REPLIES
    from empathy_judge.data.records import NOUNS

    models, folder, files = scored.models, scored.folder, ctx.params["responses"]
    judged, noun = [model.judged for model in models], NOUNS[scored.summary.unit]
    by = ("--calibration", given) if (given := ctx.params["calibration"]) else ()
    if html := ctx.params["html"]:
        say_next(f"open {html}")
    elif not any(judged) and scored.summary.flagged["count"]:
        options.say_rate_plan("to have people rate them", folder / READING_LIST)
    elif not any(judged):
        say_next(f"for the reasons, see `unscored` in {folder / 'judgments.jsonl'}")
    elif ctx.params["limit"]:
        say_next(f"to score all: {options.command_line(ctx, out=folder, limit=None, fresh=False)}")
    elif max(judged) < LEAST_REPLIES:
        say_next(f"add {noun}: an estimate needs {LEAST_REPLIES} or more per model")
    elif not scored.summary.calibration and ctx.params["calibration"] is None:
        words = (*files, *options.reading_words(ctx, options.READING_REPLIES))
        options.say_rate_plan(f"to compare this judge with people, have some {noun} rated", *words)
    elif len(models) > 1:
        say_next("to see which is better", "compare", folder, *by)
    else:
        say_next("to compare it with human replies", "compare", folder, "--baseline", "study:human", *by)


def _choose_engine(
    judge: "Judge",
    max_cost: float | None,
    engine: str,
    workers: int | None,
    *,
    batch: bool,
    wait: bool,
) -> Callable[..., None]:
    """Return the engine that runs the judge; refuse options that do not go together."""
    from empathy_judge.judge.engine import score_exchanges

    if wait and not batch:
        raise UserError("--wait: only with --batch")
    if engine == "plain" and workers is not None:
        raise UserError("--workers: only with --engine ray")
    if engine == "plain":
        return judge.batch_engine(wait=wait) if batch else score_exchanges
    if batch:
        raise UserError("--batch: not with --engine ray; use one of them")
    if max_cost is not None and judge.endpoints:
        raise UserError(
            "--max-cost counts what one process spends, and --engine ray has several; use --engine plain, "
            "which asks as many at once as the judge's concurrency says"
        )
    if find_spec("ray") is None:  # said now, and not after the input was read
        raise ModuleNotFoundError("No module named 'ray'", name="ray")
    from empathy_judge.judge.base import CUDA, DEVICE
    from empathy_judge.judge.ray_engine import score_ray

    default = 1 if DEVICE.get() == CUDA else os.cpu_count() or 1
    return partial(score_ray, workers=workers or default)

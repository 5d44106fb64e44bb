"""The command `score`: judge a file of responses."""

import json
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands.shared.options import FILE, complete_calibration, complete_judge, interruptible
from data.errors import UserError

if TYPE_CHECKING:
    from judge.base import Judge


@click.command()
@click.argument("responses", type=click.Path())  # a text: a URL is no path
@click.option(
    "--judge",
    "judge_name",
    default="classifier",
    show_default=True,
    metavar="NAME|FILE.toml",
    shell_complete=complete_judge,
    help="classifier, classifier-large, length, majority, or a file that sets the options of one of these or "
    "of a prompted, decision, panel or cascade judge.",
)
@click.option("--out", type=FILE, help="The run's folder.  [default: runs/<file>-<judge>-<digest>]")
@click.option("--limit", type=click.IntRange(min=1), help="Score no more than the first N responses.")
@click.option("--skip-invalid", is_flag=True, help="Set rows that cannot be read aside, and go on.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the intervals."
)
@click.option(
    "--calibration",
    metavar="FILE|none",
    shell_complete=complete_calibration,
    help="Correct by this calibration, or by none.  [default: the one that came with the judge, if it fits]",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="Stop before more than this is spent; the same command goes on later.",
)
@click.option("--batch", is_flag=True, help="Ask in batches: half the price, answers within a day.")
@click.option("--wait", is_flag=True, help="With --batch: wait for the answers.")
@click.option(
    "--engine",
    type=click.Choice(["plain", "ray"]),
    default="plain",
    show_default=True,
    help="Judge in this process, or with Ray in several, here or on the cluster at RAY_ADDRESS.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes of --engine ray.  [default: cores]"
)
@click.option(
    "--explain", metavar="ID", multiple=True, help="Show what drove this response's score; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of the table.")
@click.pass_context
def score(
    ctx: click.Context,
    responses: str,
    judge_name: str,
    out: Path | None,
    limit: int | None,
    skip_invalid: bool,
    seed: int,
    calibration: str | None,
    max_cost: float | None,
    batch: bool,
    wait: bool,
    engine: str,
    workers: int | None,
    explain: tuple[str, ...],
    as_json: bool,
) -> None:
    """Judge every response and print each model's Bad, Okay and Good shares.

    RESPONSES is a .jsonl, .csv or .parquet file with a prompt and a response in each row, and, if you have
    them, an id, model, situation, emotion and dialogue; or a folder of such files, a quoted glob, or the URL
    of any of these (s3://, gs://). The same command takes an interrupted run up again and judges nothing
    twice. With --batch it submits, and given again it collects; until all answers are there the exit code is
    3.

    \b
    Examples:
      empathy-judge score responses.jsonl
      empathy-judge score responses.csv --judge length --out runs/length --json
      empathy-judge score responses.jsonl --explain 7
      empathy-judge score responses.jsonl --judge prompted.toml --max-cost 2.50
      empathy-judge score responses.jsonl --judge prompted.toml --batch
      empathy-judge score 's3://bucket/night/*.parquet' --engine ray --workers 8
    """
    from data.storage import check_source, find_source
    from judge.base import load_judge
    from judge.llm.batch import BatchUnderWay
    from judge.llm.endpoint import limit_cost, spent_by
    from judge.scored_run import explain_responses, find_responses, score_file
    from reports.progress import progress
    from reports.share_table import print_scored

    source = find_source(responses)
    check_source(source)  # before a judge is loaded, which may take seconds
    to_explain = find_responses(source, explain, limit=limit, skip_invalid=skip_invalid)
    judge = load_judge(judge_name)
    limit_cost(judge, max_cost)
    chosen = _choose_engine(
        engine, judge, judge_name, workers=workers, max_cost=max_cost, batch=batch, wait=wait
    )
    again: dict[str, Any] = {}
    try:
        with (
            interruptible("what was judged is kept") as again,
            progress(spent=partial(spent_by, judge)) as on_progress,
        ):
            scored = score_file(
                source,
                judge=judge,
                out=out,
                calibration=calibration or "auto",
                limit=limit,
                on_progress=on_progress,
                skip_invalid=skip_invalid,
                seed=seed,
                engine=chosen,
                on_start=lambda folder: again.update(out=folder),
            )
    except BatchUnderWay as pending:  # no error, and no result either
        click.echo(json.dumps({"batch": str(pending), "run": str(again["out"])}) if as_json else pending)
        ctx.exit(pending.exit_code)
    explanations = explain_responses(to_explain, judge, scored.folder)
    print_scored(scored, as_json=as_json, limit=limit, explanations=explanations)


def _choose_engine(
    engine: str,
    judge: "Judge",
    named: str,
    *,
    workers: int | None,
    max_cost: float | None,
    batch: bool,
    wait: bool,
) -> Callable[..., int]:
    """What takes the exchanges past the judge; options that do not go together are refused."""
    from judge.engine import score_exchanges
    from judge.llm.batch import score_batch
    from judge.llm.endpoint import endpoints_of

    if engine == "plain" and workers is not None:
        raise UserError("--workers is for --engine ray; in one process a judge has its own threads")
    if engine == "plain":
        return partial(score_batch, wait=wait) if batch else score_exchanges
    if batch:
        raise UserError("--batch hands everything in at once, and --engine ray asks in parts; use one")
    if max_cost is not None and endpoints_of(judge):
        raise UserError(
            "--max-cost counts what one process spends, and --engine ray has several; use --engine plain, "
            "which asks as many at once as the judge's concurrency says"
        )
    if find_spec("ray") is None:  # said now, and not after the input was read
        raise ModuleNotFoundError("No module named 'ray'", name="ray")
    from judge.ray_engine import score_ray

    return partial(score_ray, named=named, workers=workers or os.cpu_count() or 1)

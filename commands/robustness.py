"""The command `robustness`: a judge's reaction to rewritten replies."""

import json
from pathlib import Path

import click

from empathy_judge.commands.shared import options
from empathy_judge.commands.shared.options import FILE, say, say_next

EXIT_CODES = {"passes": 0, "fails": 1, "inconclusive": 3}


@click.command()
@click.argument("judge_name", metavar="JUDGE", shell_complete=options.complete_judge)
@click.option(
    "--replies",
    type=FILE,
    metavar="FILE",
    help="Ordinary replies to rewrite, in any shape that `score` reads.  [default: the sample replies]",
)
@click.option(
    "--sample",
    type=click.IntRange(min=24),
    metavar="N",
    help="Make about N judgments instead of about 4,000, to limit the cost.",
)
@options.max_cost_option
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--out", type=FILE, help="Write report.html, report.md and report.json into this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.pass_context
def robustness(
    ctx: click.Context,
    judge_name: str,
    replies: Path | None,
    sample: int | None,
    max_cost: float | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Test how robust a judge is to rewritten replies.

    Included kind and unkind replies are rewritten by a list of perturbations: unkind ones must not become
    Good, and kind ones must not become Bad. Ordinary replies are rewritten in ways that should or should not
    change the score. The exit code is 0 if all targets are met, 1 if one is missed, 3 if some are
    inconclusive. Judgments are saved under robustness/. Run the command again to resume.

    \b
    Examples:
      empathy-judge robustness classifier --out robust
      empathy-judge robustness prompted.toml --sample 300 --max-cost 1
    """
    from empathy_judge.data.storage import check_source, find_sources
    from empathy_judge.data.tables import SAMPLE_RESPONSES, read_exchanges
    from empathy_judge.judge.base import load_judge
    from empathy_judge.judge.budget import Budget
    from empathy_judge.judge.robustness.run import judge_saved, measure_robustness
    from empathy_judge.reports.render import write_page
    from empathy_judge.reports.robustness_page import robustness_page
    from empathy_judge.reports.terminal import print_page

    source = find_sources([replies or SAMPLE_RESPONSES])
    check_source(source)
    ordinary = list(read_exchanges(source))
    judge = load_judge(judge_name)
    judge.use_budget(Budget(max_cost))
    with options.watching(f"scoring with {judge.name}", "scored", lambda: judge.spent) as on_progress:
        ask = judge_saved(judge, on_progress=on_progress)
        result = measure_robustness(judge, ordinary, sample_size=sample, seed=seed, ask=ask)
    page = robustness_page(result)
    written = write_page(page, result.as_dict(), out) if out else []
    if as_json:
        print(json.dumps(result.as_dict(), indent=1, allow_nan=False))
    else:
        print_page(page)
        for path in written:
            say(f"written {path}")
        say_next("to compare it with human ratings, run `score`, then `calibrate`")
    ctx.exit(EXIT_CODES[result.result])

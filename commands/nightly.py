"""The commands `nightly`, `history` and `dashboard`."""

from pathlib import Path

import click

from empathy_judge.commands.shared.options import FILE, device_option, interruptible, say, say_next, say_notes


@click.command()
@click.argument("config", type=FILE)
@click.option("--night", metavar="NAME", help="Name of the night.  [default: today's date]")
@click.option("--again", is_flag=True, help="Score a night that is in the history again, and replace it.")
@device_option
@click.option("--now", metavar="TIME", hidden=True, help="The time to record, such as 2026-11-15T02:00.")
@click.option("--json", "as_json", is_flag=True, help="Print the night as JSON.")
@click.pass_context
def nightly(
    ctx: click.Context,
    config: Path,
    night: str | None,
    again: bool,
    now: str | None,
    as_json: bool,
) -> None:
    """Score models every night, and report regressions.

    Models answer, the judge scores, and gates check the result; all nights are stored in a history and shown
    on a dashboard. CONFIG is a TOML file of models, judge and gates; nightly/config.py lists its keys.
    Run the command again to resume an interrupted night. A night that is in the history is not scored
    again. The exit code is 1 for a regression, 3 for an inconclusive gate, 4 for a calibration that cannot be
    used, and 5 where a model or the judge could not be reached.

    \b
    Examples:
      empathy-judge nightly nightly.toml
      empathy-judge nightly nightly.toml --night 2026-11-15 --json
    """
    from datetime import datetime, timedelta
    from time import monotonic

    from empathy_judge.nightly.config import check_name, read_config
    from empathy_judge.nightly.history import show_place
    from empathy_judge.nightly.night import run_night
    from empathy_judge.nightly.output import print_night

    fixed = datetime.fromisoformat(now) if now else None
    began, start = datetime.now().astimezone(), monotonic()  # so that no clock put back makes a time negative
    settings = read_config(config)
    name = check_name(night, "--night") if night else (fixed or began).date().isoformat()
    with interruptible(night=name):
        finished = run_night(
            settings,
            night=name,
            clock=lambda: fixed or began + timedelta(seconds=monotonic() - start),
            again=again,
            announce=say_notes,
        )
    print_night(finished, settings, as_json=as_json)
    if not as_json and settings.dashboard:
        say_next(f"to see the nights: open {Path(settings.dashboard) / 'index.html'}")
    elif not as_json:
        say_next("to see the nights", "dashboard", show_place(settings.history))
    ctx.exit(finished.exit_code)


@click.group()
def history() -> None:
    """Export the figures of all nights.

    \b
    Example:
      empathy-judge history export --out nights.csv
    """


@history.command("export")
@click.option(
    "--history",
    "place",
    default="nights.sqlite",
    show_default=True,
    metavar="FILE|URL",
    help="A SQLite file, or postgresql+psycopg://... (set the password in PGPASSWORD).",
)
@click.option(
    "--kind",
    type=click.Choice(["results", "changes", "emotions", "anchors", "gates", "judgments"]),
    default="results",
    show_default=True,
    help="Which rows.",
)
@click.option("--config", metavar="DIGEST", help="Only the nights of this config.")
@click.option("--last", type=click.IntRange(min=1), help="Only the newest N nights.")
@click.option("--format", "format_", type=click.Choice(["jsonl", "csv"]), help="[default: as --out]")
@click.option("--out", type=FILE, help="Output file.  [default: standard output]")
def export(
    place: str, kind: str, config: str | None, last: int | None, format_: str | None, out: Path | None
) -> None:
    """Write the history as flat rows, one for each model and night.

    \b
    Examples:
      empathy-judge history export --out nights.csv
      empathy-judge history export --history postgresql+psycopg://me@db/nights --kind gates --last 30
    """
    import sys

    from empathy_judge.data.files import disk_errors, replacing
    from empathy_judge.data.tables import write_text
    from empathy_judge.nightly.history import open_history, show_place

    is_csv = format_ == "csv" if format_ else out is not None and out.suffix.lower() == ".csv"
    suffix = ".csv" if is_csv else ".jsonl"
    with open_history(place, must_exist=True) as opened:
        rows = opened.rows(kind, config=config, last=last)
        if out is None:
            write_text(sys.stdout, rows, suffix=suffix)
            return
        with disk_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            with replacing(out) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
                count = write_text(stream, rows, suffix=suffix)
    say(f"{count:,} rows  {out}")
    say_next("to see the nights", "dashboard", show_place(place))


@click.command()
@click.argument("history", metavar="HISTORY")
@click.option("--out", type=FILE, default=Path("dashboard"), help="Output folder.  [default: dashboard]")
@click.option("--nights", type=click.IntRange(min=1), help="Show only the newest N nights.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def dashboard(history: str, out: Path, nights: int | None, as_json: bool) -> None:
    """Build the HTML dashboard of all nights.

    It shows trends, models, emotions, replies and the judge's health. HISTORY is the file that `nightly`
    writes, or the URL of a PostgreSQL database. The folder needs no server: open its index.html.

    \b
    Example:
      empathy-judge dashboard nights.sqlite --out site
    """
    import json

    from empathy_judge.nightly.dashboard.build import build_dashboard
    from empathy_judge.nightly.history import open_history

    with open_history(history, must_exist=True) as opened:
        files = build_dashboard(opened, out, nights=nights)
    size = sum(path.stat().st_size for path in files)
    if as_json:
        click.echo(json.dumps({"index": str(out / "index.html"), "files": len(files), "bytes": size}))
    else:
        say(f"{len(files):,} files, {size / 1e6:.1f} MB")
        say_next(f"to see the nights: open {out / 'index.html'}")

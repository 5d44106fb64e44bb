"""The command `import`: a public dataset as exchanges and ratings."""

import json
from pathlib import Path

import click

from empathy_judge.commands.shared.options import FILE, say, say_next


@click.command("import")
@click.argument("source", metavar="SOURCE")
@click.argument("paths", metavar="PATH...", type=FILE, nargs=-1, required=True)
@click.option("--out", type=FILE, default=Path("."), help="Output folder.  [default: the current folder]")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def import_(source: str, paths: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Convert a public dataset to files of replies and ratings.

    It is read in its published format and written as exchanges.jsonl (prompts with their replies) and
    ratings.jsonl. Rows that cannot be read go into set_aside.jsonl. SOURCE is one of empathy-study,
    empathy-study-ratings, judging-empathy, empathetic-exchanges, ieval, epitome, esconv, dep (DSTC9),
    mental-align, resort and empo. Several files or folders of one source are read as one dataset.

    \b
    Example:
      empathy-judge import empathy-study dataset_and_ratings.csv --out study
    """
    from empathy_judge.data.importers import import_source
    from empathy_judge.data.tables import write_rows

    imported = import_source(source, *paths)
    tables = {
        "exchanges": imported.exchanges,
        "ratings": imported.ratings,
        "set_aside": [item._asdict() for item in imported.set_aside],
    }
    counts = {name: write_rows(out / f"{name}.jsonl", rows) for name, rows in tables.items()}
    if as_json:
        click.echo(json.dumps(counts))
    else:
        for name, count in counts.items():
            say(f"{count:>9,}  {out / name}.jsonl")
        if counts["exchanges"]:
            say_next("to score the replies", "score", out / "exchanges.jsonl")
        elif source == "empathy-study-ratings":
            say_next("to compare models by these ratings", "compare", out / "ratings.jsonl")
        elif counts["ratings"]:
            say_next(
                "to compare another judge's scores with these ratings",
                *("calibrate", "SCORES.csv", out / "ratings.jsonl", "--scale", "1-5"),
            )
        else:
            say_next(f"for the reason why no row could be read, see {out / 'set_aside.jsonl'}")

"""The command `import`: a public dataset as exchanges and ratings."""

import json
from pathlib import Path

import click

from commands.shared.options import FILE, complete_source


@click.command("import")
@click.argument("source", shell_complete=complete_source)
@click.argument("path", type=FILE)
@click.option("--out", type=FILE, default=Path("."), help="Where to write.  [default: this folder]")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def import_(source: str, path: Path, out: Path, as_json: bool) -> None:
    """Turn a public dataset, in its published shape, into exchanges.jsonl and ratings.jsonl.

    SOURCE is one of empathy-study, empathy-study-ratings, judging-empathy, empathetic-exchanges, ieval,
    epitome and mental-align.

    \b
    Example:
      empathy-judge import empathy-study dataset_and_ratings.csv --out study
    """
    from data.importers import import_source
    from data.tables import write_rows

    imported = import_source(source, path)
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
            click.echo(f"{count:>9,}  {out / name}.jsonl")

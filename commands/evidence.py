"""The command `evidence`: what was checked, in one dated file."""

from pathlib import Path

import click

from commands.shared.next_step import say, say_next
from commands.shared.options import FILE


@click.command()
@click.argument("places", type=FILE, nargs=-1, metavar="RUN...")
@click.option(
    "--history", metavar="FILE|URL", help="Add what the gates of these nights said: the file of `nightly`."
)
@click.option(
    "--with-texts", is_flag=True, help="Put judgments and texts of people in too, not only their hashes."
)
@click.option("--out", type=FILE, help="The bundle.  [default: evidence-<date>.zip]")
@click.option("--check", "to_check", type=FILE, help="Hold a bundle to its own hashes instead.")
@click.option("--json", "as_json", is_flag=True, help="Print what is in the bundle as JSON.")
def evidence(
    places: tuple[Path, ...],
    history: str | None,
    with_texts: bool,
    out: Path | None,
    to_check: Path | None,
    as_json: bool,
) -> None:
    """Put what was checked into one dated file.

    For whoever must show it later: a zip of versions, rubric, calibration, gates and people's readings, with
    the SHA-256 of each file, and a page of words on what they show and what is missing. RUN is a run's
    folder; a plan of `rate collect`, a calibration.json or a rubric's TOML file may be given too. Texts of
    people stay out, and are known by their hash, unless you ask for them.

    \b
    Examples:
      empathy-judge evidence runs/warm rating-plan --history nights.sqlite
      empathy-judge evidence --check evidence-2026-11-16.zip
    """
    import json
    from datetime import UTC, datetime

    from cli import VERSION
    from commands.shared.evidence_bundle import add_gates, check_bundle, gather, write_bundle
    from data.errors import UserError
    from data.storage import digest_file

    if to_check is not None:
        manifest = check_bundle(to_check)
        say(f"{to_check}: as it was made on {manifest['made']}, {len(manifest['files'])} files")
        say(f"its own SHA-256 is {digest_file(to_check)}; hold that against the one you noted")
        return
    if not places and history is None:
        raise UserError("name a run at least, such as runs/warm, or a bundle with --check")
    found = gather(places, with_texts=with_texts)
    if history is not None:
        from nightly.history import open_history

        with open_history(history, must_exist=True) as opened:
            add_gates(found, opened.rows("gates"), Path(history.rpartition("/")[2]).stem)
    else:
        found.missing.append("gates: no history was given (--history)")
    made = datetime.now(UTC)
    path = out or Path(f"evidence-{made.date().isoformat()}.zip")
    digest = write_bundle(found, path, made=made, program=f"empathy-judge {VERSION}")
    if as_json:
        about = {"bundle": str(path), "sha256": digest, "made": made.isoformat(timespec="seconds")}
        files = [item.name for item in found.files]
        click.echo(json.dumps({**about, "files": files, "shown": found.shown, "missing": found.missing}))
        return
    for line in found.shown:
        say(line)
    for line in found.missing:
        say(f"not shown: {line}")
    say(f"{path}: {len(found.files)} files, SHA-256 {digest}")
    say_next("note the SHA-256 elsewhere; to see later that nothing was changed", "evidence", "--check", path)

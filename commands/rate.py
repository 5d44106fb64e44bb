"""The commands `rate plan`, `open`, `export`, `collect`, `status`, `next`, `people` and `forget`."""

import json
import re
import socket
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from empathy_judge.commands.shared import options
from empathy_judge.commands.shared.options import FILE, say, say_next, say_notes
from empathy_judge.data.errors import UserError
from empathy_judge.data.storage import Columns

if TYPE_CHECKING:
    from empathy_judge.data.readers.file_formats import BadRow
    from empathy_judge.rating.plan import RatingPlan


@click.group()
def rate() -> None:
    """Collect blind human ratings of replies.

    `plan` assigns replies to raters. `open` serves a rating page; `export` writes files to send to raters
    instead. `collect` writes ratings.jsonl, which `compare` and `calibrate` read. `status` shows whether more
    ratings are needed, and `next` adds replies or raters.

    \b
    Example:
      empathy-judge rate plan responses.jsonl --people 8 --each 50
      empathy-judge rate open rating-plan
      empathy-judge rate collect rating-plan
    """


@rate.command()
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option(
    "--people", type=click.IntRange(1, 1000), default=8, show_default=True, help="Number of raters."
)
@click.option(
    "--each", type=click.IntRange(1, 2000), default=50, show_default=True, help="Number of replies per rater."
)
@click.option("--out", type=FILE, default=options.RATING_PLAN, show_default=True, help="Output folder.")
@click.option("--skip-invalid", is_flag=True, help="Skip rows that cannot be read.")
@options.column_options
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def plan(
    ctx: click.Context,
    files: tuple[str, ...],
    reply_columns: Columns,
    people: int,
    each: int,
    out: Path,
    skip_invalid: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Assign replies or conversations to raters.

    FILES are replies or conversations, as for `score`. Each rater gets all models on the same prompts, one
    reply at a time and in random order. Of twelve or more, three measure only consistency: two are shown to
    every rater, and one is shown twice.

    \b
    Examples:
      empathy-judge rate plan responses.jsonl
      empathy-judge rate plan model-a.jsonl model-b.jsonl --people 4 --each 30 --out plans/june
    """
    from empathy_judge.data.readers.table_rows import stop_at_bad_row
    from empathy_judge.data.records import NOUNS
    from empathy_judge.data.storage import find_sources
    from empathy_judge.data.tables import Exchanges, notice_unit
    from empathy_judge.rating.plan import draw_plan, rating_seconds, write_plan
    from empathy_judge.reports.terminal import working

    skipped: list[BadRow] = []
    source = find_sources(list(files), reply_columns)
    unit = notice_unit(source)
    replies = Exchanges(source, on_bad=skipped.append if skip_invalid else stop_at_bad_row, unit=unit)
    with working(f"reading {NOUNS[unit]}"):
        words = (*files, *options.reading_words(ctx, options.READING_REPLIES))
        drawn = draw_plan(replies, people=people, each=each, seed=seed, source_words=words, unit=unit)
    write_plan(drawn.plan, drawn.texts, out)
    made = drawn.plan
    notes = [*([f"{len(skipped)} rows cannot be read and were skipped"] if skipped else []), *drawn.notes]
    models = sorted({item.model for item in made.items.values()})
    if as_json:
        about = {"plan": str(out), "models": models, "replies": len(made.items), "notes": notes}
        about |= {"raters": {rater.name: len(rater.order) for rater in made.raters.values()}}
        click.echo(json.dumps(about | {"ratings": made.count_design()}, indent=2))
        return
    orders = sorted({len(rater.order) for rater in made.raters.values()})
    times = [sum(rating_seconds(drawn.texts[key]) for key in rater.order) for rater in made.raters.values()]
    minutes, noun = ceil(max(times) / 60), NOUNS[unit]
    say(f"{out}: {people} raters rate {' or '.join(map(str, orders))} {noun} each, in about {minutes} min")
    say(f"{len(made.items)} {noun} of {len(models)} models in all")
    rated = made.count_design()
    say(f"{rated:,} ratings by {people} people x {rated / people:g}, without those that measure consistency")
    say_notes([*replies.notes(), *(f"note: {note}" for note in notes)])
    say_next("to rate on a page", "rate", "open", out)


@rate.command("open")
@click.argument("folder", type=FILE, default=options.RATING_PLAN, metavar="PLAN")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address; 0.0.0.0 for your network.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8322, show_default=True, help="Port; 0: any free one."
)
@click.option("--public", is_flag=True, help="One link for all; each person gets the next free place.")
@click.option("--id-key", default="", metavar="NAME", help="Read the person's id from this key of the link.")
@click.option("--consent", type=FILE, metavar="FILE.md", help="Show this text before the person agrees.")
@click.option("--instructions", type=FILE, metavar="FILE.md", help="Show this text before the first reply.")
@click.option("--completion-code", default="", metavar="CODE", help="Show this code after the last reply.")
@click.option("--completion-url", default="", metavar="URL", help="Link to this page after the last reply.")
@click.option("--preview", is_flag=True, help="Try the page; nothing is written into the plan's folder.")
def open_page(folder: Path, host: str, port: int, public: bool, preview: bool, **given: Any) -> None:
    """Serve the rating page.

    Prints a link for each rater; no account is needed. Every rating is saved to disk at once. You can stop
    the page with Ctrl-C and start it again: the links stay the same, and raters resume where they stopped.

    With --public, it prints one link for all. A place without a rating for an hour may go to somebody else.

    \b
    Examples:
      empathy-judge rate open rating-plan
      empathy-judge rate open rating-plan --host 0.0.0.0
      empathy-judge rate open rating-plan --public --id-key PROLIFIC_PID --consent consent.md
    """
    from empathy_judge.rating.collect import count_rated
    from empathy_judge.rating.handouts import render_markdown
    from empathy_judge.rating.people import read_seated
    from empathy_judge.rating.plan import read_plan, read_texts, write_plan
    from empathy_judge.rating.rating_app import PublicStudy, make_rating_app
    from empathy_judge.server.middleware import own_hosts
    from empathy_judge.server.process import make_server, open_socket

    if any(given.values()) and not public:
        raise UserError("rate open: the options of a study with one link for all need --public")
    id_key, completion = given["id_key"], {"code": given["completion_code"], "url": given["completion_url"]}
    if not re.match(r"https?://[^/\s]|$", completion["url"]):
        raise UserError("--completion-url: not an address that starts with https:// or http://")
    study = PublicStudy(
        id_key=id_key,
        consent=render_markdown(given["consent"]),
        instructions=render_markdown(given["instructions"]),
        completion={name: text for name, text in completion.items() if text},
    )
    made = read_seated(folder)
    with ExitStack() as opened:
        if preview:
            made, original = read_plan(folder), folder
            folder = Path(opened.enter_context(TemporaryDirectory()))
            write_plan(made, read_texts(original, made), folder)
        listening = opened.enter_context(open_socket(host, port))
        base = _reachable_url(listening)

        def say_ready() -> None:
            if public:
                say(f"{base}/" + (f"?{id_key}=ID" if id_key else ""))
                return say_next("send this link to all raters; Ctrl-C stops the page, and ratings are saved")
            done = count_rated(folder, made)
            for token, rater in made.raters.items():
                say(f"{rater.name:<10} {done[token]:>4} of {len(rater.order)}  {base}/r/{token}")
            say_next("send each rater one of these links; Ctrl-C stops the page, and ratings are saved")

        # A proxy passes on the name of its own host.
        hosts = None if public else own_hosts(host)
        app = make_rating_app(folder, hosts=hosts, on_ready=say_ready, study=study if public else None)
        make_server(app).run(sockets=[listening])
        if preview:
            return say_next("this was a preview; to let people rate, open the page without --preview")
    made = read_seated(folder)
    done = count_rated(folder, made)
    say(f"{sum(done.values())} of {made.count_ratings()} rated", err=True)
    say_next("to collect the ratings", "rate", "collect", folder)


def _reachable_url(listening: socket.socket) -> str:
    """Return the URL of the page: if it listens on all addresses, the one of this machine in its network."""
    from empathy_judge.server.process import url_of

    host, port = listening.getsockname()[:2]
    if host not in ("0.0.0.0", "::"):
        return url_of(listening)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return f"http://{probe.getsockname()[0]}:{port}"
        except OSError:
            return f"http://{socket.gethostname()}:{port}"


@rate.command()
@click.argument("folder", type=FILE, default=options.RATING_PLAN, metavar="PLAN")
@click.option("--html", type=FILE, metavar="FOLDER", help="Write one HTML page per rater into this folder.")
@click.option("--csv", type=FILE, metavar="FILE", help="Write a CSV sheet, or one per rater into a folder.")
def export(folder: Path, html: Path | None, csv: Path | None) -> None:
    """Write the plan as files to send to raters.

    An HTML page opens without a server, stores ratings in the browser, and saves them as a file to send back.
    A CSV sheet has an empty column `rating` for Bad, Okay or Good. `rate collect` reads both.

    \b
    Examples:
      empathy-judge rate export rating-plan --html to-send
      empathy-judge rate export rating-plan --csv sheet.csv
    """
    from empathy_judge.rating.handouts import write_pages, write_sheets
    from empathy_judge.rating.plan import read_plan, read_texts

    if html is None and csv is None:
        raise UserError("rate export: set --html FOLDER, --csv FILE, or both")
    made = read_plan(folder)
    texts = read_texts(folder, made)
    written = write_pages(made, texts, html) if html else []
    written += write_sheets(made, texts, csv) if csv else []
    for path in written:
        say(f"written {path}")
    say_next("send each rater their file, then collect the returned files with `rate collect`")


@rate.command()
@click.argument("folder", type=FILE, default=options.RATING_PLAN, metavar="PLAN")
@click.argument("files", type=FILE, nargs=-1, metavar="[RETURNED]...")
@click.option("--skip-invalid", is_flag=True, help="Skip ratings that are edited or of another plan.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def collect(folder: Path, files: tuple[Path, ...], skip_invalid: bool, as_json: bool) -> None:
    """Collect the ratings into ratings.jsonl.

    Reads the ratings of the page and the files that raters sent back; duplicates count once. Ratings that
    measure only consistency go into consistency.json. Both files are written into the plan's folder and
    replaced each time, so pass all returned files every time.

    \b
    Examples:
      empathy-judge rate collect rating-plan
      empathy-judge rate collect rating-plan returned/*.json sheet.csv
    """
    from empathy_judge.data.text import listed
    from empathy_judge.rating.collect import RATINGS_FILE, find_missing, write_collected
    from empathy_judge.rating.collect import collect as collect_ratings
    from empathy_judge.rating.plan import read_plan

    found = collect_ratings(folder, files)
    if found.problems and not skip_invalid:
        more = f"\n... and {len(found.problems) - 10} more" if len(found.problems) > 10 else ""
        raise UserError(
            "\n".join(found.problems[:10]) + more + "\nFix these, or skip them with --skip-invalid."
        )
    if missing := find_missing(found, folder):
        raise UserError(
            f"{folder / RATINGS_FILE}: it has ratings by {listed(missing)}, and the files given now have "
            "none. Pass all returned files, or delete it to drop those ratings"
        )
    if not found.rows:
        raise UserError(f"{folder}: no ratings yet, or none in the files; `rate open` serves the rating page")
    written = write_collected(found, folder)
    if as_json:
        same, pairs = found.repeats
        about = {"ratings": len(found.rows), "files": [str(path) for path in written]}
        about |= {"twice": found.again, "repeated": pairs, "same": same}
        about |= {"problems": list(found.problems), "changed": list(found.changed), "marked": found.marked}
        click.echo(json.dumps(about, indent=2))
        return
    raters = [rater for rater in found.consistency.values() if rater.indexes]
    finished = sum(len(rater.indexes) == rater.planned for rater in raters)
    plural = "s" if len(raters) != 1 else ""
    say(f"{len(found.rows):,} ratings by {len(raters)} rater{plural}; finished: {finished}")
    if found.repeats[1]:
        say("replies rated twice: {} of {} got the same label".format(*found.repeats))
    if found.again:
        say(f"{found.again:,} duplicate ratings count once")
    marked = [f"{name}: {'; '.join(marks)}; the ratings count" for name, marks in found.marked.items()]
    set_aside = [f"set aside: {problem}" for problem in found.problems]
    say_notes(f"note: {line}" for line in (*found.changed, *set_aside, *marked))
    for path in written:
        say(f"written {path}")
    if len({row["model"] for row in found.rows}) > 1:
        _say_verdict(read_plan(folder), written[0])
    else:
        say_next("score these replies with `score`, then compare judge and ratings with `calibrate`")


def _say_verdict(made: "RatingPlan", ratings: Path) -> None:
    if not made.source_words:
        return say_next(f"compare the files of replies with `compare` and --ratings {ratings}")
    say_next("to see which model is better", "compare", *made.source_words, "--ratings", ratings)


@rate.command()
@click.argument("folder", type=FILE, default=options.RATING_PLAN, metavar="PLAN")
@click.argument("files", type=FILE, nargs=-1, metavar="[RETURNED]...")
@options.margin_option
@click.option("--baseline", metavar="MODEL", help="Compare with this model only.  [default: every two]")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def status(folder: Path, files: tuple[Path, ...], margin: float, baseline: str | None, as_json: bool) -> None:
    """Show whether there are enough ratings for a verdict.

    If not, it prints about how many more are needed. Check as often as you like and stop once it is settled:
    the intervals are valid for repeated looks and for all pairs of models together. It counts the ratings of
    the page, those collected, and those in FILES.

    \b
    Examples:
      empathy-judge rate status rating-plan
      empathy-judge rate status rating-plan returned/*.json --margin 10
    """
    from empathy_judge.calibration.comparison.stop_rule import standings
    from empathy_judge.data.records import to_plain
    from empathy_judge.data.text import points
    from empathy_judge.rating.collect import RATINGS_FILE, read_all_ratings, read_collected
    from empathy_judge.rating.plan import read_plan

    made = read_plan(folder)
    ratings = read_all_ratings(folder, made, files)
    models = sorted(set(ratings.model.tolist()))
    if baseline is not None and baseline not in models:
        raise UserError(
            f"--baseline: no ratings of {baseline!r}; rated models: {', '.join(models) or 'none yet'}"
        )
    found = standings(ratings, margin=margin / 100, baseline=baseline)
    rated, planned = len(ratings.value), made.count_design()
    if as_json:
        about = {"plan": str(folder), "ratings": rated, "planned": planned, "pairs": to_plain(found)}
        about |= {"few_raters": ratings.few_raters}
        click.echo(json.dumps(about, indent=2, allow_nan=False))
        return
    say(f"{rated} of {planned} ratings by {len(set(ratings.rater.tolist()))} of {made.people} raters")
    if ratings.few_raters:
        say(ratings.few_raters)
    else:
        for pair in found:
            gap, names = pair.difference, (pair.other, pair.one)
            if gap.interval and gap.value < 0:
                gap, names = -gap, (pair.one, pair.other)  # the better one first
            shown = f"; Good share {points(gap)} points (95% CI)" if gap.interval else ""
            say(f"{' vs. '.join(names)}: {pair}{shown}")
    is_settled = len(models) > 1 and all(pair.is_settled for pair in found)
    if not rated:
        say_next("to rate on a page", "rate", "open", folder)
    elif is_settled and not files and len(read_collected(folder)) == rated:
        _say_verdict(made, folder / RATINGS_FILE)
    elif is_settled:
        say_next("to collect the ratings", "rate", "collect", folder, *files)
    else:
        people = max([pair.people or 0 for pair in found if not pair.more], default=0)
        say_next(*made.next_step(folder, rated, people=people))


@rate.command()
@click.argument("folder", type=FILE, default=options.RATING_PLAN, metavar="PLAN")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def people(folder: Path, as_json: bool) -> None:
    """List the ids of a public study, to approve or to refuse.

    Prints the verdict, the id and the reason for each.

    \b
    Example:
      empathy-judge rate people rating-plan
    """
    from empathy_judge.rating.collect import review_people

    found = review_people(folder)
    if as_json:
        rows = [{"id": key, "verdict": verdict, "reason": why} for key, (verdict, why) in found.items()]
        return click.echo(json.dumps(rows, indent=2))
    for key, (verdict, why) in found.items():
        say(f"{verdict:<10}  {key}  {why}".rstrip())


@rate.command()
@click.argument("folder", type=FILE, metavar="PLAN")
@click.argument("identity", metavar="ID")
def forget(folder: Path, identity: str) -> None:
    """Delete the answers and the id of one person.

    Deletes them from all files of the plan. Stop the page first; the place is then free for somebody else.

    \b
    Example:
      empathy-judge rate forget rating-plan 5f1d7a2b
    """
    from empathy_judge.rating.collect import forget_person
    from empathy_judge.rating.journal import lock_plan

    with lock_plan(folder):
        deleted = forget_person(folder, identity)
    say(f"{folder}: the id and {deleted} answers are deleted; copies elsewhere are not")


@rate.command("next")
@click.argument("folder", type=FILE, metavar="PLAN")
@click.argument("files", nargs=-1, metavar="[FILES]...")
@click.option(
    "--people", type=click.IntRange(1, 1000), help="Add N raters for the same replies; needs no FILES."
)
@click.option(
    "--run",
    "runs",
    type=FILE,
    multiple=True,
    help="Run of `score` over these files; replies with uncertain scores are drawn more often.",
)
@click.option(
    "--each",
    type=click.IntRange(1, 2000),
    default=20,
    show_default=True,
    help="Number of additional replies per rater, approximately.",
)
@options.column_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def next_replies(
    folder: Path,
    files: tuple[str, ...],
    people: int | None,
    runs: tuple[Path, ...],
    each: int,
    reply_columns: Columns,
    as_json: bool,
) -> None:
    """Add replies or raters to a plan.

    FILES are the files of the plan. If you add the file of a new model, its replies to prompts in the plan
    come first. Links, pages and ratings stay valid. Replies are drawn with known probabilities, by which
    `status`, `compare` and `calibrate` weight the ratings.

    \b
    Examples:
      empathy-judge rate next rating-plan responses.jsonl --run runs/responses-classifier
      empathy-judge rate next rating-plan responses.jsonl new-model.jsonl --each 25
      empathy-judge rate next rating-plan --people 4
    """
    from empathy_judge.data.judgments import read_judged
    from empathy_judge.data.records import LABELS
    from empathy_judge.data.tables import read_responses
    from empathy_judge.rating.journal import lock_plan
    from empathy_judge.rating.next_draw import draw_next
    from empathy_judge.rating.plan import Drawn, add_raters, read_plan, read_texts, write_plan

    if bool(files) == bool(people):
        raise UserError("rate next: pass the plan's files to add replies, or --people to add raters")
    with lock_plan(folder):
        made = read_plan(folder)
        texts = read_texts(folder, made)
        if people:
            chosen = Drawn(plan=add_raters(made, people), texts={}, summary=f"{people} more people")
        else:
            judgments = [
                item for run in runs for judged in read_judged(run, scale=LABELS) for item in judged.judgments
            ]
            replies = read_responses(files, reply_columns, unit=made.unit)
            chosen = draw_next(made, list(replies), judgments, each=each)
            say_notes(replies.notes())
        write_plan(chosen.plan, {**texts, **chosen.texts}, folder, is_new=False)
    added = chosen.plan.count_ratings() - made.count_ratings()
    if as_json:
        about = {"plan": str(folder), "ratings": added, "drawn": chosen.summary, "notes": chosen.notes}
        click.echo(json.dumps(about, indent=2))
        return
    say(f"{folder}: {added} more to rate by {chosen.plan.people} raters")
    say(chosen.summary)
    say_notes(f"note: {note}" for note in chosen.notes)
    say_next("to rate them", "rate", "open", folder)

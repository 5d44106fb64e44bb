"""Options, completions and messages that the commands share."""

import json
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import reduce, wraps
from itertools import count
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from empathy_judge.data.errors import Interrupted
from empathy_judge.data.storage import Columns
from empathy_judge.data.text import printable_lines

if TYPE_CHECKING:
    from empathy_judge.data.runs import FinishedRun, OnProgress
    from empathy_judge.judge.base import Judge

RATING_PLAN: Final = "rating-plan"  # the folder of `rate plan`

FILE: Final = click.Path(path_type=Path)
Decorator = Callable[[Callable[..., None]], Callable[..., None]]

margin_option: Decorator = click.option(
    "--margin",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=5.0,
    show_default=True,
    help="Smallest relevant difference, in percentage points (Good share).",
)
max_drop_option: Decorator = click.option(
    "--max-drop",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=10.0,
    show_default=True,
    metavar="POINTS",
    help="Largest loss of the Good share with which a model is still at least as good.",
)
max_cost_option: Decorator = click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="Spending limit in USD. Run the command again to resume.",
)

fresh_option: Decorator = click.option(
    "--fresh",
    is_flag=True,
    help="Ask again for all judgments, and replace this run. By default a language model's judgments of the"
    " same replies are reused from all runs in runs/.",
)


def model_options(rows: str) -> Decorator:
    """Return the options of the model that answers; `rows` are the file's rows that have its name."""
    options: list[Decorator] = [
        click.option("--model-config", type=FILE, help="TOML file with model, base_url, key_env ..."),
        click.option("--model", help="Name of the model on its server."),
        click.option("--base-url", help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1."),
        click.option(
            "--key-env", metavar="NAME", help="Environment variable with the API key (not the key itself)."
        ),
        click.option("--name", help=f"Name of the model in the {rows}.  [default: --model]"),
        click.option("--temperature", type=click.FloatRange(min=0), help="[default: 0]"),
        click.option("--max-tokens", type=click.IntRange(min=1), help="[default: 512]"),
    ]
    # The last decorator is the first option in the help.
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def say_notes(notes: Iterable[str]) -> None:
    """Print how files were read, on stderr, so that pipes and files have results only."""
    for note in notes:
        say(note, err=True)


def column_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name columns; the command takes them together as `reply_columns`."""

    @click.option("--prompt-column", metavar="NAME", help="Column of the prompt.  [default: detected]")
    @click.option(
        "--response-column",
        metavar="NAME",
        multiple=True,
        help="Column of the reply; repeat it if each model has its own column.  [default: detected]",
    )
    @click.option("--model-column", metavar="NAME", help="Column of the model's name.")
    @wraps(command)
    def gathered(
        *args: Any,
        prompt_column: str | None,
        response_column: tuple[str, ...],
        model_column: str | None,
        **rest: Any,
    ) -> None:
        command(*args, reply_columns=Columns(prompt_column, response_column, model_column), **rest)

    return gathered


def _choose_device(ctx: click.Context, parameter: click.Parameter, device: str | None) -> None:
    if device is not None:
        from empathy_judge.judge.base import DEVICE

        token = DEVICE.set(device)
        ctx.call_on_close(lambda: DEVICE.reset(token))


# Every classifier that the command loads goes by it; the command does not take it.
device_option: Decorator = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    callback=_choose_device,
    expose_value=False,
    help="Device for classifiers; cuda needs torch and onnx.  [default: auto, a GPU if it is faster]",
)


def complete_judge(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a judge, or a file."""
    from empathy_judge.judge.base import known_judges

    names = [CompletionItem(name) for name in known_judges() if name.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *names]  # the file first: bash forgets what came before


judge_option: Decorator = click.option(
    "--judge",
    "judge_name",
    default="classifier",
    show_default=True,
    metavar="JUDGE",
    shell_complete=complete_judge,
    help="A name (classifier, or the baselines length and majority), a language model (openai:MODEL,"
    " anthropic:MODEL, or URL#MODEL for any compatible server), or a TOML file.",
)
calibration_option: Decorator = click.option(
    "--calibration",
    metavar="FILE|none",
    help="Calibration file from `calibrate`, or none.  [default: the judge's own, or the one of the runs]",
)


@contextmanager
def interruptible(kept: str = "finished results are saved", **instead: Any) -> Iterator[None]:
    """On Ctrl-C, print what is saved and the command that resumes, with these options."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        again = command_line(click.get_current_context(), **instead)
        raise Interrupted(f"interrupted; {kept}. To resume:\n  {again}") from interrupt


@contextmanager
def watching(what: str, done: str, spent: Callable[[], float], **instead: Any) -> Iterator["OnProgress"]:
    """Show progress and cost; on Ctrl-C, print what is saved and the command that resumes."""
    from empathy_judge.reports.progress import progress

    with interruptible(**instead), progress(what, done, spent=spent) as on_progress:
        yield on_progress


def watch_scoring(path: Path, judge: "Judge") -> AbstractContextManager["OnProgress"]:
    """Show how far the scoring of a file is."""
    return watching(f"scoring {path.name} with {judge.name}", "scored", lambda: judge.spent, fresh=False)


def command_line(ctx: click.Context, **instead: Any) -> str:
    """Return the command line that runs this command again."""
    words = [*shlex.split(program(ctx)), *ctx.command_path.split()[1:]]
    for parameter in ctx.command.params:
        value = instead.get(parameter.name or "", ctx.params.get(parameter.name or ""))
        if isinstance(parameter, click.Argument):
            words += [str(item) for item in (value if isinstance(value, tuple) else (value,)) if item]
        else:
            words += option_words(parameter, value)
    return shlex.join(words)


def option_words(parameter: click.Parameter, value: Any) -> list[str]:
    """Return an option as it would be typed; nothing where it has its default."""
    if value is True:
        return [parameter.opts[0]]
    if isinstance(value, tuple):
        return [word for item in value for word in (parameter.opts[0], str(item))]
    return [parameter.opts[0], str(value)] if value not in (None, False, parameter.default) else []


READING_RATINGS = ("scale", "cut", "columns", "ai_raters", "skip_invalid", "exchanges")
READING_REPLIES = ("prompt_column", "response_column", "model_column", "skip_invalid")


def reading_words(ctx: click.Context, names: Collection[str] = READING_RATINGS) -> list[str]:
    """Return the options by which this command read its ratings, for a command that reads them again."""
    return [
        word
        for parameter in ctx.command.params
        if parameter.name in names
        for word in option_words(parameter, ctx.params.get(parameter.name or ""))
    ]


def say_next(what: object, *words: object) -> None:
    """Print the next step and its command, on stderr, so that stdout has results only.

    `words` are a command of this program; without them, only `what` is printed.
    """
    sys.stdout.flush()  # a pipe may hold back what was printed before
    command = f": {program(click.get_current_context())} {shlex.join(map(str, words))}" if words else ""
    say(f"Next, {what}{command}", err=True)


def say_rate_plan(what: str, *words: object) -> None:
    """Suggest a plan of ratings, in a folder that is free."""
    names = (f"{RATING_PLAN}-{number}" if number > 1 else RATING_PLAN for number in count(1))
    free = next(name for name in names if not Path(name).exists())
    say_next(what, "rate", "plan", *words, *(() if free == RATING_PLAN else ("--out", free)))


def print_asked(run: "FinishedRun", lines: Iterable[str], *, as_json: bool, file: str = "") -> None:
    """Print the manifest of a run of a model as JSON, or `lines` about it with its cost and its folder."""
    found = run.manifest
    if as_json:
        print(json.dumps({**found, "run": str(run.folder), "asked": run.asked}, indent=2))
        return
    for line in lines:
        say(line)
    if found["left_out"]:
        say(f"rejected by the server and left out: {', '.join(found['left_out'])}")
    if found["cost"] is not None:
        say(f"{found['cost']:.4f} USD")
    say(f"{run.folder / file}{'' if run.asked else ' (complete; nothing was sent)'}")


def say(text: object, *, err: bool = False) -> None:
    """Print a line; control characters quoted from a file or a server are escaped."""
    click.echo(printable_lines(str(text)), err=err)


def program(ctx: click.Context) -> str:
    """Return the command that started this program, for use in the same folder."""
    name = ctx.find_root().info_name or "empathy-judge"
    if name == "cli.py":
        script = next((word for word in sys.orig_argv if word.endswith("cli.py")), name)
        return shlex.join([sys.orig_argv[0], script])
    is_typed = Path(sys.argv[0]).name == name  # an environment that is not active is not on the PATH
    return shlex.quote(sys.argv[0]) if is_typed and not which(name) else name

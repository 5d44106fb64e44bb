"""What every command line shares."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from data.errors import Interrupted

FILE: Final = click.Path(path_type=Path)
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def model_options(rows: str, *more: Decorator, settings: str = "temperature") -> Decorator:
    """The options that say which model is asked; `rows` bear its name, and `more` stand below that one."""
    options: list[Decorator] = [
        click.option(
            "--model-config", type=FILE, help=f"A TOML file: model, base_url, key_env, {settings} ..."
        ),
        click.option("--model", help="The model to ask, as its server calls it."),
        click.option("--base-url", help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1."),
        click.option(
            "--key-env", metavar="NAME", help="The variable that holds the key; never the key itself."
        ),
        click.option("--name", help=f"What the {rows} call the model.  [default: the model]"),
        *more,
        click.option("--temperature", type=click.FloatRange(min=0), help="[default: 0]"),
        click.option("--max-tokens", type=click.IntRange(min=1), help="[default: 512]"),
    ]
    # The last decorator is the first option in the help.
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def complete_judge(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Judges by name, and files."""
    from judge.base import JUDGES

    return _complete(sorted(JUDGES), incomplete, or_file=True)


def complete_calibration(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A calibration's file, or none."""
    return _complete(["none"], incomplete, or_file=True)


def complete_source(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Datasets by the name of their source."""
    from data.importers import SOURCES

    return _complete(sorted(SOURCES), incomplete)


def _complete(names: list[str], incomplete: str, *, or_file: bool = False) -> list[CompletionItem]:
    # The file first: bash forgets what came before it.
    files = [CompletionItem(incomplete, type="file")] if or_file else []
    return files + [CompletionItem(name) for name in names if name.startswith(incomplete)]


@contextmanager
def interruptible(kept: str, **instead: Any) -> Iterator[dict[str, Any]]:
    """Say after Ctrl-C what was kept, and how to go on; yields the options as they are told then."""
    try:
        yield instead
    except KeyboardInterrupt as interrupt:
        again = command_line(click.get_current_context(), **instead)
        raise Interrupted(f"interrupted; {kept}. To go on:\n  {again}") from interrupt


def command_line(ctx: click.Context, **instead: Any) -> str:
    """The command as it would be typed to give it again."""
    words = ctx.command_path.replace("cli.py", "python cli.py", 1).split()
    for parameter in ctx.command.params:
        value = instead.get(parameter.name or "", ctx.params.get(parameter.name or ""))
        if isinstance(parameter, click.Argument):
            words.append(str(value))
        elif value is True:
            words.append(parameter.opts[0])
        elif isinstance(value, tuple):
            words += [word for item in value for word in (parameter.opts[0], str(item))]
        elif value not in (None, False, parameter.default):
            words += [parameter.opts[0], str(value)]
    return shlex.join(words)

"""What every command line shares."""

import shlex
from pathlib import Path
from typing import Any, Final

import click

FILE: Final = click.Path(path_type=Path)


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

"""The last line of every command: what a person would do next."""

import shlex
import sys

import click

from data.text import printable_lines


def say_next(what: str, *words: object) -> None:
    """Say what to do next and the command for it; on stderr, so that pipes and files hold results only.

    `words` are a command of ours; without them `what` is all there is to say.
    """
    sys.stdout.flush()  # a pipe may hold back what was printed before
    command = f": {program(click.get_current_context())} {shlex.join(map(str, words))}" if words else ""
    say(f"Next, {what}{command}", err=True)


def say(text: object, *, err: bool = False) -> None:
    """Print a line for people; what it quotes of a file or a server cannot steer their terminal."""
    click.echo(printable_lines(str(text)), err=err)


def program(ctx: click.Context) -> str:
    """How this program was called, and can be called again."""
    name = ctx.find_root().info_name or "empathy-judge"
    if name != "cli.py":
        return name
    # As it was typed: an environment that is not active has no other name, nor has a script elsewhere.
    python = sys.orig_argv[0]
    script = next((word for word in sys.orig_argv if word.endswith("/cli.py")), name)
    is_kept = "/" in script or ("/" in python and not python.startswith("/"))
    return shlex.join([python if is_kept else "python", script])

"""The command line: finds the command, and turns errors into messages and exit codes."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click

from empathy_judge import __version__
from empathy_judge.data.errors import Interrupted, UserError, install_hint, requirements
from empathy_judge.data.text import printable_lines

GROUPS = {
    "Judge replies": ("score", "compare", "respond"),
    "Check the judge": ("rate", "calibrate", "robustness", "doctor"),
    "Every night": ("nightly", "dashboard", "history"),
    "Make judges": ("train", "optimize"),
    "Other": ("import", "serve", "align", "skill"),
}
COMMANDS = [name for group in GROUPS.values() for name in group]
# Modules of `commands` by command, where their names differ.
MODULES = {"import": "import_data", "dashboard": "nightly", "history": "nightly", "skill": "doctor"}


@contextmanager
def closed_pipe() -> Iterator[None]:
    """Exit with 141, as other programs do, where the reader of the output has left (`| head -1`)."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush at exit
        raise click.exceptions.Exit(141) from error


class Commands(click.Group):
    """Commands by name; turns errors into messages and exit codes, and leaves tracebacks of bugs."""

    def main(self, *args: Any, **settings: Any) -> Any:
        if sys.platform == "win32":
            # Run folders and histories need file locks of POSIX systems.
            sys.exit("error: empathy-judge does not run on Windows; use WSL, or a server that runs it")
        if os.environ.get("GITHUB_ACTIONS"):
            from empathy_judge.reports.outputs import escape_streams

            escape_streams()
        return super().main(*args, **settings)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return COMMANDS

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        wide = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                found = [(name, self.get_command(ctx, name)) for name in group]
                lines = [(name, each.get_short_help_str(formatter.width)) for name, each in found if each]
                formatter.write_dl([(f"{name:<{wide}}", text) for name, text in lines])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # Loads only what it needs.
        module = import_module(f"empathy_judge.commands.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from difflib import get_close_matches

        close = get_close_matches(args[0], COMMANDS, n=1, cutoff=0.5)
        if close and args[0] not in COMMANDS and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        with closed_pipe():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with closed_pipe():
                return super().invoke(ctx)
        except UserError as error:
            click.echo(f"error: {printable_lines(str(error))}", err=True)
            raise click.exceptions.Exit(error.exit_code) from error
        except OSError as error:
            from empathy_judge.data.files import explain

            place = f"{error.filename}: " if error.filename else ""
            click.echo(f"error: {printable_lines(place + explain(error))}", err=True)
            raise click.exceptions.Exit(5) from error
        except ModuleNotFoundError as error:
            package = re.compile((error.name or "").replace("_", "-") + r"\b")
            extras = [extra for extra, items in requirements().items() if any(map(package.match, items))]
            if not extras:
                raise
            hint = install_hint(extras[0])
            click.echo(f"error: {error.name} is not installed; install it with: {hint}", err=True)
            raise click.exceptions.Exit(UserError.exit_code) from error
        except KeyboardInterrupt as interrupt:
            click.echo("error: interrupted; no file is incomplete. Run the command again", err=True)
            raise click.exceptions.Exit(Interrupted.exit_code) from interrupt


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="empathy-judge")
def main() -> None:
    """Estimate how people would rate the empathy of replies.

    \b
    Examples:
      empathy-judge score responses.jsonl
      empathy-judge score --help
    """

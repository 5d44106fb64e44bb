"""The commands `doctor` and `completion`: is everything in place, and how a shell completes commands."""

from pathlib import Path

import click

from commands.shared.options import FILE, say_next
from data.tables import SAMPLE_RESPONSES

WHERE = {
    "bash": 'eval "$(empathy-judge completion bash)"  in ~/.bashrc',
    "zsh": 'eval "$(empathy-judge completion zsh)"  in ~/.zshrc',
    "fish": "empathy-judge completion fish > ~/.config/fish/completions/empathy-judge.fish",
}


@click.command()
@click.argument("files", type=FILE, nargs=-1, metavar="[FILE.toml]...")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.pass_context
def doctor(ctx: click.Context, files: tuple[Path, ...], as_json: bool) -> None:
    """Check that all is there that judging needs.

    Says what to do where it is not. Looks at packages, weights, calibrations and the disk, and has the
    default judge judge a response whose answer is known. FILES are TOML files of judges, models or nights:
    keys, servers and databases they name are looked at too. Nothing is sent that could cost money. The exit
    code is 5 if one fails.

    \b
    Examples:
      empathy-judge doctor
      empathy-judge doctor prompted.toml nightly.toml
    """
    from datetime import date
    from itertools import chain

    from commands.shared.checks import check_file, check_installation, print_checks

    installed = check_installation(today=date.today(), folder=Path("runs"))
    exit_code = print_checks(chain(installed, *map(check_file, files)), as_json=as_json)
    if not as_json and exit_code:
        say_next("once that is mended", "doctor", *files)
    elif not as_json:
        say_next("score the sample replies, or a file of yours", "score", SAMPLE_RESPONSES)
    ctx.exit(exit_code)


@click.command()
@click.argument("shell", type=click.Choice(list(WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Let a shell complete commands, options, judges and files.

    Prints what the shell must read.

    \b
    Examples:
      eval "$(empathy-judge completion bash)"
      empathy-judge completion fish > ~/.config/fish/completions/empathy-judge.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(ctx.find_root().command, {}, "empathy-judge", "_EMPATHY_JUDGE_COMPLETE")
    click.echo(f"# {WHERE[shell]}\n{made.source()}")

"""The commands `doctor`, `completion` and `skill`: checks, shell completion and a page for assistants."""

from pathlib import Path

import click

from empathy_judge.commands.shared.options import FILE, say_next
from empathy_judge.data.tables import SAMPLE_RESPONSES

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
    """Check the installation.

    Checks packages, weights, calibrations and disk space, scores a reply whose score is known, and prints a
    fix for each problem. FILES are TOML files of judges, models or nights: their keys, servers and databases
    are checked too. Nothing that costs money is sent. The exit code is 5 if a check fails.

    \b
    Examples:
      empathy-judge doctor
      empathy-judge doctor prompted.toml nightly.toml
    """
    from datetime import date
    from itertools import chain

    from empathy_judge.commands.shared.checks import check_file, check_installation, print_checks

    installed = check_installation(today=date.today(), folder=Path("runs"))
    exit_code = print_checks(chain(installed, *map(check_file, files)), as_json=as_json)
    if not as_json and exit_code:
        say_next("once that is fixed", "doctor", *files)
    elif not as_json:
        say_next("to score the sample replies, or your own file", "score", SAMPLE_RESPONSES)
    ctx.exit(exit_code)


@click.command()
@click.argument("shell", type=click.Choice(list(WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell completion script.

    It completes commands, options, judges and files.

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


@click.command()
def skill() -> None:
    """Print one page for coding assistants.

    It has the installation, the main commands, the files and the exit codes.

    \b
    Examples:
      empathy-judge skill > SKILL.md
    """
    click.echo(Path(__file__).with_name("skill.md").read_text(encoding="utf-8"), nl=False)

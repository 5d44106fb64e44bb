"""The command line, in the process of the test."""

from click.testing import CliRunner, Result

from empathy_judge.commands import main as cli


def run(*words: object, code: int | None = None) -> Result:
    """Run a command, which has to end with `code` if one is given."""
    done = CliRunner().invoke(cli.main, list(map(str, words)), prog_name="empathy-judge", terminal_width=80)
    assert code is None or done.exit_code == code, done.output
    return done


def run_checked(*words: object, code: int = 0) -> Result:
    """Run a command that has to succeed, or to end with `code`."""
    return run(*words, code=code)

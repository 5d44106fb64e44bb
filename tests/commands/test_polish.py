"""What makes the command line pleasant: guesses, completion, colour, width, estimates, Ctrl-C that keeps."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from rich.console import Console
from rich.table import Table
from servers import Answer, Call, ScriptedServer, answer_chat

import cli
from reports.progress import Forecast
from reports.terminal import print_table

CLI = Path(cli.__file__)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
Start = Callable[..., "subprocess.Popen[str]"]
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(item) for item in arguments], terminal_width=80)


def on_terminal(*arguments: object, columns: int = 80, **variables: str) -> str:
    """What a person sees at a terminal of this width, escapes included."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
    }
    command = [sys.executable, str(CLI), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=kept | {"TERM": "xterm-256color"} | variables
    ) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(master)
    assert process.returncode == 0, seen
    return seen.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    """The text alone, without what a bar that went away had written."""
    return "\n".join(line.split("\r")[-1] for line in ESCAPE.sub("", text).split("\n"))


@pytest.mark.parametrize(
    ("typed", "meant"), [("scor", "score"), ("calibarte", "calibrate"), ("docter", "doctor")]
)
def test_a_mistyped_command_is_answered_with_a_guess(typed: str, meant: str) -> None:
    done = run(typed)
    assert done.exit_code == 2
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in done.stderr


def test_a_command_like_no_other_gets_no_guess() -> None:
    assert "Did you mean" not in run("xyzzy").stderr


def test_a_mistyped_option_is_answered_with_a_guess() -> None:
    assert "--judge" in run("score", "x.jsonl", "--jugde", "length").stderr


def test_the_version_names_the_judges_that_came_with_it() -> None:
    first, *judges = run("--version").stdout.splitlines()
    assert first == f"empathy-judge, version {cli.VERSION}"
    assert [line.split()[0] for line in judges] == ["classifier", "classifier-large", "classifier-small"]
    from judge.base import load_judge

    assert judges[0].split()[1] == f"{load_judge('classifier').version},", "read off the card, it is the same"


def test_version_and_help_load_nothing_heavy() -> None:
    code = (
        "import sys, cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit: print(sorted({'numpy', 'rich', 'pydantic', 'httpx'} & set(sys.modules)))"
    )
    for option in ("--version", "--help"):
        done = subprocess.run(
            [sys.executable, "-c", code, option], cwd=CLI.parent, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_says_where_it_goes(shell: str) -> None:
    done = run("completion", shell)
    assert done.exit_code == 0
    assert done.stdout.startswith("# ")
    assert f"empathy-judge completion {shell}" in done.stdout.splitlines()[0]
    assert "_EMPATHY_JUDGE_COMPLETE" in done.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        ([], "cal", {"calibrate"}),
        (["score"], "--ju", {"--judge"}),
        (["score", "--judge"], "class", {"classifier", "classifier-large", "classifier-small"}),
        (["score", "--calibration"], "n", {"none"}),
        (["import"], "emp", {"empathy-study", "empathy-study-ratings", "empathetic-exchanges"}),
        (["history", "export", "--kind"], "em", {"emotions"}),
    ],
)
def test_names_complete(words: list[str], incomplete: str, expected: set[str]) -> None:
    found = ShellComplete(cli.main, {}, "empathy-judge", "_X").get_completions(words, incomplete)
    assert {item.value for item in found if item.type == "plain"} == expected


@pytest.mark.parametrize("words", [["score", "--judge"], ["score", "--calibration"], ["compare"], ["doctor"]])
def test_files_complete(words: list[str]) -> None:
    found = ShellComplete(cli.main, {}, "empathy-judge", "_X").get_completions(words, "x")
    assert "file" in {item.type for item in found}


@pytest.fixture
def scored(write_responses: Write) -> str:
    assert run("score", write_responses(90), "--judge", "length", "--out", "run").exit_code == 0
    return "run"


@pytest.mark.slow
def test_colour_is_for_terminals_and_never_changes_the_text(scored: str) -> None:
    command = ("compare", scored)
    piped = run(*command).stdout
    assert "\x1b" not in piped
    shown = on_terminal(*command)
    assert "\x1b[1m" in shown
    without = on_terminal(*command, NO_COLOR="1")
    start = piped[:20]  # what a terminal prints before it is progress
    body, _, step = without[without.index(start) :].partition("Next, ")
    assert "\x1b" not in body + step
    assert body == plain(shown)[plain(shown).index(start) :].partition("Next, ")[0] == piped


def test_colour_can_be_forced_into_a_pipe(scored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in run("compare", scored).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("compare", scored).stdout, "who wants none has the last word"


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_column_of_the_table_goes_missing(scored: str, write_responses: Write, columns: int) -> None:
    shown = plain(
        on_terminal("score", "responses.jsonl", "--judge", "length", "--out", scored, "-v", columns=columns)
    )
    summary = json.loads(Path(scored, "summary.json").read_text())
    for model in summary["models"]:
        assert model["model"] in shown
        for share in model["shares"].values():
            assert f"{100 * share['share']:.1f}" in shown
            assert f"[{100 * share['low']:.1f}, {100 * share['high']:.1f}]" in shown
    table = shown[: shown.index("per cent of replies")].splitlines()
    assert max(map(len, table)) <= columns
    for name in ("Bad", "Okay", "Good", "unscored"):
        assert any(name in line for line in table)


@pytest.mark.parametrize("width", [10, 24, 30, 200])
def test_a_table_that_does_not_fit_is_told_row_by_row(width: int) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("name", "first\nfigure", "second"):
        table.add_column(name, no_wrap=name != "name")
    table.add_row("a model", "12.5\n[11.0, 13.0]", "99.5")
    console = Console(width=width, file=StringIO())
    print_table(console, table)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("12.5", "99.5", "second", "figure"):
        assert part in said.replace("\n", "") or part in said


def test_a_forecast_is_made_once_and_from_what_was_measured() -> None:
    said: list[str] = []
    now, paid = [0.0], [0.0]
    forecast = Forecast(said.append, spent=lambda: paid[0], clock=lambda: now[0])
    for done in range(1, 400):
        forecast.note(done, 10_000)
        now[0] += 0.25
        paid[0] += 0.001
    assert said == [
        "about 42 min and about USD 9.99 to go for 9,987 more (an estimate from 8); Ctrl-C keeps what is done"
    ]


def test_nothing_is_foretold_of_a_short_or_resumed_run() -> None:
    said: list[str] = []
    now = [0.0]
    forecast = Forecast(said.append, clock=lambda: now[0])
    for done in range(5000):  # of an earlier stretch: these pass by in no time
        forecast.note(done, 5060)
    for done in range(5000, 5060):
        now[0] += 0.15
        forecast.note(done, 5060)
    assert said == []


@pytest.mark.slow
def test_a_run_that_costs_money_says_how_much_while_it_starts(start: Start, write_responses: Write) -> None:
    path = write_responses(300)

    def script(call: Call) -> Answer:
        return Answer(body=answer_chat(call).body, delay=0.2)

    with ScriptedServer(script) as server:
        Path("judge.toml").write_text(
            f"kind = 'prompted'\nmodel = 'm'\nbase_url = '{server.base_url}'\nconcurrency = 4\n"
            "prices = {input = 1000, output = 1000}\n"
        )
        process = start("score", path, "--judge", "judge.toml", "--out", "run")
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    assert re.search(r"about \d+ (s|min) and about USD \d+\.\d\d to go", line), line + rest
    assert "an estimate" in line
    assert process.returncode == 130
    assert "To go on:" in rest


def interrupt_at(process: "subprocess.Popen[str]", server: ScriptedServer, calls: int) -> str:
    """Ctrl-C once the server has seen so many calls; what was said."""
    server.wait_for_calls(calls)
    process.send_signal(signal.SIGINT)
    server.release.set()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    return said


def hang_after(count: int) -> Callable[[Call], Answer]:
    return lambda call: (
        answer_chat(call, "So sorry to hear that.") if call.number < count else Answer(hang=True)
    )


@pytest.mark.slow
def test_an_interrupted_night_says_how_to_go_on(start: Start) -> None:
    with ScriptedServer(hang_after(5)) as server:
        Path("nightly.toml").write_text(
            "limit = 20\njudge = 'length'\nanchors = 'none'\n[[models]]\nname = 'mine'\nmodel = 'm'\n"
            f"base_url = '{server.base_url}'\nconcurrency = 2\n"
        )
        said = interrupt_at(start("nightly", "nightly.toml", "--night", "one"), server, 7)
    assert "what was answered and judged is kept" in said
    assert "nightly nightly.toml --night one" in said


@pytest.mark.slow
def test_an_interrupted_search_says_that_nothing_is_kept(
    start: Start, rated_files: tuple[Path, Path]
) -> None:
    with ScriptedServer(hang_after(2)) as server:
        Path("judge.toml").write_text(
            f"kind = 'prompted'\nmodel = 'm'\nbase_url = '{server.base_url}'\nconcurrency = 2\nretries = 0\n"
        )
        said = interrupt_at(
            start("optimize", *rated_files, "--judge", "judge.toml", "--out", "tuned.json"), server, 4
        )
    assert "nothing was kept" in said
    assert not Path("tuned.json").exists()


@pytest.mark.slow
def test_an_interrupted_training_says_what_is_kept(
    start: Start, rated_files: tuple[Path, Path], tiny_toml: Path
) -> None:
    slow = tiny_toml.read_text().replace("epochs = 5", "epochs = 5000")
    Path("slow.toml").write_text(slow)
    process = start(
        "train", *rated_files, "--recipe", "slow.toml", "--protocol", "raters-apart", "--out", "trial"
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("training ")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "the networks that were trained whole are kept" in said
    assert "--protocol raters-apart" in said
    assert "Traceback" not in said


def test_a_command_that_keeps_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*paths: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("calibration.inputs.read_inputs", interrupt)
    done = run("calibrate", "run", "ratings.jsonl")
    assert done.exit_code == 130
    assert done.stderr == "error: interrupted; no file is left half written. Give the command again\n"

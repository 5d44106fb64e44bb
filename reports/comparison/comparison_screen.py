"""A comparison on a terminal: the verdict, shares as bars, notes, three examples, and the next steps."""

from collections.abc import Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from calibration.comparison.compare_runs import ComparedRuns
from calibration.comparison.judged_models import GOOD
from data.records import NOUNS, REPLY, Exchange
from data.text import percent, printable
from reports.comparison.comparison_page import good_share, next_steps, notes, verdict_sentences
from reports.terminal import axis, bar, open_screen, print_table, print_text

SHOWN = 3  # prompts of a comparison of two
LETTERS = 150  # of a reply
BAR = 25  # columns


def print_compared(compared: ComparedRuns, texts: Mapping[str, Exchange]) -> None:
    """Print the most important figures; the page and the JSON have the rest."""
    screen = open_screen()
    first, *others = verdict_sentences(compared)
    print_text(screen, first, "bold")
    for sentence in others:
        print_text(screen, sentence)
    screen.print()
    _print_levels(compared, screen)
    for note in notes(compared):
        print_text(screen, note, "dim")
    if len(compared.pairs) == 1:
        _print_prompts(compared, texts, screen)
    screen.print()
    print_text(screen, "Next steps", "bold")
    for step in next_steps(compared):
        print_text(screen, f"- {step}")


def _print_levels(compared: ComparedRuns, screen: Console) -> None:
    """Print the models in their order, with a bar each."""
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("model", overflow="fold", min_width=8)
    grid.add_column("Good, %", justify="right", no_wrap=True)
    grid.add_column(axis(BAR), no_wrap=True)
    grid.add_column(NOUNS[compared.judge.unit], justify="right", no_wrap=True)
    encoding = screen.encoding
    for level in compared.models:
        good = level.shares.get(GOOD)
        drawn = bar(good.value if good and level.how == "judge" else good, BAR, encoding=encoding)
        grid.add_row(printable(level.model), good_share(level), drawn, f"{level.judged:,}")
    for study in compared.baselines:
        good = study.shares[GOOD]
        grid.add_row(study.name, percent(good), bar(good, BAR, encoding=encoding), "")
    print_table(screen, grid)


def _print_prompts(compared: ComparedRuns, texts: Mapping[str, Exchange], screen: Console) -> None:
    """Print both replies to the prompts with the largest differences."""
    (pair,) = compared.pairs
    gaps = [gap for gap in (pair.wins.most if pair.wins else ()) if texts.keys() >= set(gap.contents)]
    if not gaps:
        return
    screen.print()
    unit = compared.judge.unit
    ending = "" if unit == REPLY else "; shown is how each ended"
    print_text(screen, f"Largest differences (score of a {unit}, 1 to 3{ending})", "bold")
    for number, gap in enumerate(gaps[:SHOWN], start=1):
        print_text(screen, f"{number}. {_short(texts[gap.contents[0]].prompt)}", "dim")
        for name, score, content in zip((pair.one, pair.other), gap.scores, gap.contents, strict=True):
            reply = printable(f"{name} {score:.1f}: {_short(texts[content].response)}")
            screen.print(Padding(Text(reply), (0, 0, 0, 3)))


def _short(text: str) -> str:
    words = " ".join(text.split())
    if len(words) <= LETTERS:
        return words
    return f"{words[: LETTERS - 1].rsplit(' ', 1)[0]} \N{HORIZONTAL ELLIPSIS}"

"""A comparison on a terminal: verdict, levels as bars, how to read them, three prompts, what would settle."""

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from calibration.comparison.compare_runs import ComparedRuns
from calibration.comparison.judged_models import GOOD
from data.records import NOUNS, REPLY
from data.text import percent, printable
from reports.comparison.comparison_page import FEW, next_steps, short_notes, verdict_sentences, words_of
from reports.terminal import axis, bar, open_screen, print_table, print_text

SHOWN = 3  # prompts of a comparison of two
LETTERS = 150  # of a reply
BAR = 25  # columns


def print_compared(compared: ComparedRuns, screen: Console | None = None) -> None:
    """Print what a person wants to know first; the page and the JSON have the rest."""
    screen, say = screen or open_screen(), words_of(compared)
    first, *others = map(say, verdict_sentences(compared))
    print_text(screen, first, "bold")
    for sentence in others:
        print_text(screen, sentence)
    screen.print()
    _print_levels(compared, screen)
    for note in short_notes(compared):
        print_text(screen, say(note), "dim")
    if len(compared.pairs) == 1:
        _print_prompts(compared, screen)
    screen.print()
    print_text(screen, "What would settle it", "bold")
    for step in next_steps(compared):
        print_text(screen, f"- {say(step)}")


def _print_levels(compared: ComparedRuns, screen: Console) -> None:
    """The models in their order, a bar each; of more than a few their groups too."""
    is_grouped = len(compared.models) > FEW
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("model", overflow="fold", min_width=8)
    if is_grouped:
        grid.add_column("group", no_wrap=True)
    grid.add_column("Good, %", justify="right", no_wrap=True)
    grid.add_column(axis(BAR), no_wrap=True)
    grid.add_column(NOUNS[compared.judge.unit], justify="right", no_wrap=True)
    encoding = screen.encoding
    for level in compared.models:
        good = level.shares.get(GOOD)
        is_own = level.how == "judge"
        shown = f"{percent(good.value)} (judge)" if good and is_own else percent(good)
        drawn = bar(good.value if good and is_own else good, BAR, encoding=encoding)
        letters = (compared.letters[level.model],) if is_grouped else ()
        grid.add_row(printable(level.model), *letters, shown, drawn, f"{level.judged:,}")
    for study in compared.baselines:
        good = study.shares[GOOD]
        letters = ("",) if is_grouped else ()
        grid.add_row(study.name, *letters, percent(good), bar(good, BAR, encoding=encoding), "")
    print_table(screen, grid)


def _print_prompts(compared: ComparedRuns, screen: Console) -> None:
    """Both replies to the prompts on which two models differ most."""
    (pair,) = compared.pairs
    told = [(gap, gap.exchanges) for gap in pair.wins.most if gap.exchanges] if pair.wins else []
    if not told:
        return
    screen.print()
    unit = compared.judge.unit
    shown = "" if unit == REPLY else "; shown is how each ended"
    print_text(screen, f"Where they differ most (the judge scores a {unit} from 1 to 3{shown})", "bold")
    for number, (gap, (one, other)) in enumerate(told[:SHOWN], start=1):
        print_text(screen, f"{number}. {_short(one.prompt)}", "dim")
        for name, score, text in zip(
            (pair.one, pair.other), gap.scores, (one.response, other.response), strict=True
        ):
            screen.print(Padding(Text(printable(f"{name} {score:.1f}: {_short(text)}")), (0, 0, 0, 3)))


def _short(text: str) -> str:
    words = " ".join(text.split())
    return (
        words
        if len(words) <= LETTERS
        else f"{words[: LETTERS - 1].rsplit(' ', 1)[0]} \N{HORIZONTAL ELLIPSIS}"
    )

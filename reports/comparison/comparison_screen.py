"""A comparison on a terminal: the verdict, shares as bars, notes, three examples, and the next steps."""

from collections.abc import Mapping

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from empathy_judge.calibration.comparison.compare_runs import ComparedRuns
from empathy_judge.calibration.estimate import Estimate
from empathy_judge.data.records import REPLY, Exchange
from empathy_judge.data.text import printable
from empathy_judge.reports.comparison.comparison_page import next_steps, notes, verdict_sentences
from empathy_judge.reports.share_table import LevelRow, level_table, reference_rows
from empathy_judge.reports.terminal import open_screen, print_tables, print_text

SHOWN = 3  # prompts of a comparison of two
LETTERS = 150  # of a reply


def print_compared(compared: ComparedRuns, texts: Mapping[str, Exchange]) -> None:
    """Print the most important figures; the page and the JSON have the rest."""
    screen = open_screen()
    first, *others = verdict_sentences(compared)
    print_text(screen, first, "bold")
    for sentence in others:
        print_text(screen, sentence)
    screen.print()
    print_tables([level_table(_levels(compared), screen, compared.judge.unit)], screen)
    for note in notes(compared):
        print_text(screen, note, "dim")
    if len(compared.pairs) == 1:
        _print_prompts(compared, texts, screen)
    screen.print()
    print_text(screen, "Next steps", "bold")
    for step in next_steps(compared):
        print_text(screen, f"- {step}")


def _levels(compared: ComparedRuns) -> list[LevelRow]:
    """Return the models in their order, then the baselines and the study's models for reference."""
    rows = []
    for level in compared.models:
        is_own = level.how == "judge"  # whose interval covers the choice of prompts only
        shares = {
            name: Estimate(share.value, None) if is_own else share for name, share in level.shares.items()
        }
        name = f"{level.model} (judge)" if is_own else level.model
        rows.append(LevelRow(name=name, shares=shares, count=f"{level.judged:,}"))
    rows += [LevelRow(name=study.name, shares=study.shares, count="study") for study in compared.baselines]
    named = {study.name for study in compared.baselines}
    if compared.calibration.calibration is not None and compared.judge.unit == REPLY:
        rows += [row for row in reference_rows() if row.name not in named]
    return rows


def _print_prompts(compared: ComparedRuns, texts: Mapping[str, Exchange], screen: Console) -> None:
    """Print both replies to the prompts with the largest differences."""
    (pair,) = compared.pairs
    gaps = [gap for gap in (pair.wins.most if pair.wins else ()) if texts.keys() >= set(gap.contents)]
    if not gaps:
        return
    screen.print()
    unit = compared.judge.unit
    ending = "" if unit == REPLY else "; the end of each is shown"
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

"""What `train` and `optimize` print: how a judge in the making does on ratings it has not seen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calibration.agreement.model_levels import say_worth
from data.records import LABELS
from data.text import number, percent, show
from reports.page import Table, row, table_of
from reports.terminal import open_screen, print_lines, print_tables
from training.trials import METRICS, SETS_APART

Row = Mapping[str, Any]


def print_trial(evaluation: Row) -> None:
    """Print how single ratings are met, and each model's level; or how sets that were left out are."""
    if evaluation["protocol"] == SETS_APART:
        _print_sets(evaluation["sets"])
        return
    evaluations = evaluation["evaluations"]
    judge = evaluations["judge"]
    ratings = Table(
        head=("", *METRICS.values()),
        rows=tuple(
            row(name, *(_short(measured["per_response"][metric], glue="\n") for metric in METRICS))
            for name, measured in evaluations.items()
        ),
    )
    columns: dict[str, Callable[[Row], str]] = {
        "model": lambda model: model["model"],
        "crowd's Good": lambda model: number(model["crowd"]["Good"], 3),
        "judge's Good": lambda model: number(model["judge"]["Good"], 3),
        "error in points": lambda model: percent(model["share_error"]),
    }
    levels = table_of(judge["models"], columns)
    screen = open_screen()
    print_tables([ratings, levels], screen)
    screen.print()
    print_lines(_say_levels(judge, evaluation), screen)


def _print_sets(sets: Sequence[Row]) -> None:
    columns: dict[str, Callable[[Row], str]] = {
        # Whole words: a name may be broken at its slash and nowhere else.
        "set left out": lambda item: item["set"].replace("/", "/\n"),
        "rated": lambda item: f"{item['items']:,}",
        "judge": lambda item: _short(item["parties"]["judge"]["spearman"], glue="\n"),
        "length\nalone": lambda item: _short(item["parties"]["length"]["spearman"], glue="\n"),
        "AUC of\nthe worst": lambda item: _short(item["parties"]["judge"]["worst"], glue="\n"),
        "order of\nsystems": _order,
    }
    pairs = [
        (item["set"], party, figures["spearman"])
        for item in sets
        for party, figures in item["parties"].items()
        if party not in ("judge", "length")
    ]
    tables = [table_of(sets, columns)]
    legend = [
        "judge, length alone: Spearman's correlation with people's ratings",
        "AUC of the worst: how often a reply of the lowest rated fifth scores below",
        "  another; order of systems: Kendall's tau over their means",
    ]
    if pairs:
        rows = tuple(row(name, party, _short(spearman)) for name, party, spearman in pairs)
        head = ("others on the same replies", "who", "Spearman")
        tables.append(Table(head=head, rows=rows, words=frozenset({0, 1})))
        legend.append("one expert: each in turn against the mean of the others")
    screen = open_screen()
    print_tables(tables, screen)
    screen.print()
    print_lines(legend, screen)


def print_conversation_trial(evaluation: Row) -> None:
    """Print how the judge of conversations met sets or systems that it had not seen, beside its rivals."""
    _print_sets(evaluation["sets"])
    if levels := evaluation["levels"]:
        columns: dict[str, Callable[[Row], str]] = {
            "system left out": lambda item: item["system"],
            "conversations": lambda item: f"{item['conversations']:,}",
            "people's Good": lambda item: percent(item["people"]),
            "judge's Good": lambda item: percent(item["judge"]),
        }
        print_tables([table_of(levels, columns)], open_screen())


def _order(item: Row) -> str:
    tau = item["parties"]["judge"]["tau"]
    return show(tau, digits=2, interval_digits=2, zero=False, glue="\n") if tau else ""


def _say_levels(judge: Row, evaluation: Row) -> list[str]:
    levels = _levels(judge)
    baselines = ", ".join(
        f"{name} {percent(_levels(measured)['mean_share_error'])}"
        for name, measured in evaluation["evaluations"].items()
        if not name.startswith("judge")
    )
    lines = [
        f"Good share over {len(levels['models'])} models without people's own replies, in points: off by "
        f"{percent(levels['mean_share_error'])} on average, {percent(levels['worst_share_error'])} at worst",
        f"  guessing the mean of all others {percent(levels['guess_error'])}, of the others among these "
        f"{percent(levels['guess_error_among'])}; {baselines}",
        f"  their order: tau {_short(levels['tau'])}",
    ]
    # With raters apart the judge has met these models: its spread says nothing of one it has not.
    is_apart = evaluation["protocol"] == "model-apart"
    if is_apart and levels["between_sd"] is not None and levels["worth_in_ratings"] is not None:
        lines.append(
            f"spread of the error between models {percent(levels['between_sd'])} points: "
            f"the judge is worth about {say_worth(judge)} of a model"
        )
    if evaluation["on_three_arms"]:
        lines.append(f"balanced accuracy on human, gpt-4, gpt-4-plain: {_short(evaluation['on_three_arms'])}")
    return lines


def _levels(measured: Row) -> Row:
    levels: Row = measured["chosen_models"] or measured["all_models"]
    return levels


def _short(estimate: Row, *, glue: str = " ") -> str:
    """Print an estimate without the interval's third digit: it is noise, and six do not fit 80 columns."""
    return show(estimate, interval_digits=2, zero=False, glue=glue)


def print_tuned(tuned: Row) -> None:
    """Print a tuned judge's figures before and after, and what one must know to read them."""
    held_out, replies = tuned["held_out"], tuned["replies"]
    unscored, sides = held_out["unscored"], ("before", "after", "difference")
    table = Table(
        head=("held out", *sides),
        rows=(
            *(
                row(title, *(show(held_out[metric][side]) for side in sides))
                for metric, title in (("qwk", "agreement"), ("log_loss", "log-loss"))
            ),
            row("unscored", unscored["before"], unscored["after"], ""),
        ),
    )
    apart = "prompts and rating batches" if tuned["batches_apart"] else "prompts, not rating batches,"
    stopped = f"; stopped early: {tuned['stopped']}" if tuned["stopped"] else ""
    demos = f"{tuned['demos']} examples from the ratings are" if tuned["demos"] else "no examples"
    screen = open_screen()
    print_tables([table], screen)
    print_lines(
        [
            f"{held_out['compared']:,} of {held_out['ratings']:,} held-out ratings compared, with {apart} "
            f"apart from those tuned on; labels are {', '.join(LABELS)}",
            f"learnt from {replies['to learn from']:,} replies, chosen by {replies['to choose by']:,} others "
            f"out of {tuned['candidates']:,} candidates, for {tuned['metric'].replace('_', '-')}",
            "agreement: weighted kappa, 0 is chance and 1 perfect; log-loss: how far people's labels come as "
            "a surprise, less is better",
            f"{tuned['calls']:,} calls, {tuned['cost']:.4f} USD{stopped}",
            f"program {tuned['program']}: {demos} in it",
        ],
        screen,
    )

"""A judge's card in words: what it was trained on, how it did, and what it must not be trusted with."""

from collections.abc import Mapping
from typing import Any

from nightly.figures import points, show
from nightly.trials import METRICS


def state_caveat(evidence: Mapping[str, Any]) -> str:
    """The line printed under every table of this judge's shares."""
    apart = evidence.get("model-apart")
    if apart is None:
        return "How far this judge is off on a model it has not met was not measured."
    judge = apart["evaluations"]["judge"]
    levels = judge["chosen_models"] or judge["all_models"]
    mean, worst, guess = (
        100 * levels[name]["value"] for name in ("mean_share_error", "worst_share_error", "guess_error")
    )
    return (
        f"On a model it has not met, this judge's Good share was off by {mean:.1f} points on average and "
        f"{worst:.1f} at worst ({len(levels['models'])} models left out; guessing: {guess:.1f} on average)."
    )


def write_card(card: Mapping[str, Any]) -> str:
    """The card as Markdown."""
    trained = card["trained_on"]
    lines = [
        f"# {card['name']}",
        "",
        card["summary"],
        "",
        f"**Licence.** {card['licence']}",
        "",
        f"**Trained on** {trained['ratings']:,} ratings by {trained['raters']:,} people of replies by "
        f"{', '.join(trained['models'])}; {_shares(trained['shares'])}. {card['data']}",
        "",
        f"**Unseen models.** {card['caveat']}",
        "",
    ]
    for protocol, evaluation in card["evidence"].items():
        lines += [
            f"## {protocol}",
            "",
            *_metric_table(evaluation),
            "",
            *_level_table(evaluation, is_apart=protocol == "model-apart"),
            "",
        ]
    if card["int8"]:
        change = card["int8"]
        lines += [
            f"**int8** changes the score by {change['mean_score']:.4f} on average over {change['replies']} "
            f"replies, a probability by at most {change['largest_probability']:.4f}, and the Good share by "
            f"{100 * change['good_share']:+.2f} points; its scores correlate "
            f"{change['score_correlation']:.4f} with full precision.",
            "",
        ]
    return "\n".join([*lines, "## Limits", "", *(f"- {limit}" for limit in card["limits"]), ""])


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{100 * share:.1f} % {label}" for label, share in shares.items())


def _metric_table(evaluation: Mapping[str, Any]) -> list[str]:
    lines = ["| | " + " | ".join(METRICS.values()) + " |", "|---" * (len(METRICS) + 1) + "|"]
    for name, found in evaluation["evaluations"].items():
        cells = " | ".join(show(found["per_response"][metric]) for metric in METRICS)
        lines.append(f"| {name} | {cells} |")
    return lines


def _level_table(evaluation: Mapping[str, Any], *, is_apart: bool) -> list[str]:
    judge = evaluation["evaluations"]["judge"]
    lines = ["| model | crowd's Good | judge's Good | error in points |", "|---|---|---|---|"]
    for row in judge["models"]:
        error = points(row["share_error"])
        lines.append(
            f"| {row['model']} | {row['crowd']['Good']:.3f} | {row['judge']['Good']:.3f} | {error} |"
        )
    levels = judge["chosen_models"] or judge["all_models"]
    words = evaluation["evaluations"]["TF-IDF"]
    rival = (words["chosen_models"] or words["all_models"])["mean_share_error"]["value"]
    mean, guess, among = (levels[key] for key in ("mean_share_error", "guess_error", "guess_error_among"))
    lines += [
        "",
        f"Off by {points(mean)} points on average over {', '.join(levels['models'])}; TF-IDF by "
        f"{100 * rival:.1f}, guessing the mean of all others by {points(guess)}, of the others among these "
        f"by {points(among)}. Their order: Kendall's tau {show(levels['tau'], digits=2)}.",
    ]
    spread, worth = levels["between_sd"], levels["worth_in_ratings"]
    if is_apart and spread is not None and worth is not None:
        lines += [
            "",
            f"Spread of the error between models: {100 * spread:.1f} points, worth {worth:.0f} ratings.",
        ]
    return lines

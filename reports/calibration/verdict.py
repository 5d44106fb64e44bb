"""A calibration in plain sentences, the most important first; none says more than its interval does."""

from collections.abc import Mapping
from typing import Any

from data.text import show

NAMED = 4  # of several biases
SHARES = 100  # a share is told in points of a hundred


def say_verdict(report: Mapping[str, Any]) -> list[str]:
    """The sentences at the head of every report."""
    said = [
        _say_agreement(report),
        _say_ceiling(report),
        _say_levels(report),
        _say_new_model(report),
        _say_bias(report),
        _say_sets(report),
        _say_raters(report),
        _say_policy(report),
        _say_missing(report),
    ]
    return [sentence for sentence in said if sentence]


def headline(report: Mapping[str, Any]) -> str:
    """The metric to lead with: of a judge that gives probabilities the order counts, not the likeliest label.

    Of such a judge most labels are the commonest one, and kappa would be near 0 however well it ranks.
    """
    return "qwk_matched" if report["reliability"]["before"] else "qwk"


def _say_agreement(report: Mapping[str, Any]) -> str:
    name = headline(report)
    own = report["agreement"][name]
    words = "the median rating" if report["data"]["reference"] == "median" else "single ratings"
    said = f"{report['judge']['name']} agrees with {words} by a quadratic kappa of {_plain(own)}"
    others = [
        f"{item['name']} {_plain(item['metrics'][name], interval=False)}" for item in report["baselines"]
    ]
    rank = report["agreement"]["spearman"]
    low = own["low"]
    beaten = [item for item in report["baselines"] if _below(item["metrics"][name], low)]
    judged = "better than" if len(beaten) == len(report["baselines"]) else "not clearly better than"
    return (
        f"{said} (Spearman {_plain(rank)}): {judged} {' and '.join(others)}."
        if own["value"] is not None
        else f"{said}: the ratings or the judge show one level only."
    )


def _say_ceiling(report: Mapping[str, Any]) -> str:
    found = report["ceiling"]
    if found["not_identifiable"] is None:
        said = (
            f"Against the median of the others one person reaches {_plain(found['person_against_rest'])}"
            f" and the judge {_plain(found['judge_against_rest'])}"
        )
        test = found["alternative"]
        if not test or test["is_passed"] is None:
            return f"{said}."
        may = "may" if test["is_passed"] else "may not"
        return (
            f"{said}; by the alternative-annotator test it {may} stand in for a person "
            f"(it beats {100 * test['winning_rate']:.0f} % of them)."
        )
    bound = found["bounds"][0]
    reach = [bound[who]["qwk"] for who in ("second_person", "perfect")]
    if None in reach:
        return f"How well people agree is {found['not_identifiable']}."
    return (
        f"How well people agree is {found['not_identifiable']}; were two to agree by a kappa of "
        f"{bound['reliability']:.2f}, perfect knowledge of every response would reach {reach[1]:.2f}."
    )


def _say_levels(report: Mapping[str, Any]) -> str:
    shares, over = report["over_models"]["shares"], report["over_models"]
    if len(over["models"]) < 2:
        return ""
    if shares:
        errors = [abs(row["share_error"]["value"]) for row in shares]
        mean, worst = SHARES * sum(errors) / len(errors), SHARES * max(errors)
        off = f"{mean:.1f} points on average and {worst:.1f} at worst"
        what = "Its own Good share"
    else:
        off = f"{over['mean_error']['value']:.2f} on average and {over['worst_error']['value']:.2f} at worst"
        what = "Its own mean"
    tau = over["tau"]["value"]
    order = "" if tau is None else f"; its order of models and the crowd's have a Kendall tau of {tau:.2f}"
    crowd = [row["crowd_standard_error"] for row in shares or () if row["crowd_standard_error"]]
    error = f" The crowd's own has a standard error of {_points(crowd)} points a model." if crowd else ""
    return f"{what} is off by {off} over these {len(over['models'])} models{order}.{error}"


def _points(shares: list[float]) -> str:
    low, high = (f"{SHARES * end:.1f}" for end in (min(shares), max(shares)))
    return low if low == high else f"{low} to {high}"


def _say_new_model(report: Mapping[str, Any]) -> str:
    column = report["data"]["columns"][-1]
    known = [row["left_out"][column] for row in report["models"] if column in row["left_out"]]
    widths = [item["high"] - item["low"] for item in known if item["low"] is not None]
    if not widths:
        lines = report["between"]["lines"].values()
        count = max((len(line["models"]) for line in lines), default=0)
        return (
            f"Of a model nobody rated it says nothing yet: the rated models ({count}) are too few for a line."
        )
    held = [row["covered"][column] for row in report["models"] if column in row["covered"]]
    half = sum(widths) / len(widths) / 2
    is_share = column != "mean"
    reach = f"{SHARES * half:.1f} points" if is_share else f"{half:.2f}"
    worth = report["between"]["as_exact_as"]
    told = f", as exactly as about {worth:,.0f} ratings of it would" if worth else ""
    return (
        f"Of a model nobody rated it tells the {f'{column} share' if is_share else 'mean'} to within about "
        f"{reach} either way{told} (each model left out in turn: the crowd's level was inside "
        f"{sum(map(bool, held))} of {len(held)} intervals)."
    )


def _say_bias(report: Mapping[str, Any]) -> str:
    if not report["bias"]:
        return ""
    by: dict[str, list[str]] = {}
    for item in report["bias"]["findings"]:
        name = f"{item['audit']} ({item['about']})" if item["about"] else item["audit"]
        key = item["verdict"] if item["verdict"] != "found" else f"found, {item['size']}"
        by.setdefault(key, []).append(name)
    said = []
    if large := by.get("found, matters"):
        said.append(f"Bias found that matters: {_list(large)}.")
    if unclear := by.get("found, unclear"):
        said.append(f"Bias found that may matter: {_list(unclear)}.")
    if by.get("could not have been found"):
        kinds = sorted({name.split(" (")[0] for name in by["could not have been found"]})
        said.append(f"Could not have been found with these ratings: some of {', '.join(kinds)}.")
    return " ".join(said) or "No bias that matters was found, and one would have been."


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def _say_sets(report: Mapping[str, Any]) -> str:
    found = report["conformal"]
    if not found["sizes"] or found["coverage"]["value"] is None:
        return ""
    return (
        f"Sets of labels that hold the rating {100 * found['coverage']['value']:.0f} % of the time name one "
        f"label for {100 * found['sizes'][0]:.0f} % of the responses: the rest is for people."
    )


def _say_raters(report: Mapping[str, Any]) -> str:
    found = report["rater_model"]
    if not found or found["undefined"]:
        return ""
    return (
        f"Of what varies between ratings {100 * found['variance']['severity']:.0f} % is how severe the rater "
        f"is and {100 * found['variance']['models']:.0f} % which model replied."
    )


def _say_policy(report: Mapping[str, Any]) -> str:
    found = report["policy"]
    if not found or len(found["strict"]["models"]) < 2:
        return ""
    return (
        "The judge's order of models is the same whether Okay is counted with Good or with Bad."
        if found["same_order"]
        else "The judge's order of models depends on whether Okay is counted with Good or with Bad."
    )


def _say_missing(report: Mapping[str, Any]) -> str:
    data = report["data"]
    unscored = sum(data["unscored"].values())
    if not unscored and not data["unjudged"]:
        return ""
    return (
        f"Not in these figures: {unscored:,} rated responses without a score and {data['unjudged']:,} the "
        "judge was not given."
    )


def _plain(estimate: Mapping[str, float | None], *, interval: bool = True) -> str:
    shown = estimate if interval else {**estimate, "low": None, "high": None}
    return show(shown, digits=2, zero=False)


def _below(estimate: Mapping[str, float | None], low: float | None) -> bool:
    value = estimate["value"]
    return low is not None and (value is None or value < low)

"""A calibration in plain sentences, the most important first; none says more than its interval does."""

from math import isfinite

from calibration.estimate import Estimate
from calibration.fit import CalibrationReport
from data.text import show

NAMED = 4  # of several biases
SHARES = 100  # a share is told in points of a hundred


def say_verdict(report: CalibrationReport) -> list[str]:
    """The sentences at the head of every report."""
    sentences = [
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
    return [sentence for sentence in sentences if sentence]


def _say_agreement(report: CalibrationReport) -> str:
    kappa = report.agreement.metrics[report.headline]
    words = "the median rating" if report.data.reference == "median" else "single ratings"
    said = f"{report.judge.name} agrees with {words} by a quadratic kappa of {_plain(kappa)}"
    if not isfinite(kappa.value):
        return f"{said}: the ratings or the judge show one level only."
    others = [(item.name, item.metrics[report.headline]) for item in report.baselines]
    is_ahead = kappa.interval is not None and not any(
        other.value >= kappa.interval.low for _, other in others
    )
    better = "better than" if is_ahead else "not clearly better than"
    named = " and ".join(f"{name} {_plain(Estimate(other.value, None))}" for name, other in others)
    return f"{said} (Spearman {_plain(report.agreement.metrics['spearman'])}): {better} {named}."


def _say_ceiling(report: CalibrationReport) -> str:
    ceiling = report.ceiling
    if ceiling.not_identifiable is None:
        said = (
            f"Against the median of the others one person reaches {_plain(ceiling.person_against_rest)}"
            f" and the judge {_plain(ceiling.judge_against_rest)}"
        )
        test = ceiling.alternative
        if not test or test.is_passed is None:
            return f"{said}."
        may = "may" if test.is_passed else "may not"
        return (
            f"{said}; by the alternative-annotator test it {may} stand in for a person "
            f"(it beats {100 * test.winning_rate:.0f} % of them)."
        )
    bound = ceiling.bounds[0]
    if not isfinite(bound.second_person.qwk + bound.perfect.qwk):
        return f"How well people agree is {ceiling.not_identifiable}."
    return (
        f"How well people agree is {ceiling.not_identifiable}; were two to agree by a kappa of "
        f"{bound.reliability:.2f}, perfect knowledge of every response would reach {bound.perfect.qwk:.2f}."
    )


def _say_levels(report: CalibrationReport) -> str:
    means, shares = report.agreement.means, report.agreement.shares
    if len(means.models) < 2:
        return ""
    if shares:
        errors = [abs(level.share_error.value) for level in shares]
        mean, worst = SHARES * sum(errors) / len(errors), SHARES * max(errors)
        off = f"{mean:.1f} points on average and {worst:.1f} at worst"
        what = "Its own Good share"
    else:
        off = f"{means.mean_error.value:.2f} on average and {means.worst_error.value:.2f} at worst"
        what = "Its own mean"
    tau = means.tau.value
    order = f"; its order of models and the crowd's have a Kendall tau of {tau:.2f}" if isfinite(tau) else ""
    crowd = [level.crowd_standard_error for level in shares or () if level.crowd_standard_error > 0]
    error = f" The crowd's own has a standard error of {_points(crowd)} points a model." if crowd else ""
    return f"{what} is off by {off} over these {len(means.models)} models{order}.{error}"


def _points(shares: list[float]) -> str:
    low, high = (f"{SHARES * end:.1f}" for end in (min(shares), max(shares)))
    return low if low == high else f"{low} to {high}"


def _say_new_model(report: CalibrationReport) -> str:
    column = report.data.columns[-1]
    left_out = [item.left_out[column].interval for item in report.models.rows if column in item.left_out]
    widths = [ends.high - ends.low for ends in left_out if ends]
    if not widths:
        count = max(len(item.models) for item in report.models.calibrated.values())
        return (
            f"Of a model nobody rated it says nothing yet: the rated models ({count}) are too few for a line."
        )
    covered = [item.covered[column] for item in report.models.rows if column in item.covered]
    half = sum(widths) / len(widths) / 2
    has_shares = report.data.has_shares
    reach = f"{SHARES * half:.1f} points" if has_shares else f"{half:.2f}"
    worth = report.models.as_exact_as
    told = f", as exactly as about {worth:,.0f} ratings of it would" if worth else ""
    return (
        f"Of a model nobody rated it tells the {f'{column} share' if has_shares else 'mean'} to within about "
        f"{reach} either way{told} (each model left out in turn: the crowd's level was inside "
        f"{sum(map(bool, covered))} of {len(covered)} intervals)."
    )


def _say_bias(report: CalibrationReport) -> str:
    by_outcome: dict[str, list[str]] = {}
    for item in report.findings:
        name = f"{item.audit} ({item.about})" if item.about else item.audit
        outcome = item.verdict if item.verdict != "found" else f"found, {item.size}"
        by_outcome.setdefault(outcome, []).append(name)
    said = []
    if large := by_outcome.get("found, matters"):
        said.append(f"Bias found that matters: {_list(large)}.")
    if unclear := by_outcome.get("found, unclear"):
        said.append(f"Bias found that may matter: {_list(unclear)}.")
    if hidden := by_outcome.get("could not have been found"):
        kinds = sorted({name.split(" (")[0] for name in hidden})
        said.append(f"Could not have been found with these ratings: some of {', '.join(kinds)}.")
    return " ".join(said) or "No bias that matters was found, and one would have been."


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def _say_sets(report: CalibrationReport) -> str:
    sets = report.sets
    if not sets.sizes or not isfinite(sets.coverage.value):
        return ""
    return (
        f"Sets of labels that hold the rating {100 * sets.coverage.value:.0f} % of the time name one "
        f"label for {100 * sets.sizes[0]:.0f} % of the responses: the rest is for people."
    )


def _say_raters(report: CalibrationReport) -> str:
    model = report.rater_model
    if model.undefined:
        return ""
    return (
        f"Of what varies between ratings {100 * model.variance['severity']:.0f} % is how severe the rater "
        f"is and {100 * model.variance['models']:.0f} % which model replied."
    )


def _say_policy(report: CalibrationReport) -> str:
    if not report.policy or len(report.policy.strict.models) < 2:
        return ""
    return (
        "The judge's order of models is the same whether Okay is counted with Good or with Bad."
        if report.policy.same_order
        else "The judge's order of models depends on whether Okay is counted with Good or with Bad."
    )


def _say_missing(report: CalibrationReport) -> str:
    unscored = sum(report.data.unscored.values())
    if not unscored and not report.data.unjudged:
        return ""
    return (
        f"Not in these figures: {unscored:,} rated responses without a score and "
        f"{report.data.unjudged:,} the judge was not given."
    )


def _plain(estimate: Estimate) -> str:
    return show(estimate, digits=2, zero=False)

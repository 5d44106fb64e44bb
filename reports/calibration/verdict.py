"""A calibration in plain sentences, the most important first; none says more than its interval does."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from calibration.bias.audits import Finding
from calibration.estimate import Estimate
from calibration.fit import CalibrationReport
from calibration.pairing import LEAST_RATERS, OF_THESE_RATERS
from calibration.shares.planning import round_up
from calibration.shares.transport import LEAST_MODELS
from data.errors import UserError
from data.rubric import in_words
from data.text import number, show

NAMED = 4  # of several biases or models
STEPS = 3  # to take next
TRIED = LEAST_MODELS + 1  # rated models: a line is left when one is left out
ORDERED = 4  # models from which on their order says anything
USEFUL = 0.2  # of the whole scale: a level known less exactly is of no use
CLOSE = 0.05  # of kappas that are told to be the same
HOLDS = 0.7  # of the left-out models inside their intervals, of which there are few
RIVALS = {"length": "counting words", "majority": "always giving the commonest label"}
LEANS = {  # to whom or what a judge is too kind or too harsh
    "level": "on the whole",
    "length": "to longer replies",
    "author": "to replies by people",
    "valence": "under pleasant emotions",
    "emotion": "to the {about}",
}
ONE_LEVEL = "of people's labels, or of the judge's, fewer than five differ from the commonest"
DEFAULT, LARGER = "classifier", "classifier-large"
SHARES = 100  # a share is told in points of a hundred


@dataclass(frozen=True, slots=True, kw_only=True)
class NewModels:
    """How a model nobody rated would fare, by leaving out each rated one: half an interval, and hits."""

    half: float
    covered: int
    count: int

    @property
    def holds(self) -> bool:
        """Whether the intervals kept to what they promise, as far as so few can tell."""
        return self.covered >= HOLDS * self.count


def say_verdict(report: CalibrationReport) -> list[str]:
    """The headline and the answers beneath it, as sentences."""
    return [say_headline(report), *(f"{question} {answer}" for question, answer in say_answers(report))]


def say_headline(report: CalibrationReport) -> str:
    """Whether to rely on it, in one sentence."""
    data = report.data
    kappa = report.agreement.metrics[report.headline]
    if not isfinite(kappa.value):
        return f"Do not rely on it yet: {ONE_LEVEL}."
    if kappa.interval is None:
        return f"Do not rely on it yet: {data.ratings:,} ratings are too few to tell anything."
    if unbeaten := _unbeaten(report):
        name, reached = unbeaten[0]
        than = "does no better" if kappa.value < reached.value + CLOSE else "is not shown to do better"
        return f"Do not rely on it yet: on your {data.ratings:,} ratings it {than} than {name}."
    if data.speaks_for != "people":
        return f"Do not rely on it for people at large yet: only {count_people(data.raters)} rated."
    rated = f"Use it for the {len(data.models):,} models people rated, and for no other yet"
    new = _new_models(report)
    if new is None:
        return f"{rated}."
    if not new.holds:
        return f"{rated}: it missed people's level on {new.count - new.covered} of {new.count} left out."
    told = f"it tells a model's {_level(report)} to within {_reach(report, new)}"
    if new.half > USEFUL * (1 if data.has_shares else len(data.scale) - 1):
        return f"{rated}: {told} only."
    return f"Rely on it for models, not for single replies: {told}."


def say_answers(report: CalibrationReport) -> list[tuple[str, str]]:
    """Four questions, each with its answer."""
    answers = {
        "Can I use it?": [_say_use(report), _say_agreement(report), _say_ceiling(report)],
        "For which models?": [_say_models(report)],
        "Where does it fail?": [
            _say_levels(report),
            _say_bias(report),
            _say_missing(report),
        ],
        "What next?": _next_steps(report),
    }
    return [(question, " ".join(filter(None, said))) for question, said in answers.items() if any(said)]


def count_people(count: int) -> str:
    """So many people.

    >>> count_people(1), count_people(1200)
    ('1 person', '1,200 people')
    """
    return f"{count:,} {'person' if count == 1 else 'people'}"


def rivals(report: CalibrationReport) -> list[tuple[str, Estimate]]:
    """The baselines in words, and what they reach, the best first."""
    reached = [(RIVALS.get(item.name, item.name), item.metrics[report.headline]) for item in report.baselines]
    return sorted(reached, key=lambda rival: (isfinite(rival[1].value), rival[1].value), reverse=True)


def _unbeaten(report: CalibrationReport) -> list[tuple[str, Estimate]]:
    """Those that the judge is not clearly better than."""
    ends = report.agreement.metrics[report.headline].interval
    low = -inf if ends is None else ends.low
    return [(name, estimate) for name, estimate in rivals(report) if estimate.value >= low]


def refuse_part(report: CalibrationReport) -> str | None:
    """Why a part of empathy is not told by this judge: it is not shown to agree better than counting words.

    The whole was held against people before it was shipped; of a part nobody knows that yet.
    """
    if not report.judge.dimension_note:
        return None
    if not any(item.name == "length" for item in report.baselines):
        raise UserError(
            "--exchanges: a part of empathy is held against counting words, which takes the texts: add them"
        )
    kappa, unbeaten = report.agreement.metrics[report.headline], _unbeaten(report)
    if kappa.interval is not None and not unbeaten:
        return None
    others = " and ".join(f"{name} ({_plain(Estimate(item.value, None))})" for name, item in unbeaten)
    return (
        f"{in_words(report.judge.dimension)} is refused: with a weighted kappa of {_plain(kappa)} this judge"
        f" is not shown to agree with people better than {others or RIVALS['length']}. No calibration was"
        " written."
    )


def _say_use(report: CalibrationReport) -> str:
    if _unbeaten(report) or not isfinite(report.agreement.metrics[report.headline].value):
        return "Not by itself: where people rated, go by their ratings."
    if report.data.speaks_for != "people":
        return f"{OF_THESE_RATERS[0].upper()}{OF_THESE_RATERS[1:]}."
    return "For models, yes, once corrected. For single replies, no."


def _say_agreement(report: CalibrationReport) -> str:
    kappa = report.agreement.metrics[report.headline]
    if not isfinite(kappa.value):
        return ""
    said = f"It agrees with single ratings by a weighted kappa of {_plain(kappa)}"
    others = [f"{name} reaches {_plain(Estimate(estimate.value, None))}" for name, estimate in rivals(report)]
    return f"{said}, where {', '.join(others)} (1 is perfect, 0 is chance)."


def _say_ceiling(report: CalibrationReport) -> str:
    ceiling = report.ceiling
    if ceiling.not_identifiable is not None:
        why = ceiling.not_identifiable.removeprefix("not identifiable: ")
        return f"How well people agree with each other is not known: {why}."
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


def _say_levels(report: CalibrationReport) -> str:
    levels = report.agreement.levels
    if len(levels.models) < 2:
        return ""
    scale, digits, unit = (SHARES, 1, " points") if report.data.has_shares else (1, 2, "")
    mean, worst = (
        f"{scale * item.value:.{digits}f}{unit}" for item in (levels.mean_error, levels.worst_error)
    )
    tau = levels.tau.value
    is_order = isfinite(tau) and len(levels.models) >= ORDERED
    order = f"; its order of models and the crowd's have a Kendall tau of {tau:.2f}" if is_order else ""
    crowd = [item.people_standard_error for item in levels.models if item.people_standard_error > 0]
    error = f" The crowd's own has a standard error of {_points(crowd)} points a model." if crowd else ""
    return (
        f"Its own {_level(report)} is off by {mean} on average and {worst} at worst over these "
        f"{len(levels.models)} models{order}.{error if report.data.has_shares else ''}"
    )


def _points(shares: list[float]) -> str:
    low, high = (f"{SHARES * end:.1f}" for end in (min(shares), max(shares)))
    return low if low == high else f"{low} to {high}"


def _new_models(report: CalibrationReport) -> NewModels | None:
    column = report.data.columns[-1]
    left_out = [item.left_out[column].interval for item in report.models.rows if column in item.left_out]
    widths = [ends.high - ends.low for ends in left_out if ends]
    if not widths:
        return None
    covered = [item.covered[column] for item in report.models.rows if column in item.covered]
    half = sum(widths) / len(widths) / 2
    return NewModels(half=half, covered=sum(map(bool, covered)), count=len(covered))


def _level(report: CalibrationReport) -> str:
    return f"{report.data.columns[-1]} share" if report.data.has_shares else "mean"


def _reach(report: CalibrationReport, new: NewModels) -> str:
    return f"about {SHARES * new.half:.1f} points" if report.data.has_shares else f"about {new.half:.2f}"


def _say_models(report: CalibrationReport) -> str:
    names = report.data.models
    rated = f"Those people rated: {_list(names)}."
    new = _new_models(report)
    if new is None and len(names) >= LEAST_MODELS:
        return (
            f"{rated} How it does on a model nobody rated cannot be tried: that takes {TRIED} rated models."
        )
    if new is None:
        return (
            f"{rated} Of a model nobody rated it says nothing yet: {len(names)} rated "
            f"model{'s are' if len(names) != 1 else ' is'} too few for a line from its level to people's."
        )
    worth = count_worth(report)
    told = f", as exactly as about {worth} of it would" if worth else ""
    return (
        f"{rated} Of a model nobody rated, if its level lies among theirs, it tells the {_level(report)} to "
        f"within {_reach(report, new)} either way{told} (each model left out in turn: people's level was "
        f"inside {new.covered} of {new.count} intervals)."
    )


def count_worth(report: CalibrationReport) -> str | None:
    """How many ratings of a new model tell as much as the judge; few models hardly tell how many."""
    worth, ends = report.models.as_exact_as, report.models.worth_in_ratings.interval
    if worth is None:
        return None
    told = f"{worth:,.0f} ratings"
    if ends is not None:
        low, high = min(ends.low, worth), max(ends.high, worth)
        models = len(report.models.calibrated[report.models.columns[-1]].models)
        told += f" ({low:,.0f} to {round_up(high):,}: {models} models tell no more)"
    return told


def _say_bias(report: CalibrationReport) -> str:
    found = [item for item in report.findings if item.verdict == "found"]
    said = [
        f"{words}: {_list([_lean(item) for item in found if item.size == size])}."
        for size, words in (
            ("matters", "It errs, enough to matter"),
            ("unclear", "It errs, perhaps enough to matter"),
        )
        if any(item.size == size for item in found)
    ]
    hidden = [item.audit for item in report.findings if item.verdict == "could not have been found"]
    if hidden:
        said.append(
            f"{len(hidden)} of {len(report.findings)} biases could not have been found with these ratings "
            f"({', '.join(sorted(set(hidden)))})."
        )
    return " ".join(said) or "No bias that matters was found, and one would have been."


def _lean(finding: Finding) -> str:
    """Which way a judge errs, in words, and by how many points of score."""
    way = "too kind" if finding.effect.value > 0 else "too harsh"
    what = LEANS.get(finding.audit, "to {about}").format(about=finding.about)
    return f"{way} {what} ({number(finding.effect.value, 2, sign=True)})"


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def _say_missing(report: CalibrationReport) -> str:
    unscored = sum(report.data.unscored.values())
    if not unscored and not report.data.unjudged:
        return ""
    return (
        f"Not in these figures: {unscored:,} rated responses without a score and "
        f"{report.data.unjudged:,} the judge was not given."
    )


def _next_steps(report: CalibrationReport) -> list[str]:
    """What would help most, the first first."""
    data, steps = report.data, []
    if data.speaks_for != "people":
        steps.append(
            f"Ask at least {LEAST_RATERS} people to rate (rate plan): fewer speak for themselves only."
        )
    if not isfinite(report.agreement.metrics[report.headline].value):
        steps.append("Have replies rated that differ: some poor, some good.")
    elif _unbeaten(report):
        more = f"{4 * data.ratings:,} in all would halve the interval of its kappa"
        steps.append(f"Have more rated (rate plan): {more}.")
        if report.judge.name == DEFAULT:
            steps.append(f"Or try the larger judge: score with --judge {LARGER}, and calibrate that run.")
    elif not steps:
        command = "empathy-judge score FILE --calibration calibration.json"
        steps.append(f"Score with it ({command}), until {report.calibration.expires}.")
    if (missing := TRIED - len(data.models)) > 0:
        models = f"{missing} more model{'s' if missing > 1 else ''}"
        steps.append(f"Have replies by {models} rated, to reach models nobody rated.")
    if report.ceiling.not_identifiable:
        steps.append("Have some replies rated by two people or more, to learn how well people agree.")
    return steps[:STEPS]


def _plain(estimate: Estimate) -> str:
    return show(estimate, digits=2, zero=False)

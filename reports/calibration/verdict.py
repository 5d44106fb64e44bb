"""The verdict of a calibration in sentences, the most important first; each follows from an interval."""

from collections.abc import Iterator, Sequence
from math import inf, isfinite
from typing import NamedTuple

from empathy_judge.calibration.agreement.metrics import FEW_MINORITY
from empathy_judge.calibration.bias import Finding
from empathy_judge.calibration.estimate import LEAST_RATERS, THESE_RATERS_ONLY, Estimate
from empathy_judge.calibration.fit import CalibrationReport, RunRow
from empathy_judge.calibration.shares.transport import LEAST_MODELS, CalibratedModels, fit_line
from empathy_judge.data.errors import UserError
from empathy_judge.data.records import NOUNS
from empathy_judge.data.rubric import in_words
from empathy_judge.data.text import interval, listed, money, number, show

NAMED = 4  # of several biases or models
STEPS = 3  # to take next
TRIED = LEAST_MODELS + 1  # rated models: a line is left when one is left out
ORDERED = 4  # models from which on their order says anything
WIDER = 1.25  # times the spread of the shipped models, from which on the reason is printed
USEFUL = 0.2  # of the whole scale: a level known less exactly is of no use
CLOSE = 0.05  # difference of kappas that counts as equal
HOLDS = 0.7  # of the left-out models inside their intervals, of which there are few
RIVALS = {"length": "counting words", "majority": "the most common label"}
BIASES = {  # where a judge's scores are too high or too low
    "level": "overall",
    "length": "for longer {noun} relative to shorter ones",
    "author": "for human {noun} relative to those of language models",
    "valence": "under positive emotions relative to negative ones",
}
SHARES = 100  # a share is shown in percentage points


class NewModels(NamedTuple):
    """The precision on an unrated model, by leaving out each rated one: half an interval, and hits."""

    half: float
    covered: int
    tried: int


def say_verdict(report: CalibrationReport) -> list[str]:
    """Return the headline and the answers beneath it, as sentences; with several judges the choice first."""
    answers = [" ".join(answer) for answer in say_answers(report)]
    return [*say_choice(report), say_headline(report), *answers]


def _best_judges(report: CalibrationReport) -> list[RunRow]:
    """Return the judges within the interval of the best one, the best first; empty without one."""
    judges = [run for run in report.runs if run.kind == "judge" and run.name not in RIVALS]
    judges = [run for run in judges if isfinite(_kappa(run, report).value)]
    judges.sort(key=lambda run: -_kappa(run, report).value)
    ends = _kappa(judges[0], report).interval if judges else None
    if ends is None or any(reached.value >= ends.low for _, reached in rivals(report)):
        return []
    return [run for run in judges if _kappa(run, report).value >= ends.low]


def choose_judge(report: CalibrationReport) -> RunRow | None:
    """Choose the cheapest of the judges within the interval of the best one; None where that is not known."""
    return min(_best_judges(report), key=_cost, default=None)


def say_choice(report: CalibrationReport) -> list[str]:
    """Return which of several judges to choose, and how many independent ones they amount to."""
    judges = [run for run in report.runs if run.kind == "judge"]
    if len(judges) < 2:
        return []
    independent = [
        f"By their errors on models, the {len(judges)} judges count as about {count:.1f} independent ones."
        for count in filter(isfinite, [report.independent_judges])
    ]
    chosen, within = choose_judge(report), _best_judges(report)
    if chosen is None:
        rival = rivals(report)[0][0]
        return [
            f"No judge can be recommended yet: none agrees significantly better than {rival}.",
            *independent,
        ]
    best, *others = within
    if chosen is not best:
        instead = f"costs {money(_cost(chosen))} per 1,000 instead of {money(best.usd_per_1000)}"
        rest = f"{chosen.name} is within its confidence interval and {instead if _cost(chosen) else 'free'}"
    elif others:
        is_priced = all(run.usd_per_1000 is not None for run in within)
        are = f"{listed([run.name for run in others])} {'is' if len(others) == 1 else 'are'}"
        rest = f"{are} within its confidence interval{' and not cheaper' * is_priced}"
    else:
        rest = "all other judges agree significantly less"
    kappa = show(_kappa(best, report))
    choice = f"{best.name} agrees with your raters best (weighted kappa {kappa}); {rest}."
    return [choice, *independent]


def _kappa(run: RunRow, report: CalibrationReport) -> Estimate:
    return run.metrics[report.headline]


def _cost(run: RunRow) -> float:
    return inf if run.usd_per_1000 is None else run.usd_per_1000


def say_headline(report: CalibrationReport) -> str:
    """Return in one sentence whether to rely on the calibrated judge."""
    several = sum(run.kind == "judge" for run in report.runs) > 1
    return f"{report.runs[0].name}: {_headline(report)}" if several else _headline(report)


def _headline(report: CalibrationReport) -> str:
    data = report.data
    kappa = report.agreement.metrics[report.headline]
    if what := RIVALS.get(report.judge.name):
        return f"Do not use it as a judge: it is {what}, a baseline that judges are compared with."
    if not isfinite(kappa.value):
        return f"Do not rely on it yet: {FEW_MINORITY}."
    if kappa.interval is None:
        return f"Do not rely on it yet: {data.ratings:,} ratings are too few for an interval."
    if unbeaten := _unbeaten(report):
        name, reached = unbeaten[0]
        than = "no better" if kappa.value < reached.value + CLOSE else "not significantly better"
        return f"Do not rely on it yet: on your {data.ratings:,} ratings it agrees {than} than {name}."
    if data.population != "general":
        return f"Do not generalize to people at large yet: only {count_people(data.raters)} rated."
    rated = f"Use it only for the {len(data.models):,} models you rated"
    new = _new_models(report)
    if new is None:
        return f"{rated}."
    if new.covered < HOLDS * new.tried:
        missed = new.tried - new.covered
        return f"{rated}: its interval missed the human level on {missed} of {new.tried} models left out."
    if new.half > USEFUL * (1 if data.has_shares else len(data.scale) - 1):
        return f"{rated}. For other models its error can be {_reach(report, new)}."
    precision = f"it estimates a model's {_level(report)} to within {_reach(report, new)}"
    return f"Use it for models, not for single {NOUNS[report.judge.unit]}: {precision}."


def say_answers(report: CalibrationReport) -> list[tuple[str, str]]:
    """Return the questions, each with its answer."""
    answers = {
        "Can I use it?": [_say_use(report), say_ceiling(report)],
        "For which models?": [_say_models(report)],
        "What does it do?": [say_effect(report)],
        "Where does it fail?": [_say_levels(report), _say_bias(report), _say_missing(report)],
        "What next?": _next_steps(report),
    }
    return [(question, " ".join(filter(None, said))) for question, said in answers.items() if any(said)]


def count_people(count: int) -> str:
    """Return a number of people in words.

    >>> count_people(1), count_people(1200)
    ('1 person', '1,200 people')
    """
    return f"{count:,} {'person' if count == 1 else 'people'}"


def rivals(report: CalibrationReport) -> list[tuple[str, Estimate]]:
    """Return the baselines in words and their agreement, the best first."""
    reached = [(RIVALS.get(item.name, item.name), item.metrics[report.headline]) for item in report.baselines]
    return sorted(reached, key=lambda rival: (isfinite(rival[1].value), rival[1].value), reverse=True)


def _unbeaten(report: CalibrationReport) -> list[tuple[str, Estimate]]:
    """Return the baselines that the judge is not clearly better than."""
    ends = report.agreement.metrics[report.headline].interval
    low = -inf if ends is None else ends.low
    return [(name, estimate) for name, estimate in rivals(report) if estimate.value >= low]


def refuse_part(report: CalibrationReport) -> str | None:
    """Return why a dimension cannot be calibrated: the judge agrees no better than counting words; else None.

    The shipped judge was validated on empathy as a whole, not on single dimensions.
    """
    if not report.judge.dimension_note:
        return None
    if not any(item.name == "length" for item in report.baselines):
        raise UserError("--exchanges: needed to compare the judge with counting words; pass the replies")
    kappa, unbeaten = report.agreement.metrics[report.headline], _unbeaten(report)
    if kappa.interval is not None and not unbeaten:
        return None
    others = " and ".join(f"{name} ({number(item.value)})" for name, item in unbeaten)
    return (
        f"{in_words(report.judge.dimension)} cannot be calibrated: with a weighted kappa of "
        f"{show(kappa)}, this judge agrees with people not significantly better than "
        f"{others or RIVALS['length']}. No calibration was written."
    )


def _say_use(report: CalibrationReport) -> str:
    if report.judge.name in RIVALS:
        return "No."
    if _unbeaten(report) or not isfinite(report.agreement.metrics[report.headline].value):
        return "Not by itself: use human ratings where they exist."
    if report.data.population != "general":
        return f"{THESE_RATERS_ONLY[0].upper()}{THESE_RATERS_ONLY[1:]}."
    return f"For models, yes, once corrected. For single {NOUNS[report.judge.unit]}, no."


def say_ceiling(report: CalibrationReport) -> str:
    """Return how well people agree with each other, and the judge beside them, in one sentence."""
    ceiling = report.ceiling
    if ceiling.not_identifiable is not None:
        why = ceiling.not_identifiable.removeprefix("not identifiable: ")
        return f"How well people agree with each other is not identifiable: {why}."
    person, judge = map(show, (ceiling.person_against_rest, ceiling.judge_against_rest))
    return f"Against the median of the other raters, one person reaches {person} and the judge {judge}."


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
    order = f"; Kendall's tau of its order of models and the human order is {tau:.2f}" if is_order else ""
    return (
        f"Its own {_level(report)} deviates by {mean} on average and {worst} at worst over these "
        f"{len(levels.models)} models{order}."
    )


def say_effect(report: CalibrationReport) -> str:
    """Return how far apart the judge rates models, and how often it says Good, beside people."""
    levels, repeats = report.agreement.levels, report.repeats
    names = {"judge": "", "people": ""}
    for name in names:
        mean = sum(getattr(item, name) * item.ratings for item in levels.models) / report.data.ratings
        names[name] = f"{mean:.0%} Good" if report.data.has_shares else f"{mean:.2f} on average"
    verb = "calls" if report.data.has_shares else "rates"
    said = [f"It {verb} {names['judge']} where people {verb[:-1]} {names['people']}."]
    if ends := levels.slope.interval:
        size = f"{number(levels.slope.value, 1)} {interval(ends.low, ends.high, 1)}"
        said[:0] = [f"Where people rate two models 1 point apart, it rates them {size} points apart."]
    if trial := report.map_trial:
        gain = f"{'+' * (trial.gain.value > 0)}{show(trial.gain)}"
        outcome = "applied" if trial.rating_map else "not certain, not applied"
        levels_said = f"Spearman {number(trial.judge)} to {number(trial.mapped)} ({gain})"
        said.append(f"Map to these ratings: {levels_said}, {outcome}.")
    if repeats:
        part = f"{repeats.changed / repeats.replies:.0%} of {repeats.replies} labels"
        said.append(f"Asked {repeats.times} times, it changed {part}.")
    return " ".join(said)


def _new_models(report: CalibrationReport) -> NewModels | None:
    column = report.data.columns[-1]
    left_out = [item.left_out[column].interval for item in report.models.rows if column in item.left_out]
    widths = [ends.high - ends.low for ends in left_out if ends]
    if not widths:
        return None
    covered = [item.covered[column] for item in report.models.rows if column in item.covered]
    half = sum(widths) / len(widths) / 2
    return NewModels(half=half, covered=sum(map(bool, covered)), tried=len(covered))


def _level(report: CalibrationReport) -> str:
    return f"{report.data.columns[-1]} share" if report.data.has_shares else "mean"


def _reach(report: CalibrationReport, new: NewModels) -> str:
    return f"about {SHARES * new.half:.1f} points" if report.data.has_shares else f"about {new.half:.2f}"


def _line(report: CalibrationReport) -> CalibratedModels:
    return report.models.calibrated[report.data.columns[-1]]


def _say_models(report: CalibrationReport) -> str:
    count, new = _line(report).count, _new_models(report)
    if new is not None:
        unrated = (
            f"For an unrated model inside their range it estimates the {_level(report)} to within "
            f"{_reach(report, new)} either way (with each model left out in turn, {new.covered} of "
            f"{new.tried} intervals contain the human level)."
        )
    elif count >= LEAST_MODELS:
        unrated = (
            f"To measure its precision on an unrated model, or to correct new replies of a rated one, takes "
            f"{TRIED} rated models; to compare two of these by new replies takes {TRIED + 1}."
        )
    else:
        models = f"{count} rated model{'s are' if count != 1 else ' is'}"
        unrated = f"It cannot estimate an unrated model yet: {models} too few for a calibration line."
    return f"The rated ones: {_list(report.data.models)}. {' '.join([unrated, *say_base(report)])}"


def say_base(report: CalibrationReport) -> Iterator[str]:
    """Yield that the line has other people's models too, and the reason where intervals are wider for it."""
    line = _line(report)
    if line.base is None:
        return
    yield f"The line also goes through the {line.base.count} models of the shipped calibration."
    spread = fit_line(line).model_sd
    if spread > WIDER * fit_line(line.base).model_sd:
        by = f"{SHARES * spread:.0f} points" if report.data.has_shares else f"{spread:.2f}"
        yield (
            f"Your models deviate from that line by about {by}, so intervals are wider than with the shipped"
            " calibration."
        )


def _say_bias(report: CalibrationReport) -> str:
    noun = NOUNS[report.judge.unit]
    found = [item for item in report.findings if item.verdict == "found"]
    titles = {"matters": "Biases large enough to matter", "unclear": "Biases that may matter"}
    sentences = [
        f"{title}: {_list([_bias(item, noun) for item in found if item.size == size])}."
        for size, title in titles.items()
        if any(item.size == size for item in found)
    ]
    hidden = [item.audit for item in report.findings if item.verdict == "could not have been found"]
    if hidden:
        sentences.append(
            f"Too few ratings to test {len(hidden)} of {len(report.findings)} biases"
            f" ({', '.join(sorted(set(hidden)))})."
        )
    return " ".join(sentences) or "No bias that matters was found, and one would have been detected."


def _bias(finding: Finding, noun: str) -> str:
    """Return the direction of a bias and its size in points of score."""
    way = "too high" if finding.effect.value > 0 else "too low"
    what = BIASES[finding.audit].format(noun=noun)
    return f"{way} {what} ({number(finding.effect.value, 2, sign=True)})"


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def _say_missing(report: CalibrationReport) -> str:
    unscored = sum(report.data.unscored.values())
    if not unscored and not report.data.unjudged:
        return ""
    noun = NOUNS[report.judge.unit]
    return (
        f"Excluded: {unscored:,} rated {noun} without a score and "
        f"{report.data.unjudged:,} not passed to the judge."
    )


def _next_steps(report: CalibrationReport) -> list[str]:
    """Return the steps that would help most, the most useful first."""
    data, noun, steps = report.data, NOUNS[report.judge.unit], list[str]()
    if data.population != "general":
        steps.append(
            f"Ask at least {LEAST_RATERS} people to rate (rate plan): fewer cannot show how people differ."
        )
    if not isfinite(report.agreement.metrics[report.headline].value):
        steps.append(f"Have {noun} of different quality rated: some poor, some good.")
    elif _unbeaten(report):
        more = f"{4 * data.ratings:,} in all would halve the interval of its kappa"
        steps.append(f"Have more rated (rate plan): {more}.")
    elif not steps:
        command = "empathy-judge score FILE --calibration calibration.json"
        steps.append(f"Score with it ({command}), until {report.calibration.expires}.")
    if (missing := TRIED - _line(report).count) > 0:
        models = f"{missing} more model{'s' if missing > 1 else ''}"
        steps.append(f"Have {noun} by {models} rated, to estimate other models and new replies of these.")
    if report.ceiling.not_identifiable:
        steps.append(f"Have some {noun} rated by two or more people, to measure how well people agree.")
    return steps[:STEPS]

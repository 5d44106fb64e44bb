"""A comparison of judged models: its sentences, its JSON values and its page."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from calibration.comparison.compare_runs import ComparedRuns
from calibration.comparison.differences import ALPHA, Difference
from calibration.comparison.judged_models import JudgedLevel
from calibration.comparison.published_models import is_published
from data.crisis import say_flags
from data.records import LABELS, to_plain
from data.text import UNDEFINED, interval, listed, p_value, percent, points, signed
from reports.page import Page, Section, Table, row, table_of

MOST_NAMED = 6
MOST_PAIRS = 60
NOTABLE = 0.01  # a share by which a difference may differ from that of the levels unexplained
BASES = {"ratings": "ratings", "line": "the line", "both": "line and ratings", "judge": "the judge alone"}
BASES_NOTE = (
    "by: line, the judge corrected through calibrated models; ratings, people's of this model; both, the two"
    " together; judge, the judge's own share, uncorrected."
)


def compared_runs_row(compared: ComparedRuns) -> dict[str, Any]:
    """Make the JSON values of a comparison of runs, with a sentence for each pair and the notes."""
    calibration = compared.corrector.calibration
    return {
        "kind": "runs",
        "judge": {name: getattr(compared.judge, name) for name in ("name", "version", "rubric")},
        "calibration": {
            "digest": calibration.digest,
            "created": calibration.created.isoformat(),
            "expires": calibration.expires.isoformat(),
            "models": list(calibration.betweens()[-1].models),
        }
        if calibration
        else None,
        "says": compared.corrector.says,
        "margin": compared.margin,
        "models": [
            {**to_plain(level), "letters": compared.letters[level.model]} for level in compared.models
        ],
        "baselines": [
            {
                "model": item.name,
                "shares": to_plain(item.shares),
                "ratings": item.ratings,
                "design_effect": item.design_effect,
            }
            for item in compared.baselines
        ],
        "pairs": [{**to_plain(pair), "sentence": say_pair(pair, compared.margin)} for pair in compared.pairs],
        "tests": compared.tests,
        "never_met": list(compared.never_met),
        "repeated": list(compared.repeated),
        **compared.flags,
        "notes": list(_notes(compared)),
    }


def say_pair(pair: Difference, margin: float) -> str:
    """Say in one sentence how two models differ."""
    step = f"{100 * margin:g} points"
    both = f"{pair.one} and {pair.other}"
    whose = pair.one if is_published(pair.other) else "each"
    if pair.verdict == "refused":
        more = f" About {round_up(pair.more):,} ratings of {whose} would tell." if pair.more else ""
        return f"{both} cannot be compared: {pair.reason or UNDEFINED}.{more}"
    figures = f"Good {signed(pair.good.value)} points"
    if ends := pair.good.interval:
        figures += f" {_ends((ends.low, ends.high), sign=True)}"
    figures += f", {_say_p(pair.p_holm)}"
    if pair.p < ALPHA <= pair.p_holm:
        figures += f" ({_say_p(pair.p)} before Holm)"
    if pair.verdict in ("better", "worse"):
        undone = "" if pair.is_robust else " Unscored responses could undo this."
        if pair.how == "judge":
            side = "above" if pair.verdict == "better" else "below"
            return f"The judge puts {pair.one} {side} {pair.other}: {figures}.{undone}"
        return f"{pair.one} is {pair.verdict} than {pair.other}: {figures}.{undone}"
    if pair.verdict == "no difference":
        return f"No difference shown between {both}: {figures}; one of {step} would have been found."
    more = ""
    if pair.more:
        what = "prompts" if pair.unit == "prompts" else f"ratings of {whose}"
        more = f"; about {round_up(pair.more):,} more {what} would find a difference of {step}"
    return f"Too few to tell {pair.one} from {pair.other}: {figures}{more}."


def round_up(count: int) -> int:
    """Round a number up to two digits: a plan is no more exact than that.

    >>> round_up(1302), round_up(47), round_up(100)
    (1400, 47, 100)
    """
    step = int(10 ** max(0, len(str(count)) - 2))
    return -(-count // step) * step


def _say_p(value: float) -> str:
    text = p_value(value)
    return f"p {text}" if text == UNDEFINED or text.startswith("<") else f"p = {text}"


def _notes(compared: ComparedRuns) -> Iterator[str]:
    """Say what one must know to read the comparison, the weightiest first."""
    calibration = compared.corrector.calibration
    if calibration is None and {model.how for model in compared.models} - {"ratings"}:
        yield (
            f"Not corrected ({compared.corrector.says}): intervals cover the choice of prompts only. Nothing"
            " here says how far this judge strays from people on a model it has never met."
        )
    elif calibration is not None and compared.never_met:
        yield (
            f"Models the judge has never met: {_some(compared.never_met)}. Their levels rest on how far it"
            f" strayed on {len(calibration.betweens()[-1].models)} models people rated; a model of a new kind"
            " may lie further off. Ratings of a few dozen of its replies narrow this: --ratings."
        )
    if calibration is not None and compared.repeated:
        yield (
            f"In several runs: {_some(compared.repeated)}. How far the judge strays is likely the same in"
            " each, so between runs of one model the judge's own difference is the closer guide."
        )
    if unscored := [f"{model.model} {model.unscored:,}" for model in compared.models if model.unscored]:
        yield f"Unscored: {', '.join(unscored)}; see below what they could change at worst."
    if compared.tests > 1:
        yield f"p-values are adjusted for {compared.tests} comparisons (Holm)."
    if shared := [pair.shared_prompts for pair in compared.pairs if pair.shared_prompts]:
        least, most = min(shared), max(shared)
        prompts = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        yield f"Paired by prompt: {prompts} prompts are shared by two models."
    yield from _say_levels(compared)
    if len(compared.models) > 1:
        yield "Models that share a letter are not told apart."
    if compared.baselines:
        yield "study: people's ratings in the published study, of replies to its own 2,000 prompts."
    yield from (f"{line}." for line in say_flags(compared.flags.get("flagged")))


def _some(names: Sequence[str]) -> str:
    if len(names) <= MOST_NAMED:
        return listed(names)
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"


def _say_levels(compared: ComparedRuns) -> Iterator[str]:
    """Say why differences are not those of the levels beside them, where one sees that they are not."""
    levels = {level.model: level for level in compared.models if level.shares}
    weighed, based = [], []
    for pair in compared.pairs:
        one, other = levels.get(pair.one), levels.get(pair.other)
        if one is None or other is None or not pair.shares:
            continue
        gap = one.good - other.good
        if not abs(gap - pair.good.value) >= NOTABLE:
            continue
        names = f"{one.model} \N{EN DASH} {other.model} ({signed(gap)} by levels)"
        basis, first, second = (BASES[item.how] for item in (pair, one, other))
        if basis == first == second:
            weighed.append(names)
        else:
            based.append(
                f"{names} rests on {basis}, the level of {one.model} on {first}, that of {other.model} on"
                f" {second}"
            )
    if weighed:
        yield (
            f"Not the difference of the levels: {_some(weighed)}. What raters and prompts do to both models"
            " cancels in a difference, so ratings and line weigh otherwise in it than in a level."
        )
    if based:
        yield f"Not the difference of the levels: {_some(based)}."


def runs_page(compared: ComparedRuns) -> Page:
    """Show judged models in their order, and every two of them."""
    left = len(compared.pairs) - MOST_PAIRS
    pairs = compared.pairs[:MOST_PAIRS]
    sections = [
        Section(
            title="Order",
            tables=(_order(compared),),
            notes=(*_notes(compared), BASES_NOTE),
        ),
        Section(
            title="Differences",
            tables=(_pairs(pairs),),
            notes=(f"{left:,} more pairs are in the JSON.",) if left > 0 else (),
        ),
    ]
    if unscored := [model for model in compared.models if model.unscored]:
        sections.append(_at_worst(unscored, pairs))
    return Page(
        title="Models compared",
        subtitle=f"judge {compared.judge.name} {compared.judge.version}; {compared.corrector.says}",
        verdict=tuple(say_pair(pair, compared.margin) for pair in pairs),
        sections=tuple(sections),
    )


def _order(compared: ComparedRuns) -> Table:
    is_rated = bool(compared.baselines) or any(model.ratings for model in compared.models)
    rows = []
    for model in compared.models:
        shares = [percent(model.shares.get(label), glue="\n") for label in LABELS]
        rated = (model.ratings,) if is_rated else ()
        basis = UNDEFINED if model.how == "refused" else model.how
        rows.append(row(model.model, compared.letters[model.model], *shares, model.judged, *rated, basis))
    for study in compared.baselines:
        shares = [percent(study.shares[label], glue="\n") for label in LABELS]
        rows.append(row(study.name, "", *shares, "", study.ratings, "people"))
    head = ("model", "tie", *LABELS, "judged", *(("rated",) if is_rated else ()), "by")
    return Table(
        caption="Per cent of responses, with 95 % intervals",
        head=head,
        rows=tuple(rows),
        words=frozenset({0, 1, len(head) - 1}),
    )


def _pairs(pairs: Sequence[Difference]) -> Table:
    columns: dict[str, Callable[[Difference], Any]] = {
        "pair": _names,
        "Good": lambda pair: points(pair.shares.get("Good"), glue="\n"),
        "Bad": lambda pair: points(pair.shares.get("Bad"), glue="\n"),
        "Good by\nthe judge": lambda pair: points(pair.judge, glue="\n"),
        "p Holm": lambda pair: p_value(pair.p_holm),
    }
    if all(pair.how == "judge" for pair in pairs):
        del columns["Good by\nthe judge"]  # where the judge alone decides, that is the difference
    return table_of(pairs, columns, caption="In points, with 95 % intervals")


def _at_worst(models: Sequence[JudgedLevel], pairs: Sequence[Difference]) -> Section:
    names = {model.model for model in models}
    levels = table_of(
        models,
        {
            "model": lambda model: model.model,
            "unscored": lambda model: f"{model.unscored:,} of {model.unscored + model.judged:,}",
            "Good": lambda model: percent(model.shares.get("Good")),
            "at worst": lambda model: _ends(model.extremes),
        },
        caption="Per cent Good, were every unscored response not Good, or every one Good",
    )
    differences = table_of(
        [pair for pair in pairs if {pair.one, pair.other} & names],
        {
            "pair": _names,
            "Good": lambda pair: points(pair.shares.get("Good"), glue="\n"),
            "at worst": lambda pair: _ends(pair.extremes, sign=True),
            "verdict": _say_robust,
        },
        caption="Differences in points, were all unscored responses of the two opposite",
        words=frozenset({0, 3}),
    )
    return Section(title="What unscored responses could change", tables=(levels, differences))


def _say_robust(pair: Difference) -> str:
    if pair.verdict not in ("better", "worse"):
        return pair.verdict
    return f"{pair.verdict}, {'holds' if pair.is_robust else 'could be undone'}"


def _names(pair: Difference) -> str:
    return f"{pair.one}\n\N{EN DASH} {pair.other}"


def _ends(ends: tuple[float, float] | None, *, sign: bool = False) -> str:
    return interval(*ends, 1, scale=100, sign=sign) if ends else UNDEFINED

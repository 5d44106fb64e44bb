"""The page of a comparison: who wins, by how much, where, and what to do next; and its JSON values."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from calibration.comparison.compare_runs import ComparedRuns
from calibration.comparison.differences import LEAST_REPLIES, Difference
from calibration.comparison.judged_models import GOOD, JudgedLevel
from data.coverage import say_outside
from data.crisis import LEFT_OUT, say_flags
from data.readers.conversations import speak_of
from data.records import CONVERSATION, LABELS, REPLY, to_plain
from data.rubric import in_words
from data.text import UNDEFINED, interval, listed, p_value, percent, points, signed
from reports.charts import Line, Look, dot_plot, mark, percent_tick, signed_tick
from reports.comparison.pair_sentences import (
    headline,
    ranked,
    say_figures,
    say_pair,
    say_settling,
    say_sureness,
    say_wins,
)
from reports.outputs import CheckOutcome, Evaluation, GoodShare
from reports.page import Example, Figure, Page, Section, Table, row, say_page, table_of

MOST_NAMED = 6
FEW = 4  # models, of which every two are told; of more, groups
MOST_EXAMPLES = {1: 10, 2: 5}  # prompts of a pair, by the number of pairs; of more pairs 3
NOTABLE = 0.01  # a share by which a difference may differ from that of the levels unexplained
BASES = {"ratings": "ratings", "line": "the line", "both": "line and ratings", "judge": "the judge alone"}
BASES_NOTE = (
    "by: line, the judge corrected through calibrated models; ratings, people's of this model; both, the two"
    " together; judge, the judge's own share, uncorrected."
)


def compared_runs_row(compared: ComparedRuns) -> dict[str, Any]:
    """Make the JSON values of a comparison of runs, with a sentence for each pair and the notes."""
    calibration, say = compared.corrector.calibration, words_of(compared)
    return {
        "kind": "runs",
        "judge": {name: getattr(compared.judge, name) for name in ("name", "version", "rubric")},
        **({"dimension": compared.judge.dimension} if compared.judge.dimension_note else {}),
        "calibration": {
            "digest": calibration.digest,
            "created": calibration.created.isoformat(),
            "expires": calibration.expires.isoformat(),
            "models": list(calibration.models),
        }
        if calibration
        else None,
        "says": compared.corrector.note,
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
        "pairs": [
            {
                **to_plain(pair),
                "reason": pair.reason and say(pair.reason),
                "sentence": say(say_pair(pair, compared.margin)),
            }
            for pair in compared.pairs
        ],
        "tests": compared.tests,
        "never_met": list(compared.never_met),
        "repeated": list(compared.repeated),
        **compared.flags,
        **({"outside": dict(compared.outside)} if compared.outside else {}),
        "notes": list(map(say, _notes(compared))),
    }


def words_of(compared: ComparedRuns) -> Callable[[str], str]:
    """What makes sentences speak of conversations, where these were compared."""
    return speak_of(compared.judge.unit, compared.letters)


def compared_evaluation(compared: ComparedRuns) -> Evaluation:
    """The comparison as other tools are told of it; needs two models, or a baseline."""
    outcomes = {0: "pass", 1: "regression", 3: "inconclusive"}
    say = words_of(compared)
    told = [say(say_pair(pair, compared.margin)) for pair in compared.pairs]
    return Evaluation(
        kind="compare",
        name="compare",
        outcome=outcomes[compared.exit_code],
        exit_code=compared.exit_code,
        sentences=tuple(told),
        judge=compared.judge.name,
        judge_version=compared.judge.version,
        models=tuple(_good_share(level) for level in compared.models),
        checks=tuple(
            CheckOutcome(
                model=pair.one,
                name=f"Good against {pair.other}",
                outcome=outcomes[compared.exit_code_of(pair)],
                sentence=sentence,
            )
            for pair, sentence in zip(compared.pairs, told, strict=True)
        ),
    )


def _good_share(level: JudgedLevel) -> GoodShare:
    good = level.shares[GOOD].as_dict() if GOOD in level.shares else {}
    return GoodShare(
        model=level.model,
        share=good.get("value"),
        low=good.get("low"),
        high=good.get("high"),
        replies=level.judged,
        unscored=level.unscored,
    )


def short_notes(compared: ComparedRuns) -> Iterator[str]:
    """The few notes that belong on the first screen."""
    yield from filter(None, [compared.judge.dimension_note])
    yield "Good: what part of people's ratings would be Good; a point is 1 of 100."
    calibration = compared.corrector.calibration
    if calibration is None and {model.how for model in compared.models} - {"ratings"}:
        yield (
            f"Not corrected ({compared.corrector.note}): these are the judge's own figures, and nothing says"
            " how far it strays from people."
        )
    elif any(model.how == "line" for model in compared.models):
        count = len(calibration.models) if calibration else 0
        yield (
            f"Brackets hold the true share 95 times of 100: nobody rated these replies, and on the {count}"
            " models that people rated the judge was off by some points."
        )
    if len(compared.pairs) == 1 and not compared.pairs[0].bound and any(_say_levels(compared)):
        yield "The difference is not that of the levels: it goes by the people and prompts that both share."
    if calibration is not None:
        yield from _say_siblings(compared)
    if calibration is not None:
        yield from _say_own(compared)
    if unscored := [f"{model.model} {model.unscored:,}" for model in compared.models if model.unscored]:
        yield f"Unscored: {', '.join(unscored)}."
    yield from say_outside(compared.outside)
    yield from (f"{line}." for line in say_flags(compared.flags.get("flagged"), LEFT_OUT))


def _say_own(compared: ComparedRuns) -> Iterator[str]:
    """Say why some figures are the judge's own though it is calibrated."""
    own = [model for model in compared.models if model.how == "judge"]
    if few := [model.model for model in own if model.judged < LEAST_REPLIES]:
        verb = "have" if len(few) > 1 else "has"
        yield f"(judge): {_some(few)} {verb} fewer than {LEAST_REPLIES} replies, so no interval is known."
    if far := [model.model for model in own if model.judged >= LEAST_REPLIES]:
        verb = "are" if len(far) > 1 else "is"
        yield f"(judge): {_some(far)} {verb} beyond every model people rated, so no interval is known."


def _notes(compared: ComparedRuns) -> Iterator[str]:
    """Say what one must know to read the comparison, the weightiest first."""
    yield from filter(None, [compared.judge.dimension_note])
    calibration = compared.corrector.calibration
    if calibration is None and {model.how for model in compared.models} - {"ratings"}:
        yield (
            f"Not corrected ({compared.corrector.note}): intervals cover the choice of prompts only. Nothing"
            " here says how far this judge strays from people on a model it has never met."
        )
    elif calibration is not None and compared.never_met:
        yield (
            f"Models the judge has never met: {_some(compared.never_met)}. Their levels rest on how far it"
            f" strayed on {len(calibration.models)} models people rated; a model of a new kind"
            " may lie further off. Ratings of a few dozen of its replies narrow this: rate."
        )
    if calibration is not None:
        yield from _say_siblings(compared)
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
    yield from say_outside(compared.outside)
    yield from (f"{line}." for line in say_flags(compared.flags.get("flagged"), LEFT_OUT))


def _say_siblings(compared: ComparedRuns) -> Iterator[str]:
    """Say what is taken for granted of versions of one model, or what could be."""
    likeness = compared.likeness
    used = [pair for pair in compared.pairs if pair.correlation]
    if likeness is None:
        if compared.repeated:
            yield (
                f"In several runs: {_some(compared.repeated)}. The judge likely errs alike on versions of one"
                " model, which would narrow their difference; how much alike is not known here, so they count"
                " as strangers. State it to count on it, such as --siblings 0.8."
            )
    elif used and likeness.source == "stated":
        yield (
            f"Taken as versions of one model: you stated that the judge errs on them alike (correlation"
            f" {likeness.mean:g}), and the interval of their difference is narrower for it. Nothing here"
            " checks that."
        )
    elif used:
        low, high = likeness.interval
        yield (
            f"Taken as versions of one model: on {likeness.pairs} pairs of such models that people rated the"
            f" judge erred alike (correlation {likeness.mean:.2f}, {low:.2f} to {high:.2f}), and the interval"
            " of their difference is narrower for it."
        )


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
        names = f"{one.model} and {other.model}"
        basis, first, second = (BASES[item.how] for item in (pair, one, other))
        if basis == first == second:
            weighed.append(f"{names} ({signed(gap)} by levels)")
        else:
            based.append(
                f"{names} ({signed(gap)} by levels: {one.model} by {first}, {other.model} by {second};"
                f" the difference by {basis})"
            )
    if weighed:
        yield (
            f"Not the difference of the levels: {_some(weighed)}. The same people and prompts stand behind"
            " both, so a difference is surer than a level, and ratings and judge weigh otherwise in it."
        )
    if based:
        yield f"Not the difference of the levels, as these rest on unlike things: {_some(based)}."


def runs_page(compared: ComparedRuns) -> Page:
    """Show who wins, by how much, where, and what to do next."""
    is_many = len(compared.models) > FEW and not compared.has_baseline
    sections = [
        Section(
            name="amount",
            title="By how much",
            short="By how much",
            key=KEY,
            figures=tuple(_figures(compared)),
            tables=(_order(compared), *(() if is_many else (_pairs(compared.pairs),))),
            notes=() if not is_many else ("Every two models with their differences are in the JSON.",),
        )
    ]
    if examples := tuple(_examples(compared)):
        sections.append(
            Section(
                name="prompts",
                title="Where they differ most",
                short="Where they differ",
                text=(
                    "Prompts on which the judge finds them furthest apart; it scores a reply from 1 to 3."
                    if compared.judge.unit == REPLY
                    else "Situations in which the judge finds them furthest apart; it scores a whole "
                    "conversation from 1 to 3. Shown is how each ended.",
                ),
                examples=examples,
            )
        )
    sections.append(
        Section(name="next", title="What to do next", short="Next", points=tuple(next_steps(compared)))
    )
    if unscored := [model for model in compared.models if model.unscored]:
        sections.append(_at_worst(unscored, () if is_many else compared.pairs))
    sections.append(
        Section(name="notes", title="How to read this", short="Notes", points=(*_notes(compared), BASES_NOTE))
    )
    page = Page(
        kind="Comparison",
        title=_title(compared),
        subtitle=f"judge {compared.judge.name} {compared.judge.version}; {compared.corrector.note}",
        verdict=tuple(verdict_sentences(compared)),
        facts=tuple(_facts(compared)),
        sections=tuple(sections),
    )
    return say_page(page, words_of(compared))


def _title(compared: ComparedRuns) -> str:
    if len(compared.pairs) == 1:
        return f"{compared.pairs[0].one} and {compared.pairs[0].other}"
    return f"{len(compared.models)} models compared"


def verdict_sentences(compared: ComparedRuns) -> Iterator[str]:
    """Say who wins: of two models with what it rests on, of a few pair by pair, of more in groups."""
    if compared.judge.dimension_note:
        yield f"By {in_words(compared.judge.dimension)} alone:"
    if len(compared.pairs) == 1:
        (pair,) = compared.pairs
        yield f"{headline(pair, compared.margin)}."
        figures = say_figures(pair)
        is_name = figures.startswith((pair.one, pair.other))  # which is written as it is
        yield f"{figures if is_name else figures[0].upper() + figures[1:]}."
        yield from filter(None, (say_sureness(pair), say_wins(pair)))
        if not pair.is_robust:
            yield "Unscored responses could undo this."
    elif len(compared.models) > FEW and not compared.has_baseline:
        yield from _say_groups(compared)
    else:
        for pair in compared.pairs:
            wins = say_wins(pair)
            yield f"{headline(pair, compared.margin)}: {say_figures(pair)}. {wins}".rstrip()


def _say_groups(compared: ComparedRuns) -> Iterator[str]:
    """Name the group in front, and those behind it."""
    first, *others = (level.model for level in compared.models)
    letters = set(compared.letters[first])
    front = [name for name in others if letters & set(compared.letters[name])]
    behind = [name for name in others if name not in front]
    if not behind:
        yield f"{len(compared.models)} models, and no two groups of them are told apart."
        return
    beside = f"; {_some(front)} cannot be told from it" if front else ""
    yield f"{first} is in front{beside}."
    yield f"Behind: {_some(behind)}."
    groups = sorted({letter for name in compared.letters.values() for letter in name})
    yield f"{len(groups)} groups, which overlap where models cannot be told apart; letters name them below."


def next_steps(compared: ComparedRuns) -> Iterator[str]:
    """Say what would settle what is open, the nearest step first."""
    open_pairs = [pair for pair in compared.pairs if pair.verdict not in ("better", "worse", "same")]
    if not open_pairs:
        yield "Nothing is open: keep the better one, and compare again when either changes."
        return
    if any(model.judged < LEAST_REPLIES for model in compared.models):
        yield f"Give {LEAST_REPLIES} replies of each or more, to the same prompts: fewer tell nothing."
    if len(compared.pairs) == 1 and (told := say_settling(open_pairs[0]).strip()):
        yield f"Have people rate replies of both (rate plan), then compare with --ratings. {told}"
    else:
        yield "Have people rate replies of the models in question (rate plan), then compare with --ratings."
    if compared.corrector.calibration is None:
        yield "Calibrate the judge with ratings: until then it can lean, and say no more about people."
    elif not compared.are_siblings:
        yield (
            "Are they versions, prompts or decodings of one model? The judge errs alike on those: say so with"
            " --siblings and how much alike, such as --siblings 0.8."
        )
    if fewest := min(
        (pair.shared_prompts for pair in open_pairs if 0 < pair.shared_prompts < 160), default=0
    ):
        if compared.judge.unit == CONVERSATION:
            yield "Let both talk in more of the same situations: twice as many tell more."
        else:
            yield f"Let both answer more of the same prompts: 160 tell more than {fewest:,}."


def _facts(compared: ComparedRuns) -> Iterator[tuple[str, str, str]]:
    """The few figures at the top, of a comparison of two."""
    if len(compared.pairs) != 1:
        return
    (pair,) = compared.pairs
    first, second = ranked(pair)
    turn = -1.0 if first == pair.other else 1.0
    word = {"better": "better", "same": "the same", "cannot say": "cannot say"}
    verdict = word.get(pair.verdict, "better" if pair.verdict == "worse" else "leans to")
    yield "Verdict", verdict, first if verdict in ("better", "leans to") else f"{first} and {second}"
    if pair.shares:
        value, ends = turn * pair.good.value, pair.good.interval
        more = " or more" if pair.bound else ""
        detail = "points of Good"
        if ends and pair.bound:
            low = ends.low if turn > 0 else -ends.high
            detail += f"; {signed(low)} or more is 95 % sure" if low > 0 else ""
        elif ends:
            low, high = sorted((turn * ends.low, turn * ends.high))
            detail = f"points of Good, {signed(low)} to {signed(high)}"
        yield "Difference", f"{signed(value)}{more}", detail
    if pair.wins:
        wins, losses = pair.wins.wins, pair.wins.losses
        wins, losses = (wins, losses) if turn > 0 else (losses, wins)
        yield "Prompts won", f"{wins:,} of {pair.wins.prompts:,}", f"{losses:,} the other way"


KEY = (("people", "as people would see it, 95 % interval"), ("judge", "the judge alone"))


def _figures(compared: ComparedRuns) -> Iterator[Figure]:
    """Draw the levels, and of a few models the differences."""
    lines = []
    for level in compared.models:
        look: Look = "judge" if level.how == "judge" else "people"
        good = level.shares.get(GOOD)
        lines.append(Line(name=level.model, figure=_good(level), marks=(mark(look, good),) if good else ()))
    yield dot_plot(
        "Good replies, per cent",
        lines,
        name="levels",
        title="Share of Good replies of each model",
        tick=percent_tick,
        unit=" %",
    )
    pairs = [pair for pair in compared.pairs if pair.judge.value == pair.judge.value]
    if len(compared.models) > FEW or not pairs:
        return
    lines = []
    for pair in pairs:
        marks = [mark("judge", pair.judge)]
        if pair.shares and pair.how != "judge":
            marks.insert(0, mark("people", pair.good))
        lines.append(
            Line(
                name=f"{pair.one} \N{EN DASH} {pair.other}",
                figure=signed(pair.good.value) if pair.shares else UNDEFINED,
                marks=tuple(marks),
            )
        )
    yield dot_plot(
        "Difference in Good replies, points",
        lines,
        name="differences",
        title="Difference of each two models",
        tick=lambda value: signed_tick(100 * value),
        reference=0.0,
    )


def _good(level: JudgedLevel) -> str:
    """A level as a table has it; one by the judge alone is said to be."""
    good = level.shares.get(GOOD)
    if good is None:
        return UNDEFINED
    return f"{percent(good.value)} (judge)" if level.how == "judge" else percent(good)


def _examples(compared: ComparedRuns) -> Iterator[Example]:
    pairs = [pair for pair in compared.pairs if pair.wins and len(compared.models) <= FEW]
    most = MOST_EXAMPLES.get(len(pairs), 3)
    for pair in pairs:
        for gap in pair.wins.most[:most] if pair.wins else ():
            if gap.exchanges is None:
                continue
            one, other = gap.exchanges
            first = pair.one if gap.gap > 0 else pair.other
            yield Example(
                title=f"{first} ahead by {abs(gap.gap):.2f}",
                facts=(),
                prompt=one.prompt,
                response=None,
                replies=(
                    (f"{pair.one}: {gap.scores[0]:.2f}", one.response),
                    (f"{pair.other}: {gap.scores[1]:.2f}", other.response),
                ),
            )


def _order(compared: ComparedRuns) -> Table:
    is_rated = bool(compared.baselines) or any(model.ratings for model in compared.models)
    rows = []
    for model in compared.models:
        shares = [_share(model, label) for label in LABELS]
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


def _share(level: JudgedLevel, label: str) -> str:
    """A share with its interval; without one where it is the judge's own and nothing corrects it."""
    share = level.shares.get(label)
    if share is not None and level.how == "judge":
        return percent(share.value)
    return percent(share, glue="\n")


def _good_gap(pair: Difference) -> str:
    """The difference of Good; beyond the rated models only the end that is known."""
    if pair.bound and pair.shares:
        return f"{signed(pair.good.value)}\nor {'more' if pair.good.value > 0 else 'less'}"
    return points(pair.shares.get("Good"), glue="\n")


def _pairs(pairs: Sequence[Difference]) -> Table:
    columns: dict[str, Callable[[Difference], Any]] = {
        "pair": _names,
        "Good": _good_gap,
        "Bad": lambda pair: points(pair.shares.get("Bad"), glue="\n"),
        "Good by\nthe judge": lambda pair: points(pair.judge, glue="\n"),
        "p Holm": lambda pair: p_value(pair.p_holm),
        "verdict": lambda pair: pair.verdict,
    }
    if all(pair.how == "judge" for pair in pairs):
        del columns["Good by\nthe judge"]  # where the judge alone decides, that is the difference
    return table_of(
        pairs,
        columns,
        caption="Differences in points, with 95 % intervals",
        words=frozenset({0, len(columns) - 1}),
    )


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
    tables = (levels, differences) if pairs else (levels,)
    return Section(
        name="unscored", title="What unscored responses could change", short="Unscored", tables=tables
    )


def _say_robust(pair: Difference) -> str:
    if pair.verdict not in ("better", "worse"):
        return pair.verdict
    return f"{pair.verdict}, {'holds' if pair.is_robust else 'could be undone'}"


def _names(pair: Difference) -> str:
    return f"{pair.one}\n\N{EN DASH} {pair.other}"


def _ends(ends: tuple[float, float] | None, *, sign: bool = False) -> str:
    return interval(*ends, 1, scale=100, sign=sign) if ends else UNDEFINED

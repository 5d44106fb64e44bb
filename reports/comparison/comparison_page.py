"""A comparison of judged models: its page, its JSON values, its JUnit checks, and what a terminal shows."""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from empathy_judge.calibration.comparison.compare_runs import ComparedRuns
from empathy_judge.calibration.comparison.differences import BY_PROBABILITY, VARIANT_CORRELATION, Difference
from empathy_judge.calibration.comparison.judged_models import GOOD, ComparedLevel
from empathy_judge.calibration.comparison.verdicts import SETTLED
from empathy_judge.calibration.estimate import Estimate
from empathy_judge.calibration.prompt_fit import fit_messages
from empathy_judge.calibration.shares.correction import NO_LEVEL
from empathy_judge.calibration.shares.transport import LEAST_REPLIES, recorded_deviation
from empathy_judge.data.crisis import LEFT_OUT, say_flags
from empathy_judge.data.rated_range import say_outside
from empathy_judge.data.records import CONVERSATION, LABELS, NOUNS, PROMPT_NOUNS, REPLY, Exchange, to_plain
from empathy_judge.data.rubric import in_words
from empathy_judge.data.text import UNDEFINED, listed, p_value, percent, points, printable, probability, show
from empathy_judge.judge.scoring import CAVEAT
from empathy_judge.reports.charts import Line, Look, Mark, dot_plot, percent_tick, signed_tick
from empathy_judge.reports.comparison.pair_sentences import (
    describe_certainty,
    describe_difference,
    describe_needed,
    describe_pair,
    describe_unscored,
    describe_wins,
    headline,
)
from empathy_judge.reports.outputs import CheckOutcome
from empathy_judge.reports.page import (
    Example,
    Figure,
    Page,
    Section,
    Table,
    name_ends,
    row,
    share_cells,
    table_of,
)
from empathy_judge.reports.score_output import LevelRow, describe_bounds, level_table, reference_rows
from empathy_judge.reports.terminal import open_screen, print_tables, print_text

MOST_NAMED = 6
MOST_BEST = 4  # models named with a probability of being the best
FEW = 4  # models of which every two are shown
MOST_EXAMPLES = {1: 10, 2: 5}  # prompts of a pair, by the number of pairs; of more pairs 3
ENOUGH_PROMPTS = 160
SHOWN = 3  # prompts of a comparison of two, on a terminal
LETTERS = 150  # of a reply on a terminal
KEY = (("people", "estimated human ratings, 95% CI"), ("judge", "the judge alone"))
VERDICT_WORDS = {"similar": "similar to", "inconclusive": "inconclusive against"}
BASED_ON = {
    "line": "calibrated judge",
    "both": "ratings and judge",
    "judge": "judge alone",
    "prior": "no level",
    "refused": UNDEFINED,
}
FIT_NOTE = "responds to prompts: the chance that a reply is closer to its own prompt than to another."
RANK_NOTE = "rank: models of one rank cannot be separated. best: the probability of the highest Good share."


def compared_runs_row(compared: ComparedRuns) -> dict[str, Any]:
    """Return the JSON values of a comparison of runs, with a sentence for each pair and the notes."""
    calibration = compared.calibration.calibration
    return {
        "kind": "runs",
        "judge": {name: getattr(compared.judge, name) for name in ("name", "version", "rubric")},
        **({"dimension": compared.judge.dimension} if compared.judge.dimension_note else {}),
        "calibration": calibration
        and to_plain(
            {name: getattr(calibration, name) for name in ("digest", "created", "expires", "models")}
        ),
        "calibration_note": compared.calibration.note,
        "margin": compared.margin,
        "models": to_plain(compared.models),
        "baselines": [
            {"model": item.name, "shares": to_plain(item.shares), "ratings": item.ratings}
            for item in compared.baselines
        ],
        "pairs": [
            {**to_plain(pair), "sentence": describe_pair(pair, compared.margin, compared.judge.unit)}
            for pair in compared.pairs
        ],
        "tests": compared.tests,
        "expected_wrong": compared.expected_wrong,
        "ranking": [{name: compared.best.get(name) for name in tier} for tier in compared.tiers],
        "unrated_models": list(compared.unrated_models),
        "models_in_several_runs": list(compared.models_in_several_runs),
        **compared.flags,
        **({"outside": dict(compared.outside)} if compared.outside else {}),
        "notes": list(notes(compared)),
    }


def junit_checks(compared: ComparedRuns) -> list[CheckOutcome]:
    """Return a check for each pair; it needs two models or a baseline."""
    outcomes = {0: "pass", 1: "regression", 3: "inconclusive"}
    return [
        CheckOutcome(
            model=pair.one,
            name=f"Good against {pair.other}",
            outcome=outcomes[compared.exit_code_of(pair)],
            sentence=describe_pair(pair, compared.margin, compared.judge.unit),
        )
        for pair in compared.pairs
    ]


def notes(compared: ComparedRuns, *, is_brief: bool = False) -> Iterator[str]:
    """Yield what one must know to read the comparison, the most important first; if brief, no command."""
    unit, calibration = compared.judge.unit, compared.calibration.calibration
    yield from filter(None, [compared.judge.dimension_note, compared.few_raters])
    for level in compared.models:
        if level.fit is not None:
            yield from (f"{level.model}: {message}." for message in fit_messages(level.fit))
    hows = {model.how for model in compared.models}
    if "prior" in hows:
        deviation, freedom = recorded_deviation()
        yield (
            f"No levels ({NO_LEVEL}). Probabilities allow for an error of the judge on each model of about"
            f" {deviation:g} standard deviations of its scores (t, {freedom:g} degrees of freedom), as in"
            " recorded answers."
        )
        if not compared.has_levels and not is_brief and not compared.judge.is_joint:
            words = ["empathy-judge", *compared.calibrate_words]
            yield f"For levels, once people have rated: {shlex.join(words)}"
    elif calibration is None and hows - {"ratings"}:
        yield f"Not corrected ({compared.calibration.note}): the shares are the judge's own. {CAVEAT[unit]}"
    if calibration is not None:
        if compared.unrated_models:
            rated = len(calibration.models)
            yield (
                f"No human ratings exist for {_some(compared.unrated_models)}. Intervals rest on the judge's"
                f" errors on {rated} models that people rated; a model of a new kind may deviate more."
                " About 100 ratings by 10 or more people narrow the interval; fewer can only show a large"
                " error of the judge."
            )
        for level in compared.models:
            if level.apart:
                judge, people = (percent(item, 0) for item in level.apart)
                yield f"{level.model}, % Good: judge {judge}; people so far {people}."
        by_line = {level.model: level.shares[GOOD] for level in compared.models if level.how == "line"}
        yield from describe_bounds(by_line)
        if compared.are_variants:
            yield (
                "Compared as variants of one model (--variants): the judge's errors on them are assumed to"
                f" correlate at {VARIANT_CORRELATION:g}, which narrows the interval of their difference."
                " This assumption is not checked."
            )
        elif compared.models_in_several_runs:
            yield (
                f"{_some(compared.models_in_several_runs)}: in several runs, compared as unrelated models."
                " If they are variants of one model, add --variants."
            )
        own = [model for model in compared.models if model.how == "judge"]
        for reason in dict.fromkeys(model.reason for model in own):
            yield f"(judge): {_some([model.model for model in own if model.reason == reason])}: {reason}."
    lost = [model for model in compared.models if model.unscored]
    if counts := [f"{model.model} {model.unscored:,} ({100 * model.missing:.1f}%)" for model in lost]:
        yield f"Unscored {NOUNS[unit]}: {', '.join(counts)}."
    for pair in compared.pairs if _is_many(compared) else ():
        if pair.is_withheld or not pair.is_robust:
            yield f"{pair.one} and {pair.other}: {describe_unscored(pair, unit)}"
    if compared.tests > 1:
        yield f"Verdicts by ratings or the judge alone allow for {compared.tests} comparisons (Holm)."
    if len(compared.called) > 1 and compared.expected_wrong >= 0.05:
        yield (
            f"Of the {len(compared.called)} verdicts that call a model better or probably better,"
            f" {compared.expected_wrong:.1f} are expected to be wrong."
        )
    if compared.baselines:
        yield "study: human ratings of the published study, on its 2,000 prompts."
    yield from say_outside(compared.outside, unit)
    yield from (f"{line}." for line in say_flags(compared.flags.get("flagged"), LEFT_OUT))


def _some(names: Sequence[str]) -> str:
    if len(names) <= MOST_NAMED:
        return listed(names)
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"


def runs_page(compared: ComparedRuns, texts: Mapping[str, Exchange] | None = None) -> Page:
    """Return the page: the verdict, the differences, where they are largest, and what to do next.

    `texts` are replies by the digest of their content, to show examples of.
    """
    is_many = _is_many(compared)
    unit = compared.judge.unit
    sections = [
        Section(
            name="amount",
            title="Shares and differences",
            short="Differences",
            key=KEY,
            figures=tuple(_figures(compared)),
            tables=(_level_table(compared), *(() if is_many else (_pairs(compared.pairs),))),
            notes=("The differences of every two models are in the JSON.",) if is_many else (),
        )
    ]
    if examples := tuple(_examples(compared, texts or {})):
        text = f"{PROMPT_NOUNS[unit].capitalize()} with the largest difference of scores (1 to 3)."
        text += " The end of each conversation is shown." if unit == CONVERSATION else ""
        sections.append(
            Section(
                name="prompts", title="Largest differences", short="Examples", text=(text,), examples=examples
            )
        )
    sections.append(Section(name="next", title="What to do next", points=tuple(next_steps(compared))))
    keys = [FIT_NOTE] if any(level.fit for level in compared.models) else []
    keys += [RANK_NOTE] if len(compared.best) > 2 else []
    sections.append(Section(name="notes", title="How to read this", points=(*notes(compared), *keys)))
    names = f"{compared.pairs[0].one} and {compared.pairs[0].other}"
    return Page(
        kind="Comparison",
        title=names if len(compared.pairs) == 1 else f"{len(compared.models)} models compared",
        subtitle=f"judge {compared.judge.name} {compared.judge.version}; {compared.calibration.note}",
        verdict=tuple(verdict_sentences(compared)),
        sections=tuple(sections),
    )


def _is_many(compared: ComparedRuns) -> bool:
    return len(compared.models) > FEW and not compared.has_baseline


def verdict_sentences(compared: ComparedRuns) -> Iterator[str]:
    """Yield the verdict: of two models in detail, of a few pair by pair, of many model by model."""
    unit = compared.judge.unit
    if compared.judge.dimension_note:
        yield f"By {in_words(compared.judge.dimension)} alone:"
    if len(compared.pairs) == 1:
        (pair,) = compared.pairs
        yield f"{headline(pair, compared.margin)}."
        if figures := describe_difference(pair):
            yield f"{figures[0].upper() + figures[1:]}."
        sentences = (describe_unscored(pair, unit), describe_certainty(pair), describe_wins(pair, unit))
        yield from filter(None, sentences)
        return
    if not compared.has_baseline:
        yield ranking(compared)
        if _is_many(compared) and {pair.verdict for pair in compared.pairs} == {"inconclusive"}:
            return
    if _is_many(compared):
        yield from _verdicts_by_model(compared)
        return
    for pair in compared.pairs:
        if {pair.one, pair.other} & set(compared.unresponsive) and not compared.has_baseline:
            continue  # the ranking names them
        more = filter(None, (describe_unscored(pair, unit), describe_wins(pair, unit)))
        said = filter(None, (headline(pair, compared.margin), describe_difference(pair)))
        yield " ".join([f"{'; '.join(said)}.", *more])


def ranking(compared: ComparedRuns) -> str:
    """Return the order of the models in groups, the likeliest best, and which models do not respond."""
    tiers = compared.tiers
    parts = []
    if len(tiers) > 1:
        parts.append(" > ".join(", ".join(tier) for tier in tiers))
    elif tiers and len(tiers[0]) > 1 and not compared.called:
        parts.append(f"{listed(tiers[0])} cannot be separated")
    if len(compared.best) > 2:
        chances = sorted(compared.best.items(), key=lambda item: -item[1])[:MOST_BEST]
        best = [f"{name} {probability(chance)}" for name, chance in chances]
        parts.append(f"probability of being the best: {listed(best)}")
    if names := compared.unresponsive:
        parts[:0] = [f"The {NOUNS[compared.judge.unit]} of {listed(names)} do not respond to their prompts"]
    return f"{'; '.join(parts) or 'No two models can be compared'}."


def _verdicts_by_model(compared: ComparedRuns) -> Iterator[str]:
    """Yield every model's verdicts against the models after it."""
    for level in compared.models:
        by_verdict: dict[str, list[str]] = {}
        for pair in compared.pairs:
            if pair.one == level.model and not {pair.one, pair.other} & set(compared.unresponsive):
                by_verdict.setdefault(pair.verdict, []).append(pair.other)
        if by_verdict:
            texts = [
                f"{VERDICT_WORDS.get(key, f'{key} than')} {listed(by_verdict[key])}" for key in by_verdict
            ]
            yield f"{level.model}: {'; '.join(texts)}."


def next_steps(compared: ComparedRuns) -> Iterator[str]:
    """Yield what would settle what is open, the nearest step first."""
    unit, prompts = compared.judge.unit, PROMPT_NOUNS[compared.judge.unit]
    open_pairs = [pair for pair in compared.pairs if pair.verdict not in SETTLED]
    if not open_pairs:
        yield "Every comparison is settled. Compare again when a model changes."
        return
    if names := compared.unresponsive:
        yield f"Check the {NOUNS[unit]} of {listed(names)}: they do not respond to their prompts."
        open_pairs = [pair for pair in open_pairs if not {pair.one, pair.other} & set(names)]
        if not open_pairs:
            return
    if any(pair.is_withheld for pair in open_pairs):
        yield f"Score {NOUNS[unit]} that the judge can read: `unscored` in judgments.jsonl has the reasons."
    if any(model.judged < LEAST_REPLIES for model in compared.models):
        yield f"Provide at least {LEAST_REPLIES} {NOUNS[unit]} of each model, to the same {prompts}."
    needed = describe_needed(open_pairs[0], compared.margin, unit) if len(compared.pairs) == 1 else ""
    is_rated = any(model.ratings for model in compared.models)
    more, how = ("more ", "again") if is_rated else ("", "with --ratings")
    yield f"Have people rate {more}{NOUNS[unit]} (rate plan), then compare {how}. {needed}".rstrip()
    if not compared.has_levels:
        return
    if compared.calibration.calibration is None:
        yield "Calibrate the judge with human ratings: the judge alone gives at most 'probably better'."
    elif not compared.are_variants and not compared.baselines and not compared.unresponsive:
        yield "If the models are variants of one (versions, prompts, decodings), add --variants."
    shared = [pair.shared_prompts for pair in open_pairs if 0 < pair.shared_prompts < ENOUGH_PROMPTS]
    if shared and compared.calibration.calibration is None:
        yield f"Use more shared {prompts} (for example {ENOUGH_PROMPTS} instead of {min(shared):,})."


def _figures(compared: ComparedRuns) -> Iterator[Figure]:
    """Draw the levels, and of a few models the differences."""
    noun = NOUNS[compared.judge.unit]
    lines = []
    for level in [level for level in compared.models if level.how != "prior"]:
        look: Look = "judge" if level.how == "judge" else "people"
        good = level.shares.get(GOOD)
        shown = _shown_shares(level).get(GOOD)
        figure = f"{percent(shown)}{' (judge)' if good and look == 'judge' else ''}"
        lines.append(Line(name=level.model, figure=figure, marks=(Mark(look, good),) if good else ()))
    if lines:
        yield dot_plot(
            f"Good {noun}, %",
            lines,
            name="levels",
            title=f"Good share of each model's {noun}",
            tick=percent_tick,
            unit=" %",
        )
    pairs = [pair for pair in compared.pairs if pair.shares and pair.how != "prior"]
    pairs = [pair for pair in pairs if pair.judge.value == pair.judge.value]
    if len(compared.models) > FEW or not pairs:
        return
    lines = []
    for pair in pairs:
        people = () if pair.how == "judge" else (Mark("people", pair.good),)
        name = f"{pair.one} \N{EN DASH} {pair.other}"
        figure = points(pair.good if pair.bound else pair.good.value)
        lines.append(Line(name=name, figure=figure, marks=(*people, Mark("judge", pair.judge))))
    yield dot_plot(
        "Difference of the Good shares, points",
        lines,
        name="differences",
        title="Difference of each two models",
        tick=lambda value: signed_tick(100 * value),
        reference=0.0,
    )


def _examples(compared: ComparedRuns, texts: Mapping[str, Exchange]) -> Iterator[Example]:
    pairs = [pair for pair in compared.pairs if pair.wins and len(compared.models) <= FEW]
    most = MOST_EXAMPLES.get(len(pairs), 3)
    for pair in pairs:
        for gap in pair.wins.most[:most] if pair.wins else ():
            one, other = map(texts.get, gap.contents)
            if one is None or other is None:
                continue
            yield Example(
                title=f"{pair.one if gap.gap > 0 else pair.other} ahead by {abs(gap.gap):.2f}",
                prompt=one.prompt,
                replies=(
                    (f"{pair.one}: {gap.scores[0]:.2f}", one.response),
                    (f"{pair.other}: {gap.scores[1]:.2f}", other.response),
                ),
            )


def _level_table(compared: ComparedRuns) -> Table:
    noun, columns = NOUNS[compared.judge.unit], dict[str, Callable[[ComparedLevel], Any]]()
    ranks = {name: rank for rank, tier in enumerate(compared.tiers, start=1) for name in tier}
    if len(compared.best) > 2:
        columns["rank"] = lambda model: str(ranks.get(model.model, ""))
        columns["best"] = lambda model: probability(compared.best.get(model.model, math.nan))
    if any(model.fit for model in compared.models):
        columns["responds to\nprompts"] = lambda model: show(
            model.fit.estimate if model.fit else None, glue="\n"
        )
    columns[noun] = lambda model: model.judged
    if compared.baselines or any(model.ratings for model in compared.models):
        columns["ratings"] = lambda model: model.ratings
    columns["based on"] = lambda model: BASED_ON.get(model.how, model.how)
    labels = LABELS if compared.has_levels or compared.baselines else ()
    rows = [
        row(
            model.model,
            *share_cells(_shown_shares(model))[: len(labels)],
            *(cell_of(model) for cell_of in columns.values()),
        )
        for model in compared.models
    ]
    for study in compared.baselines:
        known = {"ratings": study.ratings, "based on": "ratings"}
        cells = (known.get(name, "") for name in columns)
        rows.append(row(study.name, *share_cells(_with_end(study.shares)), *cells))
    ends = name_ends([level.shares[GOOD] for level in compared.models if level.shares])
    return Table(
        caption=f"Estimated % of {noun}, with {ends}" if labels else f"Scored {noun}",
        head=("model", *labels, *columns),
        rows=tuple(rows),
        words=frozenset({0, len(labels) + len(columns)}),
    )


def _shown_shares(level: ComparedLevel) -> dict[str, Estimate]:
    """Return a model's shares as shown; those of the judge alone have intervals over prompts only: none."""
    if level.how == "judge":
        return {name: Estimate(share.value, None) for name, share in level.shares.items()}
    return _with_end(level.shares)


def _with_end(shares: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the shares, with the interval of Good only."""
    return {name: share if name == GOOD else Estimate(share.value, None) for name, share in shares.items()}


def _pairs(pairs: Sequence[Difference]) -> Table:
    columns: dict[str, Callable[[Difference], Any]] = {
        "pair": lambda pair: f"{pair.one}\n\N{EN DASH} {pair.other}",
        "Good": lambda pair: points(pair.shares.get(GOOD), glue="\n"),
        "Bad": lambda pair: points(pair.shares.get("Bad"), glue="\n"),
        "Good by\nthe judge": lambda pair: points(pair.judge, glue="\n"),
        "probability": lambda pair: probability(pair.probability),
        "p Holm": lambda pair: p_value(pair.p_holm),
        "verdict": lambda pair: pair.verdict,
    }
    for column, hows in (("probability", BY_PROBABILITY), ("p Holm", {"ratings", "judge"})):
        if not any(pair.how in hows for pair in pairs):
            del columns[column]
    if all(pair.how == "judge" for pair in pairs):
        del columns["Good by\nthe judge"]  # where the judge alone decides, that is the difference
    if all(pair.how == "prior" for pair in pairs):
        columns = {name: columns[name] for name in ("pair", "probability", "verdict")}
    ends = name_ends([pair.good for pair in pairs if pair.shares])
    caption = (
        f"Differences in points, with {ends}" if "Good" in columns else "Probability that the first is better"
    )
    return table_of(pairs, columns, caption=caption, words=frozenset({0, len(columns) - 1}))


def print_compared(compared: ComparedRuns, texts: Mapping[str, Exchange]) -> None:
    """Print the most important figures; the page and the JSON have the rest."""
    screen = open_screen()
    first, *others = verdict_sentences(compared)
    print_text(screen, first, "bold")
    for sentence in others:
        print_text(screen, sentence)
    screen.print()
    if compared.has_levels:
        print_tables([level_table(_level_rows(compared), screen, compared.judge.unit)], screen)
    for note in notes(compared, is_brief=True):
        print_text(screen, note, "dim")
    if len(compared.pairs) == 1:
        _print_prompts(compared, texts, screen)
    screen.print()
    print_text(screen, "Next steps", "bold")
    for step in next_steps(compared):
        print_text(screen, f"- {step}")


def _level_rows(compared: ComparedRuns) -> list[LevelRow]:
    """Return the models in their order, then the baselines and the study's models for reference."""
    rows = []
    for level in compared.models:
        name = f"{level.model} (judge)" if level.how == "judge" else level.model
        rows.append(LevelRow(name=name, shares=_shown_shares(level), count=f"{level.judged:,}"))
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

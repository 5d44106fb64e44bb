"""The page of judged conversations: each with the judge's curve over its turns, its best and worst reply."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from empathy_judge.calibration.estimate import UNDEFINED as UNDEFINED_SCORE
from empathy_judge.calibration.estimate import Estimate
from empathy_judge.data.readers.chat_turns import LISTENER
from empathy_judge.data.readers.conversations import all_turns, split_conversation
from empathy_judge.data.records import CONVERSATION, LABELS, Exchange, Judgment
from empathy_judge.data.storage import Source
from empathy_judge.data.tables import Exchanges
from empathy_judge.data.text import UNDEFINED, ends_of, listed, number
from empathy_judge.judge.scoring import ScoredModel, SummarizedRun
from empathy_judge.reports.charts import line_chart
from empathy_judge.reports.page import Example, Look, Page, Said, Section, Table, table_of
from empathy_judge.reports.score_output import printed_share

LOWEST, HIGHEST = 16, 8  # conversations shown, where there are more
TITLE_LETTERS: Final = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedConversation:
    """A conversation and its judgment as a whole, with the score of every reply."""

    exchange: Exchange
    judgment: Judgment

    @property
    def curve(self) -> tuple[float | None, ...]:
        """The scores of its replies in order, from 1 to 3; None of one that has none."""
        return tuple(self.judgment.curve or ())

    @property
    def extremes(self) -> tuple[int | None, int | None]:
        """The places of its lowest and its highest reply, the first of several; none where all are alike."""
        scores = [score for score in self.curve if score is not None]
        if len(set(scores)) < 2:
            return None, None
        return self.curve.index(min(scores)), self.curve.index(max(scores))


def conversation_page(source: Source, scored: SummarizedRun) -> Page:
    """Make the page of a run: each model's share, a table of all, and the conversations one by one."""
    summary, by_id = scored.summary, {item.id: item for item in scored.judgments()}
    judged = [
        JudgedConversation(exchange=exchange, judgment=by_id[exchange.id])
        for exchange in Exchanges(source, on_bad=lambda bad: None, unit=CONVERSATION)
        if exchange.id in by_id
    ]
    ordered = sorted(
        judged, key=lambda item: (item.judgment.score or 0.0, item.exchange.id, item.exchange.model)
    )
    shown, left_out = ordered, list[str]()
    if len(ordered) > LOWEST + HIGHEST:
        shown = ordered[:LOWEST] + ordered[-HIGHEST:]
        limits = f"the {LOWEST} lowest and the {HIGHEST} highest of {len(ordered):,}"
        left_out = [f"Shown are {limits}, the lowest first."]
    models = sorted({item.exchange.model for item in judged})
    count = f"{len(judged):,} conversation{'s' if len(judged) != 1 else ''}"
    return Page(
        kind="Conversations",
        title=listed(models) if len(models) <= 4 else f"{len(models)} models",
        subtitle=f"{count}, with the score of each reply",
        verdict=tuple(map(_describe_level, summary.models)),
        sections=(
            Section(
                name="all",
                title="All conversations",
                short="All conversations",
                tables=(_table(ordered),),
                notes=tuple(summary.caveats),
            ),
            Section(
                name="talks",
                title="Turn by turn",
                short="Turn by turn",
                text=(
                    "The curve is the judge's score of each reply, from Bad to Good, given the earlier turns."
                    " A diamond marks the best reply, a triangle the worst. The score of the whole "
                    "conversation is the mean over its replies, or a language model's that read all of it.",
                    *left_out,
                ),
                examples=tuple(_card(number, item) for number, item in enumerate(shown, start=1)),
            ),
        ),
        foot=f"Judged by {summary.judge} {summary.version}.",
    )


def _describe_level(model: ScoredModel) -> str:
    """Return a model's share of Good and what it rests on."""
    share = printed_share(model)
    if share is None:
        return f"{model.name}: no share from {model.judged:,} conversations; add more."
    value, low, high = (number(end, 0, scale=100) for end in ends_of(share))
    interval = f", 95% CI [{low}, {high}]" if share.interval else " by the judge alone"
    return f"{model.name}: Good share {value}%{interval} (n = {model.judged:,})."


def _table(ordered: Sequence[JudgedConversation]) -> Table:
    """Return a row for each conversation, the lowest first."""
    return table_of(
        ordered,
        {
            "conversation": lambda item: item.exchange.id,
            "model": lambda item: item.exchange.model,
            "replies": lambda item: len(split_conversation(item.exchange)),
            "as a whole": _label,
            "score": lambda item: number(item.judgment.score),
            "first reply": lambda item: number(item.curve[0]) if item.curve else UNDEFINED,
            "last": lambda item: number(item.curve[-1]) if item.curve else UNDEFINED,
            "lowest": lambda item: _extreme(item, item.extremes[0]),
            "highest": lambda item: _extreme(item, item.extremes[1]),
        },
        caption="The lowest first; scores from 1 (Bad) to 3 (Good)",
        words=frozenset({0, 1, 3}),
        is_folded=len(ordered) > LOWEST,
    )


def _label(item: JudgedConversation) -> str:
    return item.judgment.label or f"unscored: {item.judgment.unscored or UNDEFINED}"


def _extreme(item: JudgedConversation, place: int | None) -> str:
    return "all alike" if place is None else f"{number(item.curve[place])} (reply {place + 1})"


def _card(number_: int, item: JudgedConversation) -> Example:
    """Return a conversation with its curve and its turns."""
    exchange, judgment = item.exchange, item.judgment
    opening = exchange.situation or all_turns(exchange)[0].text
    title = opening if len(opening) <= TITLE_LETTERS else f"{opening[:TITLE_LETTERS].rstrip()}…"
    facts: dict[str, Any] = {
        "conversation": exchange.id,
        "model": exchange.model,
        "emotion": exchange.emotion,
        "as a whole": _label(item),
        "score": None if judgment.score is None else f"{number(judgment.score)} (from 1 to 3)",
    }
    return Example(
        title=title,
        facts=tuple((term, str(value)) for term, value in facts.items() if value is not None),
        figure=_curve(number_, item),
        talk=tuple(_said(item)),
    )


def _curve(number_: int, item: JudgedConversation) -> str:
    if all(score is None for score in item.curve):
        return ""
    worst, best = item.extremes
    marks = {best: ", its best", worst: ", its worst"}
    chart = line_chart(
        "",
        [f"reply {place}" for place in range(1, len(item.curve) + 1)],
        [UNDEFINED_SCORE if score is None else Estimate(score, None) for score in item.curve],
        name=f"curve-{number_}",
        title="The judge's score of each reply",
        tick=lambda value: LABELS[round(value) - 1] if value == round(value) else "",
        show=lambda score: number(score.value),
        notes={place: text for place, text in marks.items() if place is not None},
        flagged=() if worst is None else (worst,),
        best=best,
        domain=(1.0, float(len(LABELS))),
    )
    return chart.svg


def _said(item: JudgedConversation) -> Iterator[Said]:
    """Every turn, the replies with their score."""
    worst, best = item.extremes
    marks: Mapping[int | None, Look] = {worst: "worst", best: "best"}
    place = 0
    for turn in all_turns(item.exchange):
        if turn.speaker != LISTENER:
            yield Said(who="Speaker", text=turn.text)
            continue
        look: Look = marks.get(place, "reply")
        figure = number(item.curve[place]) if place < len(item.curve) else ""
        figure += "" if look == "reply" else f", its {look}"
        yield Said(who=f"Reply {place + 1}", text=turn.text, mark=figure, look=look)
        place += 1

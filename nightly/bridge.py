"""When the judge has changed: earlier nights as tonight's judge has them, judged again or shifted by anchors.

Of the newest nights, and of those a model is held against, the replies are kept: tonight's judge judges them
again, and changes are then of one judge. Of older nights there are only the shares. They are shifted by what
the anchors tell, which both judges have judged: the mean difference, with its interval beside the night's
own. That assumes the judges differ on a model's replies as they do on the anchors. Corrected shares of such
nights stay as they are, since they are of people's scale already.

What a night was judged as stays in the history; the restated levels stand beside it, in the details of the
first night of the new judge.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from calibration.estimate import Estimate
from calibration.monitoring.drift import paired_change
from data.errors import OperationalError
from data.records import CONVERSATION, LABELS, Exchange, to_plain
from data.storage import digest_file
from data.tables import write_rows
from data.text import points, slug
from judge.llm.endpoint import endpoints_of
from nightly.emotions import sum_emotions
from nightly.history import History
from nightly.measure import NightSetup, chances, read_shares, score_responses
from nightly.schema import AnchorResult, ModelResult, Night, NightRecord, ShareResult

SHIFTED: Final = "shifted by the anchors"
AGAIN: Final = "judged again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """Earlier nights as tonight's judge has them: `records` of those judged again, by the night's name.

    `details` is what the history keeps, on the first night of a judge; empty on any other.
    """

    records: Mapping[str, NightRecord] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


def build_bridge(
    history: History, setup: NightSetup, anchors: Sequence[AnchorResult], wanted: Sequence[str]
) -> Bridge:
    """Judge again what another judge judged: the nights `wanted`, and the newest where that costs nothing."""
    now = (setup.judge.name, setup.judge.version)
    before = [night for night in history.nights(config=setup.config.name) if night.night < setup.night]
    others = [night for night in before if (night.judge, night.judge_version) != now]
    if not others:
        return Bridge()
    by_night = {night.night: rows for night, rows in history.results(AnchorResult, config=setup.config.name)}
    same = next((night.night for night in before if (night.judge, night.judge_version) == now), None)
    # As this judge first judged them: where it has moved under its name since, that shows.
    first = by_night.get(same, []) if same else anchors
    count = 0 if endpoints_of(setup.judge) else setup.config.bridge_nights
    names = {night.night for night in others[-count:] if count}
    names |= {night.night for night in others} & set(wanted)
    records: dict[str, NightRecord] = {}
    problem = None
    for name in sorted(names):
        record = history.night(setup.config.name, name)
        try:
            if record is not None and record.judgments:
                records[name] = judge_again(record, setup, first)
        except OperationalError as error:  # the anchors still tell something
            problem = str(error)
            break
    is_first = (before[-1].judge, before[-1].judge_version) != now
    if not is_first:
        return Bridge(records=records)
    levels, shifts = _restate(history, setup, others, records, anchors, by_night)
    return Bridge(records=records, details=_tell(setup, others, levels, shifts, problem))


def judge_again(record: NightRecord, setup: NightSetup, anchors: Sequence[AnchorResult]) -> NightRecord:
    """A night as tonight's judge has it; its folder of runs keeps the judgments, and asks for none twice."""
    models, judged = [], []
    for model in record.models:
        kept = [item for item in record.judgments if item.model == model.model]
        if not kept:
            continue
        folder = setup.config.runs / record.night / slug(model.model)
        responses = _responses(folder, model, record, unit=setup.config.unit)
        run = score_responses(responses, setup, folder, f"{model.model} of {record.night} again")
        raw, corrected = read_shares(run)
        found = {item.id: item for item in run.judgments()}
        models.append(replace(model, raw=raw, corrected=corrected))
        judged += [
            replace(
                item,
                label=new.label,
                score=new.score,
                **chances(new),
                rationale=new.rationale,
                unscored=new.unscored,
                highlights=None,
            )
            for item in kept
            if (new := found.get(item.id)) is not None
        ]
    return replace(
        record,
        judge=setup.judge.name,
        judge_version=setup.judge.version,
        calibration=setup.correction.digest,
        models=tuple(models),
        emotions=tuple(sum_emotions(judged)),
        anchors=tuple(anchors),
        judgments=tuple(judged),
    )


def _responses(folder: Path, model: ModelResult, record: NightRecord, *, unit: str) -> Path:
    """The very file that was judged then, or else what the history keeps of it, which has no dialogue."""
    made = [path for name in ("answers-*/responses.jsonl", "talks-*/*.jsonl") for path in folder.glob(name)]
    for path in (folder / "responses.jsonl", *sorted(made)):
        if path.exists() and digest_file(path) == model.responses:
            return path
    if unit == CONVERSATION:
        raise OperationalError(f"{folder}: the conversations of {record.night} are gone")
    path = folder / "kept.jsonl"
    write_rows(
        path,
        [
            Exchange(
                id=item.id,
                prompt=item.prompt,
                response=item.response,
                model=item.model,
                situation=item.situation,
                emotion=item.emotion,
            )
            for item in record.judgments
            if item.model == model.model
        ],
    )
    return path


Shifts = Mapping[str, Estimate]


def anchor_shifts(new: Sequence[AnchorResult], old: Sequence[AnchorResult]) -> tuple[Shifts, int]:
    """By label, how much more the new judge gives on the anchors that both judged, and how many these are."""
    known = {(item.anchors, item.item): item for item in old if item.good is not None}
    both = [
        (item, was) for item in new if item.good is not None and (was := known.get((item.anchors, item.item)))
    ]
    return {
        label: paired_change(
            [getattr(item, label.lower()) - getattr(was, label.lower()) for item, was in both]
        )
        for label in LABELS
    }, len(both)


def _restate(
    history: History,
    setup: NightSetup,
    others: Sequence[Night],
    again: Mapping[str, NightRecord],
    anchors: Sequence[AnchorResult],
    by_night: Mapping[str, Sequence[AnchorResult]],
) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[Shifts, int]]]:
    """Levels by night and model, and what the anchors say of each night that was not judged again."""
    names = {night.night for night in others}
    shifts = {name: anchor_shifts(anchors, by_night.get(name, ())) for name in sorted(names)}
    levels: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, record in again.items():
        for model in record.models:
            levels[name][model.model] = _level(AGAIN, model.raw, model.corrected)
    for model_name, series in history.all_series(config=setup.config.name).items():
        for point in series:
            name = point.night.night
            if name not in names or model_name in levels[name]:
                continue
            shift, _ = shifts[name]
            if all(shift[label].interval is not None for label in LABELS):
                raw = {label: _shifted(share, shift[label]) for label, share in point.result.raw.items()}
                levels[name][model_name] = _level(SHIFTED, raw, {})
    return {name: found for name, found in levels.items() if found}, shifts


def _level(how: str, raw: Mapping[str, ShareResult], corrected: Mapping[str, ShareResult]) -> dict[str, Any]:
    return {"how": how, "raw": to_plain(raw), "corrected": to_plain(corrected)}


def _shifted(share: ShareResult, shift: Estimate) -> ShareResult:
    """A share moved by the judges' difference; both are uncertain, and independent of each other."""
    if share.share is None or shift.interval is None:
        return ShareResult(share=None, how=SHIFTED)
    value = share.share + shift.value
    low, high = (
        None if end is None else value + sign * math.hypot(end - share.share, moved - shift.value)
        for sign, end, moved in ((-1, share.low, shift.interval.low), (1, share.high, shift.interval.high))
    )
    clipped = [None if end is None else min(1.0, max(0.0, end)) for end in (value, low, high)]
    return ShareResult(share=clipped[0], low=clipped[1], high=clipped[2], how=SHIFTED)


def _tell(
    setup: NightSetup,
    others: Sequence[Night],
    levels: Mapping[str, Mapping[str, Any]],
    shifts: Mapping[str, tuple[Shifts, int]],
    problem: str | None,
) -> dict[str, Any]:
    hows = {name: {level["how"] for level in found.values()} for name, found in levels.items()}
    again = [name for name, how in hows.items() if AGAIN in how]
    shifted = [name for name, how in hows.items() if how == {SHIFTED}]
    last = others[-1]
    shift, count = shifts[last.night]
    new, old = f"{setup.judge.name} {setup.judge.version}", f"{last.judge} {last.judge_version}"
    told = f"The judge is another: {new} after {old}."
    if shift["Good"].interval is not None:
        told += f" On the same {count:,} anchors its Good share is {points(shift['Good'])} points apart."
    if again:
        told += f" It judged the replies of {_nights(len(again))} again."
    if shifted:
        told += (
            f" Levels of {_nights(len(shifted))} are shifted by what the anchors tell of that night's judge."
        )
    if left := len(others) - len(levels):
        told += (
            f" {_nights(left).capitalize()} cannot be restated, having neither replies nor the same anchors."
        )
    if problem:
        told += f" Not all replies could be judged again: {problem}."
    return {
        "told": told,
        "judge": [setup.judge.name, setup.judge.version],
        "shift": to_plain(shift),
        "anchors": count,
        "levels": levels,
    }


def _nights(count: int) -> str:
    return f"{count:,} earlier night{'s' if count > 1 else ''}"


def restate(night: str, result: ModelResult, levels: Mapping[str, Any]) -> ModelResult:
    """A model's night on the newest judge's scale, as a bridge's `levels` have it."""
    level = levels.get(night, {}).get(result.model)
    if level is None:
        return result
    read: Callable[[str], dict[str, ShareResult]] = lambda kind: {  # noqa: E731
        label: ShareResult(**share) for label, share in level[kind].items()
    }
    return replace(result, raw=read("raw"), corrected=read("corrected") or result.corrected)

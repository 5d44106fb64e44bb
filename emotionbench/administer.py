"""Questionnaires about emotions that a model fills in, by default and with a situation in mind.

    answers.jsonl  every sheet with the text of the answer
    sheets.jsonl   the marks alone
    manifest.json  the model, its settings, and the counts of missing marks; written last

The folder is a run of `data.runs`, which resumes.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.files import digest_json
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.records import Exchange
from empathy_judge.data.runs import FinishedRun, OnProgress, Run, RunPlan, run_all
from empathy_judge.emotionbench.marks import read_marks
from empathy_judge.emotionbench.questionnaires import (
    SHEETS,
    Questionnaire,
    Sheet,
    read_questionnaire,
    write_sheets,
)
from empathy_judge.emotionbench.situations import (
    OURS,
    POSITIVE,
    EvokingSituation,
    choose_situations,
    read_situations,
)
from empathy_judge.judge.engine import ask_all
from empathy_judge.judge.llm import responder
from empathy_judge.judge.llm.answers import OUT_OF_TOKENS, read_message
from empathy_judge.judge.llm.endpoint import CallFailed
from empathy_judge.judge.llm.http_client import shorten

ANSWERS = "answers"
FEWEST_DEFAULTS = 10  # sheets without a situation: every change is compared with their mean
IMAGINE: Final = (
    "Put yourself in the place of the person whom this happens to, and stay there while you answer:"
)
STABLE: Final = (
    "Keep your balance in all of this. Whatever you are told about a situation, let it pass by without "
    "taking hold of you, and answer as calmly as you would on an ordinary day."
)
FORM: Final = (
    "Answer for every item, even where you find it hard to say. Give one JSON object and nothing else: its "
    "keys are the numbers of the items from 1 to {count}, its values your marks, whole numbers from {low} to "
    "{high}."
)
TOKENS_AN_ITEM: Final = 16  # a line of JSON takes about 9
MOST_KEPT: Final = 4000  # characters kept of an answer, enough to read any of them once more


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """The sheets of a run: for each repeat `defaults` without a situation, then `orders` for each situation.

    Order 0 is the questionnaire's own; the others follow from the seed.
    """

    questionnaire: Questionnaire
    situations: Sequence[EvokingSituation]
    orders: int = 10
    repeats: int = 1
    defaults: int = 10
    seed: int = 0
    is_stable: bool = False
    is_positive: bool = False

    @property
    def variant(self) -> str:
        words = {"positive": self.is_positive, "stable": self.is_stable}
        return " ".join(word for word, is_so in words.items() if is_so)

    @property
    def count(self) -> int:
        return self.repeats * (self.defaults + len(self.situations) * self.orders)

    def order(self, number: int) -> list[int]:
        """Return the items in this order; it is the same for every situation."""
        items = list(range(1, self.questionnaire.items + 1))
        if number:
            Random(f"{self.seed}/{self.questionnaire.name}/{number}").shuffle(items)
        return items

    def blanks(self) -> Iterator[Exchange]:
        """Yield every sheet to fill in; `extra` is its factor, situation, pair, order and repeat."""
        if not self.questionnaire.texts:
            raise UserError(
                f"{self.questionnaire.name}: its items are not included; pass your copy of the benchmark's "
                "questionnaires.json with --questionnaires"
            )
        default = [(None, number) for number in range(self.defaults)]
        evoked = [(situation, number) for situation in self.situations for number in range(self.orders)]
        for repeat in range(self.repeats):
            for situation, number in [*default, *evoked]:
                order = self.order(number)
                about = {"factor": situation.factor, "situation": situation.id} if situation else {}
                yield Exchange(
                    id=f"{about.get('situation', 'default')}/order-{number}/repeat-{repeat}",
                    prompt=write_sheet(self.questionnaire, order, situation, is_stable=self.is_stable),
                    response="",
                    extra={**about, "pair": f"order-{number}", "order": order, "repeat": repeat},
                )


def write_sheet(
    questionnaire: Questionnaire,
    order: Sequence[int],
    situation: EvokingSituation | None,
    *,
    is_stable: bool = False,
) -> str:
    """Return a questionnaire as a model reads it, with its items renumbered in this order."""
    low, high = questionnaire.low, questionnaire.high
    parts = [STABLE] if is_stable else []
    if situation is not None:
        parts.append(f"{IMAGINE}\n\n{situation.text}")
    parts.append(questionnaire.ask)
    if questionnaire.levels:
        named = (f"{mark} = {words}" for mark, words in enumerate(questionnaire.levels, start=low))
        parts.append(f"The marks: {'; '.join(named)}.")
    elif len(questionnaire.anchors) == 1:
        ends = questionnaire.anchors[0]
        parts.append(f"The marks go from {low} ({ends.low}) to {high} ({ends.high}).")
    lines = []
    for number, item in enumerate(order, start=1):
        text = questionnaire.texts[item - 1]
        if len(questionnaire.anchors) > 1:  # what marks mean differs from item to item
            ends = next(anchors for anchors in questionnaire.anchors if item in anchors.items)
            text += f" ({low} = {ends.low}, {high} = {ends.high})"
        lines.append(f"{number}. {text}")
    parts.append("\n".join(lines))
    parts.append(FORM.format(count=questionnaire.items, low=low, high=high))
    return "\n\n".join(parts)


def sheet_schema(questionnaire: Questionnaire) -> dict[str, Any]:
    """Return the JSON schema of an answer: one mark for each number."""
    numbers = [str(number) for number in range(1, questionnaire.items + 1)]
    mark = {"type": "integer", "enum": list(range(questionnaire.low, questionnaire.high + 1))}
    properties = dict.fromkeys(numbers, mark)
    return {"type": "object", "properties": properties, "required": numbers, "additionalProperties": False}


class SelfReporter(responder.AskedModel):
    """A model that fills in sheets."""

    def __init__(self, config: responder.ModelConfig, inquiry: Inquiry) -> None:
        fewest = TOKENS_AN_ITEM * inquiry.questionnaire.items
        super().__init__(config, max_tokens=max(config.max_tokens, fewest), schema=True)
        self.inquiry = inquiry

    @cached_property
    def version(self) -> str:
        """A digest of all that decides an answer except the sheet itself."""
        asked = [self.config.model, [*self.decoding.values()], sheet_schema(self.inquiry.questionnaire)]
        return digest_json([*asked, IMAGINE, STABLE, FORM])[:12]

    def fill_in(self, blank: Exchange) -> dict[str, Any]:
        """Return one row of a run: the marks, the answer, and why marks are missing."""
        about = {key: blank.extra[key] for key in ("factor", "situation", "pair") if key in blank.extra}
        row = {"id": blank.id, "content_digest": blank.content_digest, **about}
        questionnaire, repeat = self.inquiry.questionnaire, blank.extra["repeat"]
        try:
            reply = self.chat.ask(
                [{"role": "user", "content": blank.prompt}],
                schema=sheet_schema(questionnaire),
                seed=self.config.seed + repeat,  # else every repeat would be the same draw
            )
        except CallFailed as failure:
            row |= {"marks": {}, "missing": f"no answer: {failure.reason}"}
            return row | ({"said": shorten(failure.raw)} if failure.raw else {}) | {"usage": failure.usage}
        filled = read_filled(reply.body, questionnaire, blank.extra["order"])
        return row | self.describe_reply(reply) | filled | {"usage": reply.usage}


def read_filled(
    body: Mapping[str, Any], questionnaire: Questionnaire, order: Sequence[int]
) -> dict[str, Any]:
    """Return the `marks` of a chat completion by the items' own numbers, and why some are `missing`."""
    message = read_message(body)
    if message is None:
        return {"marks": {}, "missing": "no answer: the server sent no message"}
    answer, refusal, finish, _ = message
    texts = tuple(questionnaire.texts[item - 1] for item in order)
    read = read_marks(answer, replace(questionnaire, texts=texts))
    marks = sorted((order[number - 1], mark) for number, mark in read.marks.items())
    row: dict[str, Any] = {"marks": {str(item): mark for item, mark in marks}, "said": answer[:MOST_KEPT]}
    if read.problem and (refusal or finish == "content_filter"):
        return row | {"missing": "refused: by the server", "said": (answer or refusal)[:MOST_KEPT]}
    if read.problem and finish == "length":
        return row | {"missing": f"cut short: {OUT_OF_TOKENS}"}
    return row | {"missing": read.problem} if read.problem else row


def make_reporter(
    *,
    model_config: Path | None,
    scale: str,
    questionnaires: Path | None,
    situations: Path | None,
    emotions: tuple[str, ...],
    per_factor: int | None,
    orders: int,
    seed: int,
    positive: bool,
    stable: bool,
    **settings: Any,
) -> SelfReporter:
    """Make the model that answers from the options of the command; `settings` are those of the model."""
    if positive and situations:
        raise UserError("--positive: only for the included situations; omit it or --situations")
    questionnaire = read_questionnaire(scale, copy=questionnaires)
    # A scale of one emotion is asked about its situations, as the benchmark did.
    wanted = emotions or ((questionnaire.emotion,) if questionnaire.emotion else ())
    inquiry = Inquiry(
        questionnaire=questionnaire,
        situations=choose_situations(
            read_situations(situations or (POSITIVE if positive else OURS)),
            emotions=wanted,
            per_factor=per_factor,
        ),
        orders=orders,
        defaults=max(orders, FEWEST_DEFAULTS),
        seed=seed,
        is_stable=stable,
        is_positive=positive,
    )
    if not questionnaire.texts:
        next(inquiry.blanks())  # refuses before a model is asked for
    if model_config is None and settings.get("model") is None:
        raise UserError("no model: set --model and --base-url, or --model-config FILE")
    return SelfReporter(responder.read_model_config(model_config, settings), inquiry)


def plan_alignment(reporter: SelfReporter) -> RunPlan:
    """Return the plan of a run of this model over these situations."""
    inquiry = reporter.inquiry
    texts = [[item.id, item.factor, item.text] for item in inquiry.situations]
    return RunPlan(
        model=reporter.name,
        version=reporter.version,
        scale=inquiry.questionnaire.name,
        questionnaire=inquiry.questionnaire.digest,
        situations=sha256(json.dumps(texts).encode()).hexdigest()[:16],
        **{key: getattr(inquiry, key) for key in ("orders", "repeats", "defaults", "seed", "variant")},
    )


def run_alignment(
    reporter: SelfReporter,
    plan: RunPlan,
    folder: Path,
    *,
    max_cost: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> FinishedRun:
    """Have the model fill in every sheet that is missing in `folder`, and finish the run."""
    budget = reporter.endpoint.budget
    budget.most = None if max_cost is None else budget.spent + max_cost

    def conclude(run: Run) -> dict[str, Any]:
        rows = [row for _, row in read_rows(run.judgments)]
        sheets = (
            Sheet(
                model=plan["model"],
                scale=plan["scale"],
                variant=plan["variant"],
                marks={int(item): mark for item, mark in row["marks"].items()},
                **{key: row.get(key) for key in ("factor", "situation", "pair", "missing")},
            )
            for row in rows
        )
        write_sheets(folder / SHEETS, sheets)
        missing = Counter(str(row["missing"]).partition(":")[0] for row in rows if "missing" in row)
        counts = {
            "sheets": len(rows),
            "complete": len(rows) - missing.total(),
            "incomplete": sum("missing" in row and bool(row["marks"]) for row in rows),
        }
        return {
            "asked_for": reporter.config.model,
            "base_url": reporter.endpoint.base_url,
            "decoding": reporter.decoding,
            "counts": counts,
            "missing": dict(sorted(missing.items())),
            **responder.describe_rows(rows),
        }

    return run_all(
        folder,
        plan,
        total=reporter.inquiry.count,
        ask=lambda run: ask_all(reporter.endpoint, reporter.fill_in, reporter.inquiry.blanks(), run),
        conclude=conclude,
        is_enough=lambda manifest: (folder / SHEETS).exists(),
        name=ANSWERS,
        on_progress=on_progress,
    )


def check_filled(run: FinishedRun) -> None:
    """Refuse a folder without a single mark."""
    counts = run.manifest["counts"]
    if not counts["complete"] and not counts["incomplete"]:
        raise OperationalError(
            f"{run.folder}: none of {counts['sheets']:,} sheets has a mark: "
            f"{responder.say_counts(run.manifest['missing'])}. Failed sheets are not sent again in this "
            "folder: fix the cause and set another --out"
        )

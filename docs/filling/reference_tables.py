"""The reference's tables, from the code itself."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from importlib import import_module
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from data import errors
from data.readers.table_rows import SHAPES
from data.records import Exchange, Judgment, Rating, Turn
from data.text import show
from filling.figures import card, evaluation
from judge.base import JUDGES, option_types
from judge.llm.endpoint import Endpoint

PROMPT_FIT: Final = Path(__file__).parents[1] / "figures" / "prompt_fit.json"
# What the records' docstrings leave to the field's name; a field without a word here stops the build.
MEANINGS: Final = {
    "Exchange.id": "unique in its file",
    "Exchange.prompt": "what the speaker said",
    "Exchange.response": "what the model replied",
    "Exchange.model": "who replied",
    "Exchange.situation": "what happened, in the speaker's words",
    "Exchange.emotion": "one of the 32 of EmpatheticDialogues; other words are taken too",
    "Exchange.dialogue": "the turns before the prompt, each with `speaker` and `text`",
    "Exchange.extra": "not a key itself: all other keys are kept and handed on",
    "Turn.speaker": "who said it",
    "Turn.text": "what was said",
    "Rating.id": "the exchange's",
    "Rating.rater": "a name for the person; the same person, the same name",
    "Rating.rating": "1 to 3, or Bad, Okay, Good; other scales with `--scale`",
    "Rating.batch": "what was rated together; the rater, without one",
    "Rating.dimension": "what was rated, where a source has several",
    "Rating.extra": "not a key itself: all other keys are kept",
    "Judgment.id": "the exchange's",
    "Judgment.model": "the exchange's",
    "Judgment.content": "a digest of all that the judge saw",
    "Judgment.prompt_digest": "the same for all replies to one prompt",
    "Judgment.label": "the likeliest; where that is Good with 50 % or less, Okay",
    "Judgment.probabilities": "of each label",
    "Judgment.score": "the expected rating, 1 to 3",
    "Judgment.rationale": "a prompted judge's reason, and what is to be known about how it judged",
    "Judgment.unscored": "why there is no judgment; then all above is empty",
    "Judgment.usage": "tokens and USD, where a server was asked",
    "Judgment.flag": "the danger that somebody may be in, such as `suicide`; it changes no label",
    "Judgment.components": "a decision judge's probability of each component of empathy",
    "Judgment.decided_by": "which judge of a cascade decided",
    "Judgment.curve": "the score of every reply, in order; of whole conversations",
    "Judgment.shape": "the reply's `words`, the `turns` before it, 1 or 0 for `situation` and for `markdown`",
}


# The columns of the table of accuracy, and its rows: a name, and whose figures of the judge's card.
MEASURES: Final = {
    "QWK": "qwk",
    "Spearman": "spearman",
    "balanced accuracy": "balanced_accuracy",
    "AUC Bad": "auc_bad",
    "log-loss": "log_loss",
}
RIVALS: Final = {
    "**classifier**": "judge",
    "classifier, without emotion and situation": "judge, bare",
    "TF-IDF + logistic regression": "TF-IDF",
    "told whose reply it is (an oracle)": "arm oracle",
    "reply length": "length",
    "majority": "majority",
}
# The columns of the tables of answers on unrated models, and the checks whose worst figure each has.
ANSWERS: Final = Path(__file__).parents[1] / "figures" / "answers.json"
SIMULATED_ANSWERS: Final = {
    "level covered": ("level",),
    "relative width": ("width",),
    "bound covered": ("linear", "twice", "three times"),
    "bound, half the slope": ("half",),
    "*better*, no difference": ("better at gap 0",),
    "*better* wrong": ("better wrong",),
    "*probably better* wrong": ("probably better wrong",),
    "20 points found": ("gap 20 found",),
}
REAL_ANSWERS: Final = {
    "wrong order, P ≥ 0.95": "signs wrong, P >= 0.95",
    "wrong order, P ≥ 0.88": "signs wrong, P >= 0.88",
    "levels covered": "levels covered",
    "differences covered": "differences covered",
}
UNRANKED: Final = {"spearman", "auc_bad", "balanced_accuracy"}  # undefined where every reply gets the same


def record_tables() -> dict[str, str]:
    """A table for each kind of row."""
    return {f"table_{kind.__name__.lower()}": _record(kind) for kind in (Exchange, Turn, Rating, Judgment)}


def _record(kind: type) -> str:
    hints = get_type_hints(kind)
    rows = (
        (
            f"`{field.name}`",
            _type(hints[field.name]),
            _default(kind, field),
            MEANINGS[f"{kind.__name__}.{field.name}"],
        )
        for field in fields(kind)
    )
    return table(("key", "type", "without it", "what it is"), rows)


def _default(kind: type, field: Field[Any]) -> str:
    if kind is Exchange and field.name == "id":
        return "the line's number"  # the reader gives it
    if field.default is MISSING and field.default_factory is MISSING:
        return "required"
    return _value(field.default) if field.default is not MISSING else "empty"


def judge_options() -> str:
    """Every kind of judge: what it does, and its options as its class takes them."""
    parts = []
    for kind, path in sorted(JUDGES.items()):
        module, _, name = path.partition(":")
        make = getattr(import_module(module), name)
        own, shared = signature(make).parameters, signature(Endpoint).parameters
        rows = [
            (f"`{option}`", _type(kind), _option_default(own.get(option) or shared[option]))
            for option, kind in option_types(make).items()
        ]
        options = table(("option", "type", "default"), rows) if rows else "No options."
        parts.append(f'## `kind = "{kind}"`\n\n{cleandoc(make.__doc__ or "")}\n\n{options}')
    return "\n\n".join(parts)


def _option_default(parameter: Parameter) -> str:
    return "required" if parameter.default is Parameter.empty else _value(parameter.default)


def shapes() -> str:
    """The shapes of files that are recognized, in the order they are tried."""
    return table(("shape", "such as"), ((shape.name, shape.example) for shape in SHAPES))


def exit_codes() -> str:
    """What each exit code means; those of errors as the errors say."""
    codes = [
        (0, "All is well."),
        (
            1,
            "A regression was found (`nightly`, `compare --check`), or a judge misses a target "
            "(`robustness`).",
        ),
        (3, "It cannot be told, or not yet: too few ratings, an inconclusive gate, a batch under way."),
        (5, "Nothing could be judged (`score`); `unscored` in judgments.jsonl has the reasons."),
        (141, "The reader of the output left, as `head -1` does."),
    ]
    codes += [(kind.exit_code, str(kind.__doc__)) for kind in _errors(errors.UserError)]
    return table(("code", "meaning"), ((f"`{code}`", text) for code, text in sorted(codes)))


def _errors(kind: type[errors.UserError]) -> Iterator[type[errors.UserError]]:
    if kind.__module__ == errors.__name__:
        yield kind
    for below in kind.__subclasses__():
        yield from _errors(below)


def accuracy() -> str:
    """Return the agreement of the judge and of baselines with raters they have not met, from its card."""
    rows = []
    for name, who in RIVALS.items():
        measured = evaluation("raters-apart", who=who)["per_response"]
        unranked = UNRANKED if who == "majority" else set()
        cells = (None if key in unranked else measured[key] for key in MEASURES.values())
        rows.append([name, *(show(cell, digits=2) for cell in cells)])
    rows.append(["two people, in the study's pilot", "0.28", "", "", "", ""])
    return table(["raters apart", *MEASURES], rows)


def model_errors() -> str:
    """Return the error of the Good share of each source left out of training, from the judge's card."""
    models = sorted(
        evaluation("model-apart")["models"], key=lambda item: item["share_error"]["value"], reverse=True
    )
    rows = (
        [item["model"], f"{100 * item['crowd']['Good']:.1f}%", show(item["share_error"], digits=1, scale=100)]
        for item in models
    )
    return table(["source left out", "human Good share", "error of the judge, points"], rows)


def sets_apart() -> str:
    """Return the judge's agreement with rated sets that it was not trained on, from its card."""
    rows = []
    for item in card()["evidence"]["sets-apart"]["sets"]:
        parties = item["parties"]
        recorded = [name for name in parties if name.startswith("gpt")]
        cells = (parties["judge"]["spearman"], parties["length"]["spearman"], parties["judge"]["worst"])
        shown = [show(cell, digits=2) for cell in cells]
        gpt = show(parties[recorded[0]]["spearman"], digits=2) if recorded else ""
        rows.append([item["set"], f"{item['items']:,}", *shown, gpt])
    heads = ["set", "rated", "judge", "counting words", "AUC of the worst fifth", "a GPT as judge"]
    return table(heads, rows)


def prompt_fit() -> str:
    """Return how often prompt fit flags genuine replies and detects shuffled ones, by set."""
    rows: dict[str, list[str]] = {}
    for item in json.loads(PROMPT_FIT.read_text(encoding="utf-8")):
        if item["replies"] == "short":
            continue
        ends = dict.fromkeys(f"{item['fit'][end]:.2f}" for end in (0, -1))
        row = rows.setdefault(item["set"], [item["set"], str(item["systems"]), " to ".join(ends)])
        row.append(f"{item['flagged_genuine']:.1f} / {item['caught_shuffled']:.0f}")
    heads = ["set", "systems", "fit", "n = 10", "n = 20", "n = 40"]
    return table(heads, [row + [""] * (len(heads) - len(row)) for row in rows.values()])


def simulated_answers() -> str:
    """Return how often answers on unrated models are right in simulated worlds; a missed limit is bold."""
    by_world: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(ANSWERS.read_text(encoding="utf-8")):
        by_world.setdefault(row["world"], []).append(row)
    rows = []
    for world, figures in by_world.items():
        if "of" not in figures[0]:
            cells = [_worst_answer(figures, checks) for checks in SIMULATED_ANSWERS.values()]
            rows.append([world, *cells])
    return table(["world", *SIMULATED_ANSWERS], rows)


def _worst_answer(figures: Iterable[dict[str, Any]], checks: tuple[str, ...]) -> str:
    """Return the worst of these checks, in bold where it misses its limit."""
    mine = [row for row in figures if row["check"].rpartition(", ")[2] in checks]
    row = min(mine, key=lambda row: row["measured"])
    is_missed = not row.get("at_least", -1) <= row["measured"] <= row.get("at_most", 9)
    cell = f"{row['measured']:.2f}" if row["check"] == "width" else f"{100 * row['measured']:.1f}%"
    return f"**{cell}**" if is_missed else cell


def real_answers() -> str:
    """Return how often answers are right on rated sets whose systems, or the whole set, are left out."""
    cells: dict[str, dict[str, str]] = {}
    for row in json.loads(ANSWERS.read_text(encoding="utf-8")):
        if "of" in row:
            cells.setdefault(row["world"], {})[row["check"]] = f"{row['measured']} of {row['of']:,}"
    rows = [[world, *(figures[check] for check in REAL_ANSWERS.values())] for world, figures in cells.items()]
    return table(["systems scored by", *REAL_ANSWERS], rows)


def nightly_keys() -> str:
    """A night's configuration as its module lists it."""
    text = cleandoc(import_module("nightly.config").__doc__ or "")
    return f"```toml\n{text.partition(chr(10) * 2)[2]}\n```"


def _type(hint: Any) -> str:
    """A type in words: what one writes into TOML or JSON.

    >>> _type(str | None), _type(tuple[str, ...]), _type(Literal["a", "b"])
    ('text', 'list of text', '`a`, `b`')
    """
    named = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything"}
    if hint in named:
        return named[hint]
    origin, inside = get_origin(hint), [item for item in get_args(hint) if item is not type(None)]
    if origin is Literal:
        return ", ".join(f"`{item}`" for item in inside)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(item) for item in inside))
    if origin in (list, tuple):
        return f"list of {_type(inside[0])}"
    if isinstance(hint, type) and origin is None:
        return "turns" if hint is Turn else hint.__name__
    return "table"


def _value(value: Any) -> str:
    if value is None or value == "" or value == () or value == {}:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)

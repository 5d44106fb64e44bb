"""The reference's tables, from the code itself."""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from importlib import import_module
from inspect import Parameter, Signature, cleandoc, getsource, signature
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import click
import numpy as np

import empathy_judge
from empathy_judge.calibration.agreement.metrics import auc_of, spearman_of
from empathy_judge.calibration.bootstrap import resample_clusters, sample
from empathy_judge.calibration.cluster import NORMAL, wilson_interval
from empathy_judge.calibration.pairing import labels_from_probabilities
from empathy_judge.commands import main as cli
from empathy_judge.data import errors
from empathy_judge.data.readers.table_rows import SHAPES
from empathy_judge.data.records import GOOD_ABOVE, Exchange, Judgment, Rating, Turn, to_plain
from empathy_judge.data.text import number, percent, show
from empathy_judge.judge.base import JUDGES, option_types
from empathy_judge.judge.llm.endpoint import Endpoint
from empathy_judge.judge.llm.judge_prompt import MODES
from empathy_judge.training.cross_validation import SETS_APART, read_rows
from empathy_judge.training.held_out import expected_scores
from filling.figures import GRADE_AGREEMENT, JUDGE, answers, card, evaluation, recorded_judges

PROMPT_FIT: Final = Path(__file__).parents[1] / "figures" / "prompt_fit.json"
PYTHON: Final = ("score", "compare", "calibrate", "ScoredRun", "ResultTable", "JudgeClient")
LONGEST_SIGNATURE: Final = 80  # characters on one line

# The columns of the table of accuracy, and its rows: a name, and whose figures of the judge's card.
MEASURES: Final = {
    "QWK": "qwk",
    "QWK of labels": "label_qwk",
    "Spearman": "spearman",
    "balanced accuracy": "balanced_accuracy",
    "AUC Bad": "auc_bad",
    "log-loss": "log_loss",
}
LARGE: Final = "classifier-large"
OPEN: Final = Path(__file__).parents[1] / "figures" / "open-judge"
OPEN_FRESH_TEXTS: Final = OPEN / "fresh_texts.json"
RIVALS: Final = {
    "**classifier**": "judge",
    "classifier-large": LARGE,
    "TF-IDF + logistic regression": "TF-IDF",
    "oracle that knows the source": "model oracle",
    "reply length": "length",
    "majority": "majority",
}
FRESH_TEXTS: Final = Path(__file__).parents[1] / "figures" / "fresh_texts.json"
FRESH_TEXTS_ROWS: Final = {  # the kind of text, and the rating of the label that is counted
    "harmful labeled Good": ("harmful", 3),
    "excellent labeled Bad": ("excellent", 1),
    "excellent labeled Good": ("excellent", 3),
    "harmful with a question added, labeled Good": ("harmful, question added", 3),
    "harmful in capitals, labeled Good": ("harmful, in capitals", 3),
}
RELEVANCE: Final = {
    "labeled Good under their own prompts": "own",
    "labeled Good under another prompt of the study": "other",
    "one of 20 friendly constant texts instead, labeled Good": "constant",
    "score higher under their own prompt than under another": "own_higher",
}
# The columns of the tables of answers on unrated models, and the checks whose worst figure each has.
SIMULATED_ANSWERS: Final = {
    "level covered": ("level",),
    "bound covered": ("linear", "twice", "three times"),
    "bound, half the slope": ("half",),
    "*better* wrong": ("better wrong",),
    "*probably better* wrong": ("probably better wrong",),
}
REAL_ANSWERS: Final = {
    "stated": "stated, all",
    "people agree": "observed, all",
    "Brier score": "Brier score",
    "levels covered": "levels covered",
    "differences covered": "differences covered",
}
VERDICTS_BY_GAP: Final = ("better", "probably better", "at least as good")
DEVIATIONS: Final = ("deviations 0.14", "deviations 0.18", "deviations 0.25")
GAPS: Final = (-10, 0, 5, 10, 15, 20)
RECORDED_SETS: Final = {
    "study": "crowd study",
    "ieval": "iEval",
    "dstc9": "DSTC9",
    "esconv": "ESConv",
    "resort": "RESORT",
    "empo": "EmPO",
}
LEVEL_SETS: Final = {"study": "crowd study, language models", "ieval": "iEval", "dstc9": "DSTC9"}
LEVEL_GUESSES: Final = {
    "printed": "printed by `score`",
    "judge": "the judge's own share",
    "line": "the calibration line",
    "mean": "mean of the other models",
}
UNRANKED: Final = {"spearman", "auc_bad", "balanced_accuracy"}  # undefined where every reply gets the same


def record_tables() -> dict[str, str]:
    """Return a table for each kind of row."""
    return {f"table_{kind.__name__.lower()}": _record(kind) for kind in (Exchange, Turn, Rating, Judgment)}


def _record(kind: type) -> str:
    hints, meanings = get_type_hints(kind), _meanings(kind)
    rows = (
        (f"`{field.name}`", _type(hints[field.name]), _default(kind, field), meanings[field.name])
        for field in fields(kind)
    )
    return table(("key", "type", "default", "meaning"), rows)


def _meanings(kind: type) -> dict[str, str]:
    """Return the string under each field of a record; a missing one stops the build."""
    (definition,) = ast.parse(getsource(kind)).body
    body = definition.body  # type: ignore[attr-defined]
    return {
        item.target.id: text.value.value.replace("`GOOD_ABOVE`", f"{GOOD_ABOVE:.0%}")
        for item, text in pairwise(body)
        if isinstance(item, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def _default(kind: type, field: Field[Any]) -> str:
    if kind is Exchange and field.name == "id":
        return "the line number"  # set by the reader
    if field.default is MISSING and field.default_factory is MISSING:
        return "required"
    return _value(field.default) if field.default is not MISSING else "empty"


def judge_options() -> str:
    """Return every kind of judge with its options; those of all judges on a server are listed once."""
    parts, shared, on_server = [], signature(Endpoint).parameters, {}
    for kind, path in sorted(JUDGES.items()):
        module, _, name = path.partition(":")
        make = getattr(import_module(module), name)
        own, types = signature(make).parameters, option_types(make)
        on_server |= {option: _type(types[option]) for option in types if option not in own}
        rows = [(item, _type(types[item]), _option_default(own[item])) for item in types if item in own]
        options = [_options(rows)] if rows else []
        options += ["And the [options of judges on a server](#judges-on-a-server)."] * (
            len(rows) < len(types)
        )
        parts.append("\n\n".join([f'## `kind = "{kind}"`', cleandoc(make.__doc__ or ""), *options]))
    rows = [(item, kind, _option_default(shared[item])) for item, kind in on_server.items()]
    return "\n\n".join([*parts, "## Judges on a server", _options(rows)])


def _options(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return a list of options with their types and defaults."""
    shown = {"none": "", "required": " (required)"}
    return "\n".join(
        f"- `{name}`: {kind}{shown.get(default, f' (default {default})')}" for name, kind, default in rows
    )


def _option_default(parameter: Parameter) -> str:
    return "required" if parameter.default is Parameter.empty else _value(parameter.default)


def shapes() -> str:
    """Return the shapes of files that are recognized, in the order they are tried."""
    return table(("shape", "such as"), ((shape.name, shape.example) for shape in SHAPES))


def exit_codes() -> str:
    """Return the meaning of each exit code, for errors from their docstrings."""
    codes = [
        (0, "Success."),
        (
            1,
            "A model is worse (`compare --check`), a regression (`nightly`), or a missed target "
            "(`robustness`).",
        ),
        (3, "Inconclusive: too few ratings, an inconclusive gate."),
        (5, "No reply could be scored (`score`); `unscored` in judgments.jsonl has the reasons."),
        (141, "The reader of the output closed it, as `head -1` does."),
    ]
    codes += [(kind.exit_code, str(kind.__doc__)) for kind in _errors(errors.UserError)]
    return table(("code", "meaning"), ((f"`{code}`", text) for code, text in sorted(codes)))


def commands() -> str:
    """Return every command and subcommand with its purpose."""
    found: dict[str, click.Command] = {}
    for name in cli.COMMANDS:
        command = cli.main.get_command(click.Context(cli.main), name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {inner}": item for inner, item in command.commands.items()}
    return "\n".join(f"- `{name}`: {item.get_short_help_str(limit=200)}" for name, item in found.items())


def python_interface() -> str:
    """Return the signatures and docstrings of the names that `empathy_judge` exports."""
    parts = []
    for name in PYTHON:
        item = getattr(empathy_judge, name)
        text = cleandoc(item.__doc__ or "")
        if not isinstance(item, type):
            parts.append(f"### `{name}`\n\n```python\nej.{name}{_arguments(item)}\n```\n\n{text}")
            continue
        members = (member for kind in reversed(item.__mro__[:-1]) for member in vars(kind).items())
        public = {key: value for key, value in members if key[0] != "_" and value.__doc__}
        methods = [
            f"- `{key}{_arguments(value) if callable(value) else ''}`: {value.__doc__.splitlines()[0]}"
            for key, value in public.items()
            if callable(value) or isinstance(value, property)
        ]
        parts.append(
            "\n\n".join(filter(None, [f"### `{name}`", text.partition("\n\n")[0], "\n".join(methods)]))
        )
    return "\n\n".join(parts)


def _arguments(function: Any) -> str:
    """Return a signature without annotations and `self`."""
    shown = [
        parameter.replace(annotation=Parameter.empty)
        for parameter in signature(function).parameters.values()
        if parameter.name != "self"
    ]
    whole = str(Signature(shown))
    lines = [f"    {part},\n" for part in whole[1:-1].split(", ")]
    return whole if len(whole) <= LONGEST_SIGNATURE else f"(\n{''.join(lines)})"


def _errors(kind: type[errors.UserError]) -> Iterator[type[errors.UserError]]:
    if kind.__module__ == errors.__name__:
        yield kind
    for below in kind.__subclasses__():
        yield from _errors(below)


def accuracy() -> str:
    """Return the agreement of the judge and of baselines with raters they have not met, from its card."""
    rows = []
    for name, who in RIVALS.items():
        of = {"judge": JUDGE.parent / LARGE} if who == LARGE else {"who": who}
        measured = evaluation("raters-apart", **of)["per_response"]
        unranked = UNRANKED if who == "majority" else set()
        cells = (None if key in unranked else measured[key] for key in MEASURES.values())
        rows.append([name, *(show(cell) for cell in cells)])
    rows.append(["two people (pilot study)", "", "0.28", "", "", "", ""])
    return table(["new raters and prompts", *MEASURES], rows)


def model_errors() -> str:
    """Return the error of the Good share of each source left out of training, from the judge's card."""
    models = sorted(
        evaluation("model-apart")["models"], key=lambda item: item["error"]["value"], reverse=True
    )
    rows = (
        [item["model"], f"{100 * item['people']:.1f}%", show(item["error"], digits=1, scale=100)]
        for item in models
    )
    return table(["source left out", "human Good share", "error of the judge, points"], rows)


def sets_apart() -> str:
    """Return the judge's agreement with rated sets that it was not trained on, from its card."""
    rows = []
    both = (card(folder)["evidence"]["sets-apart"]["sets"] for folder in (JUDGE, JUDGE.parent / LARGE))
    compared = compare_on_sets(JUDGE.parent / LARGE)
    for item, large in zip(*both, strict=True):
        parties = item["parties"]
        recorded = [name for name in parties if name.startswith("gpt")]
        by_large = large["parties"]["judge"]["spearman"]
        _, gain = compared[item["set"]]["default"]
        cells = (parties["judge"]["spearman"], by_large, gain, parties["length"]["spearman"])
        shown = [show(cell) for cell in cells]
        gpt = show(parties[recorded[0]]["spearman"]) if recorded else ""
        rows.append([item["set"], f"{item['items']:,}", *shown, gpt])
    heads = ["set", "rated", "**classifier**", LARGE, "difference", "counting words", "GPT as judge"]
    return table(heads, rows)


def compare_on_sets(folder: Path) -> dict[str, dict[str, Any]]:
    """Return by set how the default, word count and TF-IDF correlate with the ratings of a judge's items.

    Each has a pair: its correlation, and by how much that of the judge in `folder` is higher.
    """
    default = {(row["set"], row["id"]): row for row in read_rows(JUDGE) if row["protocol"] == SETS_APART}
    by_set: dict[str, list[Any]] = {}
    for row in read_rows(folder):
        if row["protocol"] == SETS_APART:
            by_set.setdefault(row["set"], []).append(row)
    compared: dict[str, dict[str, Any]] = {}
    for name, rows in by_set.items():
        beside = [default[name, row["id"]]["probabilities"] for row in rows]
        rivals = {"default": expected_scores(np.array(beside)), "length": [row["words"] for row in rows]}
        if "TF-IDF" in rows[0]["others"]:
            rivals["TF-IDF"] = [row["others"]["TF-IDF"] for row in rows]
        ratings = np.array([row["rating"] for row in rows])
        own = spearman_of(expected_scores(np.array([row["probabilities"] for row in rows])), ratings)
        names, clusters = np.unique([row["cluster"] for row in rows], return_inverse=True)
        drawn = resample_clusters(len(names), rng=np.random.default_rng(0), draws=1000)
        compared[name] = {}
        for rival, scores in rivals.items():
            other = spearman_of(np.asarray(scores), ratings)

            def gain(counts: Any, own: Any = own, other: Any = other) -> Any:
                return own(counts) - other(counts)

            sampled = sample({"own": other, "gain": gain}, clusters, drawn)
            compared[name][rival] = tuple(to_plain(sampled[key].estimate()) for key in ("own", "gain"))
    return compared


def open_sets() -> str:
    """Return the correlations of the judge of the recipe `open` and of others, with the differences."""
    compared, rows = compare_on_sets(OPEN), []
    for item in card(OPEN)["evidence"]["sets-apart"]["sets"]:
        own = show(item["parties"]["judge"]["spearman"])
        pairs = [compared[item["set"]][rival] for rival in ("length", "TF-IDF", "default")]
        cells = [f"{show(value).split()[0]}; {show(gain)}" for value, gain in pairs]
        rows.append([item["set"], f"{item['items']:,}", own, *cells])
    measured = card(OPEN)["evidence"]["raters-apart"]["evaluations"]["judge"]
    rivals = (evaluation("raters-apart", who=who)["per_response"] for who in ("length", "TF-IDF", "judge"))
    shown = [show(each["spearman"]) for each in (measured["per_response"], *rivals)]
    study = ["crowd study", f"{measured['responses']:,}", shown[0], *(cell.split()[0] for cell in shown[1:])]
    heads = ["set", "rated", "**classifier-open**", "counting words", "TF-IDF", "classifier"]
    return table(heads, [*rows, study])


def relevance() -> str:
    """Return how often held-out replies are labeled Good, as they were and misplaced, from the cards."""
    return _relevance({"**classifier**": JUDGE, LARGE: JUDGE.parent / LARGE})


def open_relevance() -> str:
    """Return the same of the judge of the recipe `open`."""
    return _relevance({"**classifier-open**": OPEN, "classifier": JUDGE})


def _relevance(folders: Mapping[str, Path]) -> str:
    measured = [card(folder)["evidence"]["relevance"] for folder in folders.values()]
    rows = [[name, *(f"{percent(one[key])}%" for one in measured)] for name, key in RELEVANCE.items()]
    return table(["replies that were left out of training", *folders], rows)


def fresh_texts(path: Path = FRESH_TEXTS) -> str:
    """Return how replies that were written after the judges were finished are labeled, from predictions."""
    judges = json.loads(path.read_text(encoding="utf-8"))["judges"]
    columns = []
    for predicted in judges.values():
        tables = {kind: np.array(list(rows.values())) for kind, rows in predicted.items()}
        both = np.concatenate([tables["excellent"], tables["harmful"]])
        is_excellent = np.arange(len(both)) < len(tables["excellent"])
        drawn = resample_clusters(len(both), rng=np.random.default_rng(0), draws=1000)
        statistics = {"auc": auc_of(is_excellent, both @ np.arange(1.0, 4.0))}
        cells = [show(to_plain(sample(statistics, np.arange(len(both)), drawn)["auc"].estimate()))]
        for kind, label in FRESH_TEXTS_ROWS.values():
            labels = labels_from_probabilities(tables[kind])
            share = float((labels == label).mean())
            low, high = wilson_interval(np.array(share), np.array(len(labels)), NORMAL)
            cells.append(f"{100 * share:.0f}% [{100 * low:.0f}, {100 * high:.0f}]")
        columns.append(cells)
    heads = ("AUC of excellent against harmful", *FRESH_TEXTS_ROWS)
    return table(["", *judges], [list(row) for row in zip(heads, *columns, strict=True)])


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


def _answer(row: dict[str, Any] | None) -> str:
    """Print a figure, in bold where it misses its limit."""
    if row is None:
        return ""
    is_missed = not row.get("at_least", -1) <= row["measured"] <= row.get("at_most", 9999)
    is_number = row["check"] in ("width", "Brier score")
    cell = f"{row['measured']:.2f}" if is_number else f"{100 * row['measured']:.1f}%"
    if isinstance(row["measured"], int):
        cell = f"{row['measured']:,} of {row['of']:,}" if "of" in row else str(row["measured"])
    return f"**{cell}**" if is_missed else cell


def simulated_answers() -> str:
    """Return how often answers on unrated models are right in simulated worlds; a missed limit is bold."""
    rows = []
    for world, figures in answers().items():
        if "level" in figures:
            found = [
                [row for check, row in figures.items() if check.rpartition(", ")[2] in checks]
                for checks in SIMULATED_ANSWERS.values()
            ]
            rows.append([world, *(_answer(min(each, key=lambda row: row["measured"])) for each in found)])
    return table(["world", *SIMULATED_ANSWERS], rows)


def verdicts_by_gap() -> str:
    """Return how often each verdict is given at a true difference, in percent by the judge's deviation."""
    rows = []
    for verdict in VERDICTS_BY_GAP:
        figures = [[answers()[world].get(f"{verdict} at {gap}") for world in DEVIATIONS] for gap in GAPS]
        cells = (" / ".join(_answer(row).replace("%", "") for row in each if row) for each in figures)
        rows.append([f"*{verdict}*", *cells])
    return table(["%", *(f"{gap} points" for gap in GAPS)], rows)


def stated_answers() -> str:
    """Return how often people agree with the sign of a difference, by its stated probability."""
    figures = answers()["classifier"]
    bins = [check.partition(", ")[2] for check in figures if check.startswith("observed")]
    rows = [
        [name, str(figures[f"stated, {name}"]["of"])]
        + [_answer(figures[f"{kind}, {name}"]) for kind in ("stated", "observed")]
        for name in (*bins[1:], bins[0])
    ]
    return table(["probability", "pairs", "stated", "people agree"], rows)


def real_answers() -> str:
    """Return how often answers are right on rated sets whose systems, or the whole set, are left out."""
    rows = [
        [
            world,
            str(figures["stated, all"]["of"]),
            *(_answer(figures.get(check)) for check in REAL_ANSWERS.values()),
        ]
        for world, figures in answers().items()
        if "stated, all" in figures
    ]
    return table(["systems scored by", "pairs", *REAL_ANSWERS], rows)


def level_errors() -> str:
    """Return the errors of the levels of left-out models, of what is printed and of other guesses."""
    figures = answers()["classifier"]
    rows = [
        [
            name,
            *(f"{100 * figures[f'level error, {each}, {guess}']['measured']:.1f}" for guess in LEVEL_GUESSES),
        ]
        for each, name in LEVEL_SETS.items()
    ]
    return table(["models left out", *LEVEL_GUESSES.values()], rows)


def recorded_modes() -> str:
    """Return the agreement of an LLM judge by mode, from recorded answers."""
    found, sets, modes = _recorded_rows()
    rows = [
        [
            f"`{mode}`",
            *(show(found[mode, name]["agreement"]) if (mode, name) in found else "" for name in sets),
        ]
        for mode in modes
    ]
    texts = (f"{RECORDED_SETS[name]}, {found['label', name]['texts']}" for name in sets)
    return table(["mode", *texts], rows)


def recorded_levels() -> str:
    """Return an LLM judge's differences between modes, its level, its order of systems and its tokens."""
    found, _, modes = _recorded_rows()
    figures, rows = recorded_judges(), []
    for mode in modes:
        means, tokens = figures["means"][mode], figures["tokens"][mode]
        good = [f"{found[mode, name]['good']:.0%}" for name in ("study", "ieval")]
        order = [number(found[mode, name]["order"]) for name in ("study", "ieval")]
        cells = [show(means[name]) if name in means else "" for name in ("all", "labeled")]
        rows.append(
            [
                f"`{mode}`",
                *cells,
                " / ".join(good),
                " / ".join(order),
                f"{tokens['input']} + {tokens['output']}",
            ]
        )
    people = " / ".join(f"{found['label', name]['people_good']:.0%}" for name in ("study", "ieval"))
    good = f"Good, study / iEval (people {people})"
    return table(["mode", "four sets", "study and iEval", good, "r of systems", "tokens a reply"], rows)


def _recorded_rows() -> tuple[dict[tuple[str, str], dict[str, Any]], list[str], list[str]]:
    rows = {(row["mode"], row["set"]): row for row in recorded_judges()["modes"]}
    modes = [mode for mode in MODES if any(mode == each for each, _ in rows)]
    return rows, list(RECORDED_SETS), modes


def grade_agreement() -> str:
    """Return how a language model's grades of real replies agree with people and with each other."""
    found = json.loads(GRADE_AGREEMENT.read_text(encoding="utf-8"))
    pairs = ("earlier and people", "first and people", "second and people", "second and first")
    rows = [
        [name, *(f"{show(row[each])} ({row[each]['n']:,})" if each in row else "" for each in pairs)]
        for name, row in found.items()
    ]
    heads = ("one at a time", "in context", "in context, second wording", "both wordings")
    return table(["set", *heads], rows)


def nightly_keys() -> str:
    """Return a night's configuration as its module lists it."""
    text = cleandoc(import_module("empathy_judge.nightly.config").__doc__ or "")
    return f"```toml\n{text.partition(chr(10) * 2)[2]}\n```"


def _type(hint: Any) -> str:
    """Describe a type in the words of TOML and JSON.

    >>> _type(str | None), _type(tuple[str, ...]), _type(Literal["a", "b"])
    ('string', 'list of string', '`a`, `b`')
    """
    named = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any"}
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
    """Return a table of Markdown."""
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)

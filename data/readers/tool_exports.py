"""Shapes of files that tools write: promptfoo, Inspect, lm-eval, OpenAI, ChatGPT, Langfuse and LangSmith."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.chat_turns import (
    CONVERSATIONS,
    PROMPTS,
    USER,
    Exchanged,
    exchanged_in,
    find_value,
    only_text,
    parsed,
    plain_name,
    turns_in,
)
from empathy_judge.data.readers.column_shapes import (
    LAST_TURN,
    Fit,
    Row,
    RowKind,
    Sample,
    Shape,
    prompt_row,
    reply_row,
    side_by_side,
)

GRADES: Final = frozenset({"status", "score", "named_scores", "grader_reason", "comment", "description"})
ABOUT_RUNS: Final = ("metadata", "extra.metadata", "extra.invocation_params")  # of LangSmith
LONGEST_NAME: Final = 40  # characters of a prompt's label; promptfoo takes the whole prompt for one


def rows_of_document(document: Any) -> list[Any]:
    """Return the rows of a JSON file: an array's items, what a tool wraps, or columns turned into rows."""
    if not isinstance(document, dict):
        return document if isinstance(document, list) else [document]
    results, names, values = document.get("results"), document.get("columns"), document.get("data")
    if isinstance(document.get("eval"), dict) and isinstance(document.get("samples"), list):
        header = {"eval": {"model": document["eval"].get("model")}}  # Inspect: the model is in the header
        return [{**item, **header} if isinstance(item, dict) else item for item in document["samples"]]
    if isinstance(names, list) and isinstance(values, list):  # MLflow, and pandas with orient="split"
        return [dict(zip(names, row, strict=False)) if isinstance(row, list) else row for row in values]
    if isinstance(results, dict) and isinstance(results.get("results"), list):  # promptfoo
        return list(results["results"])
    lists = [value for value in document.values() if isinstance(value, list)]
    rows = [value for value in lists if value and all(isinstance(item, dict) for item in value)]
    if len(rows) == 1 and not any(plain_name(key) in CONVERSATIONS for key in document):
        return rows[0]
    columns = [list(value.values()) if isinstance(value, dict) else value for value in document.values()]
    sizes = {len(value) if isinstance(value, list) else 0 for value in columns}
    if len(columns) > 1 and len(sizes) == 1 and 0 not in sizes:  # as pandas writes a table
        return [dict(zip(document, row, strict=True)) for row in zip(*columns, strict=True)]
    return [document]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, and where a row of its files has what we read.

    `needs` are the columns by which a file is recognized. Columns are in plain names, alternatives are
    separated by bars, and dots lead into a value. `adapt` makes what no path leads to, or None for a row to
    leave out.
    """

    name: str
    example: str
    needs: str
    prompt: str = ""
    reply: str = ""
    id: str = "custom_id|id"
    model: str = "model|provided_model_name|model_name"
    kind: RowKind = RowKind.REPLIES
    adapt: Callable[[Row], Row | None] = lambda row: row

    def recognize(self, sample: Sample) -> Fit | None:
        """Return how the tool's file is read; None for another file."""
        for paths in self.needs.split():
            if not any(_is_there(sample, path) for path in paths.split("|")):
                return None
        last = LAST_TURN if self.kind is RowKind.CONVERSATIONS else ""
        return Fit(self.name + last, self._convert, self.kind)

    def _convert(self, row: Row) -> list[Row]:
        if (adapted := self.adapt(row)) is None:
            return []
        reply = _value(adapted, self.reply)
        if reply is None and row.get("error"):
            raise UserError(f"no response: {str(row['error'])[:80]}")
        made = prompt_row(_value(adapted, self.prompt), self.prompt) if self.prompt else {}
        made |= reply_row(reply, self.reply) if self.reply else {}
        about = {"id": _value(adapted, self.id), "model": _value(adapted, self.model)}
        return [made | {key: str(value) for key, value in about.items() if value is not None}]


def _table(value: Any) -> Mapping[str, Any]:
    held = parsed(value)
    return held if isinstance(held, Mapping) else {}


def _value(row: Row, paths: str) -> Any:
    """Return the first value that is given at one of the paths, or under `path.*`; None if there is none."""
    for path in paths.split("|"):
        value: Any = row
        for key in path.removesuffix(".*").split("."):
            table = _table(value)
            plain = {plain_name(name): item for name, item in table.items()}
            value = plain[key] if key in plain else _gathered(table, key)
        if value not in (None, "", [], {}) and (path[-1] != "*" or isinstance(parsed(value), Mapping | list)):
            return value
    return None


def _gathered(table: Mapping[str, Any], key: str) -> Row:
    """Return a value that has columns of its own, such as `inputs.question`."""
    parts = ((name.partition("."), value) for name, value in table.items())
    return {rest: value for (head, dot, rest), value in parts if dot and plain_name(head) == key}


def _is_there(sample: Sample, path: str) -> bool:
    return path in sample.plain or any(_value(row, path) is not None for row in sample.rows)


def _talk(prompt: Exchanged) -> list[Row]:
    return [*prompt.dialogue, {"speaker": USER, "text": prompt.prompt}]


def _variant(model: str, label: str, number: int) -> str:
    """Return the name of a model with one of several prompts."""
    return f"{model}@{label if 0 < len(label) <= LONGEST_NAME else f'prompt{number}'}"


def _promptfoo(sample: Sample) -> Fit | None:
    """Recognize results as JSON or JSON lines: a row for each test, prompt and provider."""
    # Numbered by us: promptfoo counts prompts and providers together.
    labels = [str(_value(row, "prompt.label") or "") for row in sample.rows]
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels), start=1)}
    has_variants = len(numbers) > 1

    def adapt(row: Row) -> Row:
        model = str(_value(row, "provider.label|provider.id|provider") or "unnamed")
        if has_variants:
            label = str(_value(row, "prompt.label") or "")
            model = _variant(model, label, numbers.setdefault(label, len(numbers) + 1))
        # A prompt that is no chat holds the instructions too; what the person said is among the variables.
        about, raw = _table(_value(row, "vars|test_case.vars")), _value(row, "prompt.raw")
        asked = raw if turns_in(raw) else (find_value(about, PROMPTS) or only_text(about) or raw)
        identity = f"{row['testIdx']}/{model}" if row.get("testIdx") is not None else None
        return {"asked": asked, "response": row.get("response"), "id": identity, "model": model}

    return replace(PROMPTFOO, adapt=adapt).recognize(sample)


def _promptfoo_table(sample: Sample) -> Fit | None:
    """Recognize promptfoo's CSV: variables, and a column for each provider and prompt, [provider] prompt."""
    headed = {column: re.match(r"\[([^\]]+)\] ?(.*)", column, re.S) for column in sample.columns}
    replies = {column: (found[1], found[2].strip()) for column, found in headed.items() if found}
    others = [name for name in sample.columns if name not in replies and plain_name(name) not in GRADES]
    prompt = sample.find(PROMPTS) or (others[0] if len(others) == 1 else None)
    if not replies or not others or prompt is None:
        return None
    providers = [provider for provider, _ in replies.values()]
    models = {
        column: provider if providers.count(provider) == 1 else _variant(provider, label, number)
        for number, (column, (provider, label)) in enumerate(replies.items(), start=1)
    }

    convert, outcome = side_by_side(prompt, models), r"\A\[(PASS|FAIL|ERROR)\]\s*(\([\d.]+\)\s*)?"

    def without_outcome(row: Row) -> Row:
        return row | {column: re.sub(outcome, "", str(row.get(column) or "")).strip() for column in models}

    return Fit("a promptfoo table", lambda row: convert(without_outcome(row)))


def _inspect(row: Row) -> Row:
    # The conversation, where it was kept, has what solvers added; the input is what the person said.
    talk = exchanged_in(row.get("messages"))
    epoch = row.get("epoch") or 1
    identity = row.get("id") if row.get("id") is None or epoch == 1 else f"{row['id']}/{epoch}"
    return row | {"input": _talk(talk) if talk else row.get("input"), "id": identity}


def _lm_eval(row: Row) -> Row:
    reply: Any = row.get("filtered_resps") or row.get("resps")
    while isinstance(reply, list) and reply:
        reply = reply[0]
    if not isinstance(reply, str) or re.fullmatch(r"-?[\d.]+(e-?\d+)?", reply):
        raise UserError("resps: a likelihood and no reply; log a task that generates text")
    asked: Any = row.get("arguments")
    while isinstance(asked, list | dict) and asked:  # by name, or in a list, as its versions have it
        asked = next(iter(asked.values())) if isinstance(asked, dict) else asked[0]
        if turns_in(asked):
            break
    question = find_value(_table(row.get("doc")), PROMPTS)
    if isinstance(question, str) and isinstance(asked, str) and question.strip() in asked:
        asked = asked if turns_in(asked) else question
    name, document = row.get("filter", "none"), row.get("doc_id")
    identity = f"{document}/{name}" if document is not None and name != "none" else document
    return {"arguments": asked, "resps": reply, "id": identity}


def _langfuse(row: Row) -> Row | None:
    kind = str(_value(row, "type") or "GENERATION")
    return row if kind.upper() == "GENERATION" else None  # spans and events: steps on the way to a reply


def _chatgpt(row: Row) -> Row:
    """Return the last exchange of a tree of messages, in the branch in use."""
    nodes, branch, name = _table(row.get("mapping")), list[Any](), row.get("current_node")
    while isinstance(name, str) and name in nodes and len(branch) <= len(nodes):
        node = _table(nodes[name])
        branch, name = [_table(node.get("message")), *branch], node.get("parent")
    talk = exchanged_in(branch)
    if talk is None:
        raise UserError("mapping: no turn of a user with a reply after it")
    models = [_table(message.get("metadata")).get("model_slug") for message in branch]
    model = next(filter(None, reversed(models)), row.get("default_model_slug"))
    return {"prompt": _talk(talk), "reply": talk.response, "id": row.get("id"), "model": model}


PROMPTFOO: Final = Tool(
    "promptfoo results",
    "`promptfoo eval -o results.json` or `.jsonl`",
    "provider",
    "asked",
    "response.output",
)
LANGFUSE_IDS: Final = "trace_id|session_id|parent_observation_id|provided_model_name|observations"
LANGSMITH_MODELS: Final = "|".join(
    ["model", *(f"{held}.{name}" for held in ABOUT_RUNS for name in ("model", "ls_model_name", "model_name"))]
)
TOOL_SHAPES: Final[tuple[Shape | Tool, ...]] = (
    Shape(PROMPTFOO.name, PROMPTFOO.example, _promptfoo),
    Shape("a promptfoo table", "`promptfoo eval -o results.csv`", _promptfoo_table),
    Tool(
        "an Inspect log",
        "`.eval` logs (with `inspect_ai` installed), or `inspect log dump`",
        needs="input output.choices|output.completion id epoch|eval",
        prompt="input",
        reply="output.choices|output.completion",
        model="output.model|eval.model",
        adapt=_inspect,
    ),
    Tool(
        "lm-eval samples",
        "`samples_*.jsonl` of `--log_samples`; the model is the folder's name",
        needs="doc_id doc arguments resps",
        prompt="arguments",
        reply="resps",
        kind=RowKind.BY_FOLDER,
        adapt=_lm_eval,
    ),
    Tool(
        "the output of an OpenAI batch",
        "the output file, and the file of requests beside it",
        needs="custom_id response",
        reply="response.body.choices|response.body.output|response.body.output_text",
        model="response.body.model",
        kind=RowKind.REPLIES_TO_REQUESTS,
    ),
    Tool(
        "the requests of an OpenAI batch",
        "prompts for `respond`, or beside the output file",
        needs="custom_id body",
        prompt="body.messages|body.input|body.prompt",
        kind=RowKind.REQUESTS,
    ),
    Tool(
        "a Langfuse export",
        "traces or observations, as CSV, JSON or JSON lines",
        needs=f"input output timestamp|start_time {LANGFUSE_IDS}",
        prompt="input",
        reply="output",
        adapt=_langfuse,
    ),
    Tool(
        "a LangSmith export",
        "runs or experiments, as CSV, JSON or JSON lines",
        needs="inputs.*|input.* outputs|output",
        prompt="inputs|input",
        reply="outputs|output",
        model=LANGSMITH_MODELS,
        adapt=lambda row: None if row.get("parent_run_id") else row,  # a step of another run
    ),
    Tool(
        "ChatGPT conversations",
        "`conversations.json` of a data export, scored as whole conversations",
        needs="mapping current_node",
        prompt="prompt",
        reply="reply",
        kind=RowKind.CONVERSATIONS,
        adapt=_chatgpt,
    ),
)

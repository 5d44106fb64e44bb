"""Shapes of files that tools write: promptfoo, Inspect, lm-eval, OpenAI, ChatGPT, Langfuse and LangSmith."""

import re
from collections.abc import Mapping
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.chat_turns import (
    CONVERSATIONS,
    PROMPTS,
    asked_in,
    exchanged_in,
    find_value,
    only_text,
    parsed,
    plain_name,
    turns_in,
)
from empathy_judge.data.readers.column_shapes import LAST_TURN, Fit, Row, Sample, Shape, prompt_row, reply_row

GRADES: Final = frozenset({"status", "score", "named_scores", "grader_reason", "comment", "description"})
LONGEST_NAME: Final = 40  # characters of a prompt's label; promptfoo takes the whole prompt for one


def rows_of_document(document: Any) -> list[Any]:
    """The rows of a JSON file: an array's items, what a tool wraps them in, or columns turned into rows.

    >>> rows_of_document({"question": ["a", "b"], "answer": ["c", "d"]})
    [{'question': 'a', 'answer': 'c'}, {'question': 'b', 'answer': 'd'}]
    """
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        return [document]
    if isinstance(document.get("eval"), dict) and isinstance(document.get("samples"), list):
        header = {"eval": {"model": document["eval"].get("model")}}  # Inspect: the model is in the header
        return [{**item, **header} if isinstance(item, dict) else item for item in document["samples"]]
    names, values = document.get("columns"), document.get("data")
    if isinstance(names, list) and isinstance(values, list):  # MLflow, and pandas with orient="split"
        return [dict(zip(names, row, strict=False)) if isinstance(row, list) else row for row in values]
    held = document.get("results")
    if isinstance(held, dict) and isinstance(held.get("results"), list):  # promptfoo
        return list(held["results"])
    lists = [value for value in document.values() if isinstance(value, list)]
    rows = [value for value in lists if value and all(isinstance(item, dict) for item in value)]
    if len(rows) == 1 and not any(plain_name(key) in CONVERSATIONS for key in document):
        return rows[0]
    columns = {
        key: list(value.values()) if isinstance(value, dict) else value for key, value in document.items()
    }
    sizes = {len(value) if isinstance(value, list) else -1 for value in columns.values()}
    if len(columns) > 1 and len(sizes) == 1 and sizes.pop() > 0:  # as pandas writes a table
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [document]


def _table(value: Any) -> Mapping[str, Any]:
    held = parsed(value)
    return held if isinstance(held, Mapping) else {}


def _row(prompt: Row, reply: Row, *, identity: Any = None, model: Any = None) -> list[Row]:
    """A reply in our own columns; an id or a model that is not given is left out."""
    about = {"id": identity, "model": model}
    return [prompt | reply | {key: str(value) for key, value in about.items() if value not in (None, "")}]


def _promptfoo(sample: Sample) -> Fit | None:
    """Results as JSON or JSON lines: a row for each test, prompt and provider."""
    if not {"provider", "prompt"} <= set(sample.columns) or not {"vars", "testCase"} & set(sample.columns):
        return None
    if "raw" not in _table(sample.first("prompt")):
        return None
    # Numbered by us: promptfoo counts prompts and providers together.
    variants = dict.fromkeys(str(_table(row.get("prompt")).get("label") or "") for row in sample.rows)
    numbers = {label: number for number, label in enumerate(variants, start=1)}

    def convert(row: Row) -> list[Row]:
        prompt, provider = _table(row.get("prompt")), parsed(row.get("provider"))
        about = _table(row.get("vars")) or _table(_table(row.get("testCase")).get("vars"))
        if row.get("error") and not _table(row.get("response")).get("output"):
            raise UserError(f"no response: {str(row['error'])[:80]}")
        model = (provider.get("label") or provider.get("id")) if isinstance(provider, dict) else provider
        model = str(model or "unnamed")
        if len(variants) > 1:
            label = str(prompt.get("label") or "")
            number = numbers.setdefault(label, len(numbers) + 1)
            model += f"@{label if 0 < len(label) <= LONGEST_NAME else f'prompt{number}'}"
        raw = prompt.get("raw")
        # A prompt that is no chat holds the instructions too; what the person said is among the variables.
        asked = raw if turns_in(raw) else (find_value(about, PROMPTS) or only_text(about) or raw)
        reply = reply_row(_table(row.get("response")).get("output"), "response.output")
        identity = f"{row['testIdx']}/{model}" if row.get("testIdx") is not None else None
        return _row(prompt_row(asked, "prompt.raw"), reply, identity=identity, model=model)

    return Fit("promptfoo results", convert)


def _promptfoo_table(sample: Sample) -> Fit | None:
    """promptfoo's CSV: the variables, and a column for each provider and prompt, named [provider] prompt."""
    headed = {column: re.match(r"\[([^\]]+)\] ?(.*)", column, re.S) for column in sample.columns}
    replies = {column: found for column, found in headed.items() if found}
    others = [
        column for column in sample.columns if column not in replies and plain_name(column) not in GRADES
    ]
    if not replies or not others or any(map(sample.named.responses.__contains__, sample.columns)):
        return None
    prompt = sample.named.prompt or sample.find(PROMPTS) or (others[0] if len(others) == 1 else None)
    if prompt is None:
        return None
    providers = [found[1] for found in replies.values()]
    models = {}
    for number, (column, found) in enumerate(replies.items(), start=1):
        label = found[2].strip()
        variant = label if 0 < len(label) <= LONGEST_NAME else f"prompt{number}"
        models[column] = found[1] if providers.count(found[1]) == 1 else f"{found[1]}@{variant}"

    def convert(row: Row) -> list[Row]:
        rows = []
        for column, model in models.items():
            cell = re.sub(r"\A\[(PASS|FAIL|ERROR)\]\s*(\([\d.]+\)\s*)?", "", str(row.get(column) or ""))
            if cell.strip():
                rows.append(prompt_row(row.get(prompt), prompt) | {"response": cell, "model": model})
        if not rows:
            raise UserError(f"{', '.join(models)}: no reply in any of them")
        return rows

    return Fit("a promptfoo table", convert)


def _inspect(sample: Sample) -> Fit | None:
    """Samples of an Inspect log."""
    if not {"input", "output", "id"} <= set(sample.columns) or not {"epoch", "eval"} & set(sample.columns):
        return None
    if not {"choices", "completion"} & set(_table(sample.first("output"))):
        return None

    def convert(row: Row) -> list[Row]:
        output = _table(row.get("output"))
        reply = reply_row(output.get("choices") or output.get("completion"), "output")
        # The conversation, where it was kept, has what solvers added; the input is what the person said.
        said = exchanged_in(row.get("messages")) or asked_in(row.get("input"))
        if said is None:
            raise UserError("input: no user turn")
        prompt: Row = {"prompt": said.prompt, **({"dialogue": said.dialogue} if said.dialogue else {})}
        epoch, identity = row.get("epoch") or 1, row.get("id")
        if identity is not None and epoch != 1:
            identity = f"{identity}/{epoch}"
        model = output.get("model") or _table(row.get("eval")).get("model")
        return _row(prompt, reply, identity=identity, model=model)

    return Fit("an Inspect log", convert)


def _lm_eval(sample: Sample) -> Fit | None:
    """Samples that lm-eval logs; the model is the folder's name."""
    if not {"doc_id", "doc", "arguments", "resps"} <= set(sample.columns):
        return None

    def convert(row: Row) -> list[Row]:
        held: Any = row.get("filtered_resps") or row.get("resps")
        while isinstance(held, list) and held and isinstance(held[0], list):
            held = held[0]
        reply = held[0] if isinstance(held, list) and held else held
        if not isinstance(reply, str) or re.fullmatch(r"-?[\d.]+(e-?\d+)?", reply):
            raise UserError("resps: a likelihood and no reply; log a task that generates text")
        asked: Any = row.get("arguments")
        while isinstance(asked, list | dict) and asked:  # by name, or in a list, as its versions have it
            asked = next(iter(asked.values())) if isinstance(asked, dict) else asked[0]
            if turns_in(asked):
                break
        question = find_value(_table(row.get("doc")), PROMPTS)
        if isinstance(question, str) and isinstance(asked, str) and question.strip() in asked:
            asked = question if not turns_in(asked) else asked
        name, document = row.get("filter", "none"), row.get("doc_id")
        if document is not None and name != "none":
            document = f"{document}/{name}"
        return _row(prompt_row(asked, "arguments"), reply_row(reply, "resps"), identity=document)

    return Fit("lm-eval samples", convert, is_by_folder=True)


def _openai_batch(sample: Sample) -> Fit | None:
    """The output of an OpenAI batch; its prompts are in the file of its requests."""
    if not {"custom_id", "response"} <= set(sample.columns):
        return None

    def convert(row: Row) -> list[Row]:
        body = _table(_table(row.get("response")).get("body"))
        if row.get("error") or not body:
            raise UserError(f"no response: {str(row.get('error') or 'no body')[:80]}")
        reply = body.get("choices") or body.get("output") or body.get("output_text")
        return _row({}, reply_row(reply, "response.body"), identity=row["custom_id"], model=body.get("model"))

    return Fit("the output of an OpenAI batch", convert, needs_requests=True)


def _openai_requests(sample: Sample) -> Fit | None:
    """The requests of a batch: prompts without replies."""
    if not {"custom_id", "body"} <= set(sample.columns) or "response" in sample.columns:
        return None

    def convert(row: Row) -> list[Row]:
        body = _table(row.get("body"))
        asked = body.get("messages") or body.get("input") or body.get("prompt")
        return _row(prompt_row(asked, "body"), {}, identity=row["custom_id"])

    return Fit("the requests of an OpenAI batch", convert, is_requests=True)


def _openai_evals(sample: Sample) -> Fit | None:
    """Output items of OpenAI's Evals API, or the log of its `evals` package."""
    if "sample" in sample.columns and {"datasource_item", "item"} & set(sample.columns):
        return Fit("OpenAI Evals output items", _evals_item)
    kinds = [row.get("type") for row in sample.rows]
    if "data" not in sample.columns or not ("sampling" in kinds or "spec" in sample.columns):
        return None
    specs = [_table(row["spec"]) for row in sample.rows if "spec" in row]
    by = [name for spec in specs for name in spec.get("completion_fns") or ()]

    def convert(row: Row) -> list[Row]:
        if row.get("type") != "sampling":
            return []  # what was matched and measured; not the replies
        data = _table(row.get("data"))
        prompt = prompt_row(data.get("prompt"), "data.prompt")
        reply = reply_row(data.get("sampled"), "data.sampled")
        model = data.get("model") or (by[0] if by else None)
        return _row(prompt, reply, identity=f"{row.get('sample_id')}/{row.get('event_id')}", model=model)

    return Fit("an OpenAI Evals log", convert)


def _evals_item(row: Row) -> list[Row]:
    about, item = _table(row.get("sample")), row.get("datasource_item") or row.get("item")
    reply = about.get("output") or about.get("output_text") or about.get("outputs")
    prompt = prompt_row(about.get("input") or item, "sample.input")
    return _row(prompt, reply_row(reply, "sample.output"), identity=row.get("id"), model=about.get("model"))


def _langfuse(sample: Sample) -> Fit | None:
    """Traces or observations as Langfuse exports them."""
    tells = {"trace_id", "session_id", "parent_observation_id", "provided_model_name", "observations"}
    if not {"input", "output"} <= sample.plain or not (
        tells & sample.plain and {"timestamp", "start_time"} & sample.plain
    ):
        return None
    columns = {plain_name(column): column for column in sample.columns}
    name = next(
        (columns[key] for key in ("model", "provided_model_name", "model_name") if key in columns), None
    )

    def convert(row: Row) -> list[Row]:
        kind = str(row.get(columns.get("type", ""), "GENERATION"))
        if kind.upper() != "GENERATION":
            return []  # spans and events: steps on the way to a reply
        prompt = prompt_row(row.get(columns["input"]), "input")
        reply = reply_row(row.get(columns["output"]), "output")
        return _row(prompt, reply, identity=row.get(columns.get("id", "")), model=row.get(name or ""))

    return Fit("a Langfuse export", convert)


def _langsmith(sample: Sample) -> Fit | None:
    """Runs or experiments of LangSmith: inputs and outputs, nested or in columns of their own."""
    heads = {plain_name(column.partition(".")[0]) for column in sample.columns}
    if not ({"inputs", "outputs"} <= heads or {"input", "output"} <= heads):
        return None
    one = "s" if {"inputs", "outputs"} <= heads else ""
    values = (_nested(row, f"input{one}") for row in sample.rows)
    if not any(isinstance(value, Mapping | list) for value in values):
        return None

    def convert(row: Row) -> list[Row]:
        if row.get("parent_run_id"):
            return []  # a step of a run that is read as a whole
        prompt = prompt_row(_nested(row, f"input{one}"), "inputs")
        reply = reply_row(_nested(row, f"output{one}"), "outputs")
        extra = _table(row.get("extra"))
        about = {**_table(extra.get("metadata")), **_table(extra.get("invocation_params"))}
        about |= {**_table(row.get("metadata")), "model": row.get("model")}
        model = find_value(about, ("model", "ls_model_name", "model_name"))
        return _row(prompt, reply, identity=row.get("id"), model=model)

    return Fit("a LangSmith export", convert)


def _chatgpt(sample: Sample) -> Fit | None:
    """Conversations of a ChatGPT data export: a tree of messages, of which the branch in use is read."""
    if not any("message" in _table(node) for node in _table(sample.first("mapping")).values()):
        return None

    def convert(row: Row) -> list[Row]:
        nodes, branch, place = _table(row.get("mapping")), list[Any](), row.get("current_node")
        while isinstance(place, str) and place in nodes and len(branch) <= len(nodes):
            node = _table(nodes[place])
            branch, place = [_table(node.get("message")), *branch], node.get("parent")
        talk = exchanged_in(branch)
        if talk is None:
            raise UserError("mapping: no turn of a user with a reply after it")
        models = [_table(message.get("metadata")).get("model_slug") for message in branch]
        model = next(filter(None, reversed(models)), row.get("default_model_slug"))
        prompt: Row = {"prompt": talk.prompt, **({"dialogue": talk.dialogue} if talk.dialogue else {})}
        return _row(prompt, {"response": talk.response}, identity=row.get("id"), model=model)

    return Fit(f"ChatGPT conversations{LAST_TURN}", convert, is_conversation=True)


def _nested(row: Row, name: str) -> Any:
    """A value under its name, or gathered from columns such as inputs.question."""
    for key, value in row.items():
        if plain_name(key) == name:
            return parsed(value)
    parts = {
        key.partition(".")[2]: value
        for key, value in row.items()
        if plain_name(key.partition(".")[0]) == name
    }
    return parts or None


TOOL_SHAPES: Final = (
    Shape("promptfoo", "`promptfoo eval -o results.json` or `.jsonl`", _promptfoo),
    Shape("promptfoo table", "`promptfoo eval -o results.csv`", _promptfoo_table),
    Shape("Inspect", "`.eval` logs (with `inspect_ai` installed), or `inspect log dump`", _inspect),
    Shape("lm-eval", "`samples_*.jsonl` of `--log_samples`; the model is the folder's name", _lm_eval),
    Shape("OpenAI batch", "the output file, and the file of requests beside it", _openai_batch),
    Shape("OpenAI batch requests", "prompts for `respond`, or beside the output file", _openai_requests),
    Shape("OpenAI Evals", "output items of the API, or a log of the package", _openai_evals),
    Shape("Langfuse", "traces or observations, as CSV, JSON or JSON lines", _langfuse),
    Shape("LangSmith", "runs or experiments, as CSV, JSON or JSON lines", _langsmith),
    Shape("ChatGPT", "`conversations.json` of a data export, scored as whole conversations", _chatgpt),
)

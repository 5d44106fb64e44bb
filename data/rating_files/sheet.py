"""Human ratings of a file with any headers and scale, of replies known by id or by their texts.

`RatingSheet.notes` are sentences about how the file was read. Ratings by AIs are left out.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import first_number, plain_id
from empathy_judge.data.rating_files.scales import Cut, RatingScale, cut_of, find_scale
from empathy_judge.data.readers.chat_turns import PROMPTS, RESPONSES, plain_name
from empathy_judge.data.readers.file_formats import BadRow, Header, OnBad, Row
from empathy_judge.data.readers.table_rows import read_rows, stop_at_bad_row
from empathy_judge.data.records import LABELS, UNNAMED_MODEL, Exchange, Judgment, Rating
from empathy_judge.data.tables import make_record

# The name we know each by first; then what other tools and people call it.
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("exchange_id", "response_id", "reply_id", "item_id", "example_id", "sample_id", "item"),
    "rater": (
        *("rater_id", "rater_name", "annotator", "annotator_id", "worker_id", "worker", "labeler"),
        *("labeller", "reviewer", "evaluator", "participant", "participant_id", "person", "user_id", "judge"),
    ),
    "rating": (
        *("label", "score", "stars", "star_rating", "thumbs", "thumb", "feedback", "vote", "grade"),
        *("human_rating", "human_label"),
    ),
    "rater_kind": ("rater_type", "annotator_kind", "annotator_type"),
    "batch": (),
    "dimension": (),
    "model": ("system", "model_name"),
    "emotion": (),
    "situation": (),
    "dialogue": (),
    "prompt": PROMPTS,
    "response": RESPONSES,
}
ONE_RATER: Final = "one rater"
SHOWN: Final = 3  # of the rows set aside
ALL: Final = "all"
AI_KINDS: Final = frozenset({"ai", "model", "llm", "machine", "bot", "judge", "synthetic", "automatic"})
HUMAN_KINDS: Final = frozenset({"human", "person", "people", "crowd", "expert", "annotator", "user"})
# Bare first names (Claude, Gemma) are people's: a family's name needs a number or a known word behind it.
MODEL_NAME: Final = re.compile(
    r"(?:[\w.-]+[/:])?"  # a maker before the name
    r"(?:(?:chat)?gpt[-_ ]?\d|chatgpt\b|text-davinci|o[134](?:-mini|-preview|-pro)?$"
    r"|claude[-_ ]?(?:\d|v\d|opus|sonnet|haiku|instant|fable|mythos)|gemini[-_ ]?(?:\d|pro|flash|ultra|nano)"
    r"|gemma[-_ ]?\d|palm[-_ ]?2|(?:meta[-_ ])?(?:code[-_ ]?)?llama[-_ ]?\d|vicuna|alpaca[-_ ]\d"
    r"|(?:open-)?mi[sx]tral(?:[-_ ]|$)|ministral|magistral|qwen|qwq|deepseek|grok[-_ ]?\d|phi[-_ ]\d"
    r"|command[-_ ](?:r|a|light|nightly|xlarge)\b|yi[-_ ]\d|falcon[-_ ]?\d|glm[-_ ]?\d|chatglm|kimi[-_ ]"
    r"|nova[-_ ](?:pro|lite|micro|premier)|olmo|zephyr[-_ ]\d|solar[-_ ]\d|granite[-_ ]?\d|minimax"
    r"|gpt[-_ ]?(?:neo|oss|j)|prometheus[-_ ]?\d|nemotron|internlm|baichuan|dbrx|jamba)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetOptions:
    """Options for reading a file; what is not set is detected and reported.

    `scale` is that of the ratings, `cut` the lowest levels that are Okay and Good, `columns` the headers by
    what they hold. `ai_raters` names raters who are AIs, or "all". With `skip_invalid` bad rows are counted.
    Ratings of another `dimension` are left out.
    """

    scale: tuple[str, ...] | None = None
    cut: tuple[str, ...] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    ai_raters: tuple[str, ...] = ()
    dimension: str = "empathy"
    skip_invalid: bool = False


class HasRater(Protocol):
    """A rating."""

    @property
    def rater(self) -> str: ...


Item = TypeVar("Item", bound=HasRater)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingSheet:
    """The human ratings of a file, and sentences about how it was read."""

    ratings: tuple[Rating, ...]
    notes: tuple[str, ...] = ()


class Replies:
    """The replies that ratings may be about: by id, by id and model, or by their texts."""

    def __init__(self, judgments: Iterable[Judgment] = (), exchanges: Iterable[Exchange] = ()) -> None:
        self.models: dict[str, str] = {}  # by id
        self._by_text: dict[tuple[str, str], dict[str, str]] = {}  # the model of each id with these texts
        self._by_content: dict[str, dict[str, str]] = {}
        self._of_model: dict[tuple[str, str], str] = {}
        self._shared: set[str] = set()  # ids shared by replies of several models
        for judgment in judgments:
            self._note(judgment.id, judgment.model)
            if judgment.content_digest:
                self._by_content.setdefault(judgment.content_digest, {})[judgment.id] = judgment.model
        for exchange in exchanges:
            self._note(exchange.id, exchange.model)
            texts = (_plain_text(exchange.prompt), _plain_text(exchange.response))
            self._by_text.setdefault(texts, {})[exchange.id] = exchange.model
            self._by_content.setdefault(exchange.content_digest, {})[exchange.id] = exchange.model

    @property
    def ids(self) -> Collection[str]:
        """What the replies are known by."""
        return self.models.keys()

    def _note(self, identity: str, model: str) -> None:
        plain = plain_id(identity, model)
        if model == UNNAMED_MODEL and identity in self.models:
            return  # a file may leave out the name that its run knows
        self.models[identity] = model
        self._of_model[plain, model] = identity
        if plain != identity:
            self._shared.add(plain)

    def find_id(self, identity: str, model: str) -> str:
        """The reply of this id; where models share ids, that of the model named."""
        if (own := self._of_model.get((identity, model))) is not None:
            return own
        if identity in self._shared:
            raise UserError(
                f"id: {identity!r} is a reply of more than one model; add a column `model` to the ratings"
            )
        return identity

    def find_content(self, digest: str, identity: str, model: str) -> str | None:
        """The judged reply with this digest of its content, as `rate` writes it; None if there is none."""
        found = self._by_content.get(digest, {})
        named = [key for key, name in found.items() if name in (model, UNNAMED_MODEL)] or list(found)
        return identity if identity in named else next(iter(named), None)

    def find_text(self, row: Mapping[str, Any]) -> str:
        """The reply with the same prompt and response; equal texts are distinguished by the model's name."""
        prompt, response = str(row["prompt"]), str(row["response"])
        found = self._by_text.get((_plain_text(prompt), _plain_text(response)), {})
        for seen in () if found else _contents(row):
            found = found or self._by_content.get(seen, {})
        model = row.get("model")
        named = [key for key, name in found.items() if model is None or name in (str(model), UNNAMED_MODEL)]
        if not named:
            where = "" if self._by_text else "; a run has no texts: pass its replies with --exchanges FILE"
            raise UserError(f"response: no judged reply has this prompt and response{where}")
        if len(named) > 1:
            raise UserError(
                f"response: {', '.join(map(repr, named[:SHOWN]))} have this prompt and response;"
                " add a column `id` or `model`"
            )
        return named[0]


def bare_name(name: str) -> str:
    """A header without case, spaces and marks.

    >>> bare_name(" Rater ID"), bare_name("WorkerId"), bare_name("response_a")
    ('raterid', 'workerid', 'responsea')
    """
    return plain_name(name).replace("_", "")


def find_columns(headers: Iterable[str], stated: Mapping[str, str] | None = None) -> dict[str, str]:
    """Which header holds what; those stated must be there.

    >>> find_columns(["ID", "Annotator", "Rating", "note"])
    {'id': 'ID', 'rater': 'Annotator', 'rating': 'Rating'}
    """
    names = list(headers)
    columns = {key: _find_column(key, (key, *aliases), names, stated) for key, aliases in NAMES.items()}
    return {key: name for key, name in columns.items() if name is not None}


def parse_stated(texts: Sequence[str]) -> dict[str, str]:
    """Columns as an option states them, each as FIELD=NAME.

    >>> parse_stated(["rating=Overall score"])
    {'rating': 'Overall score'}
    """
    stated = {}
    for text in texts:
        key, _, name = (part.strip() for part in text.partition("="))
        if key not in NAMES or not name:
            raise UserError(f"--column {text}: expected FIELD=NAME with FIELD one of {', '.join(NAMES)}")
        stated[key] = name
    return stated


def say_missing(what: str, headers: Iterable[str], *, option: str) -> str:
    """What is missing, the columns there are, and the option that helps."""
    names = ", ".join(map(str, headers)) or "none"
    return f"no column for {what}; columns: {names}. Name it: --column {option}=NAME"


def known_row(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A row under the names we know; other columns keep theirs."""
    named = {name: key for key, name in columns.items()}
    taken = set(columns)
    return {
        named.get(key, key): value
        for key, value in row.items()
        if key in named or key not in taken  # `score`, read as the rating, must not be hidden by another
    }


def _find_column(
    key: str, aliases: Sequence[str], names: Sequence[str], stated: Mapping[str, str] | None
) -> str | None:
    """Return the header that is stated for a field, which must be there, else the first of its aliases."""
    if not stated or key not in stated:
        return _find_header(aliases, names)
    if (name := _find_header((stated[key],), names)) is None:
        there = ", ".join(names) or "none"
        raise UserError(f"--column {key}={stated[key]}: no such column; columns: {there}")
    return name


def _find_header(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of these that is there: as it is written, else in any case."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(bare_name(name), name)
    for word in wanted:
        if word in names:
            return word
        if bare_name(word) in plain:
            return plain[bare_name(word)]
    return None


def is_rating_table(path: Path) -> bool:
    """Return whether a table holds ratings rather than replies, by its first row."""
    _, row = next(iter(read_rows(path)), (0, {}))
    columns, names = find_columns(row), {bare_name(name) for name in row}
    if "response" in columns:  # replies may have a rating too; ratings with texts also name the rater
        return {"rating", "rater"} <= names
    return "rating" in columns and ("rater" in columns or bool(names & {"rating", "stars", "thumbs"}))


def read_sheet(
    path: Path,
    options: SheetOptions | None = None,
    *,
    replies: Replies | None = None,
    target: Sequence[str] = LABELS,
) -> RatingSheet:
    """The ratings of a file, on the judge's scale `target`.

    With `replies` each rating must say which reply it is of, by id or by its texts; without, a row that has
    no id is a reply of its own.
    """
    table = _RatingTable(path, options)
    table.replies, table.target = replies, tuple(target)
    headers, columns = table.headers, table.columns
    if not table.rows and not table.bad:
        raise UserError(f"{path}: empty; expected a table with id, rater and rating")
    if "rating" not in columns:
        raise UserError(f"{path}: {say_missing('the rating', headers, option='rating')}")
    if replies is not None and "id" not in columns and not {"prompt", "response"} <= set(columns):
        what = "the reply that is rated (id, or prompt and response)"
        raise UserError(f"{path}: {say_missing(what, headers, option='id')}")
    rated = [(item, item.extra.get("rater_kind")) for item in table.read()]
    people, notes = table.conclude(rated, "rating")
    return RatingSheet(ratings=people, notes=notes)


def is_ai(rater: str, kind: object, options: SheetOptions) -> bool:
    """Return whether a rater is an AI: by the command's options, else by the file, else by the name.

    >>> options = SheetOptions(ai_raters=("grader",))
    >>> names = ("grader", "gpt-4o", "Claude", "claude-3-opus", "meta-llama/Llama-3-8B", "Gemma", "r07")
    >>> [name for name in names if is_ai(name, None, options)]
    ['grader', 'gpt-4o', 'claude-3-opus', 'meta-llama/Llama-3-8B']
    """
    if ALL in options.ai_raters or rater in options.ai_raters:
        return True
    stated = str(kind or "").strip().casefold()
    if stated in AI_KINDS or stated in HUMAN_KINDS:
        return stated in AI_KINDS
    return MODEL_NAME.match(rater.strip()) is not None


class RaterTable:
    """A file of ratings: its rows, the columns it has, and the notes about it."""

    def __init__(self, path: Path, options: SheetOptions | None) -> None:
        self.path, self.options, self.bad = path, options or SheetOptions(), list[BadRow]()
        self.on_bad: OnBad = self.bad.append if self.options.skip_invalid else stop_at_bad_row
        header = Header()
        self.rows = list(read_rows(path, on_bad=self.on_bad, header=header))
        self.headers = list(dict.fromkeys(key for _, row in self.rows for key in row))
        self.columns = find_columns(self.headers, self.options.columns)
        self.notes: list[str] = []
        for text in header.notes:
            self.note(text)

    def note(self, text: str) -> None:
        """Add a note with the file's name."""
        self.notes.append(f"{self.path.name}: {text}")

    def note_raters(self, what: str) -> None:
        """Warn where the file names no raters."""
        if "rater" not in self.columns:
            self.note(
                f"warning: no rater column, so all {what}s count as one rater's; add a column `rater`, or "
                "--column rater=NAME"
            )

    def conclude(
        self, items: Sequence[tuple[Item, object]], what: str
    ) -> tuple[tuple[Item, ...], tuple[str, ...]]:
        """Return what people gave, and all notes; refused where AIs gave everything.

        `items` are ratings, each with what the file calls the kind of its rater.
        """
        ai = {item.rater for item, kind in items if is_ai(item.rater, kind, self.options)}
        names = ", ".join(sorted(ai))
        people = tuple(item for item, _ in items if item.rater not in ai)
        if items and not people:
            raise UserError(
                f"{self.path}: all {what}s are by AI raters ({names}); only human {what}s are used."
                " Have people rate some of these replies: rate plan RESPONSES.jsonl"
            )
        count = len(items) - len(people)
        plural = "s" if count != 1 else ""
        about_ai = [f"{count:,} {what}{plural} by AI raters ({names}) left out"] if ai else []
        return people, (*self.notes, *say_set_aside(self.bad), *about_ai)


class _RatingTable(RaterTable):
    replies: Replies | None
    target: tuple[str, ...]
    by_text: int = 0

    def read(self) -> list[Rating]:
        every = [(line, known_row(row, self.columns), row) for line, row in self.rows]
        known = [item for item in every if item[1].get("dimension") in (None, self.options.dimension)]
        if every and not known:
            raise UserError(f"{self.path}: no ratings of the dimension {self.options.dimension!r}")
        try:
            scale = find_scale(
                [row["rating"] for _, row, _ in known if row.get("rating") is not None],
                column=self.columns["rating"],
                declared=self.options.scale,
            )
        except UserError as problem:
            raise UserError(f"{self.path}: {problem}") from None
        cut = None if scale.levels == self.target else cut_of(scale, self.options.cut)
        if cut is None and self.options.cut is not None:
            raise UserError("--cut: not needed, because the ratings are on the judge's scale; omit it")
        if cut is not None and self.target != LABELS:
            raise UserError(f"{self.path}: ratings {scale.ends}, and the judge's are not; set --scale")
        self._tell(cut)
        meet = self._ids_meet(row for _, row, _ in known)
        make, ratings = make_record(Rating), []
        for line, row, raw in known:
            try:
                ratings.append(make(line, self._rating_row(row, scale, cut, meet)))
            except UserError as problem:
                self.on_bad(BadRow(self.path, line, str(problem), raw))
        if "rater" not in self.columns:
            self._check_once(ratings)
        if self.by_text:
            self.note(f"{self.by_text:,} ratings were matched to replies by text")
        return ratings

    def _check_once(self, ratings: Sequence[Rating]) -> None:
        """Refuse several ratings of one reply without raters: they cannot be assigned to people."""
        (identity, times), *_ = Counter(item.id for item in ratings).most_common(1) or [("", 0)]
        if times > 1:
            raise UserError(
                f"{self.path}: {identity!r} is rated {times} times, and there is no rater column; add a "
                "column `rater`, or --column rater=NAME"
            )

    def _tell(self, cut: Cut | None) -> None:
        if cut is not None:
            how = "as --cut says" if cut.is_stated else "thirds of the scale; --cut OKAY,GOOD sets another"
            kind = {"thumbs": "thumbs", "stars": f"stars 1 to {len(cut.scale.levels)}"}.get(cut.scale.kind)
            self.note(f"{kind or f'ratings {cut.scale.ends}'} read as {cut.say()} ({how})")
        elif self.columns["rating"].casefold() != "rating":
            self.note(f"ratings are read from the column {self.columns['rating']!r}")
        self.note_raters("rating")

    def _ids_meet(self, rows: Iterable[Row]) -> bool:
        """Whether the file's ids are those of the replies; if none is, texts may still say which is meant."""
        if self.replies is None or not {"prompt", "response"} <= set(self.columns):
            return True
        for row in rows:
            if row.get("id") is not None:
                try:
                    found = self.replies.find_id(name_text(row["id"]), name_text(row.get("model")))
                except UserError:
                    return True
                if found in self.replies.ids:
                    return True
        return False

    def _rating_row(self, row: Row, scale: RatingScale, cut: Cut | None, ids_meet: bool) -> Row:
        made = {**row, "rating": self._value(row.get("rating"), scale, cut)}
        if "rater" not in self.columns:
            made["rater"] = ONE_RATER
        for key in ("id", "rater", "batch"):
            if made.get(key) is not None:
                made[key] = name_text(made[key])
        if self.replies is not None:
            made["id"] = self._reply(row, ids_meet)
        return made

    def _reply(self, row: Row, ids_meet: bool) -> str:
        assert self.replies is not None
        digest, known_as, model = (name_text(row.get(key)) for key in ("content_digest", "id", "model"))
        if digest and (found := self.replies.find_content(digest, known_as, model)) is not None:
            return found
        if (identity := name_text(row.get("id"))) and ids_meet:
            return self.replies.find_id(identity, name_text(row.get("model")))
        if row.get("prompt") is None or row.get("response") is None:
            raise UserError("id: missing or empty; every row needs it, or the prompt and the response")
        found = self.replies.find_text(row)
        self.by_text += 1
        return found

    def _value(self, value: Any, scale: RatingScale, cut: Cut | None) -> float:
        if value is None or str(value).strip() == "":
            raise UserError("rating: missing or empty; every row needs it")
        position = scale.position(value)
        if position is None:
            low = first_number(scale.levels)
            ends = f"from {low} to {low + len(scale.levels) - 1}" if cut is None else scale.ends
            options = "" if self.options.scale else "; for another scale, set --scale, such as --scale 1-5"
            raise UserError(f"rating: {str(value)[:40]!r} is not on the scale {ends}{options}")
        if cut is None:
            return position + first_number(scale.levels) - 1
        if position != int(position):
            raise UserError(
                f"rating: {str(value)[:40]!r} is between two levels; pass individual ratings, not means"
            )
        return cut.rating(position)


def name_text(value: Any) -> str:
    """A name as text; a spreadsheet's 7.0 is 7.

    >>> name_text(7.0), name_text(None)
    ('7', '')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip()


def _contents(row: Mapping[str, Any]) -> Iterable[str]:
    """The digests of what a judge may have seen of this reply: all that the row has, or the texts alone."""
    bare = Exchange(id="", prompt=str(row["prompt"]), response=str(row["response"]))
    situation, emotion = (str(row[key]) if row.get(key) else None for key in ("situation", "emotion"))
    yield replace(bare, situation=situation, emotion=emotion).content_digest
    yield bare.content_digest


def _plain_text(text: str) -> str:
    return " ".join(text.split())  # spreadsheets and pages change line ends and trailing spaces


def say_set_aside(bad: Sequence[BadRow]) -> list[str]:
    """How many rows were set aside, and why the first of them were."""
    if not bad:
        return []
    first = "; ".join(map(str, bad[:SHOWN]))
    more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    return [f"{len(bad):,} row{'s' if len(bad) != 1 else ''} skipped: {first}{more}"]

"""Human ratings of a file with any headers and scale, of replies known by id or by their texts.

`RatingSheet.notes` are sentences about how the file was read. Ratings by AIs are left out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import first_number, plain_id
from empathy_judge.data.rating_files.scales import Cut, RatingScale, cut_of, find_scale
from empathy_judge.data.readers.chat_turns import PROMPTS, RESPONSES, plain_name
from empathy_judge.data.readers.file_formats import BadRow, Header, OnBad, Row
from empathy_judge.data.readers.table_rows import read_rows, stop_at_bad_row
from empathy_judge.data.records import EMPATHY, LABELS, UNNAMED_MODEL, Exchange, Judgment, Rating
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetOptions:
    """Options for reading a file; what is not set is detected and reported."""

    scale: tuple[str, ...] | None = None
    """the levels of the ratings, worst first"""
    cut: tuple[str, ...] | None = None
    """the lowest levels that are Okay and Good"""
    columns: Mapping[str, str] = field(default_factory=dict)
    """the headers by what they hold"""
    ai_raters: tuple[str, ...] = ()
    """the raters who are AIs, or `all`"""
    dimension: str = EMPATHY
    """the dimension to read; ratings of another one are left out"""
    skip_invalid: bool = False
    """whether bad rows are skipped and counted"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingSheet:
    """The human ratings of a file, and sentences about how it was read."""

    ratings: tuple[Rating, ...]
    notes: tuple[str, ...] = ()


class UnknownReply(UserError):
    """A rating of a reply that was not passed."""


class Replies:
    """The replies that ratings may be about: by id, by their content, or by their texts."""

    def __init__(self, judgments: Iterable[Judgment] = (), exchanges: Iterable[Exchange] = ()) -> None:
        # The model of each id, under everything by which a reply is known.
        self._known: defaultdict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
        self.has_texts = False
        for judgment in judgments:
            self._add(judgment, ("content", judgment.content_digest))
        for exchange in exchanges:
            self.has_texts = True
            texts = (_plain_text(exchange.prompt), _plain_text(exchange.response))
            self._add(exchange, ("content", exchange.content_digest), ("texts", *texts))

    def _add(self, reply: Judgment | Exchange, *keys: tuple[str, ...]) -> None:
        for key in (("id", reply.id), ("id", plain_id(reply.id, reply.model)), *keys):
            known = self._known[key]
            if reply.model != UNNAMED_MODEL or reply.id not in known:  # a file may leave out a run's name
                known[reply.id] = reply.model

    def knows(self, identity: str) -> bool:
        """Return whether an id is that of a reply, or of several."""
        return ("id", identity) in self._known

    def find_id(self, identity: str, model: str) -> str:
        """Return the reply of this id; where models share ids, that of the named model."""
        found = self._known.get(("id", identity), {identity: model})
        named = [key for key, name in found.items() if name == model] if len(found) > 1 else list(found)
        if not named:
            raise UserError(
                f"id: {identity!r} is a reply of more than one model; add a column `model` to the ratings"
            )
        return named[0]

    def find_content(self, digest: str, identity: str, model: str) -> str | None:
        """Return the judged reply with this digest of its content, as `rate` writes it; None if none has."""
        found = self._known.get(("content", digest), {}) if digest else {}
        named = [key for key, name in found.items() if name in (model, UNNAMED_MODEL)] or list(found)
        return identity if identity in named else next(iter(named), None)

    def find_text(self, row: Mapping[str, Any]) -> str:
        """Return the reply with the same prompt and response; the model's name separates equal texts."""
        prompt, response = str(row["prompt"]), str(row["response"])
        bare = Exchange(id="", prompt=prompt, response=response)
        situation, emotion = (str(row[key]) if row.get(key) else None for key in ("situation", "emotion"))
        full = replace(bare, situation=situation, emotion=emotion)
        keys: list[tuple[str, ...]] = [("texts", _plain_text(prompt), _plain_text(response))]
        keys += [("content", seen.content_digest) for seen in (full, bare)]
        found = next((self._known[key] for key in keys if key in self._known), {})
        model = row.get("model")
        named = [key for key, name in found.items() if model is None or name in (str(model), UNNAMED_MODEL)]
        if not named:
            where = "" if self.has_texts else "; a run has no texts: pass its replies with --exchanges FILE"
            raise UnknownReply(f"response: no judged reply has this prompt and response{where}")
        if len(named) > 1:
            raise UserError(
                f"response: {', '.join(map(repr, named[:SHOWN]))} have this prompt and response;"
                " add a column `id` or `model`"
            )
        return named[0]


def find_columns(headers: Iterable[str], stated: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return which header holds what, spelled in any way; those stated must be there."""
    names = list(headers)
    known = {_bare(name): name for name in reversed(names)} | {name: name for name in names}
    columns = {}
    for key, aliases in NAMES.items():
        wanted = (stated[key],) if stated and key in stated else (key, *aliases)
        found = (known.get(word) or known.get(_bare(word)) for word in wanted)
        if name := next(filter(None, found), None):
            columns[key] = name
        elif stated and key in stated:
            there = ", ".join(names) or "none"
            raise UserError(f"--column {key}={stated[key]}: no such column; columns: {there}")
    return columns


def parse_stated(texts: Sequence[str]) -> dict[str, str]:
    """Return columns as an option states them, each as FIELD=NAME."""
    stated = {}
    for text in texts:
        key, _, name = (part.strip() for part in text.partition("="))
        if key not in NAMES or not name:
            raise UserError(f"--column {text}: expected FIELD=NAME with FIELD one of {', '.join(NAMES)}")
        stated[key] = name
    return stated


def is_rating_table(path: Path) -> bool:
    """Return whether a table holds ratings rather than replies, by its first row."""
    _, row = next(iter(read_rows(path)), (0, {}))
    columns, names = find_columns(row), {_bare(name) for name in row}
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
    """Return the human ratings of a file, on the judge's scale `target`.

    With `replies` each rating must name its reply, by id or by its texts; without, a row that has
    no id is a reply of its own. Ratings by AIs are left out: by raters that the options or `rater_kind` name.
    """
    table = _RatingTable(path, options or SheetOptions(), replies, tuple(target))
    ratings = table.read()
    named = table.options.ai_raters
    kinds = [(item.rater, str(item.extra.get("rater_kind") or "").strip().casefold()) for item in ratings]
    ai = {rater for rater, kind in kinds if ALL in named or rater in named or kind in AI_KINDS}
    people, names = tuple(item for item in ratings if item.rater not in ai), ", ".join(sorted(ai))
    if ratings and not people:
        raise UserError(
            f"{path}: all ratings are by AI raters ({names}); only human ratings are used."
            " Have people rate some of these replies: rate plan RESPONSES.jsonl"
        )
    count = len(ratings) - len(people)
    about_ai = [f"{count:,} rating{'s' if count != 1 else ''} by AI raters ({names}) left out"] if ai else []
    return RatingSheet(ratings=people, notes=(*table.notes, *say_set_aside(table.bad), *about_ai))


class _RatingTable:
    """A file of ratings: its rows, the columns it has, and the notes about it."""

    def __init__(
        self, path: Path, options: SheetOptions, replies: Replies | None, target: tuple[str, ...]
    ) -> None:
        self.path, self.options, self.replies, self.target = path, options, replies, target
        self.bad: list[BadRow] = []
        self.on_bad: OnBad = self.bad.append if options.skip_invalid else stop_at_bad_row
        header = Header()
        self.rows = list(read_rows(path, on_bad=self.on_bad, header=header))
        headers = list(dict.fromkeys(key for _, row in self.rows for key in row))
        self.columns = find_columns(headers, options.columns)
        self.notes = [f"{path.name}: {note}" for note in header.notes]
        self.by_text = 0
        self.has_texts = {"prompt", "response"} <= set(self.columns)
        if not self.rows and not self.bad:
            raise UserError(f"{path}: empty; expected a table with id, rater and rating")
        missing = None
        if "rating" not in self.columns:
            missing = ("the rating", "rating")
        elif replies is not None and "id" not in self.columns and not self.has_texts:
            missing = ("the reply that is rated (id, or prompt and response)", "id")
        if missing:
            what, names = missing[0], ", ".join(map(str, headers)) or "none"
            problem = f"no column for {what}; columns: {names}. Name it: --column {missing[1]}=NAME"
            raise UserError(f"{path}: {problem}")

    def note(self, text: str) -> None:
        """Add a note with the file's name."""
        self.notes.append(f"{self.path.name}: {text}")

    def read(self) -> list[Rating]:
        """Return the ratings of all raters; those of other dimensions are left out."""
        every = [(line, self._known_row(row), row) for line, row in self.rows]
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
        self._note_reading(cut)
        ids, replies = [name_text(row.get("id")) for _, row, _ in known], self.replies
        # If no id of the file is a reply's, texts may still identify it.
        by_id = not self.has_texts or replies is None or any(map(replies.knows, ids))
        make, ratings, unknown = make_record(Rating), [], list[BadRow]()
        for line, row, raw in known:
            try:
                ratings.append(make(line, self._rating_row(row, scale, cut, by_id)))
            except UnknownReply as problem:
                unknown.append(BadRow(self.path, line, str(problem), raw))
            except UserError as problem:
                self.on_bad(BadRow(self.path, line, str(problem), raw))
        for bad in unknown if not ratings else ():
            self.on_bad(bad)
        others = len(unknown) + sum(not (replies is None or replies.knows(item.id)) for item in ratings)
        if ratings and others:
            self.note(f"{others:,} ratings are of replies that were not passed, and are left out")
        if "rater" not in self.columns:
            self._check_once(ratings)
        if self.by_text:
            self.note(f"{self.by_text:,} ratings were matched to replies by text")
        return ratings

    def _known_row(self, row: Row) -> Row:
        """Return a row under the names we know; other columns keep theirs."""
        named = {name: key for key, name in self.columns.items()}
        # `score`, read as the rating, must not be hidden by another column.
        return {named.get(key, key): row[key] for key in row if key in named or key not in self.columns}

    def _check_once(self, ratings: Sequence[Rating]) -> None:
        """Refuse several ratings of one reply without raters: they cannot be assigned to people."""
        (identity, times), *_ = Counter(item.id for item in ratings).most_common(1) or [("", 0)]
        if times > 1:
            raise UserError(
                f"{self.path}: {identity!r} is rated {times} times, and there is no rater column; add a "
                "column `rater`, or --column rater=NAME"
            )

    def _note_reading(self, cut: Cut | None) -> None:
        if cut is not None:
            how = "as --cut says" if cut.is_stated else "thirds of the scale; --cut OKAY,GOOD sets another"
            kind = {"thumbs": "thumbs", "stars": f"stars 1 to {len(cut.scale.levels)}"}.get(cut.scale.kind)
            self.note(f"{kind or f'ratings {cut.scale.ends}'} read as {cut.description} ({how})")
        elif self.columns["rating"].casefold() != "rating":
            self.note(f"ratings are read from the column {self.columns['rating']!r}")
        if "rater" not in self.columns:
            self.note(
                "warning: no rater column, so all ratings count as one rater's; add a column `rater`, or "
                "--column rater=NAME"
            )

    def _rating_row(self, row: Row, scale: RatingScale, cut: Cut | None, by_id: bool) -> Row:
        made = {**row, "rating": self._value(row.get("rating"), scale, cut)}
        if "rater" not in self.columns:
            made["rater"] = ONE_RATER
        for key in ("id", "rater", "batch"):
            if made.get(key) is not None:
                made[key] = name_text(made[key])
        if self.replies is not None:
            made["id"] = self._find_reply(self.replies, row, by_id)
        return made

    def _find_reply(self, replies: Replies, row: Row, by_id: bool) -> str:
        digest, identity, model = (name_text(row.get(key)) for key in ("content_digest", "id", "model"))
        if (found := replies.find_content(digest, identity, model)) is not None:
            return found
        if identity and by_id:
            return replies.find_id(identity, model)
        if row.get("prompt") is None or row.get("response") is None:
            raise UserError("id: missing or empty; every row needs it, or the prompt and the response")
        found = replies.find_text(row)
        self.by_text += 1
        return found

    def _value(self, value: Any, scale: RatingScale, cut: Cut | None) -> float:
        if value is None or str(value).strip() == "":
            raise UserError("rating: missing or empty; every row needs it")
        position, low = scale.position(value), first_number(scale.levels)
        if position is None:
            ends = f"from {low} to {low + len(scale.levels) - 1}" if cut is None else scale.ends
            options = "" if self.options.scale else "; for another scale, set --scale, such as --scale 1-5"
            raise UserError(f"rating: {str(value)[:40]!r} is not on the scale {ends}{options}")
        if cut is None:
            return position + low - 1
        if position != int(position):
            raise UserError(
                f"rating: {str(value)[:40]!r} is between two levels; pass individual ratings, not means"
            )
        return cut.rating(position)


def name_text(value: Any) -> str:
    """Return a name as text; a spreadsheet's 7.0 is 7."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value).strip()


def _bare(name: str) -> str:
    return plain_name(name).replace("_", "")


def _plain_text(text: str) -> str:
    return " ".join(text.split())  # spreadsheets and pages change line ends and trailing spaces


def say_set_aside(bad: Sequence[BadRow]) -> list[str]:
    """Return a line on how many rows were set aside, and why the first of them were."""
    if not bad:
        return []
    first = "; ".join(map(str, bad[:SHOWN]))
    more = f"; and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    return [f"{len(bad):,} row{'s' if len(bad) != 1 else ''} skipped: {first}{more}"]

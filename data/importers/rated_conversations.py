"""Datasets of whole conversations: judging empathy, iEval, ESConv and DSTC9, as exchanges and ratings.

The response is the listener's last turn, the prompt the speaker's before it, `dialogue` what came earlier.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.importers.intake import (
    BadCell,
    Intake,
    Scale,
    read_header,
    read_objects,
    read_score,
    read_text,
)
from empathy_judge.data.readers.chat_turns import LISTENER, SPEAKER, party_of
from empathy_judge.data.records import Exchange, Rating, Turn

PARTIES = ("Seeker", "Supporter", "Speaker", "Listener")
TURN_START = re.compile(rf"\s*({'|'.join(PARTIES)}):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Corpus:
    """One of the four datasets behind *judging empathy*: its key column, scale and file of texts."""

    key: str
    scale: Scale
    texts: str | None = None


CORPORA = {
    "empatheticdialogues": Corpus("conv_id", (1, 5), "sample_empatheticdialogues.csv"),
    "epitome": Corpus("sp_id", (0, 2), "sample_epitome.csv"),
    "lend_an_ear": Corpus("conversation_id", (1, 5), "sample_lend_an_ear_conversations.csv"),
    "perceived_empathy": Corpus("id", (1, 7)),
}
RATERS = {"gpt": "gpt-4o", "claude": "claude-3.7-sonnet", "gemini": "gemini-2.5-pro"}
NO_DIMENSION = {"", "Unnamed: 0", "rp_id", "full_conversation", "response_length"}

IEVAL_BOTS = ("Pink", "Purple", "Yellow", "Green")
IEVAL_SCALES: dict[str, Scale] = dict.fromkeys(("P", "^P", "A", "^A", "EU", "ER", "L", "R", "S"), (1, 5))
IEVAL_SCALES["Rating"] = (1, 3)

SURVEY: Final = ("empathy", "relevance", "initial_emotion_intensity", "final_emotion_intensity")
PEOPLE: Final[Mapping[str, Scale]] = {"human (overall)": (1, 5), "consistent": (0, 1)} | dict.fromkeys(
    (
        *("likeable", "diverse", "informative", "coherent", "understanding", "flexible", "topic depth"),
        *("error recovery", "inquisitive"),
    ),
    (1, 3),
)


def parse_transcript(text: str, column: str = "full_conversation") -> list[Turn]:
    """Return the turns of a "Seeker: … / Supporter: …" text; a line without a name continues a turn."""
    turns: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if start := TURN_START.match(line):
            turns.append((party_of(start[1]) or "", [start[2]]))
        elif turns:
            turns[-1][1].append(line)
        elif line.strip():
            raise BadCell(f"{column}: does not start with {':, '.join(PARTIES)}:")
    return [Turn(speaker=speaker, text="\n".join(lines).strip()) for speaker, lines in turns]


def parse_chat_log(text: str) -> list[Turn]:
    """Return the turns of "- " lines, the user's first; a line without the dash continues a turn."""
    turns: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith("- ") or line == "-":
            turns.append([line[2:]])
        elif turns:
            turns[-1].append(line)
        elif line.strip():
            raise BadCell("chat_log: does not start with '- '")
    if len(turns) % 2:
        # Only the order identifies the speakers: an odd number of turns is ambiguous.
        raise BadCell(f"chat_log: an odd number of turns, {len(turns)}: who said what is unclear")
    roles = (SPEAKER, LISTENER)
    return [Turn(speaker=roles[i % 2], text="\n".join(lines).strip()) for i, lines in enumerate(turns)]


def exchange_of(
    identity: str,
    turns: Sequence[Turn],
    *,
    model: str,
    situation: str | None = None,
    emotion: str | None = None,
    extra: Mapping[str, Any],
) -> Exchange:
    """Return the exchange that a conversation ends in; later turns are stored under `after`."""
    # Turns with a text, the ones of one person in a row made one: speaker and listener alternate.
    runs = groupby((turn for turn in turns if turn.text), key=lambda turn: turn.speaker)
    spoken = [Turn(speaker=who, text="\n".join(turn.text for turn in run)) for who, run in runs]
    last = max((i for i, turn in enumerate(spoken) if turn.speaker == LISTENER), default=0)
    if last == 0:
        raise BadCell("conversation: no listener's turn after a speaker's")
    kept = dict(extra)
    if after := spoken[last + 1 :]:
        kept["after"] = [asdict(turn) for turn in after]
    return Exchange(
        id=identity,
        prompt=spoken[last - 1].text,
        response=spoken[last].text,
        model=model,
        situation=situation,
        emotion=emotion,
        dialogue=tuple(spoken[: last - 1]),
        extra=kept,
    )


def import_judging_empathy(intake: Intake) -> None:
    """Import four datasets rated by experts, crowd workers and language models; ids are "<dataset>/<key>"."""
    folder = intake.path / "annotations"
    if not folder.is_dir():
        raise UserError(f"{intake.path}: expected a folder 'annotations' in it")
    for name in sorted(item.name for item in folder.iterdir() if item.is_dir()):
        if name not in CORPORA:
            intake.set_aside(f"not one of the datasets {', '.join(CORPORA)}", f"annotations/{name}")
            continue
        _take_corpus_texts(intake, name)
        rated: dict[str, None] = {}
        for table in sorted((folder / name).glob("*_ratings.csv")):
            rated |= dict.fromkeys(_take_corpus_ratings(intake, table, name))
        for identity in rated:
            if not intake.has_exchange(identity):
                intake.set_aside("no text: its ratings are saved without an exchange", identity)


def _take_corpus_texts(intake: Intake, name: str) -> None:
    """Add the conversations: of the original data, else of the copy beside one model's ratings."""
    key, original = CORPORA[name].key, CORPORA[name].texts
    tables = [intake.path / "original_data" / original] if original else []
    tables.append(intake.path / "annotations" / name / "gemini_ratings.csv")
    texts, last = {"full_conversation", "seeker_post"}, ""
    table = next((item for item in tables if item.is_file() and texts & set(read_header(item))), None)
    if table is None:
        return
    for row in intake.rows(table, [key]):
        if row.get(key) == last:  # EmpatheticDialogues repeats the whole conversation for every utterance
            continue
        last = row.get(key, "")
        with intake.setting_aside():
            intake.add_exchange(_corpus_exchange(row, name))


def _corpus_exchange(row: Mapping[str, Any], name: str) -> Exchange:
    identity = read_text(row, CORPORA[name].key)
    situation = read_text(row, "prompt") if "prompt" in row else None
    if "seeker_post" in row:
        texts = {SPEAKER: read_text(row, "seeker_post"), LISTENER: read_text(row, "response_post")}
        turns = [Turn(speaker=who, text=text) for who, text in texts.items()]
    else:
        turns = parse_transcript(read_text(row, "full_conversation"))
    if turns and turns[0].text == situation:
        turns = turns[1:]  # shown to raters as a first turn, though the listener never saw it
    about: dict[str, Any] = {"model": "human", "situation": situation, "emotion": row.get("context")}
    extra = {"dataset": name, "dialog_id": identity}
    return exchange_of(f"{name}/{identity}", turns, **about, extra=extra)


def _take_corpus_ratings(intake: Intake, table: Path, name: str) -> list[str]:
    """Add one rater's ratings; gives the ids that were rated."""
    corpus = CORPORA[name]
    rater = table.name.removesuffix("_ratings.csv")
    extra = {"dataset": name} | ({"rater_kind": "ai"} if rater in RATERS else {})
    dimensions = [column for column in read_header(table) if column not in {*NO_DIMENSION, corpus.key}]
    rated = []
    for row in intake.rows(table, [corpus.key]):
        for dimension in dimensions:
            with intake.setting_aside():
                identity = f"{name}/{read_text(row, corpus.key)}"
                about = {"id": identity, "rater": RATERS.get(rater, rater), "dimension": dimension}
                score = intake.rate(row, dimension, corpus.scale, **about, extra=extra)
                if score is not None:
                    rated.append(identity)
    return rated


def import_ieval(intake: Intake) -> None:
    """Read short dialogues with four chatbots, each worker rating all four on the same situations."""
    (file,) = intake.find_files("ieval_data.json")
    for number, worker in enumerate(read_objects(file)):
        for sentiment in ("positive", "negative"):
            scene, rater = worker.get(sentiment), f"worker-{number}"
            if not isinstance(scene, dict):
                intake.go_to(file, f"{rater}/{sentiment}")
                intake.set_aside("the file has no such situation for this worker")
                continue
            for bot in IEVAL_BOTS:
                intake.go_to(file, identity := f"{rater}/{sentiment}/{bot}".lower())
                if isinstance(dialogue := scene.get(bot), dict):
                    _take_ieval_dialogue(intake, identity, scene, dialogue)
                else:
                    intake.set_aside(f"{bot}: the file has no such dialogue")


def _take_ieval_dialogue(
    intake: Intake, identity: str, scene: Mapping[str, Any], dialogue: Mapping[str, Any]
) -> None:
    """Add one dialogue and its ratings; the id names the worker, the situation and the bot."""
    rater, sentiment, bot = identity.split("/")
    with intake.setting_aside():
        exchange = exchange_of(
            identity,
            parse_chat_log(read_text(dialogue, "chat_log")),
            model=f"ieval-{bot}",
            situation=read_text(scene, "prompt"),
            emotion=read_text(scene, "emotion"),
            extra={"dialog_id": read_text(scene, "conv_id"), "batch": rater, "sentiment": sentiment},
        )
        intake.add_exchange(exchange)
    about: dict[str, Any] = {"id": identity, "rater": rater, "batch": rater}
    about["extra"] = {"model": f"ieval-{bot}"}
    scores = {
        dimension: intake.rate(dialogue, dimension, scale, dimension=dimension, **about)
        for dimension, scale in IEVAL_SCALES.items()
    }
    understanding, reaction = scores["EU"], scores["ER"]
    if understanding is not None and reaction is not None:
        intake.add_rating(Rating(rating=(understanding + reaction) / 2, **about))


def import_esconv(intake: Intake) -> None:
    """Read talks that failed the authors' checks and talks they accepted; all scores are the seeker's, 1-5.

    An exchange is a talk (id `<failed|accepted>/<number>`) or the end of a stretch that got stars (id
    `…/turn-<n>`, dimension `turn`). Stars are at a turn of the seeker and rate what the listener said
    since the last stars: `rated_replies` counts these replies.
    """
    for file in intake.find_files("FailedESConv.json", "q-esconv.json"):
        origin = "failed" if "failed" in file.name.lower() else "accepted"
        for number, talk in enumerate(read_objects(file)):
            intake.go_to(file, number)
            with intake.setting_aside():
                _take_esconv_talk(intake, f"{origin}/{number}", _esconv_talk(talk))


def _esconv_talk(talk: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the talk itself; one file has each of its talks inside a JSON string `text`."""
    if "dialog" in talk:
        return talk
    try:
        inner = json.loads(read_text(talk, "text"))
    except (ValueError, RecursionError):
        inner = None
    if not isinstance(inner, dict):
        raise BadCell("text: not an object written as JSON")
    return inner


def _take_esconv_talk(intake: Intake, identity: str, talk: Mapping[str, Any]) -> None:
    given = {key: str(talk.get(key) or "").strip() or None for key in ("situation", "emotion_type")}
    about: dict[str, Any] = {"situation": given["situation"], "emotion": given["emotion_type"]}
    about |= {"model": "human", "extra": {"dialog_id": identity, "file": identity.split("/")[0]}}
    turns, stars = _read_esconv_turns(intake, talk.get("dialog"))
    survey, rater = talk.get("survey_score"), f"seeker-{identity}"
    seeker = survey.get("seeker") if isinstance(survey, dict) else None
    for dimension in SURVEY:
        if isinstance(seeker, dict) and dimension in seeker:
            intake.rate(seeker, dimension, (1, 5), id=identity, rater=rater, dimension=dimension)
    with intake.setting_aside():
        intake.add_exchange(exchange_of(identity, turns, **about))
    start = 0
    for end, score in stars:
        with intake.setting_aside():
            stretch = [turn.speaker for turn in turns[start:end] if turn.text]
            replies = sum(who == LISTENER for who, _ in groupby(stretch))
            start = end
            if not replies:
                raise BadCell(f"feedback: turn {end} rates no reply of the listener")
            turn_id, extra = f"{identity}/turn-{end}", about["extra"] | {"rated_replies": replies}
            intake.add_rating(Rating(id=turn_id, rater=rater, rating=score, dimension="turn"))
            intake.add_exchange(exchange_of(turn_id, turns[:end], **about | {"extra": extra}))


def _read_esconv_turns(intake: Intake, dialog: Any) -> tuple[list[Turn], list[tuple[int, float]]]:
    """Return the turns, and the stars, each with the number of turns before it."""
    if not isinstance(dialog, list) or not all(isinstance(turn, dict) for turn in dialog):
        raise BadCell("dialog: not a list of turns")
    turns: list[Turn] = []
    stars: list[tuple[int, float]] = []
    for turn in dialog:
        party = party_of(str(turn.get("speaker")))
        if party is None:
            raise BadCell(f"speaker: {str(turn.get('speaker'))[:40]!r} is neither of the two parties")
        annotation = turn.get("annotation")
        if isinstance(annotation, dict) and "feedback" in annotation:
            with intake.setting_aside():
                stars.append((len(turns), read_score(annotation, "feedback", (1, 5))))
        turns.append(Turn(speaker=party, text=str(turn.get("content", turn.get("text")) or "").strip()))
    return turns, stars


def import_dstc9(intake: Intake) -> None:
    """Read DSTC9 (DEP's table): the means of people's ratings of a talk, and a GPT's.

    Some turns are empty in the published file, of both parties. They are left out, so that what one party
    says before and after becomes one turn; a bot's opening without a turn before it stays in `dialogue`.
    The GPT's score 0-4 is moved to the 1-5 that people's `overall` has.
    """
    (table,) = intake.find_files("dstc9_dep_step2_eval.csv")
    for number, row in enumerate(intake.rows(table, ["context", "model", *PEOPLE])):
        with intake.setting_aside():
            bot = read_text(row, "model").removesuffix(".json")
            identity, model = f"{bot}/{number}", f"dstc9-{bot}"
            for column, scale in PEOPLE.items():
                dimension = "overall" if column == "human (overall)" else column
                about: dict[str, Any] = {"id": identity, "extra": {"model": model}, "dimension": dimension}
                intake.rate(row, column, scale, rater="crowd", **about)
            if "openai_score" in row:
                with intake.setting_aside():
                    score = read_score(row, "openai_score", (0, 4)) + 1
                    extra = {"model": model, "rater_kind": "ai"}
                    rating = Rating(id=identity, rater="gpt", rating=score, dimension="overall", extra=extra)
                    intake.add_rating(rating)
            turns = parse_transcript(read_text(row, "context"), "context")
            intake.add_exchange(exchange_of(identity, turns, model=model, extra={}))

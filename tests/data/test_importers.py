"""Importers: every published shape in miniature with its quirks, then the real files where at hand."""

import csv
import json
import re
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from made_sets import write_external_sets
from repository import dataset
from rows import write_csv

from empathy_judge.calibration.comparison.published_models import STUDY_COUNTS, count_labels
from empathy_judge.data.errors import UserError
from empathy_judge.data.importers import SOURCES, import_source
from empathy_judge.data.importers.intake import Imported, SetAside
from empathy_judge.data.importers.rated_conversations import PEOPLE
from empathy_judge.data.readers.chat_turns import LISTENER
from empathy_judge.data.records import EMOTIONS, LABELS, Exchange, Rating, Turn
from empathy_judge.training.rated_sets import EXTERNAL_SETS


def by_id(imported: Imported):
    return {exchange.id: exchange for exchange in imported.exchanges}


def values(imported: Imported) -> dict[tuple[str, str, str], float]:
    return {(item.id, item.rater, item.dimension): item.rating for item in imported.ratings}


# --- the crowd study


def study_row(number: int = 1, arms: tuple[str, ...] = ("human", "chatgpt_empathy"), **changes):
    row: dict[str, object] = {
        "part_no": 7,
        "dialog_id": f"d{number}",
        "emotion": "proud",
        "sentiment": "positive",
        "situation": " My kite won_comma_ twice ",
        "speaker_uttr": "  Our kite won_comma_ can you believe it? ",
    }
    for at, arm in enumerate(arms):
        row |= {f"annotator_{arm}": f"r{at}", f"rating_{arm}": at % 3 + 1}
        row |= {f"response_{arm}": f"Well done_comma_ {arm}!"}
    return row | changes


def test_study_arms_become_models_with_clean_texts(tmp_path):
    imported = import_source("empathy-study", write_csv(tmp_path / "dataset.csv", [study_row()]))
    exchange, rating = by_id(imported)["d1/gpt-4"], imported.ratings[1]
    assert exchange == Exchange(
        id="d1/gpt-4",
        prompt="Our kite won, can you believe it?",
        response="Well done, chatgpt_empathy!",
        model="gpt-4",
        situation="My kite won, twice",
        emotion="proud",
        extra={"dialog_id": "d1", "batch": "7", "sentiment": "positive"},
    )
    assert rating == Rating(id="d1/gpt-4", rater="r1", rating=2.0, batch="7")
    assert imported.set_aside == ()


def test_study_folder_takes_a_shared_arm_once_and_reports_what_disagrees(tmp_path):
    write_csv(tmp_path / "dataset.csv", [study_row(arms=("human", "chatgpt_empathy", "llama_empathy"))])
    changed = study_row(
        arms=("human", "chatgpt_empathy", "chatgpt"), response_human="Something else.", rating_human=3
    )
    write_csv(tmp_path / "dataset_and_ratings.csv", [changed])
    imported = import_source("empathy-study", tmp_path)
    assert set(by_id(imported)) == {"d1/human", "d1/gpt-4", "d1/llama-2-70b-chat", "d1/gpt-4-plain"}
    assert len(imported.ratings) == 4 and by_id(imported)["d1/human"].response == "Well done, human!"
    assert [location for location, _ in imported.set_aside] == ["dataset_and_ratings.csv:2"] * 2
    assert all("already at dataset.csv:2" in reason for _, reason in imported.set_aside)


def test_parts_of_a_dataset_in_several_folders_are_read_as_one(tmp_path):
    write_csv(tmp_path / "five" / "dataset.csv", [study_row(arms=("human", "llama_empathy"))])
    sixth = [study_row(arms=("mixtral_empathy",)), study_row(2, ("mixtral_empathy",), part_no="")]
    write_csv(tmp_path / "sixth" / "dataset.csv", sixth)
    imported = import_source("empathy-study", tmp_path / "five", tmp_path / "sixth", tmp_path / "five")
    assert list(by_id(imported)) == ["d1/human", "d1/llama-2-70b-chat", "d1/mixtral-8x7b-instruct"]
    assert {rating.id: rating.batch for rating in imported.ratings} == dict.fromkeys(by_id(imported), "7")
    assert {item.location for item in imported.set_aside} == {str(tmp_path / "sixth" / "dataset.csv:3")}


@pytest.mark.parametrize(
    ("change", "reason", "exchanges", "ratings"),
    [
        ({"rating_human": "great"}, "rating_human: 'great' is not a number", 2, 1),
        ({"rating_human": 4}, "rating_human: 4 is not on the scale 1-3", 2, 1),
        ({"rating_human": 2.5}, "rating_human: 2.5 is not on the scale 1-3", 2, 1),
        ({"rating_human": "nan"}, "rating_human: nan is not on the scale 1-3", 2, 1),
        ({"response_human": " "}, "response_human: empty", 1, 2),
    ],
)
def test_a_bad_cell_is_set_aside_with_file_line_and_field(tmp_path, change, reason, exchanges, ratings):
    rows = [study_row(arms=("human",)), study_row(2, ("human",), **change)]
    imported = import_source("empathy-study", write_csv(tmp_path / "dataset.csv", rows))
    assert imported.set_aside == (SetAside("dataset.csv:3", reason),)
    assert (len(imported.exchanges), len(imported.ratings)) == (exchanges, ratings)


# --- conversations


def judging_folder(tmp_path: Path) -> Path:
    talk = "Seeker: I moved_comma_ alone. \n Seeker: New town today! \n Supporter: Brave of you. \n"
    cat = (
        "Seeker: One.\n\n Seeker: Two.\nSupporter: Three,\nstill three. \nSeeker:\nSupporter:  \n"
        "Seeker: Four.\nSupporter: Five. \nSeeker: Six."
    )
    post = {"sp_id": "s1", "rp_id": "a1", "seeker_post": "Nobody calls.", "response_post": "I would."}
    said = {"conv_id": "e1", "context": "lonely", "prompt": "I moved_comma_ alone."}
    said["full_conversation"] = talk
    tables: dict[str, list[dict[str, object]]] = {
        "lend_an_ear/expert1_ratings": [{"conversation_id": "c1", "self_oriented": 2}],
        "lend_an_ear/gpt_ratings": [{"": 0, "conversation_id": "c1", "self_oriented": "4.0"}],
        "lend_an_ear/gemini_ratings": [
            {"Unnamed: 0": 1, "conversation_id": "c1", "full_conversation": cat, "self_oriented": 6}
        ],
        "perceived_empathy/crowd_ratings": [{"id": "p1", "m_seen": "6.333", "m_accepted": 7}],
        "epitome/claude_ratings": [{"": 0, "sp_id": "s1", "level_explorations": "0.0"}],
        "empatheticdialogues/crowd_ratings": [{"conv_id": "e1", "empathy": 3.5}],
        "empatheticdialogues/sample_ratings_crowdsourced": [{"conv_id": "e1", "empathy": 9}],
        "../original_data/sample_epitome": [post],
        "../original_data/sample_empatheticdialogues": [said | {"utterance_idx": n} for n in (1, 2)],
    }
    (tmp_path / "annotations" / "diaries").mkdir(parents=True)
    for name, rows in tables.items():
        write_csv((tmp_path / "annotations" / f"{name}.csv").resolve(), rows)
    return tmp_path


def test_judging_empathy_joins_ratings_with_conversations(tmp_path):
    imported = import_source("judging-empathy", judging_folder(tmp_path))
    assert values(imported) == {
        ("empatheticdialogues/e1", "crowd", "empathy"): 3.5,
        ("epitome/s1", "claude-3.7-sonnet", "level_explorations"): 0.0,
        ("lend_an_ear/c1", "expert1", "self_oriented"): 2.0,
        ("lend_an_ear/c1", "gpt-4o", "self_oriented"): 4.0,
        ("perceived_empathy/p1", "crowd", "m_seen"): 6.333,
        ("perceived_empathy/p1", "crowd", "m_accepted"): 7.0,
    }
    exchanges = by_id(imported)
    moved = exchanges["empatheticdialogues/e1"]
    assert (moved.prompt, moved.response, moved.dialogue) == ("New town today!", "Brave of you.", ())
    assert (moved.situation, moved.emotion, moved.model) == ("I moved, alone.", "lonely", "human")
    talk = exchanges["lend_an_ear/c1"]
    assert (talk.prompt, talk.response) == ("Four.", "Five.")
    assert [turn.text for turn in talk.dialogue] == ["One.\nTwo.", "Three,\nstill three."]
    assert talk.extra["after"] == [{"speaker": "speaker", "text": "Six."}]
    kinds = {item.rater: item.extra.get("rater_kind") for item in imported.ratings}
    assert [name for name, kind in kinds.items() if kind == "ai"] == ["claude-3.7-sonnet", "gpt-4o"]
    bad_row = "annotations/lend_an_ear/gemini_ratings.csv:2"
    assert {location for location, _ in imported.set_aside} == {
        *("annotations/diaries", bad_row, "perceived_empathy/p1")
    }
    assert dict(imported.set_aside)[bad_row] == "self_oriented: 6 is not on the scale 1-5"


def ieval_file(tmp_path: Path, **changes) -> Path:
    scores = dict.fromkeys(("P", "^P", "A", "^A", "L", "R", "S"), 3) | {"EU": 4, "ER": 5, "Rating": 3}
    dialogue = {"chat_log": "- I baked.\n- Nice!\n- A big\n\ncake\n- Yum ."} | scores
    scene = {"conv_id": "d9", "emotion": "proud", "prompt": "baking "}
    scene |= {bot: dialogue for bot in ("Pink", "Purple", "Yellow")} | {"Green": dialogue | changes}
    path = tmp_path / "ieval_data.json"
    path.write_text(json.dumps([{"positive": scene, "negative": scene}, {"negative": scene}]))
    return path


def test_ieval_dialogues_and_ratings(tmp_path):
    ieval_file(tmp_path)
    imported = import_source("ieval", tmp_path)
    assert (len(imported.exchanges), len(imported.ratings)) == (12, 12 * 11)
    exchange = by_id(imported)["worker-0/positive/pink"]
    assert (exchange.prompt, exchange.response, exchange.model) == ("A big\n\ncake", "Yum .", "ieval-pink")
    assert [turn.text for turn in exchange.dialogue] == ["I baked.", "Nice!"]
    assert values(imported)["worker-0/positive/pink", "worker-0", "empathy"] == 4.5
    assert {rating.batch for rating in imported.ratings} == {"worker-0", "worker-1"}
    assert "ieval_data.json:worker-1/positive" in dict(imported.set_aside)
    assert imported.ratings[0].extra == {"model": "ieval-pink"}


@pytest.mark.parametrize(
    ("change", "reason", "exchanges", "ratings"),
    [
        ({"chat_log": "- One\n- Two\n- Three"}, "chat_log: an odd number of turns, 3: who said", 9, 132),
        ({"chat_log": "One\n- Two"}, "chat_log: does not start with '- '", 9, 132),
        ({"chat_log": ""}, "chat_log: empty", 9, 132),
        ({"chat_log": "- One\n- "}, "conversation: no listener's turn after a speaker's", 9, 132),
        ({"EU": None}, "EU: empty", 12, 132 - 2 * 3),
        ({"ER": 6}, "ER: 6 is not on the scale 1-5", 12, 132 - 2 * 3),
    ],
)
def test_ieval_malformed_dialogues_are_set_aside_without_their_ratings(
    tmp_path, change, reason, exchanges, ratings
):
    imported = import_source("ieval", ieval_file(tmp_path, **change))
    assert dict(imported.set_aside)["ieval_data.json:worker-0/positive/green"].startswith(reason)
    assert (len(imported.exchanges), len(imported.ratings)) == (exchanges, ratings)


def esconv_folder(path: Path) -> Path:
    """One failed talk with stars, and one accepted talk inside its JSON string."""
    lines = [
        "listener: Hello.",
        "speaker: I failed my exam.\n",
        "listener: Oh.",
        "listener: Which one?",
        "speaker: Maths, after a year of work.",
        "listener: That must hurt.",
        "speaker: It does.",
        "speaker: Very.",
        "listener: I am here.",
        "speaker: Thanks.",
    ]
    stars = {6: "4", 7: "5", 9: "9"}
    dialog = [
        {"speaker": who, "annotation": {"feedback": stars[at]} if at in stars else {}, "content": text}
        for at, (who, _, text) in enumerate(line.partition(": ") for line in lines)
    ]
    about = {"emotion_type": "sadness", "situation": "Exams."}
    failed = about | {"dialog": dialog, "survey_score": {"seeker": {"empathy": "2"}, "supporter": {}}}
    turns = [{"text": "I lost my job.", "speaker": "usr"}, {"text": "I am sorry.", "speaker": "sys"}]
    accepted = about | {"dialog": turns, "survey_score": {"seeker": {"empathy": "5", "relevance": "4"}}}
    path.mkdir(parents=True, exist_ok=True)
    (path / "FailedESConv.json").write_text(json.dumps([failed, {"dialog": 7}]))
    (path / "q-esconv.json").write_text(json.dumps([{"text": json.dumps(accepted)}, {"text": "[1]"}]))
    return path


def test_esconv_talks_and_the_turns_that_got_stars(tmp_path):
    imported = import_source("esconv", esconv_folder(tmp_path))
    assert list(by_id(imported)) == ["failed/0", "failed/0/turn-6", "accepted/0"]
    starred = by_id(imported)["failed/0/turn-6"]
    assert (starred.prompt, starred.response) == ("Maths, after a year of work.", "That must hurt.")
    assert [turn.text for turn in starred.dialogue] == ["Hello.", "I failed my exam.", "Oh.\nWhich one?"]
    # "Hello." follows nobody's words, but the stars are for it as well.
    assert starred.extra == {"dialog_id": "failed/0", "file": "failed", "rated_replies": 3}
    assert values(imported) == {
        ("failed/0", "seeker-failed/0", "empathy"): 2.0,
        ("failed/0/turn-6", "seeker-failed/0", "turn"): 4.0,
        ("accepted/0", "seeker-accepted/0", "empathy"): 5.0,
        ("accepted/0", "seeker-accepted/0", "relevance"): 4.0,
    }
    assert imported.set_aside == (
        SetAside("FailedESConv.json:0", "feedback: 9 is not on the scale 1-5"),
        SetAside("FailedESConv.json:0", "feedback: turn 7 rates no reply of the listener"),
        SetAside("FailedESConv.json:1", "dialog: not a list of turns"),
        SetAside("q-esconv.json:1", "text: not an object written as JSON"),
    )


DSTC9 = {
    "context": "Speaker: \nListener: Hi, I am Bo.\nSpeaker: I like rain.\nListener: Why?\nIt is wet.\n",
    **dict.fromkeys(PEOPLE, 2),
    "human (overall)": 3.5,
    "consistent": 0.5,
    "model": "chatbot2.json",
    "openai_score": 0,
}


def test_dstc9_talks_have_no_empty_turn_and_one_scale(tmp_path):
    rows = [DSTC9, DSTC9 | {"diverse": 4, "openai_score": ""}, DSTC9 | {"context": "Hi"}]
    imported = import_source("dep", write_csv(tmp_path / "dstc9_dep_step2_eval.csv", rows))
    assert list(by_id(imported)) == ["chatbot2/0", "chatbot2/1"]
    exchange, scores = imported.exchanges[0], values(imported)
    assert (exchange.prompt, exchange.response) == ("I like rain.", "Why?\nIt is wet.")
    assert exchange.dialogue == (Turn(speaker=LISTENER, text="Hi, I am Bo."),)
    assert (scores["chatbot2/0", "crowd", "overall"], scores["chatbot2/0", "gpt", "overall"]) == (3.5, 1.0)
    assert ("chatbot2/1", "gpt", "overall") not in scores and exchange.model == "dstc9-chatbot2"
    assert [item.reason.split(":")[0] for item in imported.set_aside] == ["diverse", "context"]


# --- single replies


def exchange_row(number: int, **changes):
    about = {"conv_id": "d1", "context": "sad", "prompt": "rain_comma_ again", "empathy": number}
    said = {"speaker_utterance": f"Said {number} ", "listener_utterance": f"Heard {number}_comma_ yes"}
    return about | said | {"exchange_number": number} | changes


def test_empathetic_exchanges_in_any_order_have_their_dialogue(tmp_path):
    rows = [exchange_row(2), exchange_row(1), exchange_row(3, empathy="")]
    imported = import_source("empathetic-exchanges", write_csv(tmp_path / "x.csv", rows))
    assert list(by_id(imported)) == ["d1/1", "d1/2", "d1/3"]
    second = by_id(imported)["d1/2"]
    assert [turn.text for turn in second.dialogue] == ["Said 1", "Heard 1, yes"]
    assert (second.situation, second.emotion, second.response) == ("rain, again", "sad", "Heard 2, yes")
    assert values(imported) == {("d1/1", "crowd", "empathy"): 1.0, ("d1/2", "crowd", "empathy"): 2.0}
    assert imported.set_aside == (SetAside("x.csv:4", "empathy: empty"),)


LEVELS = ("explorations", "interpretations")
POSTS = {"sp_id": "s1", "rp_id": "a1", "seeker_post": "I fell.", "response_post": "Ouch. I know falls."}


def test_epitome_folder_has_one_dimension_a_file(tmp_path):
    write_csv(tmp_path / "emotional-reactions-reddit.csv", [POSTS | {"level": 2}])
    write_csv(tmp_path / "explorations-reddit.csv", [POSTS | {"level": 1}])
    write_csv(tmp_path / "mine.csv", [POSTS | {"level": 3}, POSTS | {"level": 0}])
    write_csv(tmp_path / "other.csv", [{"colour": "red"}])
    imported = import_source("epitome", tmp_path)
    assert len(imported.exchanges) == 1
    assert values(imported) == {
        ("s1/a1", "expert", "emotional_reactions"): 2.0,
        ("s1/a1", "expert", "explorations"): 1.0,
        ("s1/a1", "expert", "empathy"): 0.0,
    }
    assert [location for location, _ in imported.set_aside] == ["mine.csv:2", "other.csv"]
    wide = POSTS | {"level_explorations": 1, "level_interpretations": 0}
    imported = import_source("epitome", write_csv(tmp_path / "wide.csv", [wide]))
    assert [(item.dimension, item.rating) for item in imported.ratings] == [*zip(LEVELS, (1, 0), strict=True)]


def test_epitome_sums_each_annotation_and_ignores_white_space(tmp_path):
    twice = [POSTS | {"level": 1}, POSTS | {"level": 2}]
    spaced = POSTS | {"response_post": "Ouch.  I know falls.", "level": 2}
    write_csv(tmp_path / "emotional-reactions-reddit.csv", twice)
    write_csv(tmp_path / "explorations-reddit.csv", [spaced, spaced | {"level": 0}])
    write_csv(tmp_path / "interpretations-reddit.csv", [spaced | {"level": 0}])
    imported = import_source("epitome", tmp_path)
    assert [exchange.response for exchange in imported.exchanges] == [POSTS["response_post"]]
    sums = {rating.rater: rating.rating for rating in imported.ratings if rating.dimension == "empathy"}
    assert (sums, imported.set_aside) == ({"expert": 3.0}, ())
    assert values(imported)["s1/a1", "expert-2", "emotional_reactions"] == 2.0


STUDY = {"dialog_id": "d1", "batch": 3, "emotion": "sad", "sentiment": "negative", "system": "gpt-4"}
ABOUT = {"model": "gpt-4", "dialog_id": "d1", "emotion": "sad", "sentiment": "negative"}
OWL = {"context": 1, "system": "owl", "attribute": "Empathy"}
AI = {"model": "owl", "rater_kind": "ai"}
WITHOUT_TEXTS = [
    (
        "empathy-study-ratings",
        [STUDY | {"rater": "r1", "rating": 3}, STUDY | {"rater": "r2", "rating": 0}],
        [Rating(id="d1/gpt-4", rater="r1", rating=3, batch="3", extra=ABOUT)],
        ["rating: 0 is not on the scale 1-3"],
    ),
    (
        "mental-align",
        [OWL | {"human": 4, "gpt-4o": 5}, OWL | {"context": 2, "human": 0, "gpt-4o": ""}],
        [
            Rating(id="1/owl", rater="human", rating=4, extra={"model": "owl"}),
            Rating(id="1/owl", rater="gpt-4o", rating=5, extra=AI),
        ],
        ["human: 0 is not on the scale 1-5", "gpt-4o: empty"],
    ),
]


@pytest.mark.parametrize(("source", "rows", "ratings", "reasons"), WITHOUT_TEXTS)
def test_ratings_are_imported_without_texts(tmp_path, source, rows, ratings, reasons):
    imported = import_source(source, write_csv(tmp_path / "x.csv", rows))
    assert (list(imported.ratings), imported.exchanges) == (ratings, ())
    assert imported.set_aside == tuple(SetAside("x.csv:3", reason) for reason in reasons)


# --- external test sets


@pytest.mark.parametrize(
    ("change", "reason", "exchanges"),
    [
        ({"human_eval_annotation_2": None}, "human_eval_annotation_1, human_eval_annotation_2: expected", 29),
        ({"human_eval_annotation_2": {"annotator": 9, "empathy": 6}}, "empathy: 6 is not on the scale", 30),
        ({"reappraisal_response": " "}, "reappraisal_response: empty", 29),
    ],
)
def test_resort_has_two_experts_for_each_reply(tmp_path, change, reason, exchanges):
    file = write_external_sets(tmp_path) / "external-test" / "resort.json"
    imported = import_source("resort", file)
    assert (len(imported.exchanges), len(imported.ratings), imported.set_aside) == (30, 60, ())
    exchange = by_id(imported)["post_1/108"]
    assert (exchange.prompt, exchange.model, exchange.extra) == ("word1 rain", "m3", {"dialog_id": "post_1"})
    ratings = {rater: value for (key, rater, _), value in values(imported).items() if key == exchange.id}
    assert ratings == {"expert-11": 4, "expert-13": 3}
    first, *others = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps([first | change, *others]), encoding="utf-8")
    imported = import_source("resort", file.parent)
    ((place, found),) = imported.set_aside
    assert (place, found.startswith(reason), len(imported.exchanges)) == ("resort.json:0", True, exchanges)


def test_empo_rates_a_reply_by_the_mean_of_four_scales(tmp_path):
    file = write_external_sets(tmp_path) / "external-test" / "empo.csv"
    with file.open("a", encoding="utf-8") as out:
        out.write("99,7,m0,0,happy,my rain,hug,,5,5,5,5,1\n")
        out.write('100,8,m0,0,happy,"my rain\nnot",hug,,5,5,5,5,1\n')
        out.write("101,9,m0,0,happy,my rain,hug,,5,101,5,5,1\n")
    imported = import_source("empo", file)
    assert (len(imported.exchanges), len(imported.ratings)) == (31, 92)
    exchange = by_id(imported)["2/m3"]
    assert (exchange.prompt, exchange.emotion, exchange.model) == ("my problem", "happy", "m3")
    assert [turn.text for turn in exchange.dialogue] == ["word2 my", "not rain"]
    assert "stale" not in exchange.response
    assert values(imported)["2/m3", "1", "empathy"] == 63.5
    assert [reason.partition(":")[0] for _, reason in imported.set_aside] == ["chat_cut", "Dim2"]


# --- all of them


def without(column: str) -> str:
    row = {key: value for key, value in study_row(arms=("human",)).items() if key != column}
    return "\n".join([",".join(row), ",".join(f'"{value}"' for value in row.values())])


REFUSED = [
    *((source, "x/y.txt", "", "none", "none") for source in SOURCES),
    ("poems", "x.csv", "", "x.csv", "unknown source 'poems'"),
    *(
        ("empathy-study", "x.csv", without(column), "x.csv", f"expected a column '{column}'")
        for column in ("rating_human", "response_human", "speaker_uttr")
    ),
    ("empathy-study", "x.csv", "colour\nred\n", "x.csv", "expected a column 'response_…'"),
    ("empathy-study", "x.csv", "", "", "expected a file dataset.csv or dataset_and_ratings.csv"),
    ("empathy-study", "notes.txt", "x", "notes.txt", "expected a .csv file"),
    ("ieval", "ieval_data.json", "{", "", "not JSON"),
    ("ieval", "ieval_data.json", "{}", "", "expected a list"),
    ("ieval", "ieval_data.json", "[1]", "", "expected a list"),
    ("epitome", "x.csv", ",".join(POSTS) + "\na,b,c,d\n", "x.csv", "expected a column 'level'"),
    ("judging-empathy", "x.csv", "", "", "expected a folder 'annotations'"),
    ("judging-empathy", "annotations/epitome/crowd_ratings.csv", "who\n1\n", "", "a column 'sp_id'"),
    ("mental-align", "scores.csv", "context,system,attribute,human\n,a,b,1\n", "", "2: context: empty"),
]


@pytest.mark.parametrize(("source", "name", "content", "path", "reason"), REFUSED)
def test_what_cannot_be_imported_is_refused_with_the_reason(tmp_path, source, name, content, path, reason):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(reason)):
        import_source(source, tmp_path / path)


# --- the real files


def test_real_ratings_give_the_published_counts():
    imported = import_source("empathy-study-ratings", dataset("empathy-study"))
    assert (len(imported.ratings), imported.set_aside) == (12_000, ())
    ours = Counter(
        (r.extra["emotion"], r.extra["model"], LABELS[int(r.rating) - 1]) for r in imported.ratings
    )
    with STUDY_COUNTS.open(encoding="utf-8", newline="") as stream:
        cells = list(csv.DictReader(stream))
    assert {(cell["emotion"], cell["system"]) for cell in cells} == set(product(EMOTIONS, count_labels()))
    for cell in cells:
        counts = {label: int(cell[label.lower()]) for label in LABELS}
        assert {label: ours[cell["emotion"], cell["system"], label] for label in LABELS} == counts


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["empathy-study", "empathy-study-sixth"])
def test_every_response_of_the_real_study_is_imported(folder):
    """Each response of the 1,600 dialogues has the text and the rating of its cell."""
    cells = {}
    for path in sorted(dataset(folder).glob("dataset*.csv")):
        with path.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                for arm in (column.removeprefix("response_") for column in row if "response_" in column):
                    text = " ".join(row[f"response_{arm}"].replace("_comma_", ",").split())
                    cells[row["dialog_id"], arm] = (text, int(row[f"rating_{arm}"]))
    imported = import_source("empathy-study", dataset(folder))
    assert set(Counter(item.model for item in imported.exchanges).values()) == {1600}
    assert len(cells) == len(imported.exchanges) == len(imported.ratings) == len(by_id(imported))
    ours = (
        (exchange.extra["dialog_id"], " ".join(exchange.response.split()), int(rating.rating))
        for exchange, rating in zip(imported.exchanges, imported.ratings, strict=True)
    )
    assert Counter(ours) == Counter((name, *cell) for (name, _), cell in cells.items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "exchanges", "ratings", "set_aside"),
    [
        ("judging-empathy", 150, 21 * 7 * 50, 50),
        ("empathetic-exchanges", 4575, 4575, 0),
        ("ieval", 1760, 1760 * 11, 40),
        ("epitome", 3023, 4 * 3084, None),  # 3,084 rows a file: 60 replies stand there twice, one three times
        ("esconv", 196 + 467 + 976, None, 11),  # of 987 stars three rate nothing, eight only earlier words
        ("dep", 2016, None, 1),
        ("mental-align", 0, 60_000 * 5 - 612, 612),
        ("resort", 227, 2 * 227, 0),
        ("empo", 675, 3 * 675, 0),
    ],
)
def test_a_real_dataset_is_whole(source, exchanges, ratings, set_aside):
    imported = import_source(source, dataset("external-test" if source in EXTERNAL_SETS else source))
    assert len(imported.exchanges) == exchanges
    assert ratings in (None, len(imported.ratings))
    assert set_aside in (None, len(imported.set_aside))

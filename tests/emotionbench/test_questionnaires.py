"""Scoring keys on cases reckoned by hand, items from a user's copy, and situations in every shape."""

import csv
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from repository import dataset

from empathy_judge.data.errors import UserError
from empathy_judge.emotionbench import questionnaires, situations
from empathy_judge.emotionbench.importer import import_results
from empathy_judge.emotionbench.questionnaires import Questionnaire, read_questionnaire
from empathy_judge.emotionbench.situations import FACTOR_NAMES, OURS, POSITIVE, read_situations


def write_copy(path: Path, key: Questionnaire, **changes: object) -> Path:
    questions = {str(number): f"Item {number}." for number in range(1, key.items + 1)}
    entry = {"name": key.name, "questions": questions, "reverse": sorted(key.reversed), **changes}
    path.write_text(json.dumps([{"name": "Other"}, entry]), encoding="utf-8")
    return path


def cycle(key: Questionnaire) -> dict[int, float]:
    """Marks that go up from the lowest to the highest and start again."""
    return {item: key.low + (item - 1) % (key.high - key.low + 1) for item in range(1, key.items + 1)}


# By hand, from marks that cycle over the scale: 1 2 3 4 5 1 2 ..., 1 ... 7 1 ..., or 0 1 2 3 0 ...
# Of AGQ 7 is marked 7 and counts 1. Of BFNE 2, 4, 7 and 10 are marked 2, 4, 2 and 5 and count 4, 2, 4 and 1.
CYCLED = {
    "PANAS": {"positive": 31, "negative": 29},
    "AGQ": {"overall": 107, "physical": 25, "verbal": 25, "anger": 28, "hostility": 29},
    "DASS-21": {"overall": 60, "anxiety": 26, "depression": 12, "stress": 22},
    "BDI-II": {"overall": 30},
    "FDS": {"overall": 81, "discomfort": 21, "entitlement": 18, "emotional": 20, "achievement": 22},
    "MJS": {"cognitive": 29, "emotional": 30, "behavioural": 31},
    "GASP": {"guilt_behaviour": 12, "guilt_repair": 12, "shame_self": 18, "shame_withdraw": 17},
    "FSS-III": {
        "overall": 153,
        "social": 42,
        "agoraphobia": 37,
        "injury": 32,
        "aggression": 26,
        "animals": 16,
    },
    "BFNE": {"overall": 31},
}


def test_scores_are_as_reckoned_by_hand() -> None:
    for name in questionnaires.questionnaire_names():
        key = read_questionnaire(name)
        scores = questionnaires.score_marks(key, cycle(key))
        assert {scale: score.value for scale, score in scores.items()} == CYCLED[name]
        assert all(score.low == score.high == score.value and not score.missing for score in scores.values())


def test_the_lowest_marks_give_the_span_and_reversed_items_turn() -> None:
    for key in map(read_questionnaire, questionnaires.questionnaire_names()):
        items = range(1, key.items + 1)
        lowest = {item: float(key.high if item in key.reversed else key.low) for item in items}
        for scale, score in questionnaires.score_marks(key, lowest).items():
            assert score.value == key.span(scale)[0], (key.name, scale)


def test_missing_marks_bound_a_score_and_never_become_one() -> None:
    key = read_questionnaire("BFNE")
    marks: dict[int, float] = dict.fromkeys(range(1, 13), 3)
    del marks[1], marks[2]
    marks[3] = 9  # off the scale: missing too
    score = questionnaires.score_marks(key, marks)["overall"]
    assert (score.value, score.low, score.high, score.missing) == (None, 27 + 3, 27 + 15, 3)
    assert questionnaires.score_marks(read_questionnaire("DASS-21"), {})["stress"].high == 42


def test_items_come_from_the_users_copy_and_only_panas_ships_its_words(tmp_path: Path) -> None:
    for name in questionnaires.questionnaire_names():
        key = read_questionnaire(name)
        assert bool(key.texts) == (name == "PANAS")
        copied = read_questionnaire(name, copy=write_copy(tmp_path / "copy.json", key))
        assert copied.texts[key.items - 1] == f"Item {key.items}."
        assert copied.digest != key.digest
    assert all(re.fullmatch("[a-z]+", word) for word in read_questionnaire("PANAS").texts)


def test_names_are_found_however_written() -> None:
    names = [read_questionnaire(name).name for name in ("bdi", "fss", "dass21")]
    assert names == ["BDI-II", "FSS-III", "DASS-21"]
    with pytest.raises(UserError, match="unknown questionnaire 'XYZ'; known: PANAS, AGQ"):
        read_questionnaire("XYZ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nonsense", "not JSON"),
        ("{}", "expected a list of questionnaires"),
        ("[]", "no questionnaire with the name 'AGQ'"),
        (json.dumps([{"name": "AGQ", "questions": {"1": "x"}}]), "questions: expected 29"),
        ("reverse: expected", r"reverse: expected \[7, 18\]"),
    ],
)
def test_another_kind_of_copy_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "questionnaires.json"
    if content == "reverse: expected":
        write_copy(path, read_questionnaire("AGQ"), reverse=[1])
    else:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=said):
        read_questionnaire("AGQ", copy=path)
    with pytest.raises(UserError, match="no such file"):
        read_questionnaire("AGQ", copy=tmp_path / "none.json")


def test_keys_are_those_of_the_benchmark() -> None:
    path = dataset("emotionbench/questionnaires.json")
    entries = {entry["name"]: entry for entry in json.loads(path.read_text(encoding="utf-8"))}
    for name in questionnaires.questionnaire_names():
        key = read_questionnaire(name, copy=path)
        entry = entries[next(called for called in (name, *key.aliases) if called in entries)]
        assert key.low + key.high == entry["scale"]
        assert {"sum": "SUM", "double": "SUM*2"}[key.score] == entry["compute_mode"]
        theirs = [sorted(part["cat_questions"]) for part in entry["categories"]]
        assert sorted(map(list, key.scales.values())) == sorted(theirs)
        if name == "PANAS":
            assert [text.casefold() for text in key.texts] == list(read_questionnaire(name).texts)


# --- situations


def test_there_are_three_situations_of_ours_for_each_factor_and_one_that_goes_well() -> None:
    assert len(FACTOR_NAMES) == 36
    assert Counter(item.factor for item in read_situations()) == dict.fromkeys(FACTOR_NAMES, 3)
    assert Counter(item.factor for item in read_situations(POSITIVE)) == dict.fromkeys(FACTOR_NAMES, 1)
    texts = [item.text for path in (OURS, POSITIVE) for item in read_situations(path)]
    assert len(set(texts)) == 144
    assert all(1 <= len(re.findall(r"[.?!](?:\s|$)", text)) <= 3 and len(text) < 400 for text in texts)


def test_ours_are_not_the_benchmarks() -> None:
    def runs(text: str) -> set[tuple[str, ...]]:
        found = re.findall(r"[a-z']+", text.casefold())
        return {tuple(found[start : start + 6]) for start in range(len(found) - 5)}

    theirs = set().union(
        *(runs(item.text) for item in read_situations(dataset("emotionbench/situations.json")))
    )
    assert not [
        item.id for path in (OURS, POSITIVE) for item in read_situations(path) if runs(item.text) & theirs
    ]


def test_the_benchmarks_files_give_the_same_situations() -> None:
    first = read_situations(dataset("emotionbench/situations.json"))
    second = read_situations(dataset("emotionbench/situations/situations.csv"))
    assert len(first) == len(second) == 428
    assert len({item.text for item in first}) == 425
    assert Counter(item.factor for item in first) == Counter(item.factor for item in second)


def test_every_shape_of_situations_is_read(tmp_path: Path) -> None:
    table = tmp_path / "situations.csv"
    with table.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(
            [["Anger-0", "Jealousy-2"], ["one", "two"], ["You wait.", ""], ["You go.", "nan"]]
        )
    assert [item.id for item in read_situations(table)] == ["Anger-0/scenario-0", "Anger-0/scenario-1"]
    nested = tmp_path / "situations.json"
    factor = {"name": "Material Possession", "scenarios": ["You want it."]}
    nested.write_text(json.dumps({"emotions": [{"name": "Jealous", "factors": [factor]}]}), encoding="utf-8")
    assert [item.factor for item in read_situations(nested)] == ["Jealousy-2"]
    flat = tmp_path / "situations.jsonl"
    row = {"situation_id": "anger-0/scenario-0", "emotion": "anger", "factor": "Driving", "text": "You stop."}
    flat.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert read_situations(flat) == (
        situations.EvokingSituation(id="Anger-0/scenario-0", factor="Anger-0", text="You stop."),
    )


@pytest.mark.parametrize(
    ("read", "name", "content", "said"),
    [
        (read_situations, "a.csv", "Anger\n", "expected an emotion and a number"),
        (read_situations, "a.csv", "", "no situations"),
        (read_situations, "a.json", "[]", "not the situations of the benchmark"),
        (read_situations, "a.json", "{", "not the situations of the benchmark"),
        (read_situations, "a.jsonl", '{"text": "x"}\n', "a.jsonl:1: a situation has"),
        (read_situations, "a.jsonl", '{"id": "Anger-0/1", "text": "x"}\n' * 2, "is a duplicate"),
        (read_situations, "a.txt", "x", "unknown file type"),
        (import_results, "results.csv", "General_test-0_order-0\n", "the file name must have"),
        (import_results, "m-PANAS-testing.csv", "a,b\n1,2\n", "no columns such as"),
        (import_results, "m-PANAS-testing.csv", "", "no columns such as"),
        (import_results, "crowd.xlsx", "no workbook", "not an Excel file"),
        (import_results, "a.txt", "", "unknown file type"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path, read: Callable[[Path], object], name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=said):
        read(tmp_path / name)
    with pytest.raises(UserError, match="no such file"):
        read(tmp_path / "none.csv")


def test_situations_are_chosen_by_emotion_and_number() -> None:
    chosen = situations.choose_situations(read_situations(), emotions=("jealous",), per_factor=2)
    assert [item.id for item in chosen[:3]] == ["Jealousy-0/own-0", "Jealousy-0/own-1", "Jealousy-1/own-0"]
    assert len(chosen) == 8
    with pytest.raises(UserError, match="no situations for 'Joy'"):
        situations.choose_situations(read_situations(), emotions=("Joy",))

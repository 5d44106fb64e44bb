"""Ratings meet judgments, ours or another tool's, and whatever does not meet is counted or refused."""

from pathlib import Path
from typing import Any

import pytest
from rows import write_csv

from empathy_judge.calibration.pairing import pair
from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import parse_scale, read_recorded
from empathy_judge.data.records import Exchange, Judgment, Rating, judgment_of, unscored
from empathy_judge.data.tables import read_judgments, write_rows

FIVE = parse_scale("1-5")


def exchange(number: int, model: str = "ada") -> Exchange:
    return Exchange(id=f"{number}/{model}", prompt=f"prompt {number}", response="oh", model=model)


def judged(number: int, good: float, model: str = "ada") -> Judgment:
    return judgment_of(exchange(number, model), {"Bad": 0.1, "Okay": 0.9 - good, "Good": good})


def rated(identity: str, rating: float, rater: str = "ann", **more: Any) -> Rating:
    return Rating(id=identity, rater=rater, rating=rating, **more)


def test_a_run_and_its_ratings_meet(tmp_path: Path) -> None:
    """Through the files: what `score` writes is what is paired."""
    judgments = [judged(1, 0.8), judged(2, 0.2), judged(1, 0.5, "bea"), unscored(exchange(3), "refused: no")]
    write_rows(tmp_path / "judgments.jsonl", [*judgments, judged(9, 0.5)])
    ratings = [
        rated("1/ada", 3, batch="b1"),
        rated("1/ada", 2, "bob"),
        rated("2/ada", 1),
        rated("1/bea", 2, "bob"),
        rated("3/ada", 1),
        rated("nowhere", 1),
        rated("2/ada", 1, dimension="fluency"),
    ]
    paired = pair(read_judgments(tmp_path / "judgments.jsonl"), ratings)
    assert paired.id.tolist() == ["1/ada", "1/ada", "2/ada", "1/bea"]
    assert paired.model.tolist() == ["ada", "ada", "ada", "bea"]
    assert paired.batch.tolist() == ["b1", "bob", "ann", "bob"], "without a batch, the rater's"
    assert (paired.rating.tolist(), paired.label.tolist()) == ([3, 2, 1, 2], [3, 3, 2, 2])
    assert paired.score == pytest.approx([2.7, 2.7, 2.1, 2.4])
    assert paired.probabilities[:, 2] == pytest.approx([0.8, 0.8, 0.2, 0.5])
    assert paired.prompt[0] == paired.prompt[3] != paired.prompt[2]
    assert (paired.unscored, paired.unjudged, paired.unrated) == ({"refused": 1}, 1, 1)


@pytest.mark.parametrize(
    ("ratings", "said"),
    [
        ([rated("1/ada", 3), rated("1/ada", 2)], r"more than one by 'ann on 1/ada'; keep only one"),
        ([rated("1/ada", 4)], "rating 4 of '1/ada' is not on the scale from 1 to 3"),
        ([rated("1/ada", 2.5)], "rating 2.5 of '1/ada' is between two levels"),
        ([rated("1/ada", 2, "")], "has no rater"),
        ([rated("x", 2)], "ids of ratings and judgments differ"),
        ([rated("1/ada", 2, dimension="tone")], "none of the dimension 'empathy'"),
    ],
)
def test_mistakes_are_refused_by_name(ratings: list[Rating], said: str) -> None:
    with pytest.raises(UserError, match=said):
        pair([judged(1, 0.8)], ratings)


def test_judgments_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(UserError, match="'1/ada' scored more than once"):
        pair([judged(1, 0.8), judged(1, 0.7)], [rated("1/ada", 3)])
    with pytest.raises(UserError, match="label 'Good' is not one of 1, 2, 3, 4, 5"):
        pair([judged(1, 0.8)], [rated("1/ada", 3)], scale=FIVE)


def test_another_tool_s_table_on_another_scale(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": "a", "model": "m1", "score": "4.5", "prompt": "p"},
        {"id": "b", "model": "m2", "score": "2", "prompt": "p"},
        {"id": "c", "model": "m1", "score": "7", "prompt": "q"},
        {"id": "d", "model": "m1", "score": "", "prompt": "q"},
    ]
    path = write_csv(tmp_path / "tool.csv", rows)
    ratings = [rated(name, value) for name, value in (("a", 5), ("b", 1), ("c", 3), ("d", 3))]
    paired = pair(read_recorded(path, scale=FIVE), ratings, scale=FIVE)
    assert (paired.score.tolist(), paired.probabilities) == ([4.5, 2.0], None)
    assert paired.label.tolist() == [4, 2], "a half goes to the even level"
    assert paired.unscored == {"no score given": 1, "off the scale": 1}
    assert paired.prompt[0] == paired.prompt[1]


def test_a_table_of_labels_and_probabilities(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": "a", "label": "good", "Bad": "0.1", "Okay": "0.2", "Good": "0.71", "rater": "tool"},
        {"id": "b", "label": "", "Bad": "0.6", "Okay": "0.4", "Good": "0", "rater": "tool"},
        {"id": "a", "label": "Bad", "Bad": "1", "Okay": "0", "Good": "0", "rater": "other"},
    ]
    path = write_csv(tmp_path / "tool.csv", rows)
    paired = pair(read_recorded(path, judge="tool"), [rated("a", 3), rated("b", 1)])
    assert paired.label.tolist() == [3, 1]
    assert paired.score == pytest.approx([3.0, 1.4])
    assert paired.probabilities.sum(axis=1) == pytest.approx([1, 1])
    with pytest.raises(UserError, match=r"tool.csv:4: judge: more than one \(other, tool\)"):
        list(read_recorded(path))


@pytest.mark.parametrize(
    ("columns", "lines", "said"),
    [
        ("id,grade", ["a,3"], ": no row has a judgment; expected a column score, rating, label, or"),
        ("id,score", ["a,1", "a,2"], ":3: id: 'a' is already at line 2"),
        ("id,score", [",1"], ":2: id: missing or empty"),
        ("id,Bad,Okay", ["a,0.5,0.5"], ":2: Good: missing, although Bad is present"),
        ("id,Bad,Okay,Good", ["a,x,0.5,0"], ":2: Bad: expected a probability from 0 to 1, not 'x'"),
        ("id,Bad,Okay,Good", ["a,-1,1,1"], ":2: Bad: expected a probability from 0 to 1"),
        ("id,Bad,Okay,Good", ["a,0.5,0.1,0.1"], ":2: Bad: the row's probabilities sum to"),
    ],
)
def test_a_bad_row_names_file_line_and_field(
    tmp_path: Path, columns: str, lines: list[str], said: str
) -> None:
    (tmp_path / "tool.csv").write_text("\n".join([columns, *lines, ""]))
    with pytest.raises(UserError, match=f"tool.csv{said}"):
        list(read_recorded(tmp_path / "tool.csv"))


def test_a_language_model_among_the_raters_can_be_the_judge(tmp_path: Path) -> None:
    given = ["1 m1 human 5", "1 m1 gpt 4", "1 m2 human 2", "1 m2 gpt 3", "2 m1 gpt 1"]
    ratings = [
        rated(f"{context}/{model}", int(value), who, extra={"model": model})
        for context, model, who, value in map(str.split, given)
    ]
    other = rated("1/m1", 1, "gpt", extra={"model": "m1"}, dimension="fluency")
    write_rows(tmp_path / "ratings.jsonl", [*ratings, other])
    paired = pair(
        read_recorded(tmp_path / "ratings.jsonl", judge="gpt", scale=FIVE),
        [rating for rating in ratings if rating.rater == "human"],
        scale=FIVE,
    )
    assert paired.model.tolist() == ["m1", "m2"]
    assert (paired.rating.tolist(), paired.label.tolist()) == ([5, 2], [4, 3])
    assert paired.prompt[0] == paired.prompt[1] and paired.unrated == 1
    with pytest.raises(UserError, match="no row of 'empathy' by 'claude'; found: gpt, human"):
        list(read_recorded(tmp_path / "ratings.jsonl", judge="claude", scale=FIVE))

"""The command `train` through the real door: trials, a judge made of them, and scoring with it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from repository import ROOT

import cli
from data.records import Exchange, Rating
from data.tables import write_rows
from judge.base import load_judge
from judge.classifier.judge import ClassifierJudge

Train = Callable[..., Result]
Trials = dict[str, tuple[Path, Result]]
SAMPLES = ROOT / "data" / "samples" / "responses.jsonl"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(item) for item in arguments], terminal_width=80)


@pytest.mark.parametrize("protocol", ["raters-apart", "model-apart"])
def test_a_protocol_prints_and_keeps_every_figure(trials: Trials, protocol: str) -> None:
    folder, done = trials[protocol]
    assert done.exit_code == 0, done.output
    for word in ("QWK", "AUC Good", "majority", "TF-IDF", "arm oracle", "crowd's Good", "bea/2"):
        assert word in done.stdout
    parts = 5 if protocol == "raters-apart" else 3
    assert [line for line in done.stderr.splitlines() if "step" not in line] == [
        f"training {name} ({number} of {parts})"
        for number, name in enumerate(
            [f"fold-{n}" for n in range(5)] if parts == 5 else ["ada", "bea/2", "cyd"], start=1
        )
    ]
    evaluation = json.loads((folder / "evaluation.json").read_text())
    found = evaluation["evaluations"]
    assert found["judge"]["responses"] == 120
    assert found["judge"]["per_response"]["auc_good"]["value"] > 0.85
    assert (
        found["judge"]["per_response"]["auc_good"]["value"]
        > found["majority"]["per_response"]["auc_good"]["value"]
    )


def test_a_trial_given_again_trains_nothing(train: Train, trials: Trials) -> None:
    folder, first = trials["model-apart"]
    again = train("--protocol", "model-apart", "--out", folder)
    assert (again.exit_code, again.stdout, again.stderr) == (0, first.stdout, "")
    as_json = train("--protocol", "model-apart", "--out", folder, "--json")
    assert json.loads(as_json.stdout) == json.loads((folder / "evaluation.json").read_text())


def test_a_judge_is_made_with_its_card(made_judge: tuple[Path, Result]) -> None:
    folder, done = made_judge
    assert done.exit_code == 0, done.output
    card = json.loads((folder / "card.json").read_text())
    assert list(card["evidence"]) == ["raters-apart", "model-apart"]
    assert card["caveat"].startswith("On a model it has not met, this judge's Good share was off by ")
    assert "(3 models left out; guessing: " in card["caveat"]
    assert card["trained_on"]["ratings"] == 120
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert done.stdout.strip() == text.strip()
    assert card["caveat"] in text
    assert all("step" in line for line in done.stderr.splitlines()), "no noise from what we build on"


def test_a_made_judge_scores(
    tmp_path: Path, made_judge: tuple[Path, Result], rated_files: tuple[Path, Path]
) -> None:
    folder, _ = made_judge
    Path("my.toml").write_text(f'kind = "classifier"\nweights = "{folder}"\n')
    done = run("score", rated_files[0], "--judge", "my.toml", "--json", "--out", "run")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["caveats"][1] == json.loads((folder / "card.json").read_text())["caveat"]
    assert summary["counts"] == {"judged": 120, "unscored": 0, "set_aside": 0}
    judged = [json.loads(line) for line in Path("run/judgments.jsonl").read_text().splitlines()]
    exchanges = [json.loads(line) for line in rated_files[0].read_text().splitlines()]
    warm = [
        row["label"] for row, exchange in zip(judged, exchanges, strict=True) if "hug" in exchange["response"]
    ]
    assert warm.count("Good") > 0.9 * len(warm)


def test_the_default_judge_prints_its_caveat() -> None:
    done = run("score", SAMPLES, "--limit", 6)
    assert done.exit_code == 0, done.output
    assert "On a model it has not met, this judge's Good share was off by" in done.stdout
    assert done.stderr == ""


def test_without_evidence_the_caveat_says_so() -> None:
    from judge.classifier.make import state_caveat

    assert state_caveat({}) == "How far this judge is off on a model it has not met was not measured."


def refused(done: Result, said: str) -> None:
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert done.stdout == ""


def test_what_cannot_be_trained_ends_with_a_word(
    tmp_path: Path,
    train: Train,
    rated_files: tuple[Path, Path],
    made_judge: tuple[Path, Result],
    trials: Trials,
    tiny_toml: Path,
) -> None:
    exchanges, ratings = rated_files
    out = ("--out", tmp_path / "out")
    other = tmp_path / "other.toml"
    other.write_text(
        tiny_toml.read_text(encoding="utf-8").replace("epochs = 5", "epochs = 6"), encoding="utf-8"
    )
    refused(
        run("train", exchanges, ratings, *out, "--recipe", other, "--evidence", trials["model-apart"][0]),
        "tried another recipe, so its figures are not this judge's",
    )
    refused(
        run("train", exchanges, ratings, *out, "--recipe", "none"), "unknown recipe 'none'; known: default"
    )
    refused(run("train", exchanges, "none.jsonl", *out, "--recipe", "default"), "none.jsonl: no such file")
    refused(train(*out, "--evidence", tmp_path / "none"), "none: no finished trial here; make one with train")
    refused(train(*out, "--evidence", tmp_path), "no finished trial here")
    refused(train(*out, "--seed", 1, "--evidence", trials["model-apart"][0]), "tried another recipe")
    refused(train(*out, "--base", "none"), "unknown base 'none'; known: minilm, smollm2")
    refused(train(*out, "--device", "abacus"), "--device: no 'abacus' here; use cpu")
    refused(train(*out, "--texts", "none.jsonl"), "has no teacher to label them")
    refused(train("--out", trials["model-apart"][0]), "holds a judge of another recipe or other ratings")
    refused(
        train("--protocol", "model-apart", "--out", trials["raters-apart"][0]),
        "holds a trial with another protocol; give another --out",
    )
    refused(train("--protocol", "model-apart", "--out", made_judge[0]), "holds something else than a trial")
    assert not (tmp_path / "out").exists(), "nothing is begun that cannot be finished"


def test_ratings_that_cannot_be_used_are_named(tmp_path: Path, tiny_toml: Path) -> None:
    rows = {
        "none": ([Rating(id="z", rater="r", rating=1)], "no rating belongs to an exchange"),
        "high": ([Rating(id="a", rater="r", rating=7)], "rating 7 of 'a' is not on the scale from 1 to 3"),
    }
    write_rows(tmp_path / "e.jsonl", [Exchange(id="a", prompt="p", response="r")])
    for name, (ratings, said) in rows.items():
        write_rows(tmp_path / f"{name}.jsonl", ratings)
        refused(run("train", "e.jsonl", f"{name}.jsonl", "--recipe", tiny_toml, "--out", "out"), said)


def test_without_torch_training_says_what_to_install(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    refused(
        train("--out", tmp_path / "out"), "training needs torch: install the extra packages named `train`"
    )


def test_a_judge_file_finds_its_weights(tmp_path: Path, made_judge: tuple[Path, Result]) -> None:
    folder, _ = made_judge
    (tmp_path / "mine.toml").write_text(f"kind = 'classifier'\nweights = '{folder}'\n")
    judge = load_judge(str(tmp_path / "mine.toml"))
    assert judge.version == ClassifierJudge(weights=str(folder)).version
    assert judge.version != ClassifierJudge().version
    assert judge.concurrency >= 1

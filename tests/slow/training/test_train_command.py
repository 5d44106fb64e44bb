"""The command `train` through the real door: trials, a judge made of them, and scoring with it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from repository import ROOT

import cli
from data.records import Exchange, Rating
from data.tables import write_rows
from judge.base import load_judge
from judge.classifier.judge import ClassifierJudge
from training.recipe import Recipe

Train = Callable[..., Result]
Trials = dict[str, tuple[Path, Result]]
SAMPLES = ROOT / "data" / "samples" / "responses.jsonl"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(item) for item in arguments], terminal_width=80)


def told(done: Result) -> list[str]:
    """What the command said beside its results, but for progress, of which a slow machine prints more."""
    return [line for line in done.stderr.splitlines() if "network" not in line]


@pytest.mark.parametrize("protocol", ["raters-apart", "model-apart"])
def test_a_protocol_prints_and_keeps_every_figure(trials: Trials, protocol: str) -> None:
    folder, done = trials[protocol]
    assert done.exit_code == 0, done.output
    for word in ("QWK", "AUC Good", "majority", "TF-IDF", "arm oracle", "crowd's Good", "bea/2"):
        assert word in done.stdout
    parts = 5 if protocol == "raters-apart" else 3
    assert [line for line in told(done) if not line.startswith("Next, ")] == [
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
    assert (again.exit_code, again.stdout, told(again)) == (0, first.stdout, told(first)[-1:])
    as_json = train("--protocol", "model-apart", "--out", folder, "--json")
    assert json.loads(as_json.stdout) == json.loads((folder / "evaluation.json").read_text())


@pytest.fixture(scope="module")
def sets_apart(
    tmp_path_factory: pytest.TempPathFactory,
    train: Train,
    write_recipe: Callable[[Recipe], Path],
    taught_recipe: Recipe,
    sets_folder: Path,
) -> tuple[list[object], Path, Result]:
    """The options of a trial with a teacher and other sets, its folder, and what the command said."""
    folder = tmp_path_factory.mktemp("sets-apart") / "trial"
    options = ["--recipe", write_recipe(taught_recipe), "--sets", sets_folder]
    return options, folder, train(*options, "--protocol", "sets-apart", "--out", folder)


def test_with_sets_apart_each_set_is_judged_by_who_never_met_it(
    train: Train, sets_apart: tuple[list[object], Path, Result]
) -> None:
    options, folder, done = sets_apart
    assert done.exit_code == 0, done.output
    names = ["epitome", "ieval", "study"]
    *begun, last = told(done)
    assert begun == [f"training {name} ({number} of 3)" for number, name in enumerate(names, start=1)]
    given = " ".join(map(str, options))
    assert last.startswith("Next, to make the judge: ") and f" {given} --evidence {folder} --out " in last
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert [line.split()[:2] for line in done.stdout.splitlines() if line.startswith(tuple(names))] == [
        ["epitome", "60"],
        ["ieval", "48"],
        ["study", "120"],
    ]
    for place in (folder, folder / "teacher"):  # the planted word is the same in all of them
        for row in json.loads((place / "evaluation.json").read_text())["sets"]:
            judge, length = row["parties"]["judge"], row["parties"]["length"]
            # Of iEval .6 is the most: half of its workers rate two points lower, and nobody knows which.
            assert judge["spearman"]["value"] > 0.4, (place, row["set"])
            assert length["spearman"]["value"] is None, "every reply has five words"
    again = train(*options, "--protocol", "sets-apart", "--out", folder)
    assert (again.exit_code, again.stdout, told(again)) == (0, done.stdout, [last])


def test_a_recipe_of_sets_alone_is_asked_about_those_with_no_weight(
    tmp_path: Path,
    write_recipe: Callable[[Recipe], Path],
    tiny_recipe: Recipe,
    sets_folder: Path,
    rated_files: tuple[Path, Path],
) -> None:
    # As `open.toml` does: no situation is read, not all layers of the base are, and some set is not at hand.
    sets = {"ieval": 1.0, "epitome": 0.0, "dstc9": 0.0}
    recipe = replace(tiny_recipe, layers=1, drop_context=1.0, sets=sets, sharpness=0.0)
    options = ("--recipe", write_recipe(recipe), "--sets", sets_folder)
    done = run("train", *options, "--protocol", "sets-apart", "--out", tmp_path / "trial")
    assert done.exit_code == 0, done.output
    (row,) = json.loads((tmp_path / "trial" / "evaluation.json").read_text())["sets"]
    assert (row["set"], row["items"]) == ("epitome", 60)
    assert row["parties"]["judge"]["spearman"]["value"] > 0.4, "the planted word is the same in both"
    made = run("train", *options, "--evidence", tmp_path / "trial", "--out", tmp_path / "judge")
    assert made.exit_code == 0, made.output
    assert "no label of people" in (tmp_path / "judge" / "README.md").read_text()
    (tmp_path / "mine.toml").write_text(f"kind = 'classifier'\nweights = '{tmp_path / 'judge'}'\n")
    assert run("score", SAMPLES, "--judge", "mine.toml", "--limit", "4").exit_code == 0
    refused(run("train", "--recipe", "own.toml", "--out", "o"), "unknown recipe")
    refused(run("train", "--recipe", write_recipe(tiny_recipe), "--out", "o"), "EXCHANGES and RATINGS")


def test_a_card_says_first_how_the_judge_did_on_sets_it_never_met(
    tmp_path: Path, train: Train, sets_apart: tuple[list[object], Path, Result]
) -> None:
    options, folder, _ = sets_apart
    done = train(*options, "--evidence", folder, "--out", tmp_path / "judge")
    assert done.exit_code == 0, done.output
    card = json.loads((tmp_path / "judge" / "card.json").read_text())
    assert list(card["evidence"]) == ["sets-apart"]
    assert {name: about["items"] for name, about in card["trained_on"]["sets"].items()} == {
        "epitome": 60,
        "ieval": 48,
    }
    sections = [line for line in done.stdout.splitlines() if line.startswith(("## ", "**Also"))]
    assert sections[:2] == [
        "**Also trained on** epitome (research use only), ieval (CC BY).",
        "## sets-apart",
    ]
    assert "| ieval | 48 | " in done.stdout
    assert (tmp_path / "judge" / "teacher" / "network-0.safetensors").exists(), "a judge of its own"


def test_sets_that_a_recipe_needs_or_does_not_are_asked_for_by_name(
    tmp_path: Path, train: Train, sets_apart: tuple[list[object], Path, Result], sets_folder: Path
) -> None:
    recipe, out = sets_apart[0][1], ("--out", tmp_path / "out")
    asked = train("--recipe", recipe, *out)
    refused(asked, f"--sets: the recipe '{recipe}' learns from epitome, ieval; name the folder")
    refused(train("--recipe", recipe, "--sets", tmp_path, *out), "epitome")
    refused(train("--sets", sets_folder, *out), "names no other rated set")
    refused(train("--protocol", "sets-apart", *out), "nothing is left to train on beside study")


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
    assert [line.split(",")[0] for line in told(done)] == ["Next"], "no noise from what we build on"


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
    done = run("score", SAMPLES, "--limit", 6, "--verbose")
    assert done.exit_code == 0, done.output
    assert "On a model it has not met, this judge's Good share was off by" in done.stdout


def test_without_evidence_the_caveat_says_so() -> None:
    from training.make import state_caveat

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
    refused(run("train", exchanges, "none.jsonl", *out, "--recipe", tiny_toml), "none.jsonl: no such file")
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

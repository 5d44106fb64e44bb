"""A night's configuration: what may stand in it, and what is said of all else."""

import shutil
from pathlib import Path

import pytest

from empathy_judge.data.errors import UserError
from empathy_judge.data.tables import SAMPLE_PROMPTS
from empathy_judge.nightly.config import SAMPLE_ANCHORS, NightlyOutputs, check_name, read_config

MODEL = '[[models]]\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "n.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_nobody_sets_has_a_value(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, MODEL))
    assert (config.name, config.judge, config.calibration, config.baseline) == ("n", "classifier", None, None)
    assert (config.prompts, config.anchors) == (SAMPLE_PROMPTS, SAMPLE_ANCHORS)
    assert config.history == str(tmp_path / "nights.sqlite")
    assert (config.runs, config.dashboard) == (tmp_path / "nights", tmp_path / "dashboard")
    assert (config.study, config.gates, config.outputs) == (("study:human",), (), NightlyOutputs())
    (model,) = config.models
    assert model.name == "m"
    assert model.endpoint is not None


def test_everything_can_be_set_and_paths_are_beside_the_file(tmp_path: Path) -> None:
    for name, source in (("p.jsonl", SAMPLE_PROMPTS), ("a.jsonl", SAMPLE_ANCHORS)):
        shutil.copy(source, tmp_path / name)
    (tmp_path / "gpt.toml").write_text('model = "gpt"\ntemperature = 0.5\n')
    head = (
        'name = "mine"\nprompts = "p.jsonl"\nanchors = "a.jsonl"\njudge = "j.toml"\ncalibration = "c.json"\n'
        'baseline = 2026-11-15\nstudy = ["human", "study:gpt-4"]\nhistory = "postgresql+psycopg://me@db/x"\n'
        'runs = "r"\ndashboard = false\nmax_cost = 0.5\nlimit = 20\nexplain = 0\nmin_judge_drift = 2\n'
        "[gates]\ngood_share_drop = 5\n[outputs]\njunit = 'j.xml'\ngithub = true\n"
        '[[models]]\nconfig = "gpt.toml"\nname = "g"\n[[models]]\nname = "f"\nresponses = "r/{night}.csv"\n'
    )
    config = read_config(write(tmp_path, head))
    assert (config.name, config.baseline, config.min_judge_drift) == ("mine", "2026-11-15", 0.02)
    assert (config.judge, config.calibration) == (str(tmp_path / "j.toml"), str(tmp_path / "c.json"))
    assert config.history == "postgresql+psycopg://me@db/x"
    assert (config.dashboard, config.outputs.junit, config.outputs.github) == (None, tmp_path / "j.xml", True)
    assert config.study == ("study:human", "study:gpt-4")
    asked, known = config.models
    assert asked.endpoint is not None
    assert (asked.name, asked.endpoint.model, asked.endpoint.temperature) == ("g", "gpt", 0.5)
    assert known.responses == str(tmp_path / "r" / "{night}.csv")
    assert [(gate.kind, gate.subject) for gate in config.gates] == [("good_share_drop", "baseline")]


def test_the_digest_is_of_what_decides_a_night(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        return read_config(write(tmp_path, text)).digest

    same, other = digest(MODEL), 'history = "other.db"\ndashboard = "d"\nmax_cost = 1\n'
    assert digest(f"{other}{MODEL}[outputs]\ngithub = true\n") == same
    assert digest(f'judge = "length"\n{MODEL}') != same
    assert digest(f"{MODEL}[gates]\nmax_unscored = 3\n") != same


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "n.toml: models: none; add at least one table [[models]]"),
        (f"jugde = 'length'\n{MODEL}", "n.toml: jugde: unknown; known: models, name, prompts, unit"),
        (f"matters = 2\n{MODEL}", "n.toml: matters: renamed to min_judge_drift"),
        (f"{MODEL}[outputs]\njunti = 'x'", "n.toml: outputs.junti: unknown key"),
        (f"{MODEL}[gates]\ndrop = 5", "n.toml: gates: unknown gate 'drop'; known: max_drop"),
        (f"{MODEL}[gates.good_share_drop]\nyesterday = 5", "'yesterday' is not one of baseline"),
        (f"{MODEL}[gates]\ngood_share_drop = -5", "gates.good_share_drop: -5 is not a number from 0 to 100"),
        (f"{MODEL}[gates]\nbad_share_rise = true", "True is not a number"),
        (f"{MODEL}[gates]\nbad_share_rise = '3'", "'3' is not a number"),
        (f"{MODEL}[gates]\nmax_cost = nan", "nan is not a number that is not negative"),
        (f"{MODEL}[gates]\nmax_unscored = 101", "101 is not a number from 0 to 100"),
        (f"{MODEL}temprature = 1", "n.toml: models, number 1: temprature: unknown key"),
        (f"{MODEL}{MODEL}", "n.toml: models, number 2: the name 'm' is a duplicate"),
        ("[[models]]\nresponses = 'r.jsonl'", "n.toml: models, number 1: name: field required"),
        ("[[models]]\nname='a'\nresponses='r'\nmodel='b'", "n.toml: models, number 1: model: unknown key"),
        (f"limit = 0\n{MODEL}", "n.toml: limit: input should be greater than or equal to 1"),
        (f"study = ['claude']\n{MODEL}", "n.toml: study: no 'study:claude' in the study; known: study:human"),
        (f"prompts = 'none.jsonl'\n{MODEL}", "none.jsonl: no such file"),
        (f"anchors = 'none.jsonl'\n{MODEL}", "none.jsonl: no such file"),
        (f"name = 'a/b'\n{MODEL}", "n.toml: name: 'a/b' is not a valid name"),
        (f"baseline = '../x'\n{MODEL}", "n.toml: baseline: '../x' is not a valid name"),
        ("models = [", "n.toml: not TOML"),
        (f"unit = 'conversation'\n{MODEL}", "unit: conversations are read from files; give each"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_way_out(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        read_config(write(tmp_path, text))
    assert said in str(caught.value)
    with pytest.raises(UserError, match=r"none\.toml: no such file"):
        read_config(tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["", "..", "a b", "-x", "a/b", "x" * 65, "a\n"])
def test_names_that_would_harm_a_folder_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="is not a valid name"):
        check_name(name, "--night")

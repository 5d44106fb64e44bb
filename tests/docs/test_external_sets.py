"""The table of external test sets: predictions are made once for a judge, and stored without texts."""

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from made_sets import COLD, WARM, write_external_sets
from repository import SHARED, dataset

from empathy_judge.data.records import LABELS
from empathy_judge.training.held_out import measure_set, set_item
from empathy_judge.training.rated_sets import EXTERNAL_SETS, read_rated_set


class StubJudge:
    """Reads the planted signal; counts its replies, and leaves every reply to the first post unscored."""

    def __init__(self) -> None:
        self.count = 0

    def judge_many(self, exchanges):
        self.count += len(exchanges)
        return [SimpleNamespace(probabilities=self._probabilities(exchange)) for exchange in exchanges]

    def _probabilities(self, exchange) -> dict[str, float] | None:
        if exchange.prompt == "word0 rain":
            return None
        level = 2 * (WARM in exchange.response) - (COLD in exchange.response)
        return dict(zip(LABELS, (0.3 - 0.1 * level, 0.2, 0.5 + 0.1 * level), strict=True))


@pytest.fixture
def judge(fill: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubJudge:
    stub = StubJudge()
    monkeypatch.setattr(fill.external_figures, "load_judge", lambda name: stub)
    monkeypatch.setattr(fill.external_figures, "FILE", tmp_path / "external_sets.json")
    write_external_sets(tmp_path)
    return stub


def test_a_judge_scores_the_sets_once_and_no_text_is_stored(
    fill: ModuleType, judge: StubJudge, tmp_path: Path
) -> None:
    module = fill.external_figures
    assert module.external_sets() == module.NOT_MEASURED
    module.measure_external_sets(tmp_path)
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in module.external_sets().split("\n")]
    parties = ("**classifier**", "**classifier-large**", "counting words")
    expected = [["resort", "25", party] for party in (*parties, "one psychologist, by the other")]
    assert [row[:3] for row in table[2:]] == expected + [["empo", "30", party] for party in parties]
    assert float(table[2][3].split()[0]) > 0.8 and float(table[6][5].split()[0]) > 0.8
    text = module.FILE.read_text(encoding="utf-8")
    assert WARM not in text and "rain" not in text and judge.count == 120
    module.measure_external_sets(tmp_path)
    assert judge.count == 120 and module.FILE.read_text(encoding="utf-8") == text
    content = json.loads(text)  # predictions of another judge are not shown, but replaced
    other = {**content, "classifier": {**content["classifier"], "weights": "another"}}
    module.FILE.write_text(json.dumps(other), encoding="utf-8")
    assert list(module.read_stored()) == ["classifier-large"]
    module.measure_external_sets(tmp_path)
    assert judge.count == 180 and json.loads(module.FILE.read_text(encoding="utf-8")) == content


def test_stored_figures_are_those_of_the_stored_predictions(fill: ModuleType) -> None:
    dataset("external-test")
    sets = {name: read_rated_set(name, SHARED) for name in EXTERNAL_SETS}
    for stored in fill.external_figures.read_stored().values():
        assert [item["set"] for item in stored["sets"]] == list(EXTERNAL_SETS)
        for item in stored["sets"]:
            items = {each.exchanges[-1].id: each for each in sets[item["set"]]}
            predictions = stored["predictions"][item["set"]]
            measured = measure_set([set_item(items[key], row) for key, row in predictions.items()])
            assert item["parties"]["judge"]["spearman"] == measured.parties["judge"].spearman.as_dict()


def test_fresh_texts_are_scored_once_with_their_variants(
    fill: ModuleType, judge: StubJudge, tmp_path: Path
) -> None:
    out = tmp_path / "fresh.json"
    kinds = {"harmful": COLD, "excellent": WARM}
    lines = [
        {"id": f"{kind}-{n}", "kind": kind, "manner": "m", "prompt": f"post {n}", "response": f"{said} {n}"}
        for kind, said in kinds.items()
        for n in range(3)
    ]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    fill.external_figures.measure_fresh_texts(path, ["classifier"], out)
    assert judge.count == 12 and "post" not in out.read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in fill.reference_tables.fresh_texts(out).split("\n")[2:]]
    shown = {name.strip(): cell.strip().split()[0] for name, cell in rows}
    assert shown["AUC of excellent against harmful"] == "1.00" and shown["harmful labeled Good"] == "0%"

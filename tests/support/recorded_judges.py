"""What LLM judges are worth by mode, from the recorded answers of one language model to the shipped prompts.

    PYTHONPATH=. python tests/support/recorded_judges.py DATA

DATA has a folder for each source of rated replies. The model was shown the replies in random order, without
ratings, models or sources, in contexts of at most a hundred. The command writes the figures of the docs, and
`judge/llm/recorded.json`, with which the prompted judge reads labels and grades.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from repository import ROOT
from scipy.stats import rankdata
from tokenizers import Tokenizer

from empathy_judge.calibration.comparison.judged_models import JudgedModel
from empathy_judge.calibration.comparison.wide_prior import probability_higher
from empathy_judge.calibration.estimate import Floats
from empathy_judge.calibration.proportional_odds import fit_proportional_odds
from empathy_judge.calibration.shares import transport
from empathy_judge.calibration.shares.ppi import RatedModel
from empathy_judge.data.files import replacing
from empathy_judge.data.importers import import_source
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.data.rubric import read_rubric
from empathy_judge.judge.base import DEFAULT, WEIGHTS
from empathy_judge.judge.llm import recorded
from empathy_judge.judge.llm.answers import with_prior
from empathy_judge.judge.llm.judge_prompt import MODES, SIDE_BY_SIDE, make_form
from empathy_judge.judge.llm.prompt_injection import LETTERS, delimit_exchange, delimit_listeners
from empathy_judge.training.rated_sets import EXTERNAL_SETS, RECIPES, read_rated_set

ANSWERS: Final = RECIPES / "recorded_answers.json"
FIGURES: Final = ROOT / "docs" / "figures" / "recorded_judges.json"
SETS: Final = ("study", "ieval", "dstc9", "esconv", *EXTERNAL_SETS)
LABELED: Final = ("study", "ieval")  # people gave labels; answered in every mode
ALONE: Final = ("shares", "label", "analytic")  # modes that judge one model alone
DECIDE: Final = tuple(name for name in SETS if name not in EXTERNAL_SETS)
MEANS: Final = {"all": DECIDE, "labeled": LABELED}  # sets over which differences are averaged
DRAWS: Final = 2000


@dataclass(frozen=True, slots=True)
class RecordedText:
    """A rated reply or talk: the text, the rating, the label where people gave one, and its groups."""

    exchange: Exchange
    rating: float
    label: int | None
    system: str
    cluster: str


def read_set(name: str, data: Path) -> dict[str, RecordedText]:
    """Return a set's rated texts by content digest."""
    if name != "study":
        items = read_rated_set(name, data)
        rows = [RecordedText(i.exchanges[-1], i.rating, i.label, i.system, i.cluster) for i in items]
        if name == "esconv":  # accepted and failed talks are of different files
            rows = [
                RecordedText(r.exchange, r.rating, r.label, r.exchange.id.split("/")[0], r.cluster)
                for r in rows
            ]
        return {row.exchange.content_digest: row for row in rows}
    study = import_source("empathy-study", data / "empathy-study", data / "empathy-study-sixth")
    given = {rating.id: int(rating.rating) for rating in study.ratings}
    texts = [item for item in study.exchanges if item.id in given]
    return {t.content_digest: RecordedText(t, given[t.id], given[t.id], t.model, t.prompt) for t in texts}


def expected(mode: str, answer: Any) -> Floats:
    """Return the probabilities of the labels by an answer."""
    if mode == "label":
        return np.array(list(recorded.label_spread(answer).values()))
    if mode == "side-by-side":
        return np.array(list(recorded.grade_probabilities(answer).values()))
    return np.array(list(with_prior(dict(zip(LABELS, answer, strict=True))).values()))


def fit(
    answers: Mapping[str, Mapping[str, Any]], sets: Mapping[str, Mapping[str, RecordedText]]
) -> dict[str, Any]:
    """Fit the ratings behind a label, and the cuts of grades, on the sets with people's labels."""
    labels: dict[str, list[float]] = {}
    for position, label in enumerate(LABELS):
        rated = [
            sets[name][digest].label
            for name in LABELED
            for digest, said in answers["label"][name].items()
            if said == label
        ]
        counts = np.bincount(np.array(rated), minlength=4)[1:]
        weights = np.array(list(with_prior(dict(zip(LABELS, counts, strict=True))).values()))
        # The label stays the likeliest one, and Good above `GOOD_ABOVE`.
        least = 0.56 if label == LABELS[-1] else 0.45
        if weights[position] < least:
            others = 1 - weights[position]
            weights = np.where(np.arange(3) == position, least, weights * (1 - least) / others)
        labels[label] = [round(float(weight), 4) for weight in weights]
    grades = [
        (grade, sets[name][digest].label)
        for name in LABELED
        for digest, grade in answers["side-by-side"][name].items()
    ]
    odds = fit_proportional_odds(*map(np.array, zip(*grades, strict=True)))
    cuts = [round(cut, 4) for cut in odds.cuts]
    return {
        "labels": labels,
        "grades": {"slope": round(odds.slope, 5), "middle": round(odds.middle, 2), "cuts": cuts},
    }


@dataclass(frozen=True)
class RecordedSet:
    """The texts of a set with a mode's answers, as columns."""

    score: Floats  # expected rating, 1 to 3
    good: Floats
    rating: Floats
    label: Floats  # nan without one
    system: NDArray[np.str_]
    cluster: NDArray[np.str_]
    part: NDArray[np.str_]  # rank correlations are taken within

    def agreement(self, taken: NDArray[np.intp]) -> float:
        """Return the rank correlation with single ratings, the mean over the parts."""
        found = []
        for part in np.unique(self.part):
            rows = taken[self.part[taken] == part]
            ranks = np.vstack([rankdata(self.score[rows]), rankdata(self.rating[rows])])
            found.append(np.corrcoef(ranks)[0, 1] if ranks.std(axis=1).all() else np.nan)
        return float(np.nanmean(found))

    def means(self, values: Floats) -> Floats:
        """Return the mean of every system."""
        return np.array([values[self.system == name].mean() for name in np.unique(self.system)])


def join(name: str, mode: str, answers: Mapping[str, Any], rated: Mapping[str, RecordedText]) -> RecordedSet:
    """Return the answers of a mode beside the ratings, in the order of the digests."""
    rows = [rated[digest] for digest in sorted(answers)]
    given = np.array([expected(mode, answers[digest]) for digest in sorted(answers)])
    system = np.array([row.system for row in rows])
    return RecordedSet(
        score=given @ np.arange(1, 4),
        good=given[:, 2],
        rating=np.array([row.rating for row in rows], dtype=float),
        label=np.array([np.nan if row.label is None else row.label for row in rows], dtype=float),
        system=system,
        cluster=np.array([row.cluster for row in rows]),
        part=system if name == "esconv" else np.array([""] * len(rows)),
    )


def draw_clusters(judged: RecordedSet, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """Return draws of whole clusters, as rows."""
    names, codes = np.unique(judged.cluster, return_inverse=True)
    members = [np.flatnonzero(codes == code) for code in range(len(names))]
    drawn = rng.integers(len(names), size=(DRAWS, len(names)))
    return [np.concatenate([members[code] for code in each]) for each in drawn]


def compare_modes(judged: Mapping[str, Mapping[str, RecordedSet]]) -> dict[str, Any]:
    """Return each mode's agreement by set, and its paired differences from the other modes."""
    rows, differences = [], dict[tuple[str, str], Floats]()
    for name in SETS:
        modes = {mode: by_set[name] for mode, by_set in judged.items() if name in by_set}
        one = next(iter(modes.values()))
        # The first is every row once, the others are draws.
        draws = [np.arange(len(one.rating)), *draw_clusters(one, np.random.default_rng(46))]
        found = {mode: np.array([each.agreement(taken) for taken in draws]) for mode, each in modes.items()}
        for mode, each in modes.items():
            others = [found[other] for other in ALONE if other != mode and other in found]
            differences[mode, name] = found[mode] - np.mean(others, axis=0)
            models, people = each.means(each.score), each.means(each.rating)
            rows.append(
                {
                    "set": name,
                    "mode": mode,
                    "texts": len(one.rating),
                    "agreement": _estimate(found[mode]),
                    "good": round(float(each.good.mean()), 4),
                    "people_good": _rounded(np.mean(each.label == 3) if name in LABELED else np.nan),
                    "order": _rounded(np.corrcoef(models, people)[0, 1] if len(models) > 2 else np.nan),
                    "deviation": _rounded(deviation(each) if len(models) > 2 else np.nan),
                }
            )
    means = {
        mode: {
            name: _estimate(np.mean([differences[mode, each] for each in sets], axis=0))
            for name, sets in MEANS.items()
            if all((mode, each) in differences for each in sets)
        }
        for mode in judged
    }
    return {"modes": rows, "means": means}


def deviation(judged: RecordedSet) -> float:
    """Return the SD of models' mean scores around the line on people's means, in SDs of a model's replies.

    What the choice of replies and of raters explains is subtracted.
    """
    names = np.unique(judged.system)
    counts = np.array([(judged.system == name).sum() for name in names])
    within = np.sqrt(np.mean([judged.score[judged.system == name].var(ddof=1) for name in names]))
    scores, people = judged.means(judged.score) / within, judged.means(judged.rating)
    slope, base = np.polyfit(people, scores, 1)
    residual = ((scores - slope * people - base) ** 2).sum() / (len(names) - 2)
    rating = np.mean([judged.rating[judged.system == name].var(ddof=1) for name in names])
    noise = np.mean(1 / counts) + slope**2 * np.mean(rating / counts)
    return float(np.sqrt(max(0.0, residual - noise)))


def published_judges(data: Path) -> dict[str, RecordedSet]:
    """Return the published scores of four language models beside an expert's, by the model's name."""
    given: dict[str, dict[str, Any]] = {}
    for item in import_source("mental-align", data / "mental-align").ratings:
        if item.dimension == "empathy":
            given.setdefault(item.rater, {})[item.id] = item
    people = given.pop("human")
    sets = {}
    for judge, scores in given.items():
        both = [identity for identity in scores if identity in people]
        score, rating = (np.array([each[key].rating for key in both]) for each in (scores, people))
        system = np.array([people[key].extra["model"] for key in both])
        none = np.array([""] * len(both))
        sets[judge] = RecordedSet(score, score, rating, score, system, none, none)
    return sets


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def _estimate(draws: Floats) -> dict[str, Any]:
    """Return the first value with the middle 95% of the others."""
    low, high = np.nanquantile(draws[1:], [0.025, 0.975])
    return {"value": _rounded(draws[0]), "low": _rounded(low), "high": _rounded(high)}


def measure(data: Path) -> dict[str, Any]:
    """Fit the readings of labels and grades, and return all figures."""
    record = json.loads(ANSWERS.read_text(encoding="utf-8"))
    answers, sets = record["answers"], {name: read_set(name, data) for name in SETS}
    with replacing(recorded.FITTED) as partial:
        partial.write_text(json.dumps(fit(answers, sets), indent=2) + "\n", encoding="ascii")
    recorded.read_fitted.cache_clear()
    judged = {
        mode: {name: join(name, mode, given, sets[name]) for name, given in by_set.items() if name in SETS}
        for mode, by_set in answers.items()
    }
    compared = compare_modes(judged)
    published = {name: deviation(each) for name, each in published_judges(data).items()}
    by_source = {
        **{name: [row["deviation"] for row in compared["modes"] if row["set"] == name] for name in DECIDE},
        "mental-align": [*published.values()],
    }
    squares = [np.mean(np.square(found)) for found in by_source.values() if None not in found]
    # A variance estimated from so many sources gives Student's t with so many degrees of freedom.
    scale, freedom = round(float(np.sqrt(np.mean(squares))), 2), len(squares)
    with replacing(transport.RECORDED) as partial:
        partial.write_text(json.dumps({"deviation": scale, "freedom": freedom}) + "\n", encoding="ascii")
    return {
        **compared,
        "published": {name: _rounded(found) for name, found in published.items()},
        "prior": {"deviation": scale, "freedom": freedom},
        "first_day": {mode: first_day(judged[mode]["study"]) for mode in ALONE},
        "tokens": count_tokens(record, sets),
    }


def first_day(judged: RecordedSet) -> list[float]:
    """Return the probabilities of pairs of the study's language models by an uncalibrated judge."""
    names = [name for name in np.unique(judged.system) if name != "human"]
    none: Any = {"item": np.zeros(0, dtype=np.intp), "value": np.zeros((0, 3)), "cluster": np.zeros(0)}
    models = []
    for name in names:
        rows = judged.system == name
        # The probabilities that have this expected rating and no Okay: only the score counts.
        good = (judged.score[rows] - 1) / 2
        shares = np.column_stack([1 - good, 0 * good, good])
        models.append(
            JudgedModel(name=name, rated=RatedModel(judged=shares, prompt=judged.cluster[rows], **none))
        )
    return [round(probability_higher(*pair, correlation=0.0), 4) for pair in combinations(models, 2)]


def count_tokens(record: Mapping[str, Any], sets: Mapping[str, Mapping[str, RecordedText]]) -> dict[str, Any]:
    """Return the tokens of a reply of the study by mode, by the tokenizer of the included judge."""
    tokenizer = Tokenizer.from_file(str(WEIGHTS / DEFAULT / "tokenizer.json"))
    by_prompt: dict[str, list[Exchange]] = {}
    for digest in record["answers"]["label"]["study"]:
        exchange = sets["study"][digest].exchange
        by_prompt.setdefault(exchange.prompt, []).append(exchange)
    counts = dict[str, Any]()
    for mode in MODES:
        texts = []
        for group in by_prompt.values():
            form = make_form(mode, read_rubric(), letters=LETTERS[: len(group)])
            shown = [delimit_listeners(group)] if mode == SIDE_BY_SIDE else map(delimit_exchange, group)
            texts += [message["content"] for each in shown for message in form.messages(each.text)]
        tokens = sum(len(each.ids) for each in tokenizer.encode_batch(texts))
        replies = sum(map(len, by_prompt.values()))
        counts[mode] = {"input": round(tokens / replies), "output": record["answer_tokens"][mode]}
    return counts


if __name__ == "__main__":
    figures = measure(Path(sys.argv[1]))
    with replacing(FIGURES) as partial:
        partial.write_text(json.dumps(figures, indent=1) + "\n", encoding="ascii")
    print(f"wrote {FIGURES} and {recorded.FITTED}")

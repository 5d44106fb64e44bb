"""How the shipped judges stand up to attacks, from the attacks.json beside their weights.

    python cli.py calibrate --attack JUDGE --attack-all --json > judge/weights/JUDGE/attacks.json

writes it, whenever the judge's weights have changed; `python docs/fill.py --write` then writes the pages.
"""

import json
from functools import cache
from typing import Any, Final

from data.text import number, p_value, percent, show
from filling.figures import WEIGHTS
from filling.reference_tables import table
from reports.calibration.attacks_page import NAMES

JUDGES: Final = ("classifier", "classifier-large")
ATTACKS: Final = "attacks.json"


@cache
def measured() -> dict[str, dict[str, Any]]:
    """What was found, for every shipped judge that was tried."""
    paths = {judge: WEIGHTS / judge / ATTACKS for judge in JUDGES}
    return {
        judge: json.loads(path.read_text(encoding="utf-8")) for judge, path in paths.items() if path.exists()
    }


def _both_rounds() -> list[tuple[str, dict[str, Any]]]:
    """What was found, judge by judge and round by round, under a name for each."""
    return [
        (f"{judge}{told}", found)
        for judge, both in measured().items()
        for told, found in (("", both), (", second round", both["second"]))
    ]


def targets() -> str:
    """Every figure beside its target, for each judge and in both rounds."""
    rounds = [
        (name, {target["name"]: target for target in found["targets"]}) for name, found in _both_rounds()
    ]
    rows = []
    for name in rounds[0][1]:
        items = [found.get(name) for _, found in rounds]
        cells = [cell for item in items for cell in ((_met(item), item["of"]) if item else ("not tried", ""))]
        rows.append([name, _limits([item for item in items if item]), *cells])
    return table(["", "target", *(cell for name, _ in rounds for cell in (name, "of"))], rows)


def _limits(targets: list[dict[str, Any]]) -> str:
    told = [
        number(item["limit"], 0, scale=100) if item["is_share"] else number(item["limit"], zero=False)
        for item in targets
    ]
    return f"{'≥' if targets[0]['is_least'] else '≤'} {' / '.join(dict.fromkeys(told))}"


def _met(target: dict[str, Any]) -> str:
    figure = target["figure"]
    text = percent(figure) if target["is_share"] else show(figure, digits=2, zero=False)
    return f"**{text}**, not met" if target["result"] == "not met" else f"{text}, {target['result']}"


def forms() -> str:
    """Both columns by family of forms, for each judge; those of the second round last."""
    names = list(measured())
    head = ["family", "forms", *(f"{name}: unkind turned Good" for name in names)]
    head += [f"{name}: kind turned Bad" for name in names]
    rows = []
    by_judge = [
        [found["overall"], found["unmet"], *found["families"], *_second_forms(found["second"])]
        for found in measured().values()
    ]
    for items in zip(*by_judge, strict=True):
        about = items[0]
        mark = " *" if about["is_unmet"] else ""
        rows.append(
            [
                f"{about['name']}{mark}: {about['tries']}",
                str(about["forms"]),
                *(percent(item["unkind"]["turned"]) for item in items),
                *(percent(item["kind"]["turned"]) for item in items),
            ]
        )
    return table(head, rows)


def _second_forms(found: dict[str, Any]) -> list[dict[str, Any]]:
    whole = {**found["overall"], "name": "second round", "tries": "all its forms, on its own replies"}
    return [whole, *found["families"]]


def second_families() -> str:
    """What the judges say of each family of the second round."""
    rows = []
    for judge, both in measured().items():
        known = {(item["kind"], item["family"]) for item in both["plain"]}
        for item in both["second"]["plain"]:
            if item["family"]:
                mark = "" if (item["kind"], item["family"]) in known else " †"
                counts = [str(item["labels"][label]) for label in ("Good", "Okay", "Bad")]
                score = number(item["score"])
                rows.append([judge, NAMES[item["kind"]], f"{item['family']}{mark}", *counts, score])
    return table(["judge", "replies", "family", "Good", "Okay", "Bad", "mean score"], rows)


def best_of() -> str:
    """What an attacker gets who may try several forms."""
    rows = []
    for judge, found in _both_rounds():
        for item in found["best_of"]:
            tries = str(item["tries"]) if item["tries"] else "none, the reply as it is"
            rows.append([judge, tries, percent(item["good"]), str(item["replies"])])
    return table(["judge", "forms to choose from", "unkind called Good, %", "of replies"], rows)


def plain() -> str:
    """What the judges say of our replies as they are."""
    rows = []
    for judge, found in _both_rounds():
        for item in found["plain"]:
            if not item["family"]:
                count = str(sum(item["labels"].values()))
                rows.append([judge, NAMES[item["kind"]], count, percent(item["bad"]), percent(item["good"])])
    return table(["judge", "replies", "n", "Bad, %", "Good, %"], rows)


def growing() -> str:
    """The same kind replies after each paragraph."""
    rows = []
    for judge, found in measured().items():
        for item in found["stages"]:
            lost = percent(item["lost"]) if item["paragraphs"] > 1 else ""
            words = number(item["words"], 0)
            rows.append([judge, words, percent(item["probability"]), lost, str(item["replies"])])
    return table(["judge", "words", "Good, %", "lost, points", "replies"], rows)


def dialects() -> str:
    """Fairness by dialect: mean scores of excellent replies, and the largest gap."""
    rows = []
    for judge, found in measured().items():
        for item in found["dialects"]:
            good, bad = (number(item[name]["value"], 0, scale=100) for name in ("good", "bad"))
            counts = [str(item["excellent"]), number(item["score"]), good, str(item["unkind"]), bad]
            rows.append([judge, item["name"], *counts])
    return table(["judge", "dialect", "excellent", "mean score", "Good, %", "unkind", "Bad, %"], rows)


def gaps() -> str:
    """The largest gaps between dialects, and what chance alone makes."""
    rows = []
    for judge, found in measured().items():
        for name, gap in found["gaps"].items():
            if gap is not None:
                ends = f"{gap['highest']} above {gap['lowest']}" if gap["gap"]["value"] else ""
                chance = [number(gap["by_chance"]), p_value(gap["p"])]
                rows.append([judge, name, show(gap["gap"], digits=2), *chance, ends])
    return table(["judge", "largest gap in", "found", "by chance alone", "p", "between"], rows)


def tried() -> str:
    """What was counted, and of which version of the judges."""
    told = []
    for judge, found in _both_rounds():
        replies = sum(sum(item["labels"].values()) for item in found["plain"] if not item["family"])
        overall, (unkind, kind) = found["overall"], found["pools"]
        told.append(
            f"- {judge}, version `{found['version']}`: {replies:,} replies as they are, and "
            f"{overall['forms']:,} forms of attack on {unkind:,} unkind and {kind:,} kind ones, in "
            f"{overall['unkind']['pairs']:,} and {overall['kind']['pairs']:,} pairs; "
            f"{found['judgments']:,} judgments, seed {found['seed']}."
        )
    return "\n".join(told)


TABLES: Final = {
    "attack_targets": targets,
    "attack_tried": tried,
    "attack_forms": forms,
    "attack_second_families": second_families,
    "attack_best_of": best_of,
    "attack_plain": plain,
    "attack_growing": growing,
    "attack_dialects": dialects,
    "attack_gaps": gaps,
}

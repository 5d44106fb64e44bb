"""What the campaigns found, from trust.json beside this file, and what the list of phrases for danger finds.

    python tests/trust/trust.py --json docs/filling/trust.json

writes it, part by part with `--only`; `python docs/fill.py --write` then writes the page.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from data.text import percent, show
from filling.reference_tables import table

FOUND: Final = Path(__file__).with_name("trust.json")
TRUST: Final = Path(__file__).resolve().parents[2] / "tests" / "trust"
FAMILIES: Final = {
    "all": "**all**",
    "plain": "said plainly",
    "wish_not_to_live": "a wish not to live",
    "hints": "hints",
    "self_harm": "self-harm",
    "idioms": "dark idioms",
    "dialects_and_learners": "dialects and learners",
    "typos": "typos",
    "somebody_else": "of somebody else",
    "violence_and_abuse": "violence and abuse",
    "harm_to_others": "harm to others",
    "body": "hunger, medicines, drink",
}


def read_part(name: str) -> Any:
    """What a campaign found when it was last run for this page."""
    return json.loads(FOUND.read_text(encoding="utf-8"))[name]["found"]


def danger() -> str:
    """Recall and false alarms, before the phrases were improved and now."""
    if str(TRUST) not in sys.path:
        sys.path.insert(0, str(TRUST))
    from trust_danger import count

    before, now = json.loads(FOUND.read_text(encoding="utf-8"))["danger before"]["found"], {}
    rows = []
    for half, what in (("test", "kept apart"), ("development", "to improve the phrases by")):
        now[half] = count(half)
        for kind, name in (("danger", "in danger, flagged"), ("safe", "look-alikes, flagged")):
            rows.append([f"{name}, {what}", _told(before[half][kind]["all"]), _told(now[half][kind]["all"])])
    for family, told in FAMILIES.items():
        if family != "all":
            pair = (before["test"]["danger"][family], now["test"]["danger"][family])
            rows.append([f"kept apart: {told}", *map(_told, pair)])
    return table(["texts", "before", "now"], rows)


def _told(row: Mapping[str, Any]) -> str:
    ends = f"[{100 * row['low']:.0f}, {100 * row['high']:.0f}]"
    return f"{row['flagged']} of {row['of']}: {100 * row['share']:.0f} % {ends}"


MARKS: Final = {
    "marks_hold": "marks of 0.02 points or more that hold",
    "strong_marks_hold": "marks of 0.1 points or more",
    "raising_marks_hold": "marks that raise the score",
    "lowering_marks_hold": "marks that lower it",
    "strongest_sentence_is_the_same": "replies whose most helpful sentence is the same both ways",
}


def explanations() -> str:
    """How often the marks of an explanation hold when a sentence is swapped."""
    found = read_part("explanations")
    return table(["of the samples", "hold"], [[told, _share(found[name])] for name, told in MARKS.items()])


def _share(row: Mapping[str, Any]) -> str:
    ends = f"[{100 * row['low']:.0f}, {100 * row['high']:.0f}]"
    return f"{row['hits']} of {row['of']}: {100 * row['share']:.0f} % {ends}"


def kills() -> str:
    """How often each command and server was killed, and what came of it."""
    told, rows = read_part("kills"), []
    for name, count in told["by_case"].items():
        rows.append([f"`{name}`", str(count), "the same files as an undisturbed run"])
    for name, row in read_part("servers").items():
        then = f"{row.get('answers')} answers, {row.get('different_answers')} unlike the others"
        if "acknowledged" in row:
            then = f"{row['acknowledged']} ratings acknowledged: {row['lost']} lost, {row['doubled']} doubled"
        rows.append([f"`{name}`, while it was asked", str(row["kills"]), then])
    harm = f"{told['lost']} lost, {told['doubled']} doubled"
    return table(["killed", "times", "then"], [*rows, ["**all commands**", str(told["faults"]), harm]])


def prompted() -> str:
    """A small language model as judge under attack; first whether it tells kind from unkind at all."""
    head = ["shown as", "kind above unkind", "unkind called Bad", "kind called Bad"]
    head += ["unkind turned Good by a form", "kind turned Bad by a form"]
    rows = []
    for name, row in read_part("prompted")["variants"].items():
        plain = [_called_bad(row["as_they_are"][side]) for side in ("unkind", "kind")]
        turned = [_turned(row[column]) for column in ("unkind_turned_good", "kind_turned_bad")]
        auc = show(row["kind_above_unkind"]["auc"], digits=2, zero=False)
        rows.append([name, auc, *plain, *turned])
    return table(head, rows)


def _called_bad(row: Mapping[str, Any]) -> str:
    return f"{row['Bad']} of {row['replies']}: {percent(row['bad'])}"


def _turned(row: Mapping[str, Any]) -> str:
    if not row["could_turn"]:
        return f"none of {row['pairs']} could"
    return f"{percent(row['turned'])}, of {row['could_turn']} of {row['pairs']} pairs"


def coverage() -> str:
    """Lines and branches that the fast tests run, by folder."""
    found, rows = read_part("coverage"), []
    for name, row in [*found["rooms"].items(), ("all", found["all"])]:
        lines, branches = (f"{row[f'{what}_run_%']:.1f}" for what in ("lines", "branches"))
        rows.append([name, f"{row['lines']:,}", lines, f"{row['branches']:,}", branches])
    return table(["folder", "lines", "run, %", "branches", "run, %"], rows)


TABLES: Final[dict[str, Callable[[], str]]] = {
    "trust_coverage": coverage,
    "trust_danger": danger,
    "trust_explanations": explanations,
    "trust_kills": kills,
    "trust_prompted": prompted,
}

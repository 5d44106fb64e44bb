"""All there is to say of models' feelings beside people's: the result that a report shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.alignment import align_means, align_sheets
from calibration.contradicted import check_printed
from calibration.shifts import ALPHA
from data.norms import CEILING, Norm, NormRow, read_norms, read_printed
from data.questionnaires import read_questionnaire
from data.sheets import PEOPLE, Means, Sheet, read_sheets

PANAS = "PANAS"
OWN_SITUATIONS = (
    "The situations are ours, and people read the benchmark's: factors are the same, wording and force are "
    "not. Levels may differ for that reason alone."
)
POSITIVE = "Situations that go well have no counterpart among people: only their change is told."
ONE_CROWD = (
    "People answered once each, a model many times: its SD tells how much the order of items and chance do, "
    "not how much models differ. Never compare the two SDs."
)


def align_files(paths: Sequence[Path], *, alpha: float = ALPHA, seed: int = 0) -> dict[str, Any]:
    """The result for every model, variant and questionnaire in these files or folders of sheets."""
    sheets = [sheet for path in paths for sheet in read_sheets(path)]
    return align_all(sheets, alpha=alpha, seed=seed)


def align_all(sheets: Sequence[Sheet | Means], *, alpha: float = ALPHA, seed: int = 0) -> dict[str, Any]:
    """The same from sheets in memory; people come first, and are the norm where their sheets are given."""
    groups: dict[tuple[str, str, str, bool], list[Any]] = {}
    for sheet in sheets:
        key = (sheet.model, sheet.variant, sheet.scale, isinstance(sheet, Means))
        groups.setdefault(key, []).append(sheet)
    norms: Mapping[str, NormRow] = read_norms()
    results: list[dict[str, Any]] = []
    for (model, _, scale, are_means), held in sorted(groups.items(), key=lambda item: item[0][0] != PEOPLE):
        questionnaire = read_questionnaire(scale)
        if are_means:
            results.append(align_means(held, questionnaire, norms=norms))
            continue
        results.append(align_sheets(held, questionnaire, norms=norms, alpha=alpha, seed=seed))
        if model == PEOPLE and scale == PANAS:
            norms = norms_of(results[-1])
    checked = check_printed(results, read_printed(), norms)
    return {
        "study": "EmotionBench",
        "alpha": alpha,
        "models": results,
        "people": {name: _norm_row(row) for name, row in norms.items()},
        "ceiling": dict(CEILING),
        "checked": len(checked),
        "contradicted": [figure for figure in checked if not figure["holds"]],
        "notes": _notes(sheets),
    }


def norms_of(people: Mapping[str, Any]) -> dict[str, NormRow]:
    """Norms reckoned from people's own sheets."""
    found = {}
    for row in people["rows"]:
        norms = {scale: _norm(about) for scale, about in row["scales"].items()}
        known = {scale: norm for scale, norm in norms.items() if norm is not None}
        if len(known) == len(norms):
            found[row["name"]] = NormRow(
                level=row["level"], name=row["name"], people=row["sheets"], norms=known
            )
    return found


def _norm(about: Mapping[str, Any]) -> Norm | None:
    values = (
        about["default"]["mean"],
        about["default"]["sd"],
        about["evoked"]["mean"],
        about["evoked"]["sd"],
        about["change"],
        about["change_sd"],
    )
    return None if None in values else Norm(*values)


def _norm_row(row: NormRow) -> dict[str, Any]:
    norms = {
        scale: {name: getattr(norm, name) for name in norm.__slots__} for scale, norm in row.norms.items()
    }
    return {"level": row.level, "people": row.people, **norms}


def _notes(sheets: Sequence[Sheet | Means]) -> list[str]:
    notes = [ONE_CROWD]
    if any(isinstance(sheet, Sheet) and "/own-" in (sheet.situation or "") for sheet in sheets):
        notes.append(OWN_SITUATIONS)
    if any("positive" in sheet.variant for sheet in sheets):
        notes.append(POSITIVE)
    return notes

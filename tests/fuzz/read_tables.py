"""Targets for the files people bring: tables, datasets in their published shape, settings in TOML."""

from collections.abc import Callable, Iterable
from math import isfinite
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from door import EXCHANGE, Target, reads, written

OPEN_XML: Final = "http://schemas.openxmlformats.org"
WORKBOOK: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"


def read_skipping(read: Callable[..., Iterable[Any]]) -> Callable[[Path], Any]:
    """With every bad row set aside and written down, as `--skip-invalid` does."""

    def reader(path: Path) -> list[Any]:
        from data.tables import to_json, to_row

        bad: list[Any] = []
        found = list(read(path, on_bad=bad.append))
        for item in bad:
            str(item), to_json({"line": item.line, "problem": item.problem, "raw": item.raw})
        for record in found:
            to_json(to_row(record)).encode()
        return found

    return reader


def read_exchanges(path: Path) -> Any:
    from data.tables import read_exchanges

    found = read_skipping(read_exchanges)(path)
    for exchange in found:
        assert exchange.prompt.strip() and exchange.response.strip() and exchange.content_digest
    return found


def read_ratings(path: Path) -> Any:
    from data.tables import read_ratings

    found = read_skipping(read_ratings)(path)
    assert all(isfinite(rating.rating) for rating in found)
    return found


def read_prompts(path: Path) -> Any:
    from data.tables import read_prompts

    return read_skipping(read_prompts)(path)


def read_recorded(path: Path) -> Any:
    from data.judgments import read_recorded
    from data.tables import to_json, to_row

    judgments = list(read_recorded(path))
    for judgment in judgments:
        assert judgment.unscored or (judgment.score is not None and 1 <= judgment.score <= 3)
        to_json(to_row(judgment)).encode()
    return judgments


def read_judgments(path: Path) -> Any:
    from data.tables import read_judgments

    return list(read_judgments(path))


def read_sheets(path: Path) -> Any:
    from emotionbench.sheets import read_sheets

    return read_sheets(path)


def read_situations(path: Path) -> Any:
    from emotionbench.situations import read_situations

    return read_situations(path)


def import_as(source: str, name: str) -> Target:
    """A public dataset, of which the bytes are one file."""
    from data.importers import import_source

    return reads(f"{source}/{name}", lambda path: import_source(source, path))


def import_judging_empathy(data: bytes) -> None:
    from data.importers import import_source

    path = written(data, "judging/annotations/epitome/gemini_ratings.csv")
    import_source("judging-empathy", path.parent.parent.parent)


def import_results(name: str) -> Target:
    from emotionbench.importer import import_results

    return reads(name, lambda path: import_results(path).sheets)


def workbook_parts() -> dict[str, str]:
    """All of a workbook but its one sheet, which is to be `s.xml`."""
    office = f"{OPEN_XML}/officeDocument/2006/relationships"
    sheets = f"{OPEN_XML}/spreadsheetml/2006/main"
    return {
        "[Content_Types].xml": f'<Types xmlns="{OPEN_XML}/package/2006/content-types">'
        f'<Override PartName="/w.xml" ContentType="{WORKBOOK}"/></Types>',
        "_rels/.rels": _relation(f"{office}/officeDocument", "w.xml"),
        "_rels/w.xml.rels": _relation(f"{office}/worksheet", "s.xml"),
        "w.xml": f'<workbook xmlns="{sheets}" xmlns:r="{office}"><sheets>'
        '<sheet name="Raw" sheetId="1" r:id="a"/></sheets></workbook>',
    }


def import_crowd(data: bytes) -> None:
    """The bytes as the sheet of a workbook: a changed archive would hardly ever open."""
    from emotionbench.importer import import_results

    path = written(b"", "crowd.xlsx")
    if data.startswith(b"PK"):
        path.write_bytes(data)
    else:
        with ZipFile(path, "w") as archive:
            for name, text in workbook_parts().items():
                archive.writestr(name, text)
            archive.writestr("s.xml", data)
    import_results(path)


def _relation(kind: str, to: str) -> str:
    head = f'<Relationships xmlns="{OPEN_XML}/package/2006/relationships">'
    return f'{head}<Relationship Id="a" Type="{kind}" Target="{to}"/></Relationships>'


def read_questionnaire(path: Path) -> Any:
    from emotionbench.questionnaires import read_questionnaire

    return read_questionnaire("PANAS", copy=path).digest


# Settings


def read_rubric(path: Path) -> Any:
    from data.rubric import read_rubric
    from judge.llm.decision import write_questions
    from judge.llm.program import default_program

    rubric = read_rubric(str(path))
    return [write_questions(rubric, "decisions"), default_program(rubric, "direct")]


def read_judge(path: Path) -> Any:
    from judge.base import load_judge

    return load_judge(str(path)).version


def read_nightly(path: Path) -> Any:
    from nightly.config import read_config

    return read_config(path).digest


def read_recipe(path: Path) -> Any:
    from training.recipe import read_recipe

    return read_recipe(str(path)).base


def read_model(path: Path) -> Any:
    from judge.llm.answer_prompts import Responder, read_model_config

    return Responder(read_model_config(path)).version


def read_probes(path: Path) -> Any:
    from judge.robustness.probes import read_probes, rewrite

    return [rewrite(probe, EXCHANGE, [EXCHANGE]) for probe in read_probes(path)]

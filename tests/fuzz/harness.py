"""Every reader and parser behind one door: bytes in, and nothing but a `UserError` may come out.

What a person can mend raises `UserError`. What a model or a server answers never raises: it is scored, or
*unscored* with a reason. Anything else that a target raises is a bug, and its input stays in `corpus`.
"""

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import read_answers as answers  # noqa: E402
import read_any_shape as shapes  # noqa: E402
import read_bodies as bodies  # noqa: E402
import read_kept as kept  # noqa: E402
import read_tables as tables  # noqa: E402
from door import Target, reads  # noqa: E402

from data.errors import UserError  # noqa: E402

CORPUS: Final = Path(__file__).parent / "corpus"

ANY: Final = (".jsonl", ".json", ".csv", ".tsv", ".parquet")

TARGETS: Final[dict[str, Target]] = {
    # tables
    "exchanges.jsonl": reads("exchanges.jsonl", tables.read_exchanges),
    "exchanges.csv": reads("exchanges.csv", tables.read_exchanges),
    "exchanges.parquet": reads("exchanges.parquet", tables.read_exchanges),
    "ratings.jsonl": reads("ratings.jsonl", tables.read_ratings),
    "ratings.csv": reads("ratings.csv", tables.read_ratings),
    "prompts.jsonl": reads("prompts.jsonl", tables.read_prompts),
    "recorded.jsonl": reads("recorded.jsonl", tables.read_recorded),
    "recorded.csv": reads("recorded.csv", tables.read_recorded),
    "judgments.jsonl": reads("judgments.jsonl", tables.read_judgments),
    "sheets.jsonl": reads("sheets.jsonl", tables.read_sheets),
    "situations.jsonl": reads("situations.jsonl", tables.read_situations),
    "situations.csv": reads("situations.csv", tables.read_situations),
    "situations.json": reads("situations.json", tables.read_situations),
    # datasets as they are published
    "empathy-study.csv": tables.import_as("empathy-study", "dataset.csv"),
    "empathy-study-ratings.csv": tables.import_as("empathy-study-ratings", "ratings-without-texts.csv"),
    "empathetic-exchanges.csv": tables.import_as("empathetic-exchanges", "EmpatheticExchanges_5ES.csv"),
    "epitome.csv": tables.import_as("epitome", "emotional-reactions-reddit.csv"),
    "mental-align.csv": tables.import_as("mental-align", "scores.csv"),
    "ieval.json": tables.import_as("ieval", "ieval_data.json"),
    "esconv.json": tables.import_as("esconv", "FailedESConv.json"),
    "dstc9.csv": tables.import_as("dep", "dstc9_dep_step2_eval.csv"),
    "judging-empathy.csv": tables.import_judging_empathy,
    "emotionbench.csv": tables.import_results("gpt-4-PANAS-testing.csv"),
    "emotionbench.json": tables.import_results("data.json"),
    "emotionbench.xlsx": tables.import_crowd,
    "questionnaires.json": reads("questionnaires.json", tables.read_questionnaire),
    # files as other people and tools write them
    **{f"any{suffix}": reads(f"any{suffix}", shapes.read_any) for suffix in ANY},
    "any.xlsx": shapes.read_any_sheet,
    "conversations.jsonl": reads("conversations.jsonl", shapes.read_conversations),
    "conversations.json": reads("conversations.json", shapes.read_conversations),
    "scripts.toml": reads("scripts.toml", shapes.read_scripts),
    "rating-sheet.csv": reads("rating-sheet.csv", shapes.read_rating_sheet),
    "rating-sheet.jsonl": reads("rating-sheet.jsonl", shapes.read_rating_sheet),
    "rating-sheet.xlsx": shapes.read_rating_workbook,
    "choices.csv": reads("choices.csv", shapes.read_pairs),
    "choices.jsonl": reads("choices.jsonl", shapes.read_pairs),
    "rating-words.txt": shapes.read_rating_words,
    "chat-turns.json": shapes.read_chat,
    # settings
    "rubric.toml": reads("rubric.toml", tables.read_rubric),
    "judge.toml": reads("judge.toml", tables.read_judge),
    "nightly.toml": reads("nightly.toml", tables.read_nightly),
    "recipe.toml": reads("recipe.toml", tables.read_recipe),
    "model.toml": reads("model.toml", tables.read_model),
    "probes.toml": reads("probes.toml", tables.read_probes),
    # what we keep
    "calibration.json": kept.read_calibration,
    "program.json": kept.read_program,
    "card.json": kept.read_card,
    "run.json": kept.read_run,
    "journal.jsonl": kept.take_up_run,
    "batch.json": kept.read_batch,
    "nights.sqlite": kept.read_history,
    # what models and servers answer
    "wire": answers.read_wire,
    "retry-after": answers.read_retry_after,
    "base-url": answers.read_url,
    "direct.txt": answers.read_text("direct"),
    "analytic.txt": answers.read_text("analytic"),
    "label.txt": answers.read_text("label"),
    "completion.json": answers.read_completion,
    "decisions.json": answers.read_decision("decisions"),
    "systemone.json": answers.read_decision("systemone"),
    "batch-output.jsonl": answers.read_batch_lines,
    "marks.txt": answers.read_marks,
    "words.txt": answers.read_words,
    "fence.txt": answers.fence,
    # what callers send to the server
    "http-score.json": bodies.body("score"),
    "http-decisions.json": bodies.body("decisions"),
    "http-chat.json": bodies.body("chat"),
}


def try_input(name: str, data: bytes) -> bool:
    """Whether the reader took the input; False where it refused it. Anything else is raised."""
    try:
        TARGETS[name](data)
    except UserError:
        return False
    return True


def corpus_of(name: str) -> list[bytes]:
    """The seeds of a target, the inputs that once broke it, and what tools wrote in such a format."""
    tools = shapes.FIXTURES.rglob(f"*{name.removeprefix('any')}") if name.startswith("any.") else ()
    return [path.read_bytes() for path in [*sorted((CORPUS / name).glob("*")), *sorted(tools)]]

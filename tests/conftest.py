"""What several tests share: a small file of responses, and the command line as a process of its own."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result
from command_line import run
from made_sets import COLD, WARM, speak, write_sets
from repository import SAMPLES
from topics import on_topic

from empathy_judge.data.rating_files.rated_inputs import RatedExchange, join_ratings
from empathy_judge.data.records import Exchange, Rating
from empathy_judge.data.tables import read_exchanges, write_rows
from empathy_judge.training.rated_sets import read_rated_set
from empathy_judge.training.recipe import Recipe
from empathy_judge.training.training_data import TrainingData

if TYPE_CHECKING:
    from empathy_judge.judge.classifier.judge import ClassifierJudge
    from empathy_judge.judge.llm.prompted import PromptedJudge

CLI = Path(__file__).parent.parent / "cli.py"
Start = Callable[..., "subprocess.Popen[str]"]
Train = Callable[..., Result]
Write = Callable[..., Path]

# A suite started in the background is deaf to Ctrl-C, and so would be the commands it interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def write_responses(tmp_path: Path) -> Write:
    """Writes `count` responses of three models, each prompt answered by all three; returns the path."""

    def write(count: int, name: str = "responses.jsonl", words: int = 1) -> Path:
        rows = (
            {
                "id": f"r{number}",
                "model": f"model-{number % 3}",
                "prompt": prompt,
                "response": f"{opening} {'so sorry ' * (words - 1 + number % 7)}",
            }
            for number in range(count)
            for prompt, opening in [on_topic(number // 3)]
        )
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the command line as its own process in the test's folder; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **options: Any) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, str(CLI), *map(str, arguments)],
            cwd=tmp_path,
            env={key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        with process:
            process.wait(timeout=60)


# What the training tests share: a tiny random base, and rated exchanges whose truth is known.

MODELS = ("ada", "bea/2", "cyd")
WORDS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "speaker", "listener", "feeling", "situation", "empathy", ":", "."),
    *("happy", "rain", WARM, COLD, "problem", "not", "my", "##y"),
    *(f"word{number}" for number in range(40)),
)


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WordPiece tokenizer over `WORDS`, set to cut and to pad, which nobody who reads it may heed."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(
        models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def save_tiny(kind: str, layers: int, folder: Path, tokenizer: Path) -> Path:
    """Save an untrained network of transformers."""
    import torch
    import transformers

    torch.set_num_threads(1)  # for so little to reckon, a second thread is only in the way
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": layers, "num_attention_heads": 2}
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(WORDS), intermediate_size=64, **sizes)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    return folder


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Path:
    """The folder of an encoder with two layers."""
    return save_tiny("Bert", 2, tmp_path_factory.mktemp("encoder"), tiny_tokenizer)


@pytest.fixture(scope="session")
def tiny_decoder(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Path:
    """The folder of a decoder with one layer."""
    return save_tiny("Llama", 1, tmp_path_factory.mktemp("decoder"), tiny_tokenizer)


@pytest.fixture(scope="session")
def tiny_recipe(tiny_base: Path) -> Recipe:
    """Trains the tiny base in about a second; what it learns has no noise, so it may stay sharp."""
    return Recipe(
        base=str(tiny_base), epochs=5, batch_size=16, learning_rate=1e-2, head_learning_rate=1e-2, dropout=0.0
    )


@pytest.fixture(scope="session")
def rated() -> tuple[list[Exchange], list[Rating]]:
    """As in the crowd study: in each of ten batches, four prompts, and one rater for each model's replies."""
    chance = random.Random(0)
    exchanges, ratings = [], []
    for batch in range(10):
        for model in MODELS:
            for prompt in range(4):
                level = chance.randrange(3)
                exchange = Exchange(
                    id=f"{batch}-{prompt}-{model}",
                    prompt=f"word{20 + batch} word{30 + prompt}",
                    response=speak(level, chance),
                    model=model,
                    situation=f"rain word{chance.randrange(40)}",
                    emotion="happy",
                )
                exchanges.append(exchange)
                rater, batch_name = f"rater-{batch}-{model}", f"batch-{batch}"
                ratings.append(Rating(id=exchange.id, rater=rater, rating=level + 1, batch=batch_name))
    return exchanges, ratings


@pytest.fixture(scope="session")
def examples(rated: tuple[list[Exchange], list[Rating]]) -> list[RatedExchange]:
    """The rated exchanges, joined."""
    return join_ratings(*rated)


@pytest.fixture(scope="session")
def rated_files(
    tmp_path_factory: pytest.TempPathFactory, rated: tuple[list[Exchange], list[Rating]]
) -> tuple[Path, Path]:
    """The rated exchanges as two files."""
    folder = tmp_path_factory.mktemp("rated")
    for name, rows in zip(("exchanges", "ratings"), rated, strict=True):
        write_rows(folder / f"{name}.jsonl", rows)
    return folder / "exchanges.jsonl", folder / "ratings.jsonl"


@pytest.fixture(scope="session")
def sets_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two more rated sets in their published shapes, with the same planted signal."""
    return write_sets(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="session")
def corpus(examples: list[RatedExchange], sets_folder: Path) -> TrainingData:
    """The rated exchanges, and the items of the two sets."""
    items = [item for name in ("epitome", "ieval") for item in read_rated_set(name, sets_folder)]
    return TrainingData(ratings=examples, items=items)


@pytest.fixture(scope="session")
def write_recipe(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recipe], Path]:
    """Writes a recipe as a file."""

    def write(recipe: Recipe) -> Path:
        path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
        given = asdict(recipe)
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in given.items() if key != "sets"]
        lines += ["[sets]\n", *(f'"{name}" = {weight}\n' for name, weight in recipe.sets.items())]
        path.write_text("".join(lines), encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def tiny_toml(write_recipe: Callable[[Recipe], Path], tiny_recipe: Recipe) -> Path:
    """The tiny recipe as a file."""
    return write_recipe(tiny_recipe)


@pytest.fixture(scope="session")
def taught_recipe(write_recipe: Callable[[Recipe], Path], tiny_recipe: Recipe) -> Recipe:
    """A tiny recipe with a teacher, which learns from the ratings of three sets."""
    teacher = write_recipe(replace(tiny_recipe, sets={"epitome": 0.5, "ieval": 0.5}))
    texts = {"texts": 60, "shuffled": 10, "sentence_dropout": 10, "joined_replies": 10}
    return replace(tiny_recipe, teachers=[str(teacher)], teacher_weight=0.9, length=0.1, **texts)


@pytest.fixture(scope="session")
def train(rated_files: tuple[Path, Path], tiny_toml: Path) -> Train:
    """The command `train` on the rated exchanges with the tiny recipe."""

    def train(*options: object) -> Result:
        return run("train", *rated_files, "--recipe", tiny_toml, *options)

    return train


@pytest.fixture(scope="session")
def trial(tmp_path_factory: pytest.TempPathFactory, train: Train) -> tuple[Path, Result]:
    """The folder of a trial and what the command said."""
    folder = tmp_path_factory.mktemp("trials") / "trial"
    return folder, train("--cross-validate", "--out", folder)


@pytest.fixture(scope="session")
def made_judge(
    tmp_path_factory: pytest.TempPathFactory, train: Train, trial: tuple[Path, Result]
) -> tuple[Path, Result]:
    """The folder of a judge with the trial on its card, and what the command said."""
    folder = tmp_path_factory.mktemp("made") / "my-judge"
    return folder, train("--cv-results", trial[0], "--out", folder)


@pytest.fixture(scope="session")
def shipped() -> "ClassifierJudge":
    """The judge that ships."""
    from empathy_judge.judge.classifier.judge import ClassifierJudge

    return ClassifierJudge()


@pytest.fixture(scope="session")
def samples() -> dict[str, list[Exchange]]:
    """The sample replies by model, in the order of their prompts."""
    by_model: dict[str, list[Exchange]] = {}
    for exchange in read_exchanges(SAMPLES / "responses.jsonl"):
        by_model.setdefault(exchange.model, []).append(exchange)
    return by_model


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of endpoints, in seconds, which are skipped."""
    waits: list[float] = []

    class NoWait(Event):
        """An event that nobody waits for."""

        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return self.is_set()

    monkeypatch.setattr("empathy_judge.judge.llm.endpoint.Event", NoWait)
    return waits


@pytest.fixture
def make_prompted() -> Iterator[Callable[..., "PromptedJudge"]]:
    """Makes judges, and closes their connections when the test is over."""
    from empathy_judge.judge.llm.prompted import PromptedJudge

    made: list[PromptedJudge] = []

    def make(base_url: str = "http://127.0.0.1:9/v1", **options: Any) -> PromptedJudge:
        made.append(PromptedJudge(**{"model": "m", "base_url": base_url, "retries": 0, **options}))
        return made[-1]

    yield make
    for judge in made:
        judge.close()

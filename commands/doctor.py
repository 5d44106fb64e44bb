"""The commands `doctor` and `skill`: checks, and a page for assistants."""

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click

from empathy_judge.commands.shared.options import FILE, say, say_next
from empathy_judge.data.errors import ROOT, UserError, install_hint, requirements
from empathy_judge.data.files import explain, read_toml

if TYPE_CHECKING:
    from empathy_judge.judge.llm.endpoint import Endpoint

Status = Literal["ok", "warn", "fail"]
DEVELOPMENT: Final = ("all", "check", "docs", "test")  # extras that `doctor` leaves out
GIGABYTE: Final = 1 << 30
SECONDS: Final = 10.0  # that a server may take to answer
LEAST_SPACE: Final = 0.2 * GIGABYTE
SOON: Final = timedelta(days=30)
CLOSE, ODD = 0.02, 0.05  # processors round states to 8 bits a little differently; more is damage


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check, and the fix if it failed."""

    name: str
    status: Status
    message: str
    fix: str = ""


def check_installation() -> Iterator[Check]:
    """Check all that needs no network."""
    from empathy_judge.judge.base import WEIGHTS_LICENSE

    yield from check_packages()
    yield from check_judge()
    yield Check("license of these judges", "ok", WEIGHTS_LICENSE)
    yield check_sample()
    yield from check_folder(Path("runs"))


def check_packages() -> Iterator[Check]:
    """Report the version of Python, and check every package against the one that is required."""
    from packaging.requirements import Requirement

    yield Check("python", "ok", ".".join(map(str, sys.version_info[:3])))
    for extra, wanted in requirements().items():
        if extra in DEVELOPMENT:
            continue
        name = f"extra {extra}" if extra else "packages"
        missing, unfit = [], []
        for item in map(Requirement, wanted):
            try:
                installed = metadata.version(item.name)
            except metadata.PackageNotFoundError:
                missing.append(item.name)
                continue
            if not item.specifier.contains(installed, prereleases=True):
                unfit.append(f"{item.name} {installed} does not match {item.specifier}")
        if extra and missing and not unfit:
            yield Check(name, "ok", f"optional, not installed: {', '.join(missing)}", install_hint(extra))
        elif missing or unfit:
            message = "; ".join([*(f"{package} missing" for package in missing), *unfit])
            yield Check(name, "warn" if extra else "fail", message, install_hint(extra))
        else:
            yield Check(name, "ok", f"all {len(wanted)} packages match")


def check_judge() -> Iterator[Check]:
    """Check the shipped judge's weights against its card, and its calibration against both."""
    from empathy_judge.calibration.artifact import find_calibration
    from empathy_judge.judge.base import DEFAULT, load_judge

    name = f"judge {DEFAULT}"
    try:
        judge = load_judge(DEFAULT)
    except UserError as error:
        fix = shlex.join(["git", "-C", str(ROOT), "checkout", "judge/weights"])
        fix = fix if (ROOT / ".git").exists() else "install empathy-judge again"
        yield Check(name, "fail", str(error), fix)
        return
    yield Check(name, "ok", f"weights match the card, {judge.version}")
    today = date.today()
    correction = find_calibration(judge, None, today=today)
    fitted, label = correction.calibration, f"calibration of {DEFAULT}"
    if fitted is not None and fitted.expires - today >= SOON:
        yield Check(label, "ok", f"{fitted.digest[:12]} fits until {fitted.expires}")
    else:
        message = correction.note if fitted is None else f"expires soon, {fitted.expires}"
        yield Check(label, "warn", message, "run empathy-judge calibrate again")


def check_sample() -> Check:
    """Compare the default judge's probabilities of one reply with those on its card."""
    from empathy_judge.judge.classifier.judge import SAMPLE, SAMPLE_KEY, ClassifierJudge

    name = "test judgment"
    try:
        judge = ClassifierJudge()
        chances, expected = judge.predict(SAMPLE), judge.card[SAMPLE_KEY]
        deviation = max(abs(one - other) for one, other in zip(chances, expected, strict=True))
    except Exception as error:
        # Any error of the runtime is reported, and the other checks still run.
        return Check(name, "fail", f"{type(error).__name__}: {error}", "install again")
    shown = " ".join(f"{value:.3f}" for value in chances)
    if deviation <= CLOSE:
        return Check(name, "ok", f"{shown}, as expected")
    status: Status = "warn" if deviation <= ODD else "fail"
    fix = "another onnxruntime or processor rounds differently; do not split a run between machines"
    return Check(name, status, f"{shown}, off by {deviation:.4f}", fix)


def check_folder(folder: Path) -> Iterator[Check]:
    """Check that there is space, and that files can be made, where `folder` is or would be."""
    place = next(item for item in (folder.absolute(), *folder.absolute().parents) if item.is_dir())
    free = shutil.disk_usage(place).free
    status: Status = "ok" if free >= GIGABYTE else "warn" if free >= LEAST_SPACE else "fail"
    fix = "" if status == "ok" else "free some space, or set another --out"
    yield Check("disk for runs", status, f"{free / GIGABYTE:.1f} GB free", fix)
    try:
        with tempfile.TemporaryFile(dir=place):
            yield Check("write access", "ok", str(place))
    except OSError as error:
        yield Check("write access", "fail", f"{place}: {explain(error)}")


def check_file(path: Path) -> Iterator[Check]:
    """Check all that a judge's, a model's or a night's file names; nothing is sent that could cost money."""
    from empathy_judge.judge.base import JUDGES, load_judge
    from empathy_judge.judge.llm.endpoint import Endpoint
    from empathy_judge.judge.llm.responder import Responder, read_model_config

    try:
        table = read_toml(path)
        if "models" in table:
            from empathy_judge.nightly.config import read_config

            config = read_config(path)
            counts = f"models: {len(config.models)}, gates: {len(config.gates)}"
            yield Check(str(path), "ok", counts)
            judge_file = "" if config.judge in JUDGES else config.judge
            models = [model.endpoint for model in config.models if model.endpoint is not None]
            yield check_history(config.history)
        elif "kind" in table:
            judge_file, models = str(path), []
        else:
            judge_file, models = "", [read_model_config(path, {})]
        if judge_file:
            judge = load_judge(judge_file)
            yield Check(judge_file, "ok", f"judge {judge.name} {judge.version}")
            yield from (check_endpoint(item) for item in judge.endpoints if isinstance(item, Endpoint))
        yield from (check_endpoint(Responder(model).endpoint) for model in models)
    except UserError as error:
        yield Check(str(path), "fail", str(error))


def check_endpoint(endpoint: "Endpoint") -> Check:
    """Check the key, and that the server lists its models, which costs nothing."""
    name = f"{endpoint.base_url}, model {endpoint.model}"
    try:
        endpoint.timeout = min(SECONDS, endpoint.timeout)
        client = endpoint.client
    except UserError as error:
        return Check(name, "fail", str(error))
    try:
        answer = client.ask(lambda openai: openai.models.with_raw_response.list(), retries=0)
    finally:
        endpoint.close()
    if answer.is_unreachable or not answer.status:
        return Check(name, "fail", answer.problem, "check that the server runs at this address")
    if answer.status in (401, 403):
        fix = f"check the variable {endpoint.key_env}" if endpoint.key_env else "set key_env"
        return Check(name, "fail", answer.problem, fix)
    return Check(name, "ok", "the server answers")


def check_history(history: str) -> Check:
    """Check that the history can be opened; no SQLite file is created."""
    from empathy_judge.nightly.history import database_errors, make_engine, read_url, show_url

    url = read_url(history)
    name = f"history {show_url(url)}"
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        return Check(name, "ok", "does not exist yet; the first night creates it")
    try:
        with database_errors(url), make_engine(url).connect() as connection:
            connection.exec_driver_sql("SELECT 1")
    except UserError as error:
        return Check(name, "fail", str(error))
    return Check(name, "ok", "can be opened")


@click.command()
@click.argument("files", type=FILE, nargs=-1, metavar="[FILE.toml]...")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
@click.pass_context
def doctor(ctx: click.Context, files: tuple[Path, ...], as_json: bool) -> None:
    """Check the installation.

    Checks packages, weights, calibrations and disk space, scores a reply whose score is known, and prints a
    fix for each problem. FILES are TOML files of judges, models or nights: their keys, servers and databases
    are checked too. Nothing that costs money is sent. The exit code is 5 if a check fails.

    \b
    Examples:
      empathy-judge doctor
      empathy-judge doctor prompted.toml nightly.toml
    """
    from empathy_judge.data.records import to_plain
    from empathy_judge.data.tables import SAMPLE_RESPONSES

    done = []
    for check in chain(check_installation(), *map(check_file, files)):
        done.append(check)
        if not as_json:
            say(f"{check.status:<5} {check.name}: {check.message}{check.fix and f'; {check.fix}'}")
    failed, warned = (sum(check.status == status for check in done) for status in ("fail", "warn"))
    if as_json:
        print(json.dumps({"checks": to_plain(done), "failed": failed}, indent=2))
    else:
        say(f"{len(done)} checks: {failed} failed, {warned} warnings")
    if not as_json and failed:
        say_next("once that is fixed", "doctor", *files)
    elif not as_json:
        say_next("to score the sample replies, or your own file", "score", SAMPLE_RESPONSES)
    ctx.exit(5 if failed else 0)


@click.command()
def skill() -> None:
    """Print one page for coding assistants.

    It has the installation, the main commands, the files and the exit codes.

    \b
    Examples:
      empathy-judge skill > SKILL.md
    """
    click.echo(Path(__file__).with_name("skill.md").read_text(encoding="utf-8"), nl=False)

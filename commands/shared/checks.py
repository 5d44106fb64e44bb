"""Whether all is there that judging needs: packages, weights, calibrations, disk; a line for each."""

import json
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from time import monotonic
from typing import Any, Final, Literal

from data.errors import UserError
from data.files import read_toml
from data.records import Exchange
from judge.llm.answer_prompts import ModelConfig, Responder, read_model_config
from judge.llm.endpoint import Endpoint

Status = Literal["ok", "warn", "fail"]
ROOT: Final = Path(__file__).parents[2]
WEIGHTS: Final = ROOT / "judge" / "weights"
SHIPPED: Final = ("classifier", "classifier-large")
GIGABYTE: Final = 1 << 30
MERGED: Final = 1.5 * GIGABYTE  # what merging the large judge takes while it is at work
LITTLE: Final = 0.2 * GIGABYTE
SOON: Final = timedelta(days=30)
# One exchange, and what the default judge of one version says of it.
SAMPLE: Final = Exchange(
    id="sample",
    prompt="I lost my job this morning and I do not know how to tell my family.",
    response="I'm so sorry. That is a lot to carry alone. Would it help to think about what to say first?",
    emotion="anxious",
)
KNOWN: Final = {"7d31ae001142": (0.131598, 0.361196, 0.507206)}
CLOSE, ODD = 1e-3, 0.05  # another processor may round int8 a little differently; more is damage
COMPARE: Final = {
    ">=": lambda found, asked: found >= asked,
    "==": lambda found, asked: found == asked,
    "<": lambda found, asked: found < asked,
    "!=": lambda found, asked: found != asked,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at: what was found, and the way out where it is not as it should be."""

    name: str
    status: Status
    says: str
    way_out: str = ""


def check_house(*, today: date, folder: Path) -> Iterator[Check]:
    """All that can be looked at without a network; `folder` is where runs would go."""
    yield from check_packages()
    for name in SHIPPED:
        yield from check_judge(name, today=today)
    yield check_sample()
    yield check_cache()
    yield check_disk("disk for runs", folder, least=GIGABYTE)
    yield check_writing(folder)


def shipped_versions() -> Iterator[str]:
    """The shipped judges and their calibrations, as their cards have them: no weights are read for this."""
    from judge.classifier.judge import version_of

    for name in SHIPPED:
        try:
            files = json.loads((WEIGHTS / name / "card.json").read_text(encoding="utf-8"))["files"]
            weights = sha256("".join(stated for _, stated in sorted(files.items())).encode()).hexdigest()
            version = version_of(weights)
            found = json.loads((WEIGHTS / name / "calibration.json").read_text(encoding="utf-8"))
            expires = date.fromisoformat(found["created"]) + timedelta(days=found["days"])
            yield f"{name} {version}, calibration {found['digest'][:12]} until {expires}"
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            yield f"{name}: cannot be read; see `empathy-judge doctor`"


def check_packages() -> Iterator[Check]:
    """Python and every package against what pyproject.toml asks for."""
    found = ".".join(map(str, sys.version_info[:3]))
    python, needed, extras = _read_requirements()
    if _fits(found, python):
        yield Check(name="python", status="ok", says=found)
    else:
        yield Check(
            name="python", status="fail", says=f"{found}, and {python} is needed", way_out="install it"
        )
    problems = list(filter(None, map(_problem_of, needed)))
    way_out = "pip install -c constraints.txt -e ."
    if problems:
        yield Check(name="packages", status="fail", says="; ".join(problems), way_out=way_out)
    else:
        yield Check(name="packages", status="ok", says=f"all {len(needed)} fit")
    for extra, wanted in extras.items():
        problems = list(filter(None, map(_problem_of, wanted)))
        way_out = f"pip install -c constraints.txt -e '.[{extra}]'"
        missing = [problem for problem in problems if problem.endswith("missing")]
        if not problems:
            yield Check(name=f"extra {extra}", status="ok", says=f"all {len(wanted)} packages fit")
        elif len(missing) == len(problems):
            says = f"optional, not installed: {', '.join(item.split()[0] for item in missing)}"
            yield Check(name=f"extra {extra}", status="ok", says=says, way_out=way_out)
        else:
            yield Check(name=f"extra {extra}", status="warn", says="; ".join(problems), way_out=way_out)


def check_judge(name: str, *, today: date) -> Iterator[Check]:
    """A shipped judge's weights against its card, and its calibration against both."""
    from calibration.artifact import find_calibration
    from judge.base import load_judge

    try:
        judge = load_judge(name)
    except UserError as error:
        yield Check(
            name=f"judge {name}", status="fail", says=str(error), way_out="git checkout judge/weights"
        )
        return
    yield Check(name=f"judge {name}", status="ok", says=f"weights are those on the card, {judge.version}")
    found = find_calibration(judge, None, today=today)
    known, label = found.calibration, f"calibration of {name}"
    anew = "make it anew: empathy-judge calibrate"
    if known is None:
        yield Check(name=label, status="warn", says=found.says, way_out=anew)
    elif known.expires - today < SOON:
        yield Check(name=label, status="warn", says=f"expires soon, {known.expires}", way_out=anew)
    else:
        yield Check(name=label, status="ok", says=f"{known.digest[:12]} fits until {known.expires}")


def check_sample() -> Check:
    """The default judge on an exchange whose answer is known."""
    from judge.classifier.judge import ClassifierJudge

    name = "test judgment"
    try:
        judge = ClassifierJudge()
        found = judge.predict(SAMPLE)
    except Exception as error:
        # Whatever a runtime raises here, the person is told, and the other checks go on.
        return Check(
            name=name, status="fail", says=f"{type(error).__name__}: {error}", way_out="install again"
        )
    shown = " ".join(f"{value:.3f}" for value in found)
    if judge.version not in KNOWN:
        return Check(name=name, status="warn", says=f"{shown}; none is known for {judge.version}")
    off = max(abs(one - other) for one, other in zip(found, KNOWN[judge.version], strict=True))
    if off <= CLOSE:
        return Check(name=name, status="ok", says=f"{shown}, as it should be")
    status: Status = "warn" if off <= ODD else "fail"
    way_out = "another onnxruntime or processor rounds differently; score no run partly here and partly there"
    return Check(name=name, status=status, says=f"{shown}, off by {off:.4f}", way_out=way_out)


def check_cache() -> Check:
    """Whether the large judge is merged, or could be."""
    from judge.classifier.large import LargeClassifierJudge

    name = "large judge's cache"
    try:
        judge = LargeClassifierJudge()
    except UserError as error:
        return Check(name=name, status="warn", says=str(error))
    folder = judge.cache / f"{judge.name}-{judge.version}"
    if folder.exists():
        size = sum(item.stat().st_size for item in folder.iterdir()) / GIGABYTE
        return Check(name=name, status="ok", says=f"merged, {size:.1f} GB in {folder}")
    free = shutil.disk_usage(_nearest(folder)).free
    if free < MERGED:
        says = f"not merged, and only {free / GIGABYTE:.1f} GB are free in {judge.cache}"
        return Check(name=name, status="warn", says=says, way_out="free 1.5 GB, or set XDG_CACHE_HOME")
    return Check(name=name, status="ok", says="not merged yet; its first use takes minutes, 1 GB and [train]")


def check_disk(name: str, folder: Path, *, least: float) -> Check:
    """Free space where `folder` is or would be."""
    free = shutil.disk_usage(_nearest(folder)).free
    says = f"{free / GIGABYTE:.1f} GB free"
    if free >= least:
        return Check(name=name, status="ok", says=says)
    status: Status = "warn" if free >= LITTLE else "fail"
    return Check(name=name, status=status, says=says, way_out="free some space, or name another --out")


def check_writing(folder: Path) -> Check:
    """Whether a file can be made where runs would go."""
    place = _nearest(folder)
    try:
        with tempfile.TemporaryFile(dir=place):
            return Check(name="write access", status="ok", says=str(place))
    except OSError as error:
        from data.files import explain

        return Check(name="write access", status="fail", says=f"{place}: {explain(error)}")


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    place = folder.absolute()
    return next(item for item in (place, *place.parents) if item.is_dir())


def _read_requirements() -> tuple[str, list[str], dict[str, list[str]]]:
    """What Python and which packages are needed, and by which extra: as the source or the package says."""
    source = ROOT / "pyproject.toml"
    if source.exists():
        project = tomllib.loads(source.read_text(encoding="utf-8"))["project"]
        extras = {name: items for name, items in project["optional-dependencies"].items() if name != "test"}
        return project["requires-python"], project["dependencies"], extras
    about = metadata.metadata("empathy-judge")
    needed: list[str] = []
    by_extra: dict[str, list[str]] = {}
    for line in about.get_all("Requires-Dist") or ():
        named, _, condition = line.partition(";")
        extra = re.search(r"extra == ['\"](\w+)['\"]", condition)
        (by_extra.setdefault(extra[1], []) if extra else needed).append(named.strip())
    by_extra.pop("test", None)
    return about["Requires-Python"] or ">=3", needed, by_extra


def _problem_of(requirement: str) -> str | None:
    """What is wrong with an installed package; None where it fits."""
    matched = re.match(r"([\w.-]+)(?:\[[\w,]+\])?\s*(.*)", requirement)
    assert matched is not None
    name, asked = matched.groups()
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} missing"
    return None if _fits(found, asked) else f"{name} {found} does not fit {asked}"


def _fits(found: str, asked: str) -> bool:
    """Whether a version is as asked for; by hand, since `packaging` is not needed to judge.

    >>> _fits("2.13.0+cpu", "==2.13.0"), _fits("0.9", ">=0.28,<1"), _fits("3.12", ">=3.11")
    (True, False, True)
    """
    for part in filter(None, (item.strip() for item in asked.split(","))):
        matched = re.match(r"(>=|==|<|!=)\s*([\d.]+)", part)
        if matched and not COMPARE[matched[1]](_numbers(found), _numbers(matched[2])):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in re.match(r"[\d.]*", version)[0].split(".") if part]  # type: ignore[index]
    while numbers and not numbers[-1]:
        numbers.pop()  # 2.0 is 2
    return tuple(numbers)


def print_checks(checks: Iterable[Check], *, as_json: bool) -> int:
    """Each check as it is done, or all as JSON; the exit code is 5 where one failed."""
    from rich.text import Text

    from data.text import printable
    from reports.terminal import open_screen

    colours = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    done = []
    console = open_screen()
    for check in checks:
        done.append(check)
        if not as_json:
            line = Text(f"{check.status:<5} ", style=colours[check.status])
            said = f"{check.name}: {check.says}" + (f"; {check.way_out}" if check.way_out else "")
            console.print(line + Text(printable(said), style=""), soft_wrap=True)
    failed = sum(check.status == "fail" for check in done)
    if as_json:
        print(json.dumps({"checks": [_row(check) for check in done], "failed": failed}, indent=2))
    else:
        warned = sum(check.status == "warn" for check in done)
        console.print(f"{len(done)} checks: {failed} failed, {warned} to look at", style="bold")
    return 5 if failed else 0


def _row(check: Check) -> dict[str, Any]:
    return {name: getattr(check, name) for name in check.__slots__}


# Whether what a TOML file names can be reached: keys, servers, models, history; nothing is paid unasked.

ASK = "ask it once, which may cost money: --ask"
SECONDS = 10.0
SHOWN = 3


def check_file(path: Path, *, ask: bool) -> Iterator[Check]:
    """All that a judge's, a model's or a night's file names."""
    try:
        table = read_toml(path)
        if "models" in table:
            yield from _check_night(path, ask=ask)
        elif "kind" in table:
            yield from check_judge_named(str(path), ask=ask)
        else:
            yield from _check_model(path, ask=ask)
    except UserError as error:
        yield Check(name=str(path), status="fail", says=str(error))


def check_judge_named(name: str, *, ask: bool) -> Iterator[Check]:
    """A judge by its name or file: whether it loads, its endpoints, and one judgment if it may be asked."""
    from judge.base import load_judge
    from judge.panel import endpoints_of

    judge = load_judge(name)
    yield Check(name=name, status="ok", says=f"judge {judge.name} {judge.version}")
    endpoints = endpoints_of(judge)
    is_reached = True
    for endpoint in endpoints:
        for check in check_endpoint(endpoint, ask=ask):
            is_reached = is_reached and check.status != "fail"
            yield check
    if not (ask and endpoints and is_reached):
        return
    started = monotonic()
    try:
        said = judge.judge(SAMPLE)
    finally:
        for endpoint in endpoints:
            endpoint.close()
    took = f"{monotonic() - started:.2f} s, USD {sum(item.spent for item in endpoints):.6f}"
    if said.unscored:
        yield Check(name=f"{name}: a question", status="fail", says=f"unscored: {said.unscored}; {took}")
    else:
        yield Check(name=f"{name}: a question", status="ok", says=f"answered {said.label} in {took}")


def check_endpoint(endpoint: Endpoint, *, ask: bool) -> Iterator[Check]:
    """The key, the server, and whether it lists the model; listing costs nothing."""
    from judge.llm.endpoint import Connections
    from judge.llm.keys import Key

    name = f"{endpoint.base_url}, model {endpoint.model}"
    try:
        key = Key(endpoint.key_env)
    except UserError as error:
        yield Check(name=name, status="fail", says=str(error))
        return
    connections = Connections(base_url=endpoint.base_url, key=key, timeout=min(SECONDS, endpoint.timeout))
    started = monotonic()
    try:
        answer = connections.send(lambda client: client.models.with_raw_response.list())
    finally:
        connections.close()
    took = f"{1000 * (monotonic() - started):.0f} ms"
    if answer.body is None:
        if answer.is_unreachable or not answer.status:
            way_out = "is the server running, and the address right?"
            yield Check(name=name, status="fail", says=answer.problem, way_out=way_out)
        elif answer.status in (401, 403):
            way_out = f"check the variable {endpoint.key_env}" if endpoint.key_env else "set key_env"
            yield Check(name=name, status="fail", says=answer.problem, way_out=way_out)
        else:
            says = f"reached in {took}; it does not list its models ({answer.problem})"
            yield Check(name=name, status="warn", says=says, way_out="" if ask else ASK)
        return
    rows = answer.body.get("data")
    listed = [str(row.get("id")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if endpoint.model in listed:
        yield Check(name=name, status="ok", says=f"reached in {took}, and the model is listed")
    else:
        some = ", ".join(listed[:SHOWN]) or "none"
        yield Check(
            name=name,
            status="warn",
            says=f"reached in {took}; the model is not listed, but {some}",
            way_out=ASK,
        )


def _check_model(path: Path, *, ask: bool) -> Iterator[Check]:
    yield from _check_responder(read_model_config(path), str(path), ask=ask)


def _check_responder(config: ModelConfig, name: str, *, ask: bool) -> Iterator[Check]:
    responder = Responder(config)
    is_reached = True
    for check in check_endpoint(responder.endpoint, ask=ask):
        is_reached = is_reached and check.status != "fail"
        yield check
    if not (ask and is_reached):
        return
    started = monotonic()
    try:
        row = responder.respond(SAMPLE)
    finally:
        responder.endpoint.close()
    took = f"{monotonic() - started:.2f} s, USD {responder.endpoint.spent:.6f}"
    failed = row.get("failed")
    yield Check(
        name=f"{name}: a prompt",
        status="fail" if failed else "ok",
        says=f"{failed or 'answered'}; {took}",
    )


def _check_night(path: Path, *, ask: bool) -> Iterator[Check]:
    from nightly.config import read_config

    config = read_config(path)
    yield Check(name=str(path), status="ok", says=f"models: {len(config.models)}, gates: {len(config.gates)}")
    if config.judge.endswith(".toml"):
        yield from check_judge_named(config.judge, ask=ask)
    for model in config.models:
        if model.endpoint is not None:
            yield from _check_responder(model.endpoint, model.name, ask=ask)
    yield check_history(config.history)


def check_history(place: str) -> Check:
    """Whether the history can be opened; a SQLite file that is not there yet is not made."""
    from nightly.history import database_errors, make_engine, read_url, show_url

    url = read_url(place)
    name = f"history {show_url(url)}"
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        return Check(name=name, status="ok", says="not there yet; the first night makes it")
    try:
        with database_errors(url), make_engine(url).connect() as connection:
            connection.exec_driver_sql("SELECT 1")
    except UserError as error:
        return Check(name=name, status="fail", says=str(error))
    return Check(name=name, status="ok", says="can be opened")

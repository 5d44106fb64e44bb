"""Whether what a TOML file names can be reached: keys, servers, models, history; nothing is paid unasked."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from data.errors import UserError
from data.files import read_toml
from judge.endpoint import Endpoint
from judge.respond import ModelConfig, Responder, read_model_config
from nightly.doctor import SAMPLE, Check

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
    from judge.members import endpoints_of

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
    from judge.keys import Key
    from judge.wire import Wire

    name = f"{endpoint.base_url}, model {endpoint.model}"
    try:
        key = Key(endpoint.key_env)
    except UserError as error:
        yield Check(name=name, status="fail", says=str(error))
        return
    wire = Wire(base_url=endpoint.base_url, key=key, timeout=min(SECONDS, endpoint.timeout), connections=1)
    started = monotonic()
    try:
        answer = wire.send("/models", b"", method="GET")
    finally:
        wire.close()
    took = f"{1000 * (monotonic() - started):.0f} ms"
    if answer.found is None:
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
    rows = answer.found.get("data")
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
    from data.databases import database_errors, make_engine, read_url, show_url

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

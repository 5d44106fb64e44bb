"""The command `serve`: the judge over HTTP."""

import click

from commands.shared.options import device_option, say, say_next
from data.errors import UserError
from data.input_limits import LARGEST_BODY, MOST_EXCHANGES, MOST_QUEUED


@click.command()
@click.option(
    "--judge",
    "judge_name",
    default="classifier",
    show_default=True,
    metavar="JUDGE",
    help="The judge that answers, as in `score`.",
)
@device_option
@click.option(
    "--calibration",
    metavar="FILE|none",
    help="Correct shares by this calibration, or by none.  [default: the one that came with the judge]",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Where to listen; this machine only, if not told."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="0 for any that is free."
)
@click.option("--key-env", default="", metavar="NAME", help="The variable with the key callers must send.")
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    default=MOST_QUEUED,
    show_default=True,
    metavar="N",
    help="Runs that may wait; past that the answer is 503.",
)
@click.option(
    "--max-exchanges",
    type=click.IntRange(min=1),
    default=MOST_EXCHANGES,
    show_default=True,
    metavar="N",
    help="The most that one request may bring.",
)
@click.option(
    "--max-body",
    type=click.IntRange(min=1024),
    default=LARGEST_BODY,
    show_default=True,
    metavar="BYTES",
    help="The most that one request may weigh.",
)
@click.option(
    "--stdio",
    is_flag=True,
    help="Answer JSON lines on stdin with JSON lines on stdout; nothing listens on the network.",
)
def serve(
    judge_name: str,
    calibration: str | None,
    host: str,
    port: int,
    key_env: str,
    queue: int,
    max_exchanges: int,
    max_body: int,
    stdio: bool,
) -> None:
    """Judge replies over HTTP, as `score` does for files.

    POST /v1/score takes exchanges; /v1/decisions (OpenAI) takes typed questions about one exchange;
    /v1/chat/completions grades for tools that only know chat models; / is a page to try it. With "unit":
    "conversation" in /v1/score, or the model `conversation` elsewhere, all turns are judged as one.
    Also: /v1/shares, /v1/models, /health, /metrics, /openapi.json.
    Nothing that is sent is stored or logged. The first SIGTERM or Ctrl-C finishes the accepted requests. With
    --stdio it is a child process of another program, as the Python client `empathy_judge` starts it.

    \b
    Examples:
      empathy-judge serve
      empathy-judge serve --port 0 --judge prompted.toml --queue 64
      empathy-judge serve --host 0.0.0.0 --key-env JUDGE_KEY
    """
    if stdio:
        from server.stdio import serve_stdio

        return serve_stdio(judge_name, calibration)
    from judge.base import load_both_units
    from judge.llm.keys import Key
    from server.app import Limits, make_app
    from server.middleware import is_loopback, own_hosts
    from server.process import make_server, open_socket, url_of
    from server.served_judge import ServedJudge

    key = Key(key_env)
    if not key_env and not is_loopback(host):
        raise UserError(
            f"--host {host}: others could use this server; name the variable that holds a key with "
            "--key-env, or leave --host out to serve this machine only"
        )
    with open_socket(host, port) as listening:
        judge, conversations = load_both_units(judge_name)
        served = ServedJudge(judge, calibration, conversations=conversations)

        def say_ready() -> None:
            about = f"{judge.name} {judge.version} at {url_of(listening)}; {served.calibration.note}"
            say(f"serving {about}", err=True)
            say_next(f"try it on a page: open {url_of(listening)}")

        app = make_app(
            served,
            limits=Limits(queue=queue, exchanges=max_exchanges, body=max_body),
            hosts=own_hosts(host),
            key=key.headers.get("Authorization", "").removeprefix("Bearer "),
            on_ready=say_ready,
        )
        make_server(app).run(sockets=[listening])

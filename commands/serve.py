"""The command `serve`: the judge over HTTP."""

import click

from empathy_judge.commands.shared.options import (
    calibration_option,
    device_option,
    judge_option,
    say,
    say_next,
)
from empathy_judge.data.errors import UserError


@click.command()
@judge_option
@device_option
@calibration_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="Port; 0: any free one."
)
@click.option(
    "--key-env", default="", metavar="NAME", help="Environment variable with the key that clients must send."
)
def serve(judge_name: str, calibration: str | None, host: str, port: int, key_env: str) -> None:
    """Serve a judge over HTTP.

    POST /v1/score takes exchanges; /v1/chat/completions grades for tools that support only chat models; / is
    a page to try it. With "unit": "conversation" in /v1/score, or the model `conversation` in chat
    completions, all turns are scored as one. Also: /v1/shares, /v1/models, /health, /metrics, /openapi.json.
    Nothing that is sent is stored or logged. The first SIGTERM or Ctrl-C finishes the accepted requests.

    \b
    Examples:
      empathy-judge serve
      empathy-judge serve --port 0 --judge prompted.toml
      empathy-judge serve --host 0.0.0.0 --key-env JUDGE_KEY
    """
    from empathy_judge.judge.base import load_both_units
    from empathy_judge.judge.llm.http_client import Key
    from empathy_judge.server.app import make_app
    from empathy_judge.server.middleware import own_hosts
    from empathy_judge.server.process import make_server, open_socket, url_of
    from empathy_judge.server.served_judge import ServedJudge

    key = Key(key_env)
    if not key_env and own_hosts(host) is None:
        raise UserError(
            f"--host {host}: others could use this server. Set --key-env to the environment variable with a "
            "key, or omit --host to serve this machine only"
        )
    with open_socket(host, port) as listening:
        judge, whole = load_both_units(judge_name)
        served = ServedJudge(judge, calibration)
        # A calibration that is named is one of replies.
        its_own = "none" if calibration == "none" else None
        conversations = served if whole is judge else ServedJudge(whole, its_own)

        def say_ready() -> None:
            about = f"{judge.name} {judge.version} at {url_of(listening)}; {served.calibration.note}"
            say(f"serving {about}", err=True)
            say_next(f"to try it on a page: open {url_of(listening)}")

        app = make_app(
            served,
            conversations=conversations,
            hosts=own_hosts(host),
            key=key.headers.get("Authorization", "").removeprefix("Bearer "),
            on_ready=say_ready,
        )
        make_server(app).run(sockets=[listening])

"""A PostgreSQL server of Debian's package, in a folder of its own, that ends with its `with` block."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from threading import Event
from time import monotonic

PASSWORD = "not-to-be-seen"
DEADLINE = 60.0


def find_postgres() -> Path | None:
    """The folder of the newest server's programs; they are not on the path."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in found), key=lambda path: int(path.parent.name), default=None)


def find_driver() -> bool:
    """Whether psycopg can be imported."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def start_postgres() -> Iterator[str]:
    """Yields a URL with a password, up to the name of the database, which is `postgres` to begin with."""
    programs = find_postgres()
    assert programs is not None, "the package postgresql is not installed"
    # The server refuses to run as root; nor may the tests' own folder be read by others, so it gets another.
    user = _other_user() if os.geteuid() == 0 else None
    folder = Path(mkdtemp(prefix="postgres-"))
    try:
        (folder / "password").write_text(PASSWORD)
        if user:
            for path in (folder, folder / "password"):
                shutil.chown(path, user)
        make = [programs / "initdb", "-D", folder / "data", "-U", "judge", "--pwfile", folder / "password"]
        make += ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"]
        subprocess.run(make, check=True, capture_output=True, user=user, cwd=folder)
        with _serving(programs, folder, user) as port:
            yield f"postgresql+psycopg://judge:{PASSWORD}@127.0.0.1:{port}/"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _other_user() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextmanager
def _serving(programs: Path, folder: Path, user: str | None) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    # What is lost with the machine is no loss here.
    careless = ["fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_wal_size=4GB"]
    settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "autovacuum=off", *careless]
    command = [str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(port)]
    command += [word for setting in settings for word in ("-c", setting)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, user=user, cwd=folder)
    try:
        _wait_until_up(process, port, folder / "log")
        yield port
    finally:
        process.send_signal(signal.SIGQUIT)  # ends it and its children at once
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=30)


def _wait_until_up(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    import psycopg

    waiting, deadline = Event(), monotonic() + DEADLINE
    while True:
        try:
            psycopg.connect(
                host="127.0.0.1", port=port, user="judge", password=PASSWORD, dbname="postgres"
            ).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or monotonic() > deadline:
                said = log.read_text(errors="replace")[-2000:]
                raise AssertionError(f"the server did not start: {said}") from None
        waiting.wait(0.05)

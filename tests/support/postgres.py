"""A PostgreSQL server of Debian's package, in a folder of its own, that ends with its `with` block."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

PASSWORD = "not-to-be-seen"


def find_postgres() -> Path | None:
    """Return the folder of the newest server's programs; they are not on the path."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in found), key=lambda path: int(path.parent.name), default=None)


@contextmanager
def start_postgres() -> Iterator[str]:
    """Yield a URL with a password, up to the name of the database, which is `postgres` to begin with."""
    programs = find_postgres()
    assert programs is not None, "the package postgresql is not installed"
    # The server refuses to run as root; nor may the tests' own folder be read by others, so it gets another.
    user = "postgres" if os.geteuid() == 0 else None
    folder = Path(mkdtemp(prefix="postgres-"))
    data, password = folder / "data", folder / "password"
    password.write_text(PASSWORD)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # What is lost with the machine is no loss here.
    careless = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_wal_size=4GB")
    settings = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "autovacuum=off", *careless)
    options = " ".join([f"-p {port}", *(f"-c {setting}" for setting in settings)])

    def run(program: str, *words: object) -> None:
        command = [str(word) for word in (programs / program, "-D", data, *words)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, cwd=folder)

    try:
        if user:
            for path in (folder, password):
                shutil.chown(path, user)
        auth = ("--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")
        run("initdb", "-U", "judge", f"--pwfile={password}", *auth)
        run("pg_ctl", "start", "-w", "-t", 60, "-l", folder / "log", "-o", options)
        try:
            yield f"postgresql+psycopg://judge:{PASSWORD}@127.0.0.1:{port}/"
        finally:
            run("pg_ctl", "stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)

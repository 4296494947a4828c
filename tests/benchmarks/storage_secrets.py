"""Search for credentials on all machines that take part in a transfer: figure ``secrets_found``.

A kernel with marked credentials brings data to a machine reached by SSH and uploads what a cell
makes, while the arguments and environments of all processes there, and all files of both sides,
are searched for the marks: during the transfers and after them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from jupyter_sky.machines.storage.datasets.mounts import missing_for_mounts

SECRET, SESSION = "secret-key-marked-9f27", "session-token-marked-61c4"
MARKS = (SECRET, SESSION, "X-Amz-Signature=")
LARGEST_FILE = 50_000_000
CONTENT = bytes(range(256)) * 256 * 520
SOURCES = (".py", ".pyc", ".zst", ".gz")


def marked_environment(account: Any) -> dict[str, str]:
    """Let an emulated account have the marked credentials; return them as variables."""
    account.keys["AKIATEST"] = SECRET
    account.sessions["AKIATEST"] = (SESSION, account.now() + 3600)
    return {
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": SESSION,
    }


def in_processes(processes: Iterable[psutil.Process], marks: Sequence[str] = MARKS) -> list[str]:
    """Return the marks in arguments and environments of processes, with their numbers."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            seen = json.dumps([process.cmdline(), process.environ()])
            found += [f"{mark} in process {process.pid}" for mark in marks if mark in seen]
    return found


def in_files(folders: Iterable[Path], marks: Sequence[str] = MARKS) -> list[str]:
    """Return the marks in files below folders, databases as well; sources of programs are none."""
    found = []
    walked = (base for folder in folders for base in os.walk(folder))  # folders may go meanwhile
    for path in (Path(base, name) for base, __, names in walked for name in names):
        with contextlib.suppress(OSError):
            is_read = path.is_file() and path.suffix not in SOURCES
            if is_read and path.stat().st_size < LARGEST_FILE:
                data = path.read_bytes()
                found += [f"{mark} in {path}" for mark in marks if mark.encode() in data]
    return found


def transfer_cell(url: str) -> str:
    """Return a cell that brings, mounts and writes data, and shows all that a cell can see."""
    mount = (
        f"--mount s3://bucket/secret/?endpoint={url}:./mounted " if not missing_for_mounts() else ""
    )
    return (
        f"%%sky --cloud ssh {mount}--data s3://bucket/secret/in?endpoint={url}:./secret "
        f"--out w:s3://bucket/w?endpoint={url} -o 'kept@s3://bucket/kept?endpoint={url}'\n"
        "import os; kept = bytes(200_000)\n"
        "if os.path.exists('mounted'): print(len(open('mounted/in', 'rb').read()))\n"
        "open('w', 'wb').write(bytes(20_000_000)); print(dict(os.environ))"
    )


def search_during(notebook: Any, bucket: Any, hosts: Sequence[Any], folders: list[Path]) -> int:
    """Run the transfers; return the number of marks that were found, each of which is printed.

    Parameters
    ----------
    notebook
        Kernel with the marked credentials.
    bucket
        Emulated store with a bucket ``bucket``.
    hosts
        Machines reached by SSH.
    folders
        All that the kernel and the machines write to.
    """
    from tests.conftest import wait_until

    bucket.put("bucket", "secret/in", CONTENT)
    bucket.fail("GET /bucket/secret/in", "SlowDown", times=3, seconds=0.5)
    sent = notebook.send(transfer_cell(bucket.url))
    wait_until(lambda: bucket.count("GET /bucket/secret/in"))
    processes = [process for host in hosts for process in host.own()]
    assert processes, "nothing runs on any machine"
    found = in_processes(processes) + in_files(folders)
    ran = notebook.collect(sent, 120)
    assert ran.status == "ok", ran
    shown = json.dumps(ran.messages, default=str)
    found += [f"{mark} in the outputs" for mark in MARKS if mark in shown]
    bucket.fail("GET /bucket/secret/in", "AccessDenied", times=100)
    failed = notebook.run(transfer_cell(bucket.url).replace("secret/in", "secret/in2"), 120)
    assert failed.status == "error", failed
    found += [f"{mark} in a traceback" for mark in MARKS if mark in failed.traceback]
    found += in_processes(process for host in hosts for process in host.own()) + in_files(folders)
    for line in found:
        print(line, file=sys.stderr)
    return len(found)


def secrets_found() -> int:
    """Return the number of places in which a credential was found."""
    from tests.conftest import Notebook, clean
    from tests.emulators.hosts import SshHost
    from tests.emulators.object_store import ObjectStore

    with (
        tempfile.TemporaryDirectory() as text,
        ObjectStore("r2") as bucket,
        contextlib.closing(SshHost(75)) as host,
    ):
        bucket.create("bucket")
        data, notebooks = Path(text, "data"), Path(text, "notebooks")
        for folder in (data, notebooks):
            folder.mkdir()
        (data / "hosts.toml").write_text(host.toml("box"))
        environment = {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "SKY_DATA_DIR": str(data),
            **marked_environment(bucket.account),
        }
        notebook = Notebook(notebooks, environment, "secrets.ipynb")
        try:
            return search_during(notebook, bucket, [host], [data, notebooks, host.folder])
        finally:
            notebook.run("%sky down --all")
            notebook.stop()
            clean(data)


if __name__ == "__main__":
    print(json.dumps({"secrets_found": secrets_found()}))

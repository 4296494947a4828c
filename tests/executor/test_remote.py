"""Cells on machines reached by SSH, from a real kernel: outputs, cut connections, deaths."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_sky.base.store.store import Store
from tests.conftest import Notebook, processes_of, wait_until
from tests.emulators.hosts import USABLE, SshHost

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]

COUNT = """%%sky --cloud ssh
import time
kept = 41
for number in range({}):
    print('line', number, flush=True)
    time.sleep(0.05)
print('over')
"""


def lines(text: str) -> list[int]:
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("line ")]


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[SshHost]]:
    """Two machines that keep what was installed from one test to the next."""
    made = [SshHost(61), SshHost(62)]
    yield made
    for host in made:
        host.close()


@pytest.fixture
def start(fresh: Any, hosts: list[SshHost]) -> Iterator[Callable[..., Notebook]]:
    """Make a kernel whose pool is the first machine, or what `tables` say."""

    def make(*tables: str, name: str = "analysis.ipynb") -> Notebook:
        fresh.data.mkdir(exist_ok=True)
        (fresh.data / "hosts.toml").write_text("\n".join(tables or [hosts[0].toml("box")]))
        return fresh(name)

    make.data = fresh.data  # type: ignore[attr-defined]
    yield make
    for host in hosts:
        if not host.running():
            host.start()
        for process in host.own():
            with contextlib.suppress(psutil.Error):
                process.kill()
        wait_until(lambda host=host: not host.held())


def nothing_left(host: SshHost) -> None:
    wait_until(lambda: not host.held(), "processes are left")
    # a process that ends may no longer be seen while it still removes its files
    wait_until(lambda: not host.clusters() + host.taken(), "folders or slots are left")


def test_a_cell_there_is_as_one_here(start: Callable[..., Notebook], hosts: list[SshHost]) -> None:
    book, box = start(), hosts[0]
    (Path(book.directory) / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    book.run("import os; os.environ['TOKEN'] = 'secret'")
    ran = book.run(
        "%%sky --cloud ssh --sync helper.py --env TOKEN -o answer\n"
        "import os, sys\nfrom helper import twice\n"
        "print(os.environ['HOME'], os.environ['TOKEN'])\n"
        "print('to stderr', file=sys.stderr)\nanswer = twice(21)\nanswer"
    )
    assert ran.result == "42", ran
    assert ran.stdout == f"{box.home} secret\n" and ran.stderr == "to stderr\n"
    assert "ssh pool box" in ran.status_line and ran.status_line.startswith("☁ done")
    assert book.run("answer").result == "42"
    failed = book.run("%%sky\n1 / 0")
    assert failed.ename == "ZeroDivisionError" and "1 / 0" in failed.traceback
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    book.interrupt()
    assert book.collect(sent).ename == "KeyboardInterrupt"
    assert book.run("%%sky --bg job\nimport time\ntime.sleep(0.3); print('in the back'); 7").status
    assert book.run("job.result(20)").result == "7"
    assert "in the back" in book.run("%sky logs job").stdout
    big = book.run("blob = bytes(30_000_000)\n")
    assert big.status == "ok"
    assert book.run("%%sky -i blob\nlen(blob)").result == "30000000"
    written = book.run(
        "%%sky -o file:out/blob\nos.mkdir('out')\nopen('out/blob', 'wb').write(blob)"
    )
    assert written.status == "ok", written.traceback
    assert Path(book.directory, "out", "blob").stat().st_size == 30_000_000
    assert book.run("%sky get out/blob there/").status == "ok"
    assert Path(book.directory, "there", "blob").stat().st_size == 30_000_000
    status = book.run("%sky status").result
    assert "ssh pool box" in status and "analysis-" in status
    command = book.run("%sky ssh").stdout
    assert command.startswith("ssh -t ") and f"-p {box.port}" in command
    (row,) = Store.open(start.data).clusters()  # type: ignore[attr-defined]
    stages = book.run(f"%sky logs {row.name} --provision").stdout
    assert "machines" in stages and "controller" in stages
    assert re.search(r"\d\.\d s", stages)
    assert "ended: analysis-" in book.run("%sky down").stdout
    nothing_left(box)
    assert "in the back" in book.run("%sky logs job").stdout, "the journal was brought home"


def test_failed_start_leaves_no_connection(
    start: Callable[..., Notebook], hosts: list[SshHost], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if 'jupyter_sky.machines.engines.controller' in sys.orig_argv:\n"
        "    time.sleep(1.0)\n"
        "    print('ImportError: libbroken.so.3 is not here', file=sys.stderr, flush=True)\n"
        "    os._exit(7)\n"
    )
    book = start(hosts[0].toml("box") + f'\nenv = {{ PYTHONPATH = "{tmp_path}" }}')
    sent = book.send("%%sky --cloud ssh\n1")
    wait_until(lambda: ways_of(start), "its way is opened while the head starts")
    ran = book.collect(sent)
    assert ran.ename == "SkyClusterLost" and "libbroken.so.3 is not here" in ran.evalue, ran
    wait_until(lambda: not ways_of(start), "it is closed")
    nothing_left(hosts[0])


def ways_of(start: Any) -> list[psutil.Process]:
    """Processes that hold connections of a test's kernels."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mine = process.environ().get("SKY_DATA_DIR") == str(start.data)
            if mine and "jupyter_sky.machines.engines.client.tunnel_client" in process.cmdline():
                found.append(process)
    return found


def test_a_connection_that_nobody_asks_for_ends() -> None:
    program = (
        "import sys; from jupyter_sky.machines.engines.client import tunnel_client\n"
        "tunnel_client.UNUSED_SECONDS = 0.3; tunnel_client.main(sys.argv[1:])"
    )
    folder = tempfile.mkdtemp(prefix="t-")
    with subprocess.Popen(
        [sys.executable, "-c", program, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write('["sh", "-c", "echo not yet >&2; exit 255"]\n')
        process.stdin.flush()
        said = iter(process.stdout.readline, "lost no cluster was ever connected to\n")
        assert set(said) == {"down not yet\n"}
        process.stdin.close()
        assert process.wait(5) == 0
    assert not Path(folder).exists()


def test_packages_of_a_cell(start: Callable[..., Notebook], tmp_path: Path) -> None:
    project = tmp_path / "tiny"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "tiny"\nversion = "1"\n'
    )
    (project / "backend.py").write_text(BACKEND)
    ran = start().run(f"%%sky --cloud ssh --pip {project}\nimport tiny_module\ntiny_module.ANSWER")
    assert ran.result == "42", ran


BACKEND = """
import zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        wheel.writestr("tiny_module.py", "ANSWER = 42")
        for path, text in (
            ("METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n"),
            ("WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"),
            ("RECORD", ""),
        ):
            wheel.writestr(f"tiny-1.dist-info/{path}", text)
    return name
"""


def test_a_cut_connection_loses_nothing(
    start: Callable[..., Notebook], hosts: list[SshHost]
) -> None:
    book, box = start(), hosts[0]
    sent = book.send(COUNT.format(80))
    seen = book.wait_output("line 10\n")
    assert box.cut()
    seen += book.wait_output("line 30\n")
    assert box.cut()
    ran = book.collect(sent)
    assert ran.status == "ok", ran
    assert lines(seen + ran.stdout) == list(range(80)) and ran.stdout.endswith("over\n")
    assert book.run("%%sky\nkept + 1").result == "42"
    book.run("%%sky\nopen('large', 'wb').write(bytes(range(256)) * 250_000)\nNone")
    sent, here = book.send("%sky get large"), Path(book.directory)
    wait_until(lambda: any(p.stat().st_size > 5e6 for p in here.glob(".large.*.part")))
    assert box.cut()
    ran = book.collect(sent)
    assert ran.status == "ok" and "64.0 MB brought" in ran.stdout, ran
    assert (here / "large").read_bytes() == bytes(range(256)) * 250_000
    assert not list(here.glob(".large*"))


def test_a_cell_that_is_sent_while_the_machine_is_away_runs_once_when_it_is_back(
    start: Callable[..., Notebook], hosts: list[SshHost]
) -> None:
    book, box = start(), hosts[0]
    assert book.run("%%sky --cloud ssh\ntimes = 0").status == "ok"
    box.stop(connections=True)
    sent = book.send("%%sky\ntimes += 1\nprint('ran')\ntimes")
    time.sleep(4.0)
    box.start()
    ran = book.collect(sent)
    assert ran.result == "1" and ran.stdout == "ran\n", ran
    shown = [c["data"].get("text/plain", "") for c in ran.of("update_display_data")]
    assert any("reconnecting" in line for line in shown), "the status line says what it waits for"


def test_a_flood_over_a_cut_connection(
    start: Callable[..., Notebook], hosts: list[SshHost]
) -> None:
    book, box = start(), hosts[0]
    begun = book.run("%%sky --cloud ssh\n1")
    assert begun.status == "ok", begun.evalue
    sent = book.send(
        "%%sky\nimport time\nfor number in range(20000):\n"
        "    print('line', number, 'x' * 100)\n    if number % 2000 == 0: time.sleep(0.1)"
    )
    book.wait_output("line 2001 ")
    box.cut()
    ran = book.collect(sent)
    assert ran.status == "ok", ran.evalue
    (row,) = [row for row in Store.open(start.data).runs() if row.code.startswith("import time")]  # type: ignore[attr-defined]
    text = book.run(f"%sky logs {row.cell}").stdout
    assert lines(text) == list(range(20000)), "the journal has all"
    assert ran.stdout.rstrip().splitlines()[-1].startswith("line 19999 ")


def test_a_killed_kernel_finds_its_cluster_and_what_was_printed_meanwhile(
    start: Callable[..., Notebook], hosts: list[SshHost]
) -> None:
    book = start()
    book.send(COUNT.format(60))
    before = lines(book.wait_output("line 10\n") + book.crash())
    wait_until(lambda: not processes_of(start.data), "something of the kernel is left")  # type: ignore[attr-defined]
    book.start()
    ran = book.run("%%sky --cloud ssh\nkept + 1")
    assert ran.result == "42", ran
    assert "reconnected to analysis-" in ran.status_line
    after = lines(ran.stdout)
    assert after == list(range(after[0], 60)) and ran.stdout.endswith("over\n")
    assert before == list(range(len(before))) and 0 <= len(before) - after[0] <= 8
    book.restart()
    assert book.run("%%sky\nkept").result == "41"


def test_an_engine_and_a_head_that_die(
    start: Callable[..., Notebook], hosts: list[SshHost]
) -> None:
    book, box = start(), hosts[0]
    sent = book.send("%%sky --cloud ssh\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    box.part("engine")[0].kill()
    ran = book.collect(sent)
    assert ran.ename == "SkyEngineLost" and "SIGKILL" in ran.evalue
    assert book.run("%%sky\n1 + 1").result == "2"
    box.part("tunnel_server")[0].kill()  # another takes its place; what it held is gone
    wait_until(lambda: box.part("tunnel_server"))
    again = book.run("%%sky\n2 + 2")
    assert again.result == "4" or again.ename == "SkyClusterLost", again
    assert book.run("%%sky\n3 + 3").result == "6"
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    box.part("controller")[0].kill()
    ran = book.collect(sent)
    assert ran.ename == "SkyClusterLost" and "SIGKILL" in ran.evalue, ran.evalue
    nothing_left(box)
    after = book.run("%%sky\n1 + 1")
    assert after.result == "2" and "its variables are gone" in after.status_line


def test_a_lease_that_ends_while_the_notebook_is_gone_leaves_nothing(
    start: Callable[..., Notebook], hosts: list[SshHost]
) -> None:
    book, box = start(), hosts[0]
    ran = book.run("%%sky --cloud ssh --idle 3s\nkept = 1")
    assert ran.status == "ok", ran
    box.stop(connections=True)  # and nobody comes back
    book.crash()
    nothing_left(box)
    box.start()
    book.start()
    ran = book.run("%%sky --cloud ssh\n1 + 1")
    assert ran.result == "2" and "has ended (idle)" in ran.status_line, ran.status_line


def test_two_notebooks_and_one_slot(start: Callable[..., Notebook], hosts: list[SshHost]) -> None:
    one, two = start(name="one.ipynb"), start(name="two.ipynb")
    assert one.run("%%sky --cloud ssh\n1").status == "ok"
    refused = two.run("%%sky --cloud ssh\n1")
    assert refused.ename == "SkyNoCapacity" and "taken" in refused.evalue
    assert one.run("%sky down").status == "ok"
    time.sleep(2.1)  # so long a place that has refused is not asked again
    assert two.run("%%sky --cloud ssh\n1 + 1").result == "2"


def test_two_nodes(start: Callable[..., Notebook], hosts: list[SshHost]) -> None:
    book = start(*(host.toml(name, price=1) for host, name in zip(hosts, ("a", "b"), strict=True)))
    ran = book.run(
        "%%sky --cloud ssh --nodes 2 -o where\nimport os, time\nwhere = os.environ['HOME']\n"
        "print('on', where)",
    )
    assert ran.status == "ok", ran
    assert sorted(eval(book.run("where").result)) == sorted(str(host.home) for host in hosts)
    assert ran.stdout.count("on ") == 2 and "2 x ssh" in ran.status_line
    assert "$2.00/h" in ran.status_line
    (agent_host,) = [host for host in hosts if host.part("node_agent")]
    (head_host,) = [host for host in hosts if host.part("controller")]
    assert agent_host is not head_host and len(agent_host.part("engine")) == 1
    # an interrupt and a death, over there
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    time.sleep(0.5)
    book.interrupt()
    assert book.collect(sent).ename == "KeyboardInterrupt"
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(5)")
    book.wait_output("begun")
    time.sleep(0.5)
    agent_host.part("engine")[0].kill()
    ran = book.collect(sent)
    assert ran.ename == "SkyEngineLost" and "SIGKILL" in ran.evalue, ran
    assert book.run("%%sky\nwhere = 3").status == "ok"
    # when a node is gone, so is the cluster, on both
    agent_host.part("supervisor")[0].kill()
    agent_host.part("node_agent")[0].kill()
    wait_until(lambda: not agent_host.part("engine"))
    gone = book.run("%%sky --nodes 2\nwhere")
    assert gone.ename == "SkyClusterLost" or "its variables are gone" in gone.status_line, gone
    again = book.run("%%sky --cloud ssh --nodes 2\nprint('again')")
    assert again.stdout.count("again") == 2, again
    assert "ended" in book.run("%sky down all").stdout
    nothing_left(hosts[0])
    nothing_left(hosts[1])


def test_silent_node_costs_only_its_own_variables(
    start: Callable[..., Notebook], hosts: list[SshHost]
) -> None:
    book = start(*(host.toml(name, price=1) for host, name in zip(hosts, ("a", "b"), strict=True)))
    assert book.run("%%sky --cloud ssh --nodes 2\nkept = 41").status == "ok"
    (silent,) = [host for host in hosts if host.part("node_agent")]
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    (node_agent,) = silent.part("node_agent")
    node_agent.suspend()
    lost = book.collect(sent)
    assert lost.ename == "SkyNodeLost", lost
    assert "node 1 of cluster" in lost.evalue and "not answered for 10 s" in lost.evalue
    assert book.run("%%sky --on 0\nkept").result == "41", "the other node goes on"
    node_agent.resume()
    wait_until(lambda: len(silent.part("engine")) == 1)
    again = book.run("%%sky\nprint('kept' in globals())")
    assert again.stdout.count("False") == again.stdout.count("True") == 1, again
    assert book.run("%%sky --on 0\nkept").result == "41"
    assert "ended" in book.run("%sky down").stdout
    for host in hosts:
        nothing_left(host)


def test_login_that_runs_a_command_keeps_the_cluster(
    start: Callable[..., Notebook], hosts: list[SshHost]
) -> None:
    book, box = start(), hosts[0]
    assert book.run("%%sky --cloud ssh --idle 10s\nkept = 1").status == "ok"
    command = shlex.split(book.run("%sky ssh").stdout)
    with subprocess.Popen(
        [command[0], "-tt", *command[2:]], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as shell:
        assert shell.stdin is not None
        shell.stdin.write(b"sleep 60\n")
        shell.stdin.flush()
        time.sleep(18.0)
        assert re.search(r"login of \w+ \(sleep\)", book.run("%sky status").result)
        assert box.clusters() != [], "somebody works there"
        shell.stdin.write(b"\x03exit\n")
        shell.stdin.flush()
        shell.wait(10)
    wait_until(lambda: not box.clusters())
    time.sleep(4.0)  # until this kernel has heard of it
    after = book.run("%%sky --cloud ssh\n1 + 1")
    assert after.result == "2" and "has ended (" in after.status_line, after

"""the direct route to engines of this machine, and the controller's where there is none."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import psutil
import pytest
import zmq

from tests.conftest import Notebook, part, wait_until

pytestmark = pytest.mark.slow

CLIENT = """
from jupyter_sky.execution.sessions import session as sessions
(live,) = sessions.current().clusters.connected.values()
client = live.connection.client
"""


def test_engines_of_this_machine_are_reached_directly(notebook: Notebook) -> None:
    assert notebook.run("%%sky --nodes 2\n1;").status == "ok"
    notebook.run(CLIENT)
    assert notebook.run("len(client.routes), len(client._direct_topics)").result == "(2, 2)"
    notebook.run("from collections import Counter; seen = Counter(); send = client.session.send")
    notebook.run(
        "def counting(socket, *a, **k):\n"
        "    seen['mux' if socket is client._mux_socket else 'other'] += 1\n"
        "    return send(socket, *a, **k)\n"
        "client.session.send = counting"
    )
    ran = notebook.run("%%sky --on 0\nprint('once')\n6 * 7")
    assert ran.stdout == "once\n" and ran.result == "42"
    assert notebook.run("seen['mux'], seen['other'] > 0").result == "(0, True)"


def test_message_on_both_routes_is_shown_once(notebook: Notebook) -> None:
    """While one way takes over from the other, both bring what is printed."""
    notebook.run(CLIENT)
    notebook.run("client.run_in_loop(lambda: client._iopub_socket.subscribe(b''))")
    notebook.run("topics = client._direct_topics; client._direct_topics = ()")
    ran = notebook.run("%%sky --on 0\nimport time\nprint('both'); time.sleep(0.3); print('ways')")
    assert ran.stdout == "both\nways\n" and ran.stderr == ""
    notebook.run(
        "client._direct_topics = topics\n"
        "client.run_in_loop(lambda: client._iopub_socket.unsubscribe(b''))"
    )


def test_controller_route_is_equivalent(notebook: Notebook) -> None:
    notebook.run(CLIENT)
    notebook.run(
        "for uuid in list(client.routes):\n"
        "    route = client.routes.pop(uuid)\n"
        "    client.run_in_loop(lambda: client._close_route(route))"
    )
    ran = notebook.run("%%sky --on 0\nprint('far')\nimport time; time.sleep(0.1)\nprint('end'); 1")
    assert ran.stdout == "far\nend\n" and ran.result == "1"
    notebook.run("x = b'0' * 10_000_000")
    assert notebook.run("%%sky --on 0 -i x -o y\ny = len(x)").status == "ok"
    assert notebook.run("y").result == "10000000"


def test_port_of_another_process_is_not_used(notebook: Notebook) -> None:
    notebook.run(CLIENT)
    notebook.run("import zmq; other = zmq.Context.instance().socket(zmq.ROUTER)")
    notebook.run("port = other.bind_to_random_port('tcp://127.0.0.1')")
    notebook.run("client.connect_directly(0, client._engines[0], [port, port])")
    assert notebook.run("len(client.routes)").result == "0"
    assert notebook.run("%%sky --on 0\n'still'").result == "'still'"
    notebook.run("other.close()")


def test_new_engine_gets_direct_route(notebook: Notebook) -> None:
    assert notebook.run("%%sky --on 0\nimport os; os._exit(3)").ename == "SkyEngineLost"
    assert notebook.run("%%sky --on 0\nprint('healed')").stdout == "healed\n"
    notebook.run(CLIENT)
    routed = "len(client.routes) >= 1 and b'engine.0.' in client._direct_topics"
    assert notebook.run(routed).result == "True"
    assert notebook.run("%sky down").status == "ok"


def test_missed_engine_registration_is_found(notebook: Notebook) -> None:
    """One that registers while a client connects is announced before the client listens."""
    assert notebook.run("%%sky --nodes 2\n1;").status == "ok"
    assert notebook.run(CLIENT).status == "ok"
    notebook.run("client.run_in_loop(lambda: (client._ids.clear(), client._engines.clear()))")
    assert notebook.run("live.connection.ranks()").result == "[]"
    assert notebook.run("live.connection.wait_ranks([0, 1], 10, lambda: None)").status == "ok"
    assert notebook.run("%%sky --nodes 2 --on 1\n6 * 7").result == "42"


def test_heartbeats_are_faster_while_engine_starts(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky --nodes 2\nkept = 41").status == "ok"
    (path,) = fresh.data.glob("**/security/engine.json")
    known = json.loads(path.read_text())
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.subscribe(b"")
        socket.connect(f"{known['interface']}:{known['hb_ping']}")

        def beats() -> int:
            """Count the beats of a second."""
            time.sleep(0.3)
            while socket.poll(0):
                socket.recv()
            time.sleep(1.0)
            count = 0
            while socket.poll(0):
                socket.recv()
                count += 1
            return count

        assert 2 <= beats() <= 6
        frozen = part(fresh.data, "engine")[0]
        frozen.suspend()
        wait_until(lambda: beats() > 9)  # more than misses at the usual pace would allow
        time.sleep(1.0)
        frozen.resume()
        wait_until(lambda: beats() <= 6)
    assert frozen.is_running() and book.run("%%sky --on 0\nkept + 1").result == "42"


def test_unmonitored_connection_does_not_block_others(notebook: Notebook) -> None:
    """ZeroMQ's own thread waits for whoever should hear of a cut, and with it all of a notebook."""
    assert notebook.run("%%sky -c first\n1;").status == "ok"
    notebook.run(
        "live = sessions.current().clusters.connected['first']\n"
        "live._closed.set(); live.connection.disconnections.close()\n"
        "import time, psutil; time.sleep(0.5)\n"
        "from pathlib import Path; folder = str(Path(live.row.connection['file']).parents[1])\n"
        "for process in psutil.process_iter():\n"
        "    if folder in ' '.join(process.cmdline()): process.kill()\n"
        "time.sleep(0.5)"
    )
    ran = notebook.run("%%sky -c second\n6 * 7")
    assert ran.result == "42", ran.traceback
    assert notebook.run("live.connection.disconnections._events.closed").result == "True"


def test_closed_connection_leaves_no_socket(notebook: Notebook) -> None:
    assert notebook.run("%%sky -c open\n1;").status == "ok"
    ran = notebook.run(
        "live = sessions.current().clusters.connected['open']\n"
        "from pathlib import Path; file = Path(live.row.connection['file'])\n"
        "from jupyter_sky.machines.engines.client.connection import ClusterConnection\n"
        "other = ClusterConnection('open', file); other.close()\n"
        "other.disconnections._events.closed, other.disconnections.was_cut()"
    )
    assert ran.result == "(True, False)", ran.traceback


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere outputs go by loopback ports")
def test_no_port_gives_outputs_to_other_users_of_the_machine(fresh: Any) -> None:
    """Any user may connect to a port of the loopback interface, and publishers ask for no key."""
    book: Notebook = fresh()
    assert book.run("%%sky\nprint('first')").stdout == "first\n"
    ports = {
        connection.laddr.port
        for process in [*part(fresh.data, "controller"), *part(fresh.data, "engine")]
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert ports
    with zmq.Context() as context:
        sockets = [context.socket(zmq.SUB) for _ in ports]
        for socket, port in zip(sockets, ports, strict=True):
            socket.linger = 0
            socket.subscribe(b"")
            socket.connect(f"tcp://127.0.0.1:{port}")
        time.sleep(1.0)
        ran = book.run("%%sky\nimport time\nprint('of nobody else'); time.sleep(0.5)")
        assert ran.stdout == "of nobody else\n"
        heard = []
        for socket in sockets:
            while socket.poll(50):
                heard.append(b"".join(socket.recv_multipart()))
            socket.close()
    assert not [message for message in heard if b"of nobody else" in message]

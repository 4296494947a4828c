"""Cells on several nodes know which one they are on, as functions do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulators.hosts import USABLE, SshHost

pytestmark = pytest.mark.slow

WHERE = """%%sky --nodes 2{}
import os
import jupyter_sky as sky
info = sky.instance_info()
names = "RANK WORLD_SIZE MASTER_ADDR SKYPILOT_NODE_RANK SKYPILOT_NUM_NODES"
print("node", info.node, info.total_nodes, *[os.environ[name] for name in names.split()],
      os.environ["MASTER_PORT"], ",".join(os.environ["SKYPILOT_NODE_IPS"].split()))
"""


def told(text: str) -> dict[str, list[str]]:
    """Words of each node's line, by its rank."""
    lines = [line[line.index("node ") :].split() for line in text.splitlines() if "node " in line]
    return {words[1]: words[2:] for words in lines}


def test_cells_on_local_nodes(fresh: Any) -> None:
    book = fresh()
    ran = book.run(WHERE.format(""))
    found = told(ran.stdout)
    assert found.keys() == {"0", "1"}, ran
    for rank, words in found.items():
        assert words[:6] == ["2", rank, "2", "127.0.0.1", rank, "2"]
        assert words[7] == "127.0.0.1,127.0.0.1"
    assert found["0"][6] == found["1"][6], "they meet at one port"
    book.run("%sky down")


@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_on_machines_reached_by_ssh(fresh: Any) -> None:
    hosts = [SshHost(67), SshHost(68)]
    try:
        fresh.data.mkdir(exist_ok=True)
        tables = [host.toml(f"box{number}") for number, host in enumerate(hosts)]
        (fresh.data / "hosts.toml").write_text("\n".join(tables))
        book = fresh()
        ran = book.run(WHERE.format(" --cloud ssh"), timeout=120)
        found = told(ran.stdout)
        assert {rank: words[3] for rank, words in found.items()} == {
            "0": hosts[0].ip,
            "1": hosts[0].ip,
        }, ran
        assert found["1"][7] == f"{hosts[0].ip},{hosts[1].ip}"
        book.run("%sky down")
    finally:
        for host in hosts:
            host.close()

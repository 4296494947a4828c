"""Tasks that use shared state, in this process and in processes of their own."""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from typing import Any

from jupyter_sky.machines.engines.controller.controller import SharedStateProcess
from jupyter_sky.machines.engines.node.instance import InstanceInfo


def topology(
    shared_state_process: SharedStateProcess, node: int = 0, nodes: int = 1
) -> dict[str, Any]:
    route = {
        "url": shared_state_process.endpoint["local_url"],
        "key": shared_state_process.endpoint["key"],
    }
    info = asdict(InstanceInfo(node=node, total_nodes=nodes, job_id=route["key"]))
    return {"instance": info, "shared_state": route, "facts": {}}


def output_of(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return out.strip()

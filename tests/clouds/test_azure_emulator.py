"""Emulator of Azure: its validation of bodies and its errors."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import Any

import pytest

from jupyter_sky.clouds.azure import requests
from jupyter_sky.clouds.azure.errors import TABLE
from jupyter_sky.clouds.azure.provider import Azure
from tests.clouds.azure_requests import GROUP, a_machine_config, an_order, launch, refused, use
from tests.emulators.arm import SUBSCRIPTION, Arm
from tests.emulators.arm_errors import ENTRA

pytest_plugins = ["tests.clouds.azure_fixtures"]


def test_the_emulator_checks_bodies_by_the_models_of_the_sdk(arm: Arm, azure: Azure) -> None:
    order = an_order()
    launch(azure, order)
    machines = azure._current_account().compute.virtual_machines
    home = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"

    def put(change: Any) -> str:
        body = requests.virtual_machine(order, a_machine_config(order), 7, home)
        change(body)
        with pytest.raises(Exception) as caught:
            machines.begin_create_or_update(GROUP, "seven", body, polling=False)
        trouble = azure.explain(caught.value)
        assert trouble is not None
        return f"{trouble.code}: {trouble.message}"

    disk = ("properties", "storageProfile", "osDisk")

    def at(body: Any, path: tuple[str, ...]) -> Any:
        for name in path:
            body = body[name]
        return body

    assert "Could not find member 'colour'" in put(lambda b: b.update(colour="red"))
    assert "'createOption' is missing" in put(lambda b: at(b, disk).pop("createOption"))
    assert "not a valid value" in put(lambda b: at(b, disk).update(deleteOption="Perhaps"))
    assert "not of type int" in put(lambda b: at(b, disk).update(diskSizeGB="50"))
    assert "'location' is missing" in put(lambda b: b.pop("location"))
    assert "Eviction policy" in put(lambda b: b["properties"].update(evictionPolicy="Delete"))
    sku = ("properties", "storageProfile", "imageReference")
    assert "CPU Architecture" in put(lambda b: at(b, sku).update(sku="server-arm64"))


@pytest.mark.slow
def test_the_emulator_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.emulators.arm"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    try:
        env = json.loads(process.stdout.readline())
        use(env, monkeypatch)

        def control(name: str, **given: Any) -> Any:
            import ssl

            context = ssl.create_default_context(cafile=env["SSL_CERT_FILE"])
            url = f"{env['AZURE_RESOURCE_MANAGER_URL']}/_sky/{name}"
            asked = urllib.request.Request(url, json.dumps(given).encode(), method="POST")
            with urllib.request.urlopen(asked, context=context) as answer:
                return json.load(answer)

        azure = Azure(poll=0.02)
        control("refuse", code="SkuNotAvailable")
        assert refused(azure, an_order()).code == "SkuNotAvailable"
        launch(azure, an_order("b-00000000"))
        assert [one["state"] for one in control("machines")] == ["running"]
    finally:
        process.stdin.close()
        process.wait(20)
    assert process.returncode == 0


def test_entra_errors_are_in_the_table() -> None:
    assert set(ENTRA) <= set(TABLE)

"""Initial configuration of machines, and the local records of them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.remote import processes, ssh
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import LaunchRequest
from jupyter_sky.clouds.launches import cloud_init
from jupyter_sky.clouds.launches.launch_records import (
    KEEP_DAYS,
    LaunchRecords,
    installation_id,
    is_launching,
)
from jupyter_sky.clouds.provider.values import TAGS
from tests.emulators.hosts import USABLE

OFFER = Offer("aws", "us-east-1", "m5.large", 2, 8, price=0.1)


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    Sky.clear_instance()


def order(**changes: object) -> LaunchRequest:
    made = LaunchRequest(
        "train-1", "train", OFFER, Resources(), 600.0, "me-1", "a.ipynb", lease=7200.0
    )
    return replace(made, **changes)


def document(made: cloud_init.MachineConfig) -> dict:
    first, _, rest = made.user_data.partition("\n")
    assert first == "#cloud-config"
    return json.loads(rest)


def test_a_machine_knows_us_shows_a_key_of_ours_and_ends_by_itself(tmp_path: Path) -> None:
    made = cloud_init.create_machine_config(order(), tmp_path, "", now=1000.0)
    words = document(made)
    (user,) = words["users"]
    assert user["name"] == "sky" and user["ssh_authorized_keys"] == [made.public_key]
    assert made.public_key == (tmp_path / "id.pub").read_text().strip()
    assert (tmp_path / "id").stat().st_mode & 0o077 == 0
    assert "PRIVATE KEY" in words["ssh_keys"]["ed25519_private"]
    assert not (tmp_path / "host").exists(), "the machine's own private key is the machine's"
    assert words["runcmd"][0].startswith("systemd-run --on-active=7200s shutdown -P now ||")
    assert words["runcmd"][0].endswith("|| shutdown -P +120"), "the lease, in minutes"
    assert made.lease_end == 8200.0 and made.tags["jupyter-sky-lease-end"] == "8200"
    assert tuple(made.tags) == TAGS and made.tags["jupyter-sky-owner"] == "me-1"
    assert made.disk == cloud_init.DISK_GIB


def test_the_key_that_it_must_show_is_pinned_before_it_exists(tmp_path: Path) -> None:
    made = cloud_init.create_machine_config(order(), tmp_path, "", now=0.0)
    where = cloud_init.pinned_address(tmp_path, "192.0.2.7")
    shown = document(made)["ssh_keys"]["ed25519_public"].split()[:2]
    first, following = ssh.read_known_hosts(where, tmp_path / "known_hosts").splitlines()
    assert first.split()[1:] == shown != following.split()[1:]
    assert following.split()[2] not in made.user_data, "whoever reads that cannot show it"
    assert cloud_init.read_next_host_key(tmp_path).splitlines()[3] not in made.user_data
    assert where.pinned and where.user == "sky" and where.key == str(tmp_path / "id")
    cloud_init.pinned_address(tmp_path, "192.0.2.7")
    assert len((tmp_path / "known_hosts").read_text().splitlines()) == 2


def test_ending_commands_replace_the_second_timer(tmp_path: Path) -> None:
    words = document(cloud_init.create_machine_config(order(), tmp_path, "echo removed", now=0.0))
    assert not any("shutdown" in str(command) for command in words["runcmd"])
    script = words["write_files"][0]["content"]
    assert "lease_duration=7200 " in script
    assert script.index("echo removed") < script.index("shutdown -P")


def test_user_data_fits_where_least_is_taken(tmp_path: Path) -> None:
    from jupyter_sky.clouds.azure import requests
    from jupyter_sky.clouds.gcp import service_account

    azure = requests.self_delete_script("https://management.azure.com", "1" * 36, "t" * 50)
    for number, ending in enumerate(("", azure, service_account.self_delete_script(""))):
        (folder := tmp_path / str(number)).mkdir()
        made = cloud_init.create_machine_config(order(), folder, ending, now=0.0)
        assert len(made.user_data.encode()) < 16384, "AWS takes no more"


def test_a_disk_that_is_asked_for_is_given(tmp_path: Path) -> None:
    asked = order(resources=Resources.parse(disk="500"))
    assert cloud_init.create_machine_config(asked, tmp_path, "", now=0.0).disk == 500.0


def test_an_order_is_noted_before_it_is_sent_and_until_its_end_is_confirmed(tmp_path: Path) -> None:
    records = LaunchRecords(tmp_path / "machines")
    records.create("train-1", {"cloud": "aws", "machines": []})
    ((token, record),) = records.list_unfinished()
    assert token == "train-1" and is_launching(record)
    dead = processes.identity() | {"pid": 2**22 + 1}
    records.write("train-1", record | {"launching": dead})
    assert not is_launching(records.read("train-1"))
    elsewhere, now = dead | {"boot": "of another machine"}, time.time()
    assert is_launching({"launching": elsewhere, "started": now}), "only that machine can tell"
    assert not is_launching({"launching": elsewhere, "started": now - 3600}), "and not for ever"
    records.mark_ended("train-1", {"time": time.time()})
    assert list(records.list_unfinished()) == []
    old = time.time() - (KEEP_DAYS + 1) * 86400
    records.mark_ended("train-1", {"time": old})
    records.create("train-2", {"cloud": "aws", "machines": []})
    assert records.read("train-1") == {} and records.read("train-2")


def test_name_that_cannot_be_written_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SkyStoreError, match="cannot be noted"):
        installation_id(tmp_path / "file" / "sky")


def test_one_installation_has_one_name(tmp_path: Path) -> None:
    first = installation_id(tmp_path / "a")
    assert first == installation_id(tmp_path / "a") != installation_id(tmp_path / "b")
    assert first.isascii() and first == first.lower() and len(first) < 40


@pytest.mark.slow
@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_a_connection_that_is_cut_is_made_again_where_that_does_no_harm(tmp_path: Path) -> None:
    from jupyter_sky.base.errors import SkyUnreachable
    from tests.emulators.hosts import SshHost

    host = SshHost(83)
    try:
        known = tmp_path / "known_hosts"
        user = host.address.partition("@")[0]
        where = ssh.Address(user, host.ip, host.port, str(host.key), str(known), pinned=False)
        mark = tmp_path / "times"
        script = f"echo once >>{mark}; [ $(wc -l <{mark}) -gt 1 ] || sleep 30; echo done"

        cuts: list[int] = []
        most = 1

        def cut() -> None:
            if mark.exists() and len(cuts) < most:
                cuts.append(host.cut())

        answer = ssh.run(where, script, meanwhile=cut, patience=10)
        assert answer.text == "done\n" and len(mark.read_text().splitlines()) == 2
        mark.unlink()
        most = 2
        with pytest.raises(SkyUnreachable):
            ssh.run(where, script, meanwhile=cut)
    finally:
        host.close()

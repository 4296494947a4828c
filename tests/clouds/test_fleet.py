"""The machines that emulators of clouds rent out: are they what a cloud's machines are?"""

from __future__ import annotations

import base64
import gzip
import http.server
import json
import os
import queue
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
import trustme

from jupyter_sky.base.remote import ssh
from tests.clouds.launched_machine import (
    FETCH,
    OPEN,
    PYTHON,
    WAIT,
    Keys,
    LaunchedMachine,
    needs_isolation,
    until,
)
from tests.emulators.cpus import bounded
from tests.emulators.fleet import Fleet, Host
from tests.emulators.hosts import USABLE, answers, keygen

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not USABLE, reason="no sshd")]


# -- boot -------------------------------------------------------------------------------------


def test_machine_accepts_its_user_and_shows_its_key(
    fleet: Fleet, keys: Keys, tmp_path: Path
) -> None:
    machine = LaunchedMachine(fleet, keys)
    assert machine.sh("id -un") == machine.user

    keygen(tmp_path / "other")
    with pytest.raises(ssh.SkyUnreachable, match="another host key"):
        ssh.run(keys.address(machine.host, machine.user, tmp_path / "other"), "true")
    stranger = ssh.Address(
        machine.user, machine.host.address, machine.host.port, str(tmp_path / "other"), pinned=False
    )
    with pytest.raises(ssh.SkyUnreachable, match="does not let user"):
        ssh.run(stranger, "true")


def test_the_clouds_own_key_belongs_to_the_user_that_is_named(fleet: Fleet, keys: Keys) -> None:
    user = fleet.user or "azureuser"
    public = keys.public(keys.user)
    host = fleet.launch("vm", "", ingress=OPEN, public_key=public, user=user)
    assert host.ready(WAIT)
    known = Path(tempfile.mkstemp(dir=keys.folder)[1])
    address = ssh.Address(user, host.address, host.port, str(keys.user), str(known), False)
    assert ssh.run(address, "id -un").text.strip() == user


def test_files_come_before_ssh_and_commands_after_it(fleet: Fleet, keys: Keys) -> None:
    packed = base64.b64encode(gzip.compress(b"packed\n")).decode()
    files = [
        {"path": "/var/lib/a", "content": "first\n"},
        {"path": "/var/lib/a", "content": packed, "encoding": "gz+b64", "append": True}
        | {"permissions": "0604"},
        {"path": "/usr/local/sbin/tool", "content": "#!/bin/sh\nid -u\n", "permissions": "0755"},
        {"path": "/var/lib/b", "content": "", "owner": "nobody-there"},
    ]
    commands = [
        "false",
        ["sh", "-c", "/usr/local/sbin/tool >/var/lib/who"],
        "until [ -e /var/lib/go ]; do sleep 0.02; done; echo it went on",
    ]
    machine = LaunchedMachine(fleet, keys, document={"write_files": files, "runcmd": commands})
    inside = "" if fleet.isolated else str(machine.host.folder)
    assert (
        machine.sh('cat "$1"; stat -c %a "$1"', f"{inside}/var/lib/a") == "first\n" + "packed\n604"
    )
    assert not machine.host.booted()
    machine.host.root(f"touch {inside}/var/lib/go")
    assert machine.host.booted(WAIT)
    assert "it went on" in machine.host.console()
    assert int(machine.sh(f"cat {inside}/var/lib/who")) == os.geteuid()
    if fleet.isolated:  # elsewhere all files are the present user's
        assert "write_files failed: /var/lib/b" in machine.host.console()


def test_bad_user_data_is_said_on_the_console_and_it_boots(fleet: Fleet) -> None:
    for data, said in {
        "#cloud-config\n{": "Failed loading yaml blob",
        "#cloud-config\n[]": "it is a list",
        "hello": "Unhandled non-multipart",
        '#cloud-config\n{"snap": {}}': "'snap' is not done",
    }.items():
        host = fleet.launch("n", data, ingress=OPEN)
        assert host.booted(WAIT)
        assert said in host.console()


def test_a_script_as_user_data_is_run(fleet: Fleet) -> None:
    host = fleet.launch("n", "#!/bin/sh\necho from the script\nexit 3\n")
    assert host.booted(WAIT)
    assert "from the script\n" in host.console()
    assert "[3]" in host.console()


def test_console_shows_the_host_key_and_outlives_the_machine(fleet: Fleet, keys: Keys) -> None:
    machine = LaunchedMachine(fleet, keys)
    assert machine.host.booted(WAIT)
    machine.host.kill()
    found = subprocess.run(["ssh-keygen", "-lf", keys.host], capture_output=True, text=True)
    console = machine.host.console()
    block = console.partition("BEGIN SSH HOST KEY FINGERPRINTS")[2].partition("END SSH HOST")[0]
    assert found.stdout.split()[1] in block
    assert keys.public(keys.host) in console
    assert console.endswith("finished\n")


def test_a_machine_that_is_given_no_host_key_makes_one(fleet: Fleet) -> None:
    one, other = (fleet.launch(f"n{i}", "") for i in range(2))
    assert one.booted(WAIT) and other.booted(WAIT)
    marks = [line for host in (one, other) for line in host.console().split() if "SHA256:" in line]
    assert len(set(marks)) == 2


# -- what it tells of itself ------------------------------------------------------------------


def test_metadata_of_aws_needs_a_token(fleet: Fleet, keys: Keys) -> None:
    machine = LaunchedMachine(
        fleet, keys, spot=True, metadata={"cloud": "aws", "id": "i-0a1", "tags": {"a": "b"}}
    )
    assert machine.fetch("/latest/meta-data/instance-id")[0] == 401
    status, token = machine.fetch(
        "/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60"
    )
    assert status == 200
    header = {"X_aws_ec2_metadata_token": token}
    assert machine.fetch("/latest/meta-data/instance-id", **header) == (200, "i-0a1")
    assert machine.fetch("/latest/meta-data/instance-life-cycle", **header) == (200, "spot")
    assert machine.fetch("/latest/meta-data/tags/instance/", **header) == (200, "a")
    assert machine.fetch("/latest/meta-data/local-ipv4", **header) == (200, machine.host.private)
    assert machine.fetch("/latest/meta-data/spot/instance-action", **header)[0] == 404


@pytest.mark.slow
def test_spot_notice_and_then_it_is_gone(fleet: Fleet, keys: Keys) -> None:
    machine = LaunchedMachine(fleet, keys, spot=True, metadata={"cloud": "gcp", "id": "77"})
    google = {"Metadata_Flavor": "Google"}
    assert machine.fetch("/computeMetadata/v1/instance/preempted", **google) == (200, "FALSE")
    machine.host.notice(3.0)
    assert machine.fetch("/computeMetadata/v1/instance/preempted", **google) == (200, "TRUE")
    assert machine.ends.get(timeout=WAIT) == "preempted"
    assert not machine.host.running
    assert not answers(machine.host.address, machine.host.port)


# -- the end ----------------------------------------------------------------------------------


def test_it_powers_itself_off(fleet: Fleet, keys: Keys) -> None:
    machine = LaunchedMachine(
        fleet, keys, document={"runcmd": [["shutdown", "-P", "+100"], "shutdown -P +1"]}
    )
    assert machine.ends.get(timeout=WAIT) == "shutdown"
    assert not machine.host.running
    assert "Powering off" in machine.host.console()
    assert machine.ends.empty()
    assert fleet.hosts() == []


def test_a_shutdown_can_be_called_off_and_takes_root(fleet: Fleet, keys: Keys) -> None:
    commands = ["shutdown -P +5", "shutdown -c", "shutdown -k +1", "shutdown -P soon"]
    machine = LaunchedMachine(fleet, keys, document={"runcmd": commands})
    assert machine.host.booted(WAIT)
    assert "Shutdown is cancelled" in machine.host.console()
    assert "Failed to parse time specification: soon" in machine.host.console()
    if fleet.isolated:
        machine.sh("shutdown -P now", code=1)
    time.sleep(5 * 0.2 + 0.3)
    assert machine.host.running
    machine.host.shutdown()
    assert machine.ends.get(timeout=WAIT) == "shutdown"


def test_processes_are_asked_to_end_before_the_power_goes(fleet: Fleet, keys: Keys) -> None:
    script = "trap 'echo asked to end; exit' TERM; echo waits; sleep 60 & wait"
    machine = LaunchedMachine(fleet, keys, document={"runcmd": [f'setsid sh -c "{script}" &']})
    until(lambda: "waits\n" in machine.host.console())
    machine.host.shutdown()
    assert machine.ends.get(timeout=WAIT) == "shutdown"
    assert "asked to end" in machine.host.console()


def test_a_power_cut_closes_connections_and_leaves_nothing(fleet: Fleet, keys: Keys) -> None:
    machine = LaunchedMachine(fleet, keys)
    machine.sh("setsid sleep 4242 >/dev/null 2>&1 &")
    session = subprocess.Popen(
        [*machine.address.command(), "echo in; exec sleep 4242"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert session.stdout and session.stdout.readline() == b"in\n"
    until(lambda: len(_sleepers(machine.host)) == 2)
    mine = _sleepers(machine.host)
    machine.host.kill()
    assert session.wait(WAIT) == 255
    until(lambda: not any(process.is_running() for process in mine))
    assert not machine.host.running
    assert not answers(machine.host.address, machine.host.port)
    assert machine.ends.empty()
    session.stdout.close()


def _sleepers(host: Host) -> list[psutil.Process]:
    return [process for process in host.processes() if process.cmdline() == ["sleep", "4242"]]


def test_its_network_falls_silent_and_comes_back(fleet: Fleet, keys: Keys) -> None:
    machine = LaunchedMachine(fleet, keys)
    assert machine.host.ready(WAIT)
    machine.host.unplug()
    assert not answers(machine.host.address, machine.host.port)
    machine.host.unplug(False)
    assert machine.host.ready(WAIT)


@needs_isolation
def test_a_machine_that_cannot_boot_has_ended(isolated: Fleet) -> None:
    ends: queue.Queue[str] = queue.Queue()
    host = isolated.launch("x" * 65, "", on_end=ends.put)  # no kernel takes such a name
    assert ends.get(timeout=WAIT) == "crashed"
    assert not host.running and not host.ready(WAIT)
    assert "Error" in host.console()


# -- network ----------------------------------------------------------------------------------


@pytest.mark.slow
@needs_isolation
def test_only_those_get_in_whom_the_firewall_admits(isolated: Fleet, keys: Keys) -> None:
    machine = LaunchedMachine(isolated, keys, ingress=[("192.0.2.0/24", 22)])
    assert machine.host.booted(WAIT)
    with pytest.raises(TimeoutError):  # silence, not a refusal
        socket.create_connection((machine.host.address, 22), 1)
    machine.host.admit([(isolated.network, 0)])
    other = LaunchedMachine(isolated, keys, "node-1")
    look = 'bash -c "exec 3<>/dev/tcp/$1/22 && head -c3 <&3"'
    assert other.sh(look, machine.host.private) == "SSH"
    assert not answers(machine.host.address, 22)
    machine.host.admit([(f"{isolated.gateway}/32", 22)])
    assert machine.host.ready(WAIT)
    assert other.sh(f"timeout 1 {look} || echo none", machine.host.private) == "none"


@needs_isolation
def test_nothing_is_reached_from_it_but_its_fleet(isolated: Fleet, keys: Keys) -> None:
    server = http.server.HTTPServer((isolated.gateway, 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = {"management.example": isolated.gateway}
    machine = LaunchedMachine(isolated, keys, names=names)
    look = 'timeout 5 bash -c "exec 3<>/dev/tcp/$1/$2" 2>&1 && echo in'
    port = str(server.server_port)
    assert machine.sh(look, "management.example", port) == "in"
    assert "unreachable" in machine.sh(look + "; true", "192.0.2.1", "80")
    with Fleet(isolated=True) as other:
        far = LaunchedMachine(other, keys)
        assert far.host.ready(WAIT)
        assert "unreachable" in machine.sh(look + "; true", far.host.address, "22")
    server.shutdown()
    server.server_close()


@needs_isolation
def test_it_sees_nothing_of_this_machine_but_programs(
    isolated: Fleet, keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A_SECRET", "hush-hush")
    (tmp_path / "file").touch()
    machine = LaunchedMachine(isolated, keys)
    assert machine.host.ready(WAIT)
    assert machine.host.root("test -e $1 || echo none", str(tmp_path / "file")) == "none\n"
    home = machine.host.root("ls -A $1", str(Path.home())).split()
    assert set(home) < {path.name for path in Path.home().iterdir()}
    secrets = "cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    assert "PATH=" in machine.host.root(secrets) and "hush-hush" not in machine.host.root(secrets)
    people = [row.split(":") for row in machine.sh("cat /etc/passwd").splitlines()]
    assert [row[0] for row in people if 1000 <= int(row[2]) < 60000] == [machine.user]
    machine.sh("touch /usr/x /etc/x /root/x", code=1)
    machine.host.root("touch /usr/jupyter-sky-test /etc/jupyter-sky-test")
    assert not Path("/usr/jupyter-sky-test").exists()
    assert not Path("/etc/jupyter-sky-test").exists()


def test_it_trusts_an_emulator_that_speaks_tls(fleet: Fleet, keys: Keys) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(fleet.gateway).configure_cert(context)
    server = http.server.HTTPServer((fleet.gateway, 0), http.server.SimpleHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"https://{fleet.gateway}:{server.server_port}/nothing-there"
    pem = authority.cert_pem.bytes().decode()
    script = f'{PYTHON} -c "$1" "$2" GET "{{}}" 2>&1 | tail -1'
    knowing = LaunchedMachine(fleet, keys, authority=pem)
    assert json.loads(knowing.sh(script, FETCH, url))[0] == 404
    assert "CERTIFICATE_VERIFY_FAILED" in LaunchedMachine(fleet, keys).sh(script, FETCH, url)
    told = {"runcmd": [f"curl -sS -o /dev/null -w '%{{http_code}} by root' {url}"]}
    if shutil.which("curl"):
        other = LaunchedMachine(fleet, keys, authority=pem, document=told)
        until(lambda: "404 by root" in other.host.console())
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(not bounded(), reason="needs control groups")
def test_it_has_cpus_of_its_own(keys: Keys) -> None:
    busy = (
        "import resource, time; end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end: pass\n"
        "used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "print(used.ru_utime + used.ru_stime)"
    )
    with Fleet(cpus=0.2) as fleet:
        machine = LaunchedMachine(fleet, keys)
        assert machine.host.booted(WAIT)
        used = float(machine.sh(f"{PYTHON} -c '{busy}'"))
        assert 0.1 < used < 0.6
        assert machine.host.cpus and machine.host.cpus.folder.exists()
    assert not machine.host.cpus.folder.exists()

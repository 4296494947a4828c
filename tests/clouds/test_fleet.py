"""The machines that emulators of clouds rent out: are they what a cloud's machines are?"""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.server
import io
import json
import os
import queue
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trustme

from jupyter_sky import ssh
from jupyter_sky.clouds import birth, keeper
from jupyter_sky.clouds.keeper import Node
from jupyter_sky.provisioner import bootstrap
from tests.emulators.fleet import Fleet, Host, isolation_works, scratch
from tests.emulators.hosts import USABLE, answers, keygen
from tests.emulators.loopback import warm_cache
from tests.emulators.metadata import Metadata

pytestmark = pytest.mark.skipif(not USABLE, reason="no sshd")
OPEN = [("0.0.0.0/0", 22)]
PYTHON = "python{}.{}".format(*sys.version_info)
WAIT = 20.0
needs_isolation = pytest.mark.skipif(not isolation_works(), reason="needs root and namespaces")


class Keys:
    """A user's key and a machine's, made before the machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.user, self.host = folder, folder / "id", folder / "host"
        keygen(self.user)
        keygen(self.host)

    def public(self, path: Path) -> str:
        return path.with_suffix(".pub").read_text().strip()

    def document(self, user: str, **more: Any) -> str:
        """User data with both."""
        keys = {"ed25519_private": self.host.read_text(), "ed25519_public": self.public(self.host)}
        person = {
            "name": user,
            "shell": "/bin/bash",
            "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "ssh_authorized_keys": [self.public(self.user)],
        }
        return "#cloud-config\n" + json.dumps({"ssh_keys": keys, "users": [person], **more})

    def address(self, host: Host, user: str, key: Path | None = None) -> ssh.Address:
        """Where it is, with the key that it must show; `key` instead of the one it was given."""
        known = Path(tempfile.mkstemp(dir=self.folder)[1])
        address = ssh.Address(user, host.address, host.port, str(self.user), str(known))
        known.write_text(f"{address.known_as} {self.public(key or self.host)}\n")
        return address


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(params=[pytest.param(True, marks=needs_isolation, id="isolated"), "beside"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with Fleet(isolated=request.param is True, minute=0.2) as fleet:
        yield fleet


@pytest.fixture
def isolated() -> Iterator[Fleet]:
    with Fleet(isolated=True) as fleet:
        yield fleet


class Born:
    """A machine with our keys, and what we say to it."""

    def __init__(self, fleet: Fleet, keys: Keys, name: str = "node-0", **how: Any) -> None:
        self.user = fleet.user or "ada"
        self.ends: queue.Queue[str] = queue.Queue()
        document = keys.document(self.user, **how.pop("document", {}))
        how = {"ingress": OPEN, "on_end": self.ends.put} | how
        self.host = fleet.launch(name, document, **how)
        self.address = keys.address(self.host, self.user)

    def sh(self, script: str, *words: str, code: int = 0) -> str:
        """Run a script on it; return what it prints."""
        assert self.host.ready(WAIT), self.host.console()
        answer = ssh.run(self.address, script, *words, timeout=WAIT)
        assert answer.code == code, (answer, self.host.console())
        return answer.text.strip()

    def fetch(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        """Ask its metadata service, from inside."""
        script = f'{PYTHON} -c "$1" "${{JUPYTER_SKY_METADATA:-http://169.254.169.254}}$2" "$3" "$4"'
        return tuple(json.loads(self.sh(script, _FETCH, path, method, json.dumps(headers))))


def _until(holds: Callable[[], bool]) -> None:
    """Wait for something to hold."""
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


_FETCH = """
import json, sys, urllib.error, urllib.request
url, method, headers = sys.argv[1:]
headers = {name.replace("_", "-"): value for name, value in json.loads(headers).items()}
request = urllib.request.Request(url, headers=headers, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.read().decode()]))
"""


# -- birth ------------------------------------------------------------------------------------


def test_who_gets_in_and_what_it_shows(fleet: Fleet, keys: Keys, tmp_path: Path) -> None:
    born = Born(fleet, keys)
    assert born.sh("id -un") == born.user

    keygen(tmp_path / "other")
    with pytest.raises(ssh.SkyUnreachable, match="another host key"):
        ssh.run(keys.address(born.host, born.user, tmp_path / "other"), "true")
    stranger = ssh.Address(
        born.user, born.host.address, born.host.port, str(tmp_path / "other"), pinned=False
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
    born = Born(fleet, keys, document={"write_files": files, "runcmd": commands})
    inside = "" if fleet.isolated else str(born.host.folder)
    assert born.sh('cat "$1"; stat -c %a "$1"', f"{inside}/var/lib/a") == "first\n" + "packed\n604"
    assert not born.host.booted()
    born.host.root(f"touch {inside}/var/lib/go")
    assert born.host.booted(WAIT)
    assert "it went on" in born.host.console()
    assert int(born.sh(f"cat {inside}/var/lib/who")) == os.geteuid()
    if fleet.isolated:  # elsewhere all files are the present user's
        assert "write_files failed: /var/lib/b" in born.host.console()


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
    born = Born(fleet, keys)
    assert born.host.booted(WAIT)
    born.host.kill()
    found = subprocess.run(["ssh-keygen", "-lf", keys.host], capture_output=True, text=True)
    console = born.host.console()
    block = console.partition("BEGIN SSH HOST KEY FINGERPRINTS")[2].partition("END SSH HOST")[0]
    assert found.stdout.split()[1] in block
    assert keys.public(keys.host) in console


def test_a_machine_that_is_given_no_host_key_makes_one(fleet: Fleet) -> None:
    one, other = (fleet.launch(f"n{i}", "") for i in range(2))
    assert one.booted(WAIT) and other.booted(WAIT)
    marks = [line for host in (one, other) for line in host.console().split() if "SHA256:" in line]
    assert len(set(marks)) == 2


# -- what it tells of itself ------------------------------------------------------------------


def test_metadata_of_aws_needs_a_token(fleet: Fleet, keys: Keys) -> None:
    born = Born(
        fleet, keys, spot=True, metadata={"cloud": "aws", "id": "i-0a1", "tags": {"a": "b"}}
    )
    assert born.fetch("/latest/meta-data/instance-id")[0] == 401
    status, token = born.fetch(
        "/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60"
    )
    assert status == 200
    header = {"X_aws_ec2_metadata_token": token}
    assert born.fetch("/latest/meta-data/instance-id", **header) == (200, "i-0a1")
    assert born.fetch("/latest/meta-data/instance-life-cycle", **header) == (200, "spot")
    assert born.fetch("/latest/meta-data/tags/instance/", **header) == (200, "a")
    assert born.fetch("/latest/meta-data/local-ipv4", **header) == (200, born.host.private)
    assert born.fetch("/latest/meta-data/spot/instance-action", **header)[0] == 404


def test_spot_notice_and_then_it_is_gone(fleet: Fleet, keys: Keys) -> None:
    born = Born(fleet, keys, spot=True, metadata={"cloud": "gcp", "id": "77"})
    google = {"Metadata_Flavor": "Google"}
    assert born.fetch("/computeMetadata/v1/instance/preempted", **google) == (200, "FALSE")
    waiting = "/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=15"
    threading.Timer(0.3, born.host.notice, [1.0]).start()
    assert born.fetch(waiting, **google) == (200, "TRUE")
    assert born.ends.get(timeout=WAIT) == "preempted"
    assert not born.host.running
    assert not answers(born.host.address, born.host.port)


def test_metadata_of_aws_in_detail() -> None:
    service = Metadata({"cloud": "aws", "id": "i-1", "region": "us-east-1"})
    ttl = "X-aws-ec2-metadata-token-ttl-seconds"
    for bad in ({}, {ttl: "0"}, {ttl: "21601"}, {ttl: "x"}):
        assert service.answer("PUT", "/latest/api/token", bad).status == 400
    proxied = {ttl: "9", "X-Forwarded-For": "1.2.3.4"}
    assert service.answer("PUT", "/latest/api/token", proxied).status == 403
    token = service.answer("PUT", "/latest/api/token", {ttl: "60"}).body
    headers = {"x-aws-ec2-metadata-token": token}
    action = "/latest/meta-data/spot/instance-action"
    assert service.answer("GET", action, headers).status == 404
    service.change({"notice": 1_800_000_000.0})
    told = json.loads(service.answer("GET", action, headers).body)
    assert told == {"action": "terminate", "time": "2027-01-15T08:00:00Z"}
    names = service.answer("GET", "/latest/meta-data/", headers).body.splitlines()
    assert {"instance-id", "placement/", "spot/"} <= set(names)
    wrong = {"x-aws-ec2-metadata-token": "made up"}
    assert service.answer("GET", action, wrong).status == 401
    assert service.answer("GET", "/computeMetadata/v1/instance/id", headers).status == 404


def test_metadata_of_azure_in_detail() -> None:
    service = Metadata({"cloud": "azure", "name": "vm-0", "group": "g"})
    me, events = {"Metadata": "true"}, "/metadata/scheduledevents?api-version=2020-07-01"
    assert service.answer("GET", events, {}).status == 400
    assert service.answer("GET", "/metadata/scheduledevents", me).status == 400
    assert json.loads(service.answer("GET", events, me).body)["Events"] == []
    service.change({"notice": 1_800_000_000.0})
    (event,) = json.loads(service.answer("GET", events, me).body)["Events"]
    assert (event["EventType"], event["Resources"]) == ("Preempt", ["vm-0"])
    assert event["NotBefore"] == "Fri, 15 Jan 2027 08:00:00 GMT"

    token = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://x/"
    refused = service.answer("GET", token, me)
    assert refused.status == 400 and "Identity not found" in refused.body
    service.change({"identity_token": "secret"})
    told = json.loads(service.answer("GET", token, me).body)
    assert (told["access_token"], told["resource"]) == ("secret", "https://x/")
    group = "/metadata/instance/compute/resourceGroupName?api-version=2021-02-01&format=text"
    assert service.answer("GET", group, me).body == "g"


def test_metadata_of_google_in_detail() -> None:
    service = Metadata({"cloud": "gcp", "name": "n", "attributes": {"k": "v"}, "account": "p"})
    root, me = "/computeMetadata/v1/", {"Metadata-Flavor": "Google"}
    assert service.answer("GET", root + "instance/name", {}).status == 403
    assert service.answer("GET", root + "instance/name", me).body == "n"
    assert service.answer("GET", root + "project/project-id", me).body == "p"
    assert service.answer("GET", root + "instance/attributes/", me).body == "k"
    token = root + "instance/service-accounts/default/token"
    assert service.answer("GET", token, me).status == 404
    waiting = root + "instance/preempted?wait_for_change=true&timeout_sec=0.01"
    first = service.answer("GET", waiting, me)
    assert first.body == "FALSE"
    service.change({"notice": 1.0})
    late = service.answer("GET", f"{waiting}&last_etag={first.headers['ETag']}", me)
    assert late.body == "TRUE"


# -- the end ----------------------------------------------------------------------------------


def test_it_powers_itself_off(fleet: Fleet, keys: Keys) -> None:
    born = Born(fleet, keys, document={"runcmd": [["shutdown", "-P", "+100"], "shutdown -P +1"]})
    assert born.ends.get(timeout=WAIT) == "shutdown"
    assert not born.host.running
    assert "Powering off" in born.host.console()
    assert born.ends.empty()
    assert fleet.hosts() == []


def test_a_shutdown_can_be_called_off_and_takes_root(fleet: Fleet, keys: Keys) -> None:
    commands = ["shutdown -P +5", "shutdown -c", "shutdown -r +1", "shutdown -P soon"]
    born = Born(fleet, keys, document={"runcmd": commands})
    assert born.host.booted(WAIT)
    assert "Shutdown is cancelled" in born.host.console()
    assert "Failed to parse time specification: soon" in born.host.console()
    if fleet.isolated:
        born.sh("shutdown -P now", code=1)
    time.sleep(5 * 0.2 + 0.3)
    assert born.host.running
    born.host.shutdown()
    assert born.ends.get(timeout=WAIT) == "shutdown"


def test_processes_are_asked_to_end_before_the_power_goes(fleet: Fleet, keys: Keys) -> None:
    script = "trap 'echo asked to end; exit' TERM; echo waits; sleep 60 & wait"
    born = Born(fleet, keys, document={"runcmd": [f'setsid sh -c "{script}" &']})
    _until(lambda: "waits\n" in born.host.console())
    born.host.shutdown()
    assert born.ends.get(timeout=WAIT) == "shutdown"
    assert "asked to end" in born.host.console()


def test_a_power_cut_closes_connections_and_leaves_nothing(fleet: Fleet, keys: Keys) -> None:
    born = Born(fleet, keys)
    born.sh("setsid sleep 4242 >/dev/null 2>&1 &")
    session = subprocess.Popen(
        [*born.address.command(), "echo in; exec sleep 4242"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert session.stdout and session.stdout.readline() == b"in\n"
    _until(lambda: len(_sleepers(born.host)) == 2)
    mine = _sleepers(born.host)
    born.host.kill()
    assert session.wait(WAIT) == 255
    assert not any(process.is_running() for process in mine)
    assert not born.host.running
    assert not answers(born.host.address, born.host.port)
    assert born.ends.empty()
    session.stdout.close()


def _sleepers(host: Host) -> list[psutil.Process]:
    return [process for process in host.processes() if process.cmdline() == ["sleep", "4242"]]


def test_its_network_falls_silent_and_comes_back(fleet: Fleet, keys: Keys) -> None:
    born = Born(fleet, keys)
    assert born.host.ready(WAIT)
    born.host.unplug()
    assert not answers(born.host.address, born.host.port)
    born.host.unplug(False)
    assert born.host.ready(WAIT)


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
    born = Born(isolated, keys, ingress=[("192.0.2.0/24", 22)])
    assert born.host.booted(WAIT)
    with pytest.raises(TimeoutError):  # silence, not a refusal
        socket.create_connection((born.host.address, 22), 1)
    born.host.admit([(isolated.network, 0)])
    other = Born(isolated, keys, "node-1")
    look = 'bash -c "exec 3<>/dev/tcp/$1/22 && head -c3 <&3"'
    assert other.sh(look, born.host.private) == "SSH"
    assert not answers(born.host.address, 22)
    born.host.admit([(f"{isolated.gateway}/32", 22)])
    assert born.host.ready(WAIT)
    assert other.sh(f"timeout 1 {look} || echo none", born.host.private) == "none"


@needs_isolation
def test_nothing_is_reached_from_it_but_its_fleet(isolated: Fleet, keys: Keys) -> None:
    server = http.server.HTTPServer((isolated.gateway, 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = {"management.example": isolated.gateway}
    born = Born(isolated, keys, names=names)
    look = 'timeout 5 bash -c "exec 3<>/dev/tcp/$1/$2" 2>&1 && echo in'
    port = str(server.server_port)
    assert born.sh(look, "management.example", port) == "in"
    assert "unreachable" in born.sh(look + "; true", "192.0.2.1", "80")
    with Fleet(isolated=True) as other:
        far = Born(other, keys)
        assert far.host.ready(WAIT)
        assert "unreachable" in born.sh(look + "; true", far.host.address, "22")
    server.shutdown()
    server.server_close()


@needs_isolation
def test_it_sees_nothing_of_this_machine_but_programs(
    isolated: Fleet, keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A_SECRET", "hush-hush")
    (tmp_path / "file").touch()
    born = Born(isolated, keys)
    assert born.host.ready(WAIT)
    assert born.host.root("test -e $1 || echo none", str(tmp_path / "file")) == "none\n"
    home = born.host.root("ls -A $1", str(Path.home())).split()
    assert set(home) < {path.name for path in Path.home().iterdir()}
    secrets = "cat /proc/[0-9]*/environ | tr '\\0' '\\n'"
    assert "PATH=" in born.host.root(secrets) and "hush-hush" not in born.host.root(secrets)
    people = [row.split(":") for row in born.sh("cat /etc/passwd").splitlines()]
    assert [row[0] for row in people if 1000 <= int(row[2]) < 60000] == [born.user]
    born.sh("touch /usr/x /etc/x /root/x", code=1)
    born.host.root("touch /usr/jupyter-sky-test /etc/jupyter-sky-test")
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
    knowing = Born(fleet, keys, authority=pem)
    assert json.loads(knowing.sh(script, _FETCH, url))[0] == 404
    assert "CERTIFICATE_VERIFY_FAILED" in Born(fleet, keys).sh(script, _FETCH, url)
    told = {"runcmd": [f"curl -sS -o /dev/null -w '%{{http_code}} by root' {url}"]}
    if shutil.which("curl"):
        other = Born(fleet, keys, authority=pem, document=told)
        _until(lambda: "404 by root" in other.host.console())
    server.shutdown()
    server.server_close()


# -- nothing is left --------------------------------------------------------------------------

_OWNER = """
import sys, time
from tests.emulators.fleet import Fleet
fleet = Fleet(isolated=sys.argv[1] == "True")
hosts = [fleet.launch(f"n{i}", "", ingress=[("0.0.0.0/0", 22)]) for i in range(2)]
assert all(host.ready(20) for host in hosts)
print(*[host.address for host in hosts], flush=True)
time.sleep(600)
"""


def _left(addresses: list[str]) -> list[str]:
    """What is there of fleets that these addresses belong to."""
    number = addresses[0].split(".")[2 if addresses[0].startswith("198.18.") else 1]
    links = os.listdir("/sys/class/net")
    folders = [path.name for path in scratch().glob(f"sky-fleet{number}-*")]
    return [name for name in links if name == f"sky{number}"] + folders


def _machines(parent: psutil.Process) -> list[psutil.Process]:
    return [child for child in parent.children(recursive=True) if child.is_running()]


def test_a_closed_fleet_leaves_nothing(fleet: Fleet) -> None:
    before = Path("/proc/self/mounts").read_text()
    hosts = [fleet.launch(f"n{i}", "", ingress=OPEN) for i in range(3)]
    assert all(host.ready(WAIT) for host in hosts)
    ended: list[str] = []
    hosts[0]._on_end = ended.append
    addresses = [host.address for host in hosts]
    assert len(set(addresses)) == 3
    assert _left(addresses)
    processes = [each for host in hosts for each in host.processes()]
    assert len(processes) >= 3
    fleet.close()
    assert not any(process.is_running() for process in processes)
    assert _left(addresses) == []
    assert Path("/proc/self/mounts").read_text() == before
    assert ended == []


@pytest.mark.parametrize("kind", [pytest.param(True, marks=needs_isolation), False])
def test_a_killed_owner_leaves_nothing(kind: bool) -> None:
    root = Path(__file__).parents[2]
    owners = [
        subprocess.Popen(
            [sys.executable, "-c", _OWNER, str(kind)],
            stdout=subprocess.PIPE,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
            text=True,
        )
        for _ in range(2)
    ]
    try:
        addresses = [owner.stdout.readline().split() for owner in owners if owner.stdout]
        assert len({*addresses[0], *addresses[1]}) == 4  # fleets of two processes do not meet
        for owner, mine in zip(owners, addresses, strict=True):
            processes = _machines(psutil.Process(owner.pid))
            assert len(processes) >= 4 and _left(mine)
            owner.kill()
            _until(partial(_none_left, mine, processes))
    finally:
        for owner in owners:
            owner.kill()
            owner.communicate()


def _none_left(addresses: list[str], processes: list[psutil.Process]) -> bool:
    return not _left(addresses) and not any(map(_lives, processes))


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


_ANYBODY = """
mkdir -p box/tests && cd box && tar -xf - && touch tests/__init__.py
export PYTHONPATH=$PWD
exec %s - <<'END'
from tests.emulators.fleet import Fleet, isolation_works
assert not isolation_works()
with Fleet() as fleet:
    commands = ["id -un >/var/lib/who", "shutdown -P +1"]
    import json, queue
    ends = queue.Queue()
    fleet.minute = 0.5
    host = fleet.launch("n", "#cloud-config\\n" + json.dumps({"runcmd": commands}), on_end=ends.put)
    assert host.ready(20), host.console()
    assert host.booted(20), host.console()
    print((host.folder / "var/lib/who").read_text().strip(), host.port, ends.get(timeout=20))
    assert not host.folder.exists()
END
"""


@needs_isolation
def test_machines_beside_us_are_for_anybody(isolated: Fleet, keys: Keys) -> None:
    born = Born(isolated, keys)
    assert born.host.ready(WAIT)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(Path(__file__).parents[1] / "emulators", "tests/emulators")
        tar.add(Path(psutil.__file__).parent, "psutil")
    answer = ssh.run(born.address, _ANYBODY % PYTHON, data=buffer.getvalue())
    assert answer.code == 0, answer.err
    who, port, end = answer.text.split()
    assert (who, end) == (born.user, "shutdown")
    assert int(port) > 1023


def test_folders_of_those_that_were_killed_are_swept() -> None:
    left = Path(tempfile.mkdtemp(prefix="sky-fleet1-", dir=scratch()))
    with Fleet(isolated=False) as one:
        host = one.launch("n", "")
        assert host.folder
        with Fleet(isolated=False):
            assert not left.exists()
            assert host.folder.exists()


# -- our own clusters on them -----------------------------------------------------------------


@pytest.mark.slow
def test_engines_can_be_had_on_it(fleet: Fleet, keys: Keys) -> None:
    warm_cache()
    born = Born(fleet, keys)
    assert born.host.ready(WAIT)
    node = keeper.take(Node(0, "token", born.host.name, born.address), {})
    said: list[str] = []
    python = bootstrap.prepare([node], said.append)[0]
    told = born.sh(
        f"{python} -c 'import sys, jupyter_sky.engines.head, ipyparallel;"
        "print(*sys.version_info[:2], jupyter_sky.__file__)'"
    ).split()
    assert told[:2] == [str(part) for part in sys.version_info[:2]]
    assert told[2].startswith(node.base)
    assert "Python" in said
    keeper.end([node])


@pytest.mark.slow
def test_it_ends_when_its_lease_is_ended(fleet: Fleet, keys: Keys) -> None:
    user, ends = fleet.user or "ada", queue.Queue[str]()
    text = birth.user_data(
        user,
        keys.public(keys.user),
        keys.host.read_text(),
        keys.public(keys.host),
        lease=3600.0,
        silence=300.0,
    )
    host = fleet.launch("n", text, ingress=OPEN, on_end=ends.put)
    assert host.booted(WAIT), host.console()
    address = keys.address(host, user)
    script = 'cd "${JUPYTER_SKY_LEASE:-/run/jupyter-sky}" && cut -d. -f1 /proc/uptime >renewed'
    _until(lambda: ssh.run(address, script).code == 0)
    assert ssh.run(address, script + " && touch end").code == 0
    assert ends.get(timeout=WAIT) == "shutdown"

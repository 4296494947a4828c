"""The first process of a machine: it boots it, serves what it can learn of itself, and ends it.

Started by `fleet`, which writes the machine's description as the first line of its input, then
orders, and reads events from its output; its errors are the machine's console. When the input
ends, so does the machine. It runs under a bare Python: the standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # not there by itself under -I

import cloudinit  # pyright: ignore[reportMissingImports]
import isolation  # pyright: ignore[reportMissingImports]
import metadata  # pyright: ignore[reportMissingImports]
import systemd_units  # pyright: ignore[reportMissingImports]

sys.path.pop()  # azure.py in it would hide the SDK of that name from the tests

STOP_SECONDS = 3.0
"""Processes have so long to end when the machine powers itself off."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ELSEWHERE = re.compile(r"(?<![\w.}/-])/(?=(?:run|root|home|usr/local|var/lib|var/log|etc)/)")
"""Paths that lead below a machine's own folder where its files are this machine's: all that our
documents write, as it may be root that runs them."""
_SUBREAPER = 36

_SHUTDOWN = """#!/bin/sh
# shutdown [-P|-r] [now|+N], shutdown -c: asks the machine's first process, as systemd's own does
when=1 what=poweroff
for word; do
  case $word in
    -c) what=cancel ;;
    -r) what=reboot ;;
    -k) echo "shutdown: $word is not known here" >&2; exit 1 ;;
    -*) ;;
    now) when=0 ;;
    +[0-9]*) when=${word#+} ;;
    *) echo "Failed to parse time specification: $word" >&2; exit 1 ;;
  esac
done
[ -w %(requests)s ] || { echo "Call failed: Interactive authentication required." >&2; exit 1; }
echo "$what $when" >%(requests)s
"""


class Machine:
    """The machine, from inside."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.own = spec, bool(spec["isolated"])
        self.folder = Path(spec["folder"] or "/")
        self._ended: dict[int, int] = {}
        self._reaped, self._linked = threading.Condition(), threading.Event()
        self._network, self._connected = threading.Lock(), False
        self.service = ""
        self._power: threading.Timer | None = None
        self.metadata = metadata.Metadata(spec["metadata"], lambda: tell(event="approved"))
        folder = Path(self.place("/etc/systemd/system"))
        self.units = systemd_units.Units(folder, self.run, self.say)
        self._document: Any = None
        self._sshd_pid = 0
        self._restarting = threading.Lock()
        self._guest: Any = None

    def boot(self) -> None:
        """Come up; what the document says is said on the console."""
        if self.own:
            isolation.enter(self.spec["prefix"], self.spec["cache"])
            isolation.settle(self.spec)
            isolation.new_boot()
        else:
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        threading.Thread(target=self._reap, daemon=True).start()
        self._programs()
        document = cloudinit.read(self.spec["user_data"], self.say)
        guest = cloudinit.Guest(
            say=self.say,
            run=self.run,
            place=self.place,
            own=self.own,
            user=self.spec["user"],
            public_key=self.spec["public_key"],
            state=self.folder / "etc/ssh",
        )
        guest.state.mkdir(parents=True, exist_ok=True)
        self._document, self._guest = document, guest
        self._linked.wait()
        if self.own:
            with self._network:
                isolation.connect(self.spec)
                self._connected = True
        at = "169.254.169.254" if self.own else self.spec["address"]
        self.service = f"{at}:{metadata.serve(self.metadata, at, 80 if self.own else 0)}"
        cloudinit.before_ssh(document, guest)
        if self.own:
            isolation.lend_cache(cloudinit.FIRST_UID)
        self._sshd(guest)
        tell(event="up")
        cloudinit.after_ssh(document, guest)
        tell(event="booted")

    def reboot(self) -> None:
        """Lose all processes and what is in memory, and come up again with what is enabled."""
        with self._restarting:
            self._reboot()

    def _reboot(self) -> None:
        self.say("Restarting.")
        self._halt()
        self._come_up()
        self.say("Restarted.")

    def halt(self) -> None:
        """Power off and stay there, with the disk: it can be started again."""
        with self._restarting:
            self.say("Powering off; its disk is kept.")
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            while self._processes() and time.monotonic() < deadline:
                time.sleep(0.01)
            self._halt()

    def start(self) -> None:
        """Come up again after `halt`."""
        with self._restarting:
            self._come_up()
            self.say("Started again.")

    def _halt(self) -> None:
        if self._power:
            self._power.cancel()
        self.units.forget()
        while self._processes():
            self._signal(signal.SIGKILL)
            time.sleep(0.005)

    def _come_up(self) -> None:
        for path in (self.folder / "run").iterdir():
            if path.name != "initctl":  # which this process reads
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self.own:
            isolation.new_boot()
        cloudinit.before_ssh_again(self._document, self._guest)
        self._sshd(self._guest)
        self.units.start_enabled()
        cloudinit.each_boot(self._guest)

    def obey(self) -> None:
        """Carry out orders until there are no more; return then, for the end."""
        for line in sys.stdin:
            order = json.loads(line)
            try:
                self._do(order)
            except Exception:
                self.say(traceback.format_exc())
            tell(event="done", number=order["number"])

    def _do(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "link":
                self._linked.set()
            case "metadata":
                self.metadata.change(order["facts"])
            case "admit":
                with self._network:
                    if self._connected:
                        isolation.admit(self.spec["ingress"], order["ingress"])
                    self.spec["ingress"] = order["ingress"]
            case "reboot":
                self.reboot()
            case "halt":
                self.halt()
            case "start":
                self.start()
            case "shutdown":
                threading.Thread(target=self.power_off, daemon=True).start()
            case "silent":
                self._signal(signal.SIGSTOP if order["silent"] else signal.SIGCONT)

    def say(self, text: str) -> None:
        """Write a line to the console."""
        with contextlib.suppress(OSError):
            os.write(2, f"[{time.monotonic() - STARTED_AT:8.3f}] {text}\n".encode())

    def place(self, text: str) -> str:
        """Return where paths lead: below the machine's folder, if the files are not its own."""
        if self.own:
            return text
        text = _ELSEWHERE.sub(f"{self.folder}/", text)
        return text.replace("169.254.169.254", self.service)

    # -- programs ---------------------------------------------------------------------------

    def _programs(self) -> None:
        """Put there what powers it off, and its Python where it is looked for."""
        requests = self.folder / "run/initctl"
        requests.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(requests, 0o600)
        threading.Thread(target=self._requests, args=(requests,), daemon=True).start()
        shutdown = _SHUTDOWN % {"requests": requests}
        texts = {
            "shutdown": shutdown,
            "poweroff": "#!/bin/sh\nexec shutdown -P now\n",
            "halt": "#!/bin/sh\nexec shutdown -P now\n",
            "systemd-run": "#!/bin/sh\necho there is no systemd here >&2\nexit 1\n",
            "reboot": "#!/bin/sh\nexec shutdown -r now\n",
            "systemctl": systemd_units.SYSTEMCTL
            % {"requests": requests, "units": self.units.folder},
        }
        folders = ["usr/sbin", "usr/bin"] if self.own else ["bin"]
        for name in folders:
            (self.folder / name).mkdir(exist_ok=True)
            for program, text in texts.items():
                path = self.folder / name / program
                path.unlink(missing_ok=True)
                path.write_text(text)
                path.chmod(0o755)
        python = Path(self.spec["python"])
        path = self.folder / ("usr/local/bin" if self.own else "bin") / python.name
        if path != python:
            # no link: a Python looks for its library around the path that it is started by
            path.unlink(missing_ok=True)
            path.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
            path.chmod(0o755)

    def environment(self) -> dict[str, str]:
        """Return what is set in every session on it."""
        cache = isolation.CACHE if self.own else self.spec["cache"]
        found = {"UV_CACHE_DIR": cache, "UV_OFFLINE": "1", "UV_LINK_MODE": "copy"}
        if not self.own:
            user = self.spec["user"]
            home = self.folder / ("root" if user == "root" else f"home/{user}")
            home.mkdir(parents=True, exist_ok=True)
            found |= {
                "HOME": str(home),
                "PATH": f"{self.folder}/bin:/usr/local/bin:/usr/bin:/bin",
                "JUPYTER_SKY_KEEPALIVE": f"{self.folder}/run/jupyter-sky",
                "JUPYTER_SKY_SLOTS": f"{self.folder}/slots",
                "JUPYTER_SKY_METADATA": f"http://{self.service}",
            }
            if self.spec["authority"]:
                bundle = self.folder / "authority.pem"
                known = next(filter(os.path.exists, isolation.BUNDLES), None)
                system = Path(known).read_text() if known else ""
                bundle.write_text(f"{system}\n{self.spec['authority']}")
                found |= dict.fromkeys(
                    ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"), str(bundle)
                )
        return found

    def _sshd(self, guest: cloudinit.Guest) -> None:
        address = "0.0.0.0" if self.own else self.spec["address"]
        settings = {
            "ListenAddress": f"{address}:{self.spec['port']}",
            "PidFile": "none",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PrintMotd": "no",
            "Subsystem": "sftp internal-sftp",
            "SetEnv": " ".join(f'"{name}={value}"' for name, value in self.environment().items()),
        }
        if not self.own:
            settings |= {"StrictModes": "no", "AuthorizedKeysFile": guest.state / "authorized"}
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        for path in sorted(guest.state.glob("ssh_host_*_key")):
            path.chmod(0o600)
            lines.append(f"HostKey {path}\n")
        config = guest.state / "sshd_config"
        config.write_text("".join(lines))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
        log = self.folder / "var/log/auth.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self._sshd_pid = self._start(
                [self.spec["sshd"], "-D", "-e", "-f", str(config)], file, {}
            )

    def run(self, words: list[str]) -> int:
        """Run a command to its end, its output on the console; return its code."""
        environment = {"PATH": SYSTEM_PATH, "HOME": "/root", "LANG": "C.UTF-8"}
        if not self.own:
            environment |= self.environment()
            environment["PATH"] += ":/usr/sbin:/sbin"
        pid = self._start(words, sys.stderr, environment)
        with self._reaped:
            self._reaped.wait_for(lambda: pid in self._ended)
        return os.waitstatus_to_exitcode(self._ended[pid])

    def _start(self, words: list[str], output: Any, environment: dict[str, str]) -> int:
        while True:
            try:
                return self._fork(words, output, environment)
            except OSError as error:
                if error.errno != errno.ETXTBSY:
                    raise
                # a process that another thread has just forked still has the script open, as it
                # was written; its own program closes it
                time.sleep(0.02)

    def _fork(self, words: list[str], output: Any, environment: dict[str, str]) -> int:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment or None,
            start_new_session=True,
        )
        process.returncode = 0  # it is reaped below, with those whose parents are gone
        return process.pid

    def _reap(self) -> None:
        """Take leave of every process that ends here, as a first process must."""
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                time.sleep(0.02)
                continue
            with self._reaped:
                self._ended[pid] = status
                self._reaped.notify_all()

    # -- the end ----------------------------------------------------------------------------

    def _requests(self, path: Path) -> None:
        """Carry out what ``shutdown`` asks for: a later time replaces an earlier one."""
        for line in os.fdopen(os.open(path, os.O_RDWR)):
            what, _, word = line.strip().partition(" ")
            if what == "start":
                self.units.start(word)
                continue
            if what == "reload":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._sshd_pid, signal.SIGHUP)
                continue
            if self._power:
                self._power.cancel()
            if what == "cancel":
                self.say("Shutdown is cancelled.")
                continue
            seconds = int(word) * self.spec["minute"]
            self.say(f"Shutdown is scheduled in {word} min ({seconds:g} s here).")
            end = self.reboot if what == "reboot" else self.power_off
            self._power = threading.Timer(seconds, end)
            self._power.daemon = True
            self._power.start()

    def power_off(self) -> None:
        """End all processes, kindly at first, and then the machine."""
        self.say("Powering off.")
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self._processes() and time.monotonic() < deadline:
            time.sleep(0.01)
        tell(event="shutdown")
        self.end()

    def end(self) -> None:
        """Be gone; with a first process of its own kind, all else is by that."""
        if not self.own:
            while self._processes():
                self._signal(signal.SIGKILL)
                time.sleep(0.005)
            shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)

    def _signal(self, kind: signal.Signals) -> None:
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, kind)

    def _processes(self) -> list[int]:
        """List what runs on it, but for this process: our descendants, as we adopt all orphans."""
        parents: dict[int, int] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    rest = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                    if rest[0] != "Z":
                        parents[int(name)] = int(rest[1])
        found, last = {os.getpid()}, set[int]()
        while found != last:
            last = set(found)
            found |= {pid for pid, parent in parents.items() if parent in found}
        return sorted(found - {os.getpid()})


STARTED_AT = time.monotonic()


def tell(**event: Any) -> None:
    """Tell the one who started us."""
    with contextlib.suppress(OSError):
        os.write(1, (json.dumps(event) + "\n").encode())


def main() -> None:
    """Be a machine."""
    machine = Machine(json.loads(sys.stdin.readline()))
    # in the numbers of the one who started us, while we still see its list of processes
    tell(event="booting", pid=int(os.readlink("/proc/self")))
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda *_: None)  # were they ignored, all that it starts would too

    def boot() -> None:
        try:
            machine.boot()
        except BaseException:
            machine.say(traceback.format_exc())
            tell(event="crashed")
            machine.end()

    threading.Thread(target=boot, daemon=True).start()
    machine.obey()
    machine.end()


if __name__ == "__main__":
    main()

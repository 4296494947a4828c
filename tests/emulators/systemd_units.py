"""Services of a machine, as far as systemd's units of them are used: enabled, started, restarted.

It runs on the machine, under a bare Python: the standard library alone.
"""

from __future__ import annotations

import configparser
import threading
import time
from collections.abc import Callable
from pathlib import Path

WANTED = "multi-user.target"

SYSTEMCTL = """#!/bin/sh
# systemctl, as far as services are enabled, started and looked at: asks the machine's first process
units=%(units)s requests=%(requests)s
verb= now= names=
for word; do
  case $word in
    --now) now=yes ;;
    -*) ;;
    *) if [ -z "$verb" ]; then verb=$word; else names="$names ${word%%.service}.service"; fi ;;
  esac
done
case $verb in
  poweroff | halt) exec shutdown -P now ;;
  reboot) exec shutdown -r now ;;
  daemon-reload) exit 0 ;;
  enable | start | is-enabled | reload) ;;
  *) echo "systemctl: $verb is not known here" >&2; exit 1 ;;
esac
[ -w "$requests" ] || { echo "Interactive authentication required." >&2; exit 1; }
for name in $names; do
  if [ "$verb $name" = "reload ssh.service" ]; then # which this machine has no unit of
    echo "reload ssh" >"$requests"
    continue
  fi
  [ -e "$units/$name" ] || { echo "Unit $name could not be found." >&2; exit 1; }
  if [ "$verb" = is-enabled ]; then
    [ -e "$units/multi-user.target.wants/$name" ] || exit 1
  fi
  if [ "$verb" = enable ]; then
    grep -q "^WantedBy=multi-user.target$" "$units/$name" || exit 1
    mkdir -p "$units/multi-user.target.wants" &&
      ln -sf "$units/$name" "$units/multi-user.target.wants/$name" || exit 1
  fi
  [ "$verb$now" = enableyes ] || [ "$verb" = start ] || continue
  echo "start $name" >"$requests"
done
"""


class Units:
    """Services of a machine.

    Parameters
    ----------
    folder
        Where their files are: ``/etc/systemd/system``.
    run
        Runs a command to its end and returns its code.
    say
        Writes a line to the console.
    """

    def __init__(
        self, folder: Path, run: Callable[[list[str]], int], say: Callable[[str], None]
    ) -> None:
        self.folder, self._run, self._say = folder, run, say
        self._changing, self._boot, self._active = threading.Lock(), 0, set[str]()

    def start_enabled(self) -> None:
        """Start what is wanted at each boot."""
        for link in sorted((self.folder / f"{WANTED}.wants").glob("*.service")):
            self.start(link.name)

    def start(self, name: str) -> None:
        """Start a service, if it does not run."""
        with self._changing:
            if name in self._active:
                return
            self._active.add(name)
            boot = self._boot
        threading.Thread(target=self._keep, args=(name, boot), daemon=True).start()

    def forget(self) -> None:
        """Start nothing again: all of it is about to be killed."""
        with self._changing:
            self._boot += 1
            self._active.clear()

    def _keep(self, name: str, boot: int) -> None:
        """Run a service, again and again if its unit says so."""
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read(self.folder / name)
        service = unit["Service"]
        command = service["ExecStart"].split()
        while self._boot == boot:
            self._say(f"Started {name}.")
            code = self._run(command)
            if self._boot == boot:
                self._say(f"{name} ended with code {code}.")
            if service.get("Restart") != "always":
                break
            time.sleep(float(service.get("RestartSec", "0.1")))
        with self._changing:
            if self._boot == boot:
                self._active.discard(name)

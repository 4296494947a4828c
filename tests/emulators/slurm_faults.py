"""Commands of Slurm that fail when told to, in Slurm's own words; else they are the real ones."""

from __future__ import annotations

import shutil
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo")
CUT = "cut"
"""Fault of a command that is carried out, and whose answer is lost."""
LOST = "Socket timed out on send/recv operation"
WORDS = {
    "quota": "Job violates accounting/QOS policy "
    "(job submit limit, user's size and/or time limits)",
    "permission": "Invalid account or account/partition combination specified",
    "invalid": "Requested node configuration is not available",
    "throttled": "Resource temporarily unavailable",
}
"""Words of ``sbatch`` after "Batch job submission failed", by cause: see slurm_errno.c."""

_SCRIPT = """\
#!/bin/sh
faults={folder}/{name}.faults
[ -s {folder}/{name}.delay ] && sleep "$(cat {folder}/{name}.delay)"
if [ -s "$faults" ]; then
  fault=$(flock {folder} sh -c 'head -n 1 "$1"; sed -i 1d "$1"' sh "$faults")
  if [ "$fault" = cut ]; then
    {real} "$@" >/dev/null
    fault='{lost}'
  fi
  echo "{name}: error: Batch job submission failed: $fault" >&2
  exit 1
fi
exec {real} "$@"
"""


class SlurmFaults:
    """Folder of commands.

    Parameters
    ----------
    folder
        Empty; to be in front of all others of ``PATH``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COMMANDS:
            path, real = folder / name, shutil.which(name)
            path.write_text(_SCRIPT.format(folder=folder, name=name, real=real, lost=LOST))
            path.chmod(0o755)

    def add(self, command: str, words: str, times: int = 1) -> None:
        """Let the next calls of a command fail with some words, or be `CUT`."""
        with (self.folder / f"{command}.faults").open("a") as file:
            file.write(f"{words}\n" * times)

    def delay(self, command: str, seconds: float) -> None:
        """Carry a command out late from now on."""
        (self.folder / f"{command}.delay").write_text(str(seconds))

    def clear(self) -> None:
        """Let all commands be the real ones."""
        for path in (*self.folder.glob("*.faults"), *self.folder.glob("*.delay")):
            path.unlink(missing_ok=True)

"""Damage on the way, for the benchmark `storage`: what of it is accepted.

Bits are changed on the way up, in the store and on the way down; bodies are cut short, ranges
shifted, checksums wrong, and successes hold errors. Each is injected by the strict store of the
tests. Every object must arrive as it was, by a transfer, by a copy inside the store and by a
download to the cache.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

PART = 4096
FAULTS = (
    ("PUT", "flip"),
    ("PUT.*partNumber", "rot"),
    ("PUT.*partNumber", "error200"),
    ("POST.*uploadId", "error200"),
    ("GET /bucket/a", "flip"),
    ("GET /bucket/a", "truncate"),
    ("GET /bucket/a", "shift"),
    ("GET /bucket/a", "sum"),
    ("GET /bucket/a", "error200"),
    ("GET /bucket/copy", "flip"),
    ("PUT /bucket/copy", "error200"),
)
"""Requests, and what is wrong with them."""


class Round:
    """One object that goes up, is copied, comes down and is cached, with damage at each step."""

    def __init__(self, server: Any, folder: Path, draw: random.Random) -> None:
        from tests.storage.conftest import store_of

        self.server, self.draw = server, draw
        self.data = draw.randbytes(draw.choice([1, PART, 30_000]))
        server.reset()
        server.create("bucket")
        self.folder, self.store = folder, store_of(server)
        for match, kind in FAULTS:
            server.fail(match, kind, after=draw.randrange(4), at=draw.random())

    def run(self) -> list[str]:
        """Return what arrived other than it was, and what did not arrive."""
        from jupyter_sky.machines.storage.stores.errors import SkyStorageError
        from jupyter_sky.machines.storage.stores.files import FilesStore

        files = FilesStore(self.folder)
        (self.folder / "a").write_bytes(self.data)
        (self.folder / "b").unlink(missing_ok=True)
        try:
            self._move(files, "a", self.store, "a")
            arrived = {"up": self.server.content("bucket", "a")}
            self._move(self.store, "a", self.store, "copy")
            arrived["copy"] = self.server.content("bucket", "copy")
            self._move(self.store, "a", files, "b")
            arrived["down"] = (self.folder / "b").read_bytes()
            arrived["cache"] = self._cached()
        except SkyStorageError as error:
            return [f"not survived: {error}"]
        return [f"{step} accepted damage" for step, data in arrived.items() if data != self.data]

    def _move(self, source: Any, key: str, target: Any, name: str) -> None:
        from jupyter_sky.machines.storage.transfers.transfer import (
            Transfer,
            TransferItem,
            TransferOptions,
        )

        items = [TransferItem(source.stat(key), name)]
        Transfer(source, target, items, None, TransferOptions(part_size=PART)).run()

    def _cached(self) -> bytes:
        from jupyter_sky.machines.storage.transfers.downloads import download_objects, plan_download

        path = self.folder / "c"
        download_objects([(plan_download(self.store, self.store.stat("copy")), path)])
        return path.read_bytes()


def corrupt_accepted(quick: bool = False) -> float:
    """Return how many of 200 pieces of damage were accepted, or not survived."""
    from tests.emulators.object_store import ObjectStore

    wanted, injected, wrong = 20 if quick else 200, 0, list[str]()
    draw = random.Random(1)
    with (
        ObjectStore("aws", min_part=1024) as amazon,
        ObjectStore("google", min_part=1024) as google,
        tempfile.TemporaryDirectory() as name,
    ):
        while injected < wanted:
            server = draw.choice([amazon, google])
            wrong += Round(server, Path(name), draw).run() + server.crashes
            injected += server.faults.injected
    for each in wrong:
        print(each, file=sys.stderr, flush=True)
    print(f"{injected} pieces of damage, {len(wrong)} accepted", file=sys.stderr, flush=True)
    return float(len(wrong))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    corrupt_accepted("--quick" in sys.argv)

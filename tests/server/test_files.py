"""Files of a real cluster, listed and downloaded from a server, and nothing beside them."""

from __future__ import annotations

import asyncio
import io
import zipfile
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from tests.conftest import Notebook
from tests.server.test_clusters import book, refused  # noqa: F401 (a fixture)

MAKE = """%%sky -c train
import os, pathlib
pathlib.Path('out/deep').mkdir(parents=True)
pathlib.Path('out/model.pt').write_bytes(bytes(range(256)) * 4000)
pathlib.Path('out/deep/ü.txt').write_text('text')
os.symlink('/etc/passwd', 'leak')
"""


async def _ended_runs(ask: Any) -> dict[str, str]:
    """Return the ids of both runs by their code, once the state of the server has their ends."""
    while True:
        runs = [run for run in (await ask("state"))["runs"] if run["ended"]]
        if len(runs) == 2:
            return {run["code"]: run["run_id"] for run in runs}
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_files_are_listed_and_downloaded(ask: Any, jp_fetch: Any, book: Notebook) -> None:  # noqa: F811
    assert book.run(MAKE).status == "ok"

    async def download(path: str) -> Any:
        return await jp_fetch("jupyter-sky", "clusters", "train", "download", params={"path": path})

    top = await ask("clusters", "train", "files")
    assert {"name": "out", "kind": "folder"}.items() <= top["entries"][0].items()
    inside = await ask("clusters", "train", "files", path="out")
    assert [(one["name"], one["kind"]) for one in inside["entries"]] == [
        ("deep", "folder"),
        ("model.pt", "file"),
    ]
    assert inside["entries"][1]["size"] == 1_024_000

    await asyncio.sleep(0.2)  # times of files may lie a little outside of their run
    book.run("%%sky -c train\npathlib.Path('later.txt').write_text('later')")
    made = await _ended_runs(ask)
    listed = [
        (await ask("runs", run_id, "files"))["entries"]
        for code, run_id in made.items()
        if "pathlib" in code
    ]
    names = sorted([one["name"] for one in entries] for entries in listed)
    assert names == [["later.txt"], ["out/deep/ü.txt", "out/model.pt"]]

    book.send("%%sky -c train\nimport time\ntime.sleep(20)")  # also while a cell runs
    model = await download("out/model.pt")
    assert model.body == bytes(range(256)) * 4000
    assert model.headers["Content-Disposition"] == "attachment; filename*=UTF-8''model.pt"
    assert model.headers["X-Content-Type-Options"] == "nosniff"
    packed = await download("out")
    assert packed.headers["Content-Disposition"].endswith("''out.zip")
    with zipfile.ZipFile(io.BytesIO(packed.body)) as archive:
        assert sorted(archive.namelist()) == ["out/deep/ü.txt", "out/model.pt"]
        assert archive.read("out/deep/ü.txt") == b"text" and archive.testzip() is None

    for path in ("../config.json", "/etc/passwd", "leak", "~/.ssh"):
        assert "outside" in await refused(ask("clusters", "train", "files", path=path), 400)
        with pytest.raises(HTTPClientError) as caught:
            await download(path)
        assert caught.value.code == 400
    await refused(ask("clusters", "train", "download", path="nothing"), 404)
    await refused(ask("clusters", "other", "files"), 404)
    book.interrupt()

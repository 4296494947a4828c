"""Help of the panel: its search, and single pages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import Refused


async def test_help_is_searched(ask: Any) -> None:
    guide = (await ask("help"))["pages"]
    assert [page["name"][:2] for page in guide] == [f"{n:02}" for n in range(1, 11)]
    found = (await ask("help", q="plan"))["pages"]
    assert {"verb", "name"} <= {page["kind"] for page in found}
    assert all(page["summary"] and "text" not in page for page in found)
    assert (await ask("help", q="xyzzy"))["pages"] == []


async def test_pages_of_the_help(ask: Any) -> None:
    for page in (await ask("help", q="plan"))["pages"]:
        whole = await ask("help", page["kind"], page["name"])
        assert whole["title"] == page["title"] and len(whole["text"]) >= len(page["summary"])
    member = await ask("help", "name", "preemption.fit")
    assert "maximum likelihood" in member["text"]


@pytest.mark.parametrize("path", [("name", "sky.nothing"), ("verb", "fly"), ("guide", "11-more")])
async def test_a_page_that_does_not_exist(ask: Any, path: tuple[str, str]) -> None:
    with pytest.raises(Refused) as caught:
        await ask("help", *path)
    assert (caught.value.status, caught.value.kind) == (404, "NotFound")


async def test_examples_bring_the_guide(ask: Any, jp_root_dir: Any) -> None:
    paths = (await ask("examples", body={}))["paths"]
    assert paths[0] == "sky-examples/01-first-cell.ipynb"
    assert "sky-examples/guide/08-when-things-fail.ipynb" in paths
    assert all((jp_root_dir / path).is_file() for path in paths)

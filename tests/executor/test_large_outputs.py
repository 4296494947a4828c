"""Much output: linear cost, bounded memory, capped on screen, whole in the journal."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Notebook, Ran

pytestmark = pytest.mark.slow

PEAK = "import resource; resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024"


def on_the_wire(ran: Ran) -> int:
    """Bytes that reached the front end for a cell."""
    return sum(len(json.dumps(message, default=str)) for message in ran.messages)


def test_thousands_of_flushed_lines_are_cheap_and_in_order(notebook: Notebook) -> None:
    assert notebook.run("%%sky\npass").status == "ok"
    ran = notebook.run("%%sky\nfor i in range(4000): print(f'{i:<99}', flush=True)")
    assert [int(line) for line in ran.stdout.splitlines()] == list(range(4000))
    assert on_the_wire(ran) < 1_000_000


def test_stdout_and_stderr_keep_their_order_in_a_flood(notebook: Notebook) -> None:
    ran = notebook.run(
        "%%sky\nimport sys\n"
        "for i in range(500): print(i, file=(sys.stdout, sys.stderr)[i % 2], flush=True)"
    )
    text = "".join(content["text"] for content in ran.of("stream"))
    assert [int(line) for line in text.split()] == list(range(500))


@pytest.mark.parametrize("pieces", [2000, 1])
def test_200_mb_of_stdout(notebook: Notebook, pieces: int) -> None:
    before = int(notebook.run(PEAK).result)
    size = 200_000_000 // pieces
    ran = notebook.run(
        f"%%sky --name flood{pieces}\nimport sys\n"
        f"for i in range({pieces}): sys.stdout.write(f'{{i:<{size - 1}}}\\n')\n"
        "print('the end')",
        timeout=120,
    )
    assert ran.status == "ok"
    assert on_the_wire(ran) < 5_300_000
    assert ran.stdout.startswith("0 ") and ran.stdout.endswith("the end\n")
    left_out = 200_000_008 - len(ran.stdout)
    assert f"{left_out / 1e6:.1f} MB left out; everything: %sky logs flood{pieces}" in ran.stderr
    grown = int(notebook.run(PEAK).result) - before
    assert grown < (150_000_000 if pieces > 1 else 1_000_000_000), f"{grown:,} bytes"
    count = f"import jupyter_sky as sky; len(sky.logs('flood{pieces}'))"
    counted = notebook.run(count, timeout=120)
    assert counted.result == "200000008"

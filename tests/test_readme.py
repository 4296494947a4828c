"""The README's example of a plan, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from jupyter_sky.optimizer.plan import Plan

README = Path(__file__).parents[1] / "README.md"


def test_the_example_of_a_plan(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [block for block in blocks if "sky.plan(" in block]
    namespace: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), namespace)
    made = namespace["plan"]
    assert isinstance(made, Plan) and made.hours <= 24 and len(made) == 2
    assert {placed.offer.jurisdiction for placed in made.tasks} == {"US"}
    assert capsys.readouterr().out.count("the next best") == 2

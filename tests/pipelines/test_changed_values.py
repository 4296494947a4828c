"""Values of others that a cell changes in place, also under another name."""

from __future__ import annotations

import pytest

from jupyter_sky.workflows.pipelines.notebook.cells import changed_names


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("df['x'] = 0", "df"),
        ("df.loc[0, 'x'] += 1", "df"),
        ("df.drop(columns='x', inplace=True)", "df"),
        ("model.fit(X, y)", "model"),
        ("names.append(1); names = []", "names"),
        ("del table['x']", "table"),
        ("tensor.add_(1)", "tensor"),
        ("add(a, b, out=c)", "c"),
        ("random.shuffle(cards)", "cards"),
        ("both = [train, test]\nfor d in both:\n    d['x'] = 0", "train test"),
        ("for d, e in zip(train, test):\n    d.x = e.x = 0", "train test"),
        ("for d in {'a': train}.values():\n    d.pop('x')", "train"),
        ("other = df\nother['x'] = 0", "df"),
        ("a, b = train, test\nb['x'] = 0", "test"),
        ("part = df if big else small\npart['x'] = 0", "df small"),
        ("if big:\n    d = df\nelse:\n    d = df.copy()\nd['x'] = 0", "df"),
        ("x = None\nwhile go:\n    if x is not None:\n        x.append(1)\n    x = rows", "rows"),
        ("def clean(frame):\n    frame['x'] = 0\nclean(df)", "df"),
        ("def work():\n    cache['x'] = 0\nwork()", "cache"),
        ("a, b = b, a\nb['x'] = 0", "a"),
        ("(kept := df)['x'] = 0", "df"),
        ("with table as t:\n    t['x'] = 0", "table"),
        ("try:\n    d = df\nexcept KeyError:\n    d = 0\nd['x'] = 0", "df"),
        ("%time df['x'] = 0", "df"),
    ],
)
def test_changes_are_found(code: str, changed: str) -> None:
    assert changed_names(code) == set(changed.split())


@pytest.mark.parametrize(
    "code",
    [
        "df = df.dropna()\ndf['x'] = 0",
        "new = df.copy()\nnew['x'] = 0",
        "import numpy as np\nnp.random.seed = 3",
        "rows = []\nrows.append(df)",
        "x = df['x'].sum()",
        "count += 1",
        "df.drop(columns='x', inplace=False)",
        "def clean(frame):\n    frame = frame.copy()\n    frame['x'] = 0\nclean(df)",
        "scores = {}\nfor name in names:\n    scores[name] = 0",
        "import random\nrandom.shuffle",
        "print(df",
        "a.__init__()",
    ],
)
def test_what_is_not_changed(code: str) -> None:
    assert changed_names(code) == set()

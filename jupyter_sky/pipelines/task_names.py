"""Names of tasks where files, clusters and cells are named after them."""

from __future__ import annotations

import re
from zlib import crc32


def plain_name(task: str) -> str:
    """Return a name of letters, digits, ``_``, ``-`` and ``.`` that no other task's name gives.

    Examples
    --------
    >>> plain_name("train"), plain_name("fit[lr=0.1]"), plain_name("fit[lr=-0.1]")
    ('train', 'fit_lr_0_1_1925f0b8', 'fit_lr_0_1_f4ff6ff3')
    """
    if re.fullmatch(r"[\w.-]+", task):
        return task
    words = re.sub(r"[\W_]+", "_", task).strip("_")
    return f"{words[:40]}_{crc32(task.encode()):08x}"

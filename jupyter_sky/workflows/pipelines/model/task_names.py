"""Names of files, clusters and cells that are named after tasks."""

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


def attempt_name(run: str, task: str, attempt: int) -> str:
    """Return the name of the cell of an attempt.

    Examples
    --------
    >>> attempt_name("nightly", "train-0.1", 2)
    'nightly_train_0_1_attempt2'
    """
    return re.sub(r"\W", "_", f"{run}_{plain_name(task)}_attempt{attempt}")


def cluster_name(token: str) -> str:
    """Return the name of the cluster that was launched with a token.

    Examples
    --------
    >>> cluster_name("nightly/train/2")
    'nightly-train-2'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", token)

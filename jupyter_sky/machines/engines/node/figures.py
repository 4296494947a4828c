"""Figures of matplotlib that were made in another process."""

from __future__ import annotations

import contextlib
import sys


def enable_figures() -> None:
    """Let figures be shown as pictures, once a value has brought matplotlib here.

    The first figure that a process makes selects matplotlib's backend, and that registers the
    pictures with IPython. A figure that was sent is not made here.
    """
    if "matplotlib.figure" not in sys.modules or "matplotlib.pyplot" in sys.modules:
        return
    with contextlib.suppress(ImportError):
        import matplotlib
        import matplotlib.pyplot as plt

        plt.switch_backend(matplotlib.get_backend())

"""Live views of runs, bags and logs, where a notebook can show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def view_bundle(make_view: Callable[[T], Any] | None, shown: T, **kwargs: Any) -> Any:
    """Return the MIME bundle of a live view, for ``_repr_mimebundle_``.

    Parameters
    ----------
    make_view
        Returns a widget that shows a value; None where there is none.
    shown
        The value.

    Returns
    -------
    dict or tuple
        Empty without a view, and in a terminal, which prints the text.
    """
    from IPython.core.getipython import get_ipython

    if make_view is None or getattr(get_ipython(), "kernel", None) is None:
        return {}
    return make_view(shown)._repr_mimebundle_(**kwargs)

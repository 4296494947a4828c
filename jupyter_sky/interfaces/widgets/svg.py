"""Colours, frame and alternative text of a plan's pictures."""

from __future__ import annotations

from html import escape

from jupyter_sky.base.tables import make_scrollable

# JupyterLab's variables, or the colours of the page.
TEXT = "var(--jp-ui-font-color1, currentColor)"
QUIET = "var(--jp-ui-font-color2, currentColor)"
EDGE = "var(--jp-border-color0, #808080)"
BOX = "var(--jp-layout-color2, rgba(128, 128, 128, 0.12))"

CHAR = 7.2
"""Mean width of a character at 12 px [px]."""


def text_width(text: str) -> float:
    """Estimate the width of a text [px].

    Examples
    --------
    >>> text_width("ten or so.")
    72.0
    """
    return len(text) * CHAR


def make_figure(width: float, height: float, title: str, said: str, body: str, name: str) -> str:
    """Return an SVG in a box that scrolls if the picture is too wide.

    Parameters
    ----------
    title, said
        Content in a sentence, and as a whole in words.
    name
        Accessible name of the box.
    """
    font = "var(--jp-ui-font-family, system-ui, sans-serif)"
    # below 75 % it would be illegible: then it scrolls, by keyboard too
    return make_scrollable(
        f'<svg role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="width: {width:.0f}px; max-width: 100%; min-width: {0.75 * width:.0f}px; '
        f'height: auto; font: 12px {font}; color: {TEXT}">'
        f"<title>{escape(title)}</title><desc>{escape(said)}</desc>{body}</svg>",
        name,
    )

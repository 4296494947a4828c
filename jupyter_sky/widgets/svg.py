"""Colours, frame and alternative text of a plan's pictures."""

from __future__ import annotations

from html import escape

from ..tables import NO_MATHJAX_CLASSES

# JupyterLab's variables, or the colours of the page.
TEXT = "var(--jp-ui-font-color1, currentColor)"
QUIET = "var(--jp-ui-font-color2, currentColor)"
EDGE = "var(--jp-border-color0, #808080)"
PAGE = "var(--jp-layout-color0, Canvas)"
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
    # below 80 % it would be illegible: then it scrolls, by keyboard too
    return make_scrollable(
        f'<svg role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="width: {width:.0f}px; max-width: 100%; min-width: {0.8 * width:.0f}px; '
        f'height: auto; font: 12px {font}; color: {TEXT}">'
        f"<title>{escape(title)}</title><desc>{escape(said)}</desc>{body}</svg>",
        name,
    )


# Scroll bars that systems hide until somebody scrolls are shown: else a picture seems cut off.
_SCROLL_BAR = (
    "<style>.jsky-scroll::-webkit-scrollbar { height: 10px } "
    ".jsky-scroll::-webkit-scrollbar-thumb { border-radius: 5px; "
    "background: rgba(128, 128, 128, 0.6) }</style>"
)


# A shadow at each edge beyond which there is more; the page's colour covers it at the ends.
_SHADOWS = (
    f"background: linear-gradient(to right, {PAGE} 30%, transparent) left / 40px 100% local, "
    f"linear-gradient(to left, {PAGE} 30%, transparent) right / 40px 100% local, "
    "linear-gradient(to right, rgba(128, 128, 128, 0.5), transparent) left / 10px 100% scroll, "
    "linear-gradient(to left, rgba(128, 128, 128, 0.5), transparent) right / 10px 100% scroll; "
    "background-repeat: no-repeat"
)


def make_scrollable(html: str, name: str) -> str:
    """Return HTML in a box that scrolls, with a bar and shadows, if its content is too wide."""
    return (
        f'{_SCROLL_BAR}<div class="{NO_MATHJAX_CLASSES} jsky-scroll" role="region" '
        f'aria-label="{escape(name)}" tabindex="0" '
        f'style="overflow-x: auto; padding: 2px 8px; {_SHADOWS}">{html}</div>'
    )

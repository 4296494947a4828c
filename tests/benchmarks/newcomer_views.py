"""Views as a stranger sees them: what is cut off, what axe-core finds, and pictures.

The views that are open are looked at in both themes at four widths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ui.labs import AXE, change_theme

WIDTHS = (1400, 1100, 900, 480)
THEMES = ("Light", "Dark")
VIEWS = (
    ".jsky-Panel, .jsky-NeedsPanel, .jsky-Panel-dialog, .jsky-LogTab, .jsky-StatusItem,"
    " .jp-OutputArea-output:has([class*=jsky-], .tex2jax_ignore)"
)
"""Selector of all that jupyter_sky draws."""
BRING_INTO_SIGHT = """selector => {
  if (document.querySelector('.jsky-NeedsPanel')) return; // it follows its cell
  const outputs = [...document.querySelectorAll(selector)].filter(
    one => one.offsetParent && one.matches('.jp-OutputArea-output'));
  const last = outputs.at(-1);
  const tall = last?.getBoundingClientRect().height > 0.8 * innerHeight;
  last?.scrollIntoView({ block: tall ? 'start' : 'center' });
}"""
"""The newest output is brought into sight: in a narrow page all above it is longer."""
SETTLE_MS = 700  # the page lays itself out anew and says nothing when done
SCROLL_MS = 250
CUT_OFF = Path(__file__).with_name("newcomer_cut_off.js").read_text(encoding="utf-8")


@dataclass
class Findings:
    """Findings in all views.

    Attributes
    ----------
    folder : Path
        Where pictures are kept.
    cut_off, violations : set of str
        Elements, each once for all widths and themes in which they are found.
    """

    folder: Path
    cut_off: set[str] = field(default_factory=set)
    violations: set[str] = field(default_factory=set)


def look(page: Any, name: str, findings: Findings, selector: str = VIEWS) -> None:
    """Look at the open views in all widths and themes; leave the page as it was."""
    size = page.viewport_size
    for theme in THEMES:
        change_theme(page, theme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 1000})
            page.wait_for_timeout(SETTLE_MS)
            page.evaluate(BRING_INTO_SIGHT, selector)
            page.wait_for_timeout(SCROLL_MS)
            where = f"{name}-{width}-{theme.lower()}"
            page.screenshot(path=findings.folder / f"{where}.png")
            for element in page.evaluate(CUT_OFF, selector):
                findings.cut_off.add(f"{name}: {re.sub('[0-9]+', 'N', element)} [{width}]")
        findings.violations.update(f"{name}: {found}" for found in violations(page, selector))
    page.set_viewport_size(size)
    change_theme(page, "Light")
    page.wait_for_timeout(SETTLE_MS)


def violations(page: Any, selector: str) -> list[str]:
    """Return what axe-core finds in the views, of any impact."""
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(path=AXE)
    found = page.evaluate(
        """async selector => {
          const views = [...document.querySelectorAll(selector)].filter(view => view.offsetParent);
          const outer = views.filter(
            view => !views.some(other => other !== view && other.contains(view)));
          const found = [];
          for (const view of outer) found.push(...(await axe.run(view)).violations);
          return found.map(({ id, nodes }) => ({ id, nodes: nodes.map(node => node.html) }));
        }""",
        selector,
    )
    return [f"{one['id']}: {html[:200]}" for one in found for html in one["nodes"]]

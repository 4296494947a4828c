"""Figures of a stranger's first hour in JupyterLab, in a real browser, with real key presses.

    python tests/benchmarks/run.py newcomer [--quick] [--seed N]

* ``steps_failed`` counts the steps of the hour that fail (`newcomer_steps`,
  `newcomer_panel`, `newcomer_faults`);
* ``cut_off`` counts elements that overflow without a scroll bar, in all views at 1400, 1100, 900
  and 480 px, light and dark (`newcomer_cut_off.js`);
* ``axe_violations`` counts what axe-core finds in those views;
* ``kernel_kills_lost`` counts outputs that were lost after kernels were killed in mid-run;
* ``default_parity`` is the share of random requests for which the form, the dry run, the plan, the
  launch and a pool give the same place and price (`newcomer_parity`);
* ``strings_untranslated`` counts texts for users that pass no translation function
  (`newcomer_strings`);
* ``first_card_s``, ``first_output_s`` are the seconds from the first key of the first cell to its
  card and to its first output, in a lab that has just been started.

Pictures of every view in both themes, of each step that failed, and the lists behind the counts
(``findings.txt``) are kept in ``tests/artifacts/newcomer``.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks import newcomer_faults, newcomer_panel, newcomer_steps  # noqa: E402
from tests.benchmarks.newcomer_kills import kernel_kills_lost  # noqa: E402
from tests.benchmarks.newcomer_parity import compare_requests  # noqa: E402
from tests.benchmarks.newcomer_scene import Scene, scene  # noqa: E402
from tests.benchmarks.newcomer_steps import STEPS, Step, name_of  # noqa: E402
from tests.benchmarks.newcomer_strings import list_untranslated  # noqa: E402
from tests.benchmarks.newcomer_views import Findings, look  # noqa: E402

OUTPUT = ROOT / "tests/artifacts/newcomer"
REQUESTS, KILLS, QUICK_STEPS = 200, 100, 4
LOOKS = {
    "card_says_done": "card",
    "error_in_cell": "error",
    "dry_run": "dry-run",
    "offers_table": "offers-output",
    "plan_of_graph": "plan",
    "cost_view": "cost-output",
    "log_view": "log-output",
    "cluster_details": "panel-clusters",
    "runs_listed": "panel-runs",
    "count_of_offers": "panel-offers",
    "cost_tab": "panel-cost",
    "type_into_form": "form",
    "log_in_a_tab": "log-tab",
}
"""Views that are looked at after a step."""


def ordered_steps() -> list[Step]:
    """Return the steps in the order of the hour."""
    modules = [each.__name__ for each in (newcomer_steps, newcomer_panel, newcomer_faults)]
    return sorted(STEPS, key=lambda one: modules.index(one.__module__))


def take_steps(stage: Scene, steps: list[Step], findings: Findings) -> list[str]:
    """Take the steps; return those that failed, each with its reason."""
    failed = []
    for number, one in enumerate(steps, 1):
        try:
            one(stage)
            print(f"{number:3} ok      {name_of(one)}", flush=True)
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            failed.append(f"{number} {name_of(one)}: {reason}")
            print(f"{number:3} FAILED  {name_of(one)}: {reason}", flush=True)
            traceback.print_exc()
            stage.page.screenshot(path=findings.folder / f"failed-{number}-{one.__name__}.png")
            _tidy(stage)
        if one.__name__ in LOOKS:
            look(stage.page, LOOKS[one.__name__], findings)
    return failed


def _tidy(stage: Scene) -> None:
    """Close what a step that failed may have left open."""
    for _ in range(2):
        stage.page.keyboard.press("Escape")


def main(quick: bool = False, seed: int | None = None, **_: object) -> dict[str, float]:
    """Return the figures."""
    seed = 1 if seed is None else seed
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for old in OUTPUT.iterdir():
        old.unlink()
    findings = Findings(OUTPUT)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        parity = Path(folder, "parity")
        parity.mkdir()
        answers = compare_requests(5 if quick else REQUESTS, seed, parity)
        with scene(Path(folder)) as stage:
            steps = ordered_steps()[:QUICK_STEPS] if quick else ordered_steps()
            failed = take_steps(stage, steps, findings)
    untranslated = list_untranslated()
    differing = [str(answer) for answer in answers if answer.differences]
    lists = {
        "steps failed": failed,
        "cut off": sorted(findings.cut_off),
        "axe": sorted(findings.violations),
        "default parity": differing,
        "untranslated": untranslated,
    }
    text = "\n".join(
        f"== {name}: {len(found)}\n" + "\n".join(found) for name, found in lists.items()
    )
    (OUTPUT / "findings.txt").write_text(text, encoding="utf-8")
    print(text, flush=True)
    figures = {
        "steps_failed": len(failed),
        "steps": len(steps),
        "cut_off": len(findings.cut_off),
        "axe_violations": len(findings.violations),
        "default_parity": 1 - len(differing) / len(answers),
        "strings_untranslated": len(untranslated),
        "first_card_s": stage.memory.get("first_card_s", float("nan")),
        "first_output_s": stage.memory.get("first_output_s", float("nan")),
    }
    return figures | {"kernel_kills_lost": kernel_kills_lost(1 if quick else KILLS, seed)}

"""First impression: notebooks that run, links that resolve, claims that are shown, weight.

    python tests/benchmarks/run.py gallery

* ``notebooks_failed`` counts notebooks of the gallery and the guide that raise an error which they
  are not to raise, or that leave a process of a cluster;
* ``dead_links`` counts links and anchors of README.md and of all notebooks that lead nowhere;
* ``claims_without_test`` counts lines of README.md's comparison that name no check, or one that
  does not exist;
* ``install_mb``, ``install_s`` are the size and the time of an installation of the wheel without
  extras into a new environment, from the package index that pip uses; without a network, 0;
* ``import_ms``, ``help_ms`` are medians of ``import jupyter_sky`` (beyond Python's own start) and
  of ``jupyter sky --help``.

``--quick`` runs the first notebook of each folder, and installs nothing.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
NOTEBOOKS = ROOT / "notebooks"
README = ROOT / "README.md"
TABLE = "jupyter_sky: shown by"
"""Heading of the column with the checks."""
REPEATS = 15


def gallery_and_guide() -> list[Path]:
    """Return the notebooks of both folders, in their order."""
    folders = (NOTEBOOKS / "gallery", NOTEBOOKS / "guide")
    return [path for folder in folders for path in sorted(folder.glob("*.ipynb"))]


def count_failed(paths: list[Path]) -> int:
    """Run notebooks one after the other; return the number of those that fail."""
    from tests.emulators.hosts import USABLE, SshHost
    from tests.notebooks import run_shipped

    host = SshHost(85) if USABLE else None
    failed = 0
    for path in paths:
        needs_host = path.stem == "12-your-own-machines"
        if ("spark" in path.stem and not shutil.which("java")) or (needs_host and not host):
            print(f"{path.stem}: left out, as this machine cannot run it", flush=True)
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            env = {"PYTHONPATH": str(ROOT)}
            problem = run_shipped(path, Path(folder), env, host if needs_host else None)
        failed += bool(problem)
        print(f"{path.parent.name}/{path.stem}: {problem or 'ran'}", flush=True)
    if host:
        host.close()
    return failed


def count_dead_links() -> int:
    """Return the number of links of README.md and the notebooks that lead nowhere."""
    from tests.markdown import is_dead, links

    pages = [README, *sorted(NOTEBOOKS.rglob("*.ipynb"))]
    dead = [(page.name, link) for page in pages for link in links(page) if is_dead(page, link)]
    for page, link in dead:
        print(f"{page}: {link} leads nowhere", flush=True)
    return len(dead)


def claims(text: str) -> dict[str, list[str]]:
    """Return the checks that each line of the comparison names, as ``path`` or ``path::test``."""
    lines = iter(text.splitlines())
    next((line for line in lines if line.startswith("|") and TABLE in line), None)
    next(lines, None)  # the rule below the heading
    found = {}
    for line in lines:
        if not line.startswith("|"):
            break
        claim, *__, checks = (cell.strip() for cell in line.strip("|").split("|"))
        named = re.findall(r"\[`([^`]+)`\]\((tests/[^)]+\.py)\)", checks)
        found[claim] = [
            f"{path}::{name}" if name.startswith("test_") and name != Path(path).stem else path
            for name, path in named
        ]
    return found


def is_check(name: str) -> bool:
    """Whether a check exists: a file, and a test in it where one is named."""
    path, _, test = name.partition("::")
    if not (ROOT / path).is_file():
        return False
    return not test or bool(re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(), re.M))


def unshown_claims() -> list[str]:
    """Return the lines of the comparison without a check that exists."""
    named = claims(README.read_text(encoding="utf-8"))
    return [
        claim for claim, checks in named.items() if not checks or not all(map(is_check, checks))
    ]


def install() -> tuple[float, float]:
    """Return size (MB) and time (seconds) of a new installation without extras."""
    from tests.benchmarks.installed import build_wheel

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        wheel = build_wheel(Path(folder, "dist"))
        venv = Path(folder, "venv")
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        command = [venv / "bin/python", "-m", "pip", "install", "--quiet", str(wheel)]
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - began
        if done.returncode:
            print(f"not installed, is there a network? {done.stderr[-500:]}", flush=True)
            return 0.0, 0.0
        files = (path for path in venv.rglob("*") if path.is_file() and not path.is_symlink())
        return sum(path.stat().st_size for path in files) / 1e6, seconds


def median_ms(*words: str) -> float:
    """Return the median time of a process of this Python (milliseconds)."""
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        spent.append(1000 * (time.perf_counter() - began))
    return statistics.median(spent)


def main(quick: bool = False) -> dict[str, float]:
    """Run all and return the figures."""
    paths = gallery_and_guide()
    if quick:
        paths = [path for path in paths if path.stem.startswith("01")]
    unshown = unshown_claims()
    for claim in unshown:
        print(f"no check: {claim}", flush=True)
    size, seconds = (0.0, 0.0) if quick else install()
    return {
        "notebooks_failed": count_failed(paths),
        "dead_links": count_dead_links(),
        "claims_without_test": len(unshown),
        "install_mb": size,
        "install_s": seconds,
        "import_ms": median_ms("-c", "import jupyter_sky") - median_ms("-c", ""),
        "help_ms": median_ms("-m", "jupyter_sky.cli", "--help"),
    }

"""Packages of a cell on a run's engines: asked of an index there, or sent as they are here.

A notebook whose imports work here is to work elsewhere unchanged. Modules that are no installed
package (a file beside the notebook) are for ``--sync``. See `package_sync` for the rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ..engines.node.file_cache import FileTree
from ..engines.node.platforms import Platform
from ..engines.wire.values import CHUNK_BYTES
from ..errors import SkyError
from ..package_sync.contents import SentPackage, is_supported
from ..package_sync.indexes import IndexSettings
from ..package_sync.plan import (
    PackagePlan,
    distributions_of,
    local_index_settings,
    local_only_packages,
    plan_named,
    plan_packages,
    split_requirements,
)
from .transfer import WINDOW_CHUNKS
from .transfer_progress import announce_transfer, format_size, progress_callback

if TYPE_CHECKING:
    from .run import SkyRun


def install_named(run: SkyRun, packages: Sequence[str]) -> None:
    """Install packages that a user names on a run's engines; send those that are private here."""
    assert run.cluster is not None
    if run.cluster.row.cloud == "local":  # engines have this machine's packages, and its settings
        asked, here = split_requirements(packages, IndexSettings())
        if here:
            run.notes.append(f"--pip {', '.join(here)}: there as installed here")
        if asked:
            _install(run, run.ranks, PackagePlan({each: each for each in asked}))
        return
    plan = plan_named(packages)
    asked = [each for name, each in plan.requirements.items() if name == each]
    for name, place in local_only_packages(asked, local_index_settings()).items():
        run.notes.append(
            f"--pip {name}: {place} has it here, and the machine asks its own index; to send what "
            "is here, install it here first"
        )
    try:
        _apply_plan(
            run, run.ranks, plan, packages, _digests_on_all_engines(run) if plan.sent else {}
        )
    except SkyError as error:
        if (kept := local_index_settings().withheld_settings) and error.hint is None:
            hint = f"settings of this machine alone, not used there: {', '.join(kept)}"
            raise type(error)(error.message, hint=hint) from None
        raise


def _digests_on_all_engines(run: SkyRun) -> dict[str, str]:
    """Return the digests of packages that all engines of a run have been sent, by name."""
    assert run.cluster is not None
    link = run.cluster.connection
    first, *others = [link.ask_engine(rank, "missing", modules=[])["sent"] for rank in run.ranks]
    return {
        name: tree for name, tree in first.items() if all(each.get(name) == tree for each in others)
    }


def sync_packages(run: SkyRun, modules: set[str]) -> None:
    """Bring packages that a cell imports here and the engines lack, as they are here."""
    assert run.cluster is not None
    if not modules:
        return
    link = run.cluster.connection
    groups: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], list[int]] = {}
    asked = [
        (rank, link.send_value_request(rank, "missing", modules=sorted(modules)))
        for rank in run.ranks
    ]
    for rank, reply in asked:
        content = link.reply_content(link.wait(reply))
        group = tuple(content["missing"]), tuple(sorted(content["sent"].items()))
        groups.setdefault(group, []).append(rank)
    for (missing, there), ranks in groups.items():
        owners = set(distributions_of(missing).values())
        if owners or there:
            _sync(run, ranks, owners, dict(there), modules)


def _sync(
    run: SkyRun,
    ranks: Sequence[int],
    owners: set[str],
    there: dict[str, str],
    modules: Collection[str],
) -> None:
    """Bring what engines lack, and what has changed here since it was sent."""
    plan = plan_packages({*owners, *there}, modules)
    try:
        _apply_plan(run, ranks, plan, owners, there)
    except SkyError:
        if local_index_settings().is_public or not plan.requirements:
            raise
        # only a private index has them, and it is not to be had from there
        plan = plan_packages({*owners, *there}, modules, send_all=True)
        _apply_plan(run, ranks, plan, owners, there)


def _apply_plan(
    run: SkyRun,
    ranks: Sequence[int],
    plan: PackagePlan,
    owners: Collection[str],
    there: dict[str, str],
) -> None:
    """Do what a plan says for engines.

    Parameters
    ----------
    owners
        Names of the distributions whose modules engines lack.
    there
        Digests of packages that have been sent, by name.
    """
    assert run.cluster is not None
    link = run.cluster.connection
    wanted = {name for name in plan.requirements if name in owners}
    if others := [*plan.requirements.keys() - wanted]:
        wanted |= set(link.ask_engine(ranks[0], "lacking", names=sorted(others))["lacking"])
    if wanted:
        requirements = {name: plan.requirements[name] for name in sorted(wanted)}
        _install(run, ranks, PackagePlan(requirements, (), plan.dropped, plan.environment))
        pins = [pin for pin in requirements.values() if pin not in owners]  # not what was named
        if pins:
            run.notes.append(f"installed there as here: {', '.join(pins)}")
    trees = {package: package.tree for package in plan.sent if package.files}
    changed = {p: tree for p, tree in trees.items() if there.get(p.name) != tree.digest}
    left_out = [package for package in plan.sent if not package.files]
    if any(package.is_compiled for package in changed):
        changed, unfit = _split_by_platform(run, ranks[0], changed)
        left_out += unfit
    if changed:
        _send(run, ranks, changed)
    if left_out:
        run.notes.append(_unsupported_error(left_out))


def _install(run: SkyRun, ranks: Sequence[int], plan: PackagePlan) -> None:
    """Have engines' machines install what a plan asks of indexes."""
    assert run.cluster is not None
    link, packages = run.cluster.connection, [*plan.requirements.values()]
    run.report("syncing", f"installing {' '.join(packages)}")
    run.cluster.ensure_package_installer()
    content = {"packages": packages, "without": plan.dropped, "settings": dict(plan.environment)}
    # all at once: each takes its seconds on a machine of its own
    for reply in [link.send_value_request(rank, "packages", **content) for rank in ranks]:
        link.reply_content(link.wait(reply))


def _split_by_platform(
    run: SkyRun, rank: int, packages: dict[SentPackage, FileTree]
) -> tuple[dict[SentPackage, FileTree], list[SentPackage]]:
    """Split packages into those that an engine's machine can import, and the others."""
    assert run.cluster is not None
    there = Platform(*run.cluster.connection.ask_engine(rank, "platform")["platform"])
    here = Platform.current()
    fitting = {p: tree for p, tree in packages.items() if is_supported(p, there, here)}
    return fitting, [package for package in packages if package not in fitting]


def _unsupported_error(packages: Iterable[SentPackage]) -> str:
    """Say which packages cannot be sent, why, and what to do."""
    reasons = [
        f"{package} ({'compiled for ' + package.platforms if package.files else 'no files found'})"
        for package in packages
    ]
    return (
        f"left out, and not asked of an index: {', '.join(reasons)}; bring a wheel that fits: "
        "--sync acme.whl --pip ./acme.whl"
    )


def _send(run: SkyRun, ranks: Sequence[int], packages: dict[SentPackage, FileTree]) -> None:
    """Bring files of packages to engines, and have them imported from there."""
    assert run.cluster is not None
    link, said = run.cluster.connection, False
    names = ", ".join(map(str, packages))
    for rank in ranks:  # engines of one machine share what it keeps: the first one's fill does
        for package, tree in packages.items():
            missing = link.ask_engine(rank, "lacking_files", known=tree.entries)["missing"]
            if missing and not said:
                announce_transfer(run, names, sum(each.size() for each in packages.values()), "to")
                said = True
            _send_files(run, rank, package.name, tree, missing)
        known = {package.name: tree.entries for package, tree in packages.items()}
        link.ask_engine(rank, "sent", packages=known)
    size = format_size(sum(tree.size() for tree in packages.values()))
    run.notes.append(f"sent as here, not asked of an index: {names} ({size})")


def _send_files(run: SkyRun, rank: int, name: str, tree: FileTree, missing: Sequence[str]) -> None:
    assert run.cluster is not None
    link, show = run.cluster.connection, progress_callback(run, name)
    total, done = tree.size(missing), 0
    flying: deque[tuple[Future, int]] = deque()
    for parts in tree.parts(missing, CHUNK_BYTES):
        while len(flying) >= WINDOW_CHUNKS:
            future, size = flying.popleft()
            link.reply_content(link.wait(future))
            show(done := done + size, total)
        pieces = [piece for _, _, piece in parts]
        places = [(digest, start) for digest, start, _ in parts]
        future = link.send_value_request(rank, "file_parts", pieces, parts=places)
        flying.append((future, sum(map(len, pieces))))
    for future, _ in flying:
        link.reply_content(link.wait(future))

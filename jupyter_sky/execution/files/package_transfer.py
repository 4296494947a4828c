"""Packages of a cell on its engines: installed from an index there, or sent as they are here.

A notebook whose imports work here is to work elsewhere unchanged. Modules that are no installed
package (a file beside the notebook) are for ``--sync``. See `package_sync` for the rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.files.transfer import WINDOW_CHUNKS, TransferReporter, format_size
from jupyter_sky.machines.engines.node.file_cache import FileTree
from jupyter_sky.machines.engines.node.platforms import Platform
from jupyter_sky.machines.engines.wire.engine_requests import (
    FileParts,
    FindPlatform,
    ImportPackages,
    InstallPackages,
    MissingModules,
    MissingPackageFiles,
    MissingPackages,
)
from jupyter_sky.machines.engines.wire.values import CHUNK_BYTES
from jupyter_sky.machines.packages.contents import SentPackage, is_supported
from jupyter_sky.machines.packages.indexes import IndexSettings
from jupyter_sky.machines.packages.plan import (
    PackagePlan,
    distributions_of,
    local_index_settings,
    local_only_packages,
    plan_named,
    plan_packages,
    split_requirements,
)

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import Placement


class PackageTransfer:
    """Transfer of packages to the engines of a cell.

    Parameters
    ----------
    reporter
        Callbacks to the cell that waits for them.
    """

    def __init__(self, placement: Placement, reporter: TransferReporter) -> None:
        self.cluster, self.ranks, self.reporter = placement.cluster, placement.ranks, reporter

    def install_named(self, packages: Sequence[str]) -> None:
        """Install packages that a user names; send those that are private to this machine."""
        if runs_here(self.cluster.row.cloud):  # engines have this machine's packages and settings
            asked, here = split_requirements(packages, IndexSettings())
            if here:
                self.reporter.note(f"--pip {', '.join(here)}: there as installed here")
            if asked:
                self._install(self.ranks, PackagePlan({each: each for each in asked}))
            return
        plan = plan_named(packages)
        asked = [each for name, each in plan.requirements.items() if name == each]
        for name, place in local_only_packages(asked, local_index_settings()).items():
            self.reporter.note(
                f"--pip {name}: {place} has it here, and the machine asks its own index; to send "
                "what is here, install it here first"
            )
        try:
            there = self._digests_on_all_engines() if plan.sent else {}
            self._apply_plan(self.ranks, plan, packages, there)
        except SkyError as error:
            if (kept := local_index_settings().withheld_settings) and error.hint is None:
                hint = _("settings of this machine alone, not used there: {kept}").format(
                    kept=", ".join(kept)
                )
                raise type(error)(error.message, hint=hint) from None
            raise

    def _digests_on_all_engines(self) -> dict[str, str]:
        """Return the digests of packages that all engines have been sent, by name."""
        link = self.cluster.connection
        sent = [link.ask_engine(rank, MissingModules(())).sent for rank in self.ranks]
        first, *others = sent
        return {
            name: tree
            for name, tree in first.items()
            if all(each.get(name) == tree for each in others)
        }

    def sync(self, modules: set[str]) -> None:
        """Bring packages that a cell imports here and the engines lack, as they are here."""
        if not modules:
            return
        link = self.cluster.connection
        groups: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], list[int]] = {}
        request = MissingModules(sorted(modules))
        asked = [(rank, link.send_value_request(rank, request)) for rank in self.ranks]
        for rank, reply in asked:
            found = link.engine_reply(request, link.wait(reply))
            group = tuple(found.missing), tuple(sorted(found.sent.items()))
            groups.setdefault(group, []).append(rank)
        for (missing, there), ranks in groups.items():
            owners = set(distributions_of(missing).values())
            if owners or there:
                self._sync(ranks, owners, dict(there), modules)

    def _sync(
        self,
        ranks: Sequence[int],
        owners: set[str],
        there: dict[str, str],
        modules: Collection[str],
    ) -> None:
        """Bring packages that engines lack, or that have changed here since they were sent."""
        plan = plan_packages({*owners, *there}, modules)
        try:
            self._apply_plan(ranks, plan, owners, there)
        except SkyError:
            if local_index_settings().is_public or not plan.requirements:
                raise
            # only a private index has them, and it is not to be had from there
            plan = plan_packages({*owners, *there}, modules, send_all=True)
            self._apply_plan(ranks, plan, owners, there)

    def _apply_plan(
        self,
        ranks: Sequence[int],
        plan: PackagePlan,
        owners: Collection[str],
        there: dict[str, str],
    ) -> None:
        """Install and send the packages of a plan.

        Parameters
        ----------
        owners
            Names of the distributions whose modules engines lack.
        there
            Digests of packages that have been sent, by name.
        """
        link = self.cluster.connection
        wanted = {name for name in plan.requirements if name in owners}
        if others := [*plan.requirements.keys() - wanted]:
            wanted |= set(link.ask_engine(ranks[0], MissingPackages(sorted(others))).lacking)
        if wanted:
            requirements = {name: plan.requirements[name] for name in sorted(wanted)}
            self._install(ranks, PackagePlan(requirements, (), plan.dropped, plan.environment))
            pins = [pin for pin in requirements.values() if pin not in owners]  # not what was named
            if pins:
                self.reporter.note(
                    _("installed there as here: {pins}").format(pins=", ".join(pins))
                )
        trees = {package: package.tree for package in plan.sent if package.files}
        changed = {p: tree for p, tree in trees.items() if there.get(p.name) != tree.digest}
        left_out = [package for package in plan.sent if not package.files]
        if any(package.is_compiled for package in changed):
            changed, unfit = self._split_by_platform(ranks[0], changed)
            left_out += unfit
        if changed:
            self._send(ranks, changed)
        if left_out:
            self.reporter.note(_unsupported_error(left_out))

    def _install(self, ranks: Sequence[int], plan: PackagePlan) -> None:
        """Let engines' machines install the requirements of a plan from indexes."""
        link, packages = self.cluster.connection, [*plan.requirements.values()]
        self.reporter.report("syncing", f"installing {' '.join(packages)}")
        self.cluster.ensure_package_installer()
        request = InstallPackages(packages, plan.dropped, dict(plan.environment))
        # all at once: each takes its seconds on a machine of its own
        for reply in [link.send_value_request(rank, request) for rank in ranks]:
            link.reply_content(link.wait(reply))

    def _split_by_platform(
        self, rank: int, packages: dict[SentPackage, FileTree]
    ) -> tuple[dict[SentPackage, FileTree], list[SentPackage]]:
        """Split packages into those that an engine's machine can import, and the others."""
        there = Platform(*self.cluster.connection.ask_engine(rank, FindPlatform()).platform)
        here = Platform.current()
        fitting = {p: tree for p, tree in packages.items() if is_supported(p, there, here)}
        return fitting, [package for package in packages if package not in fitting]

    def _send(self, ranks: Sequence[int], packages: dict[SentPackage, FileTree]) -> None:
        """Bring files of packages to engines, and have them imported from there."""
        link, said = self.cluster.connection, False
        names = ", ".join(map(str, packages))
        for rank in ranks:  # engines of one machine share what it keeps: the first one's fill does
            for package, tree in packages.items():
                missing = link.ask_engine(rank, MissingPackageFiles(tree.entries)).missing
                if missing and not said:
                    self.reporter.announce(
                        names, sum(each.size() for each in packages.values()), "to"
                    )
                    said = True
                self._send_files(rank, package.name, tree, missing)
            known = {package.name: tree.entries for package, tree in packages.items()}
            link.ask_engine(rank, ImportPackages(known))
        size = format_size(sum(tree.size() for tree in packages.values()))
        self.reporter.note(
            _("sent as here, not asked of an index: {names} ({size})").format(
                names=names, size=size
            )
        )

    def _send_files(self, rank: int, name: str, tree: FileTree, missing: Sequence[str]) -> None:
        link, show = self.cluster.connection, self.reporter.progress(name)
        total, done = tree.size(missing), 0
        flying: deque[tuple[Future, int]] = deque()
        for parts in tree.parts(missing, CHUNK_BYTES):
            while len(flying) >= WINDOW_CHUNKS:
                future, size = flying.popleft()
                link.reply_content(link.wait(future))
                show(done := done + size, total)
            pieces = [piece for __, __, piece in parts]
            places = [(digest, start) for digest, start, __ in parts]
            future = link.send_value_request(rank, FileParts(places, buffers=pieces))
            flying.append((future, sum(map(len, pieces))))
        for future, __ in flying:
            link.reply_content(link.wait(future))


def _unsupported_error(packages: Iterable[SentPackage]) -> str:
    """Return a note on packages that cannot be sent: the reason, and the command that helps."""
    reasons = [
        _("{package} (compiled for {platforms})").format(
            package=package, platforms=package.platforms
        )
        if package.files
        else _("{package} (no files found)").format(package=package)
        for package in packages
    ]
    return _(
        "left out, and not asked of an index: {reasons}; bring a wheel that "
        "fits: --sync acme.whl --pip ./acme.whl"
    ).format(reasons=", ".join(reasons))

"""Packages of an image: those from a package index, and those sent from this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..engines.node.platforms import Platform
from ..errors import SkyBootstrapError
from ..package_sync.contents import SentPackage, is_supported
from ..remote.package_names import without_credentials
from .node.image_install import PackageRequest

HINT = "bring a wheel that fits by its path there, or its modules: Image(includes=[...])"


@dataclass(frozen=True, slots=True)
class ImagePackages:
    """Sources of the packages of an image.

    Attributes
    ----------
    request : PackageRequest
        Requirements with the index settings of this machine, credentials included.
    sent : tuple of SentPackage
        Packages that no index is asked for.
    """

    request: PackageRequest
    sent: tuple[SentPackage, ...] = ()

    @property
    def requirements(self) -> tuple[str, ...]:
        """Requirements that come from a package index."""
        return self.request.packages

    def without_credentials(self) -> PackageRequest:
        """Return it without credentials, as the key of the environment on a node."""
        given = self.request.settings.items()
        settings = {name: without_credentials(value) for name, value in given}
        return replace(self.request, settings=settings)

    def check_platform(self, rank: int, there: Platform) -> None:
        """Raise SkyBootstrapError where compiled packages cannot be imported on a node."""
        here = Platform.current()
        for package in self.sent:
            if not is_supported(package, there, here):
                raise SkyBootstrapError(
                    f"image: {package} is compiled for {package.platforms}, node {rank} is "
                    f"{there.name}; it is private here, so no index is asked for it",
                    hint=HINT,
                )


def image_packages(pip: Sequence[str]) -> ImagePackages:
    """Determine how nodes get the packages of an image.

    Raises
    ------
    SkyUsageError
        Another version is asked for of a package that no index is asked for.
    SkyBootstrapError
        It cannot be told which files belong to a package that must be sent.
    """
    from ..package_sync.plan import plan_named

    if not pip:
        return ImagePackages(PackageRequest())
    plan = plan_named(pip)
    for package in plan.sent:
        if not package.files:
            raise SkyBootstrapError(
                f"image: {package} is private here, and it is not recorded which files it has",
                hint=HINT,
            )
    packages = tuple(plan.requirements.values())
    return ImagePackages(PackageRequest(packages, plan.dropped, dict(plan.environment)), plan.sent)

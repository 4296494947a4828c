"""Packages of an image: those from a package index, and those sent from this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from jupyter_sky.base.errors import SkyBootstrapError, SkyUsageError
from jupyter_sky.base.remote.package_names import normalized_name, without_credentials
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.node.image_install import PackageRequest
from jupyter_sky.machines.engines.node.platforms import Platform
from jupyter_sky.machines.packages.contents import SentPackage, is_supported

HINT = "bring a wheel that fits by its path there, or its modules: Image(includes=[...])"


@dataclass(frozen=True, slots=True)
class PipIndex:
    """Package index that nodes ask before the default one.

    Names that it has come from it, those that it has not from the default index.

    Attributes
    ----------
    url : str
        Its address, such as ``https://download.pytorch.org/whl/cu128``.
    packages : sequence of str
        Names for which it is meant; empty for any. The image must name one of them.

    Examples
    --------
    >>> PipIndex("https://pypi.nvidia.com", ["cuml-cu12"]).packages
    ('cuml-cu12',)
    """

    url: str
    packages: Sequence[str] = ()

    def __post_init__(self) -> None:
        parts = urlsplit(self.url) if isinstance(self.url, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise SkyUsageError(
                _("PipIndex({url!r}): not the address of a package index").format(url=self.url),
                hint=_('such as sky.PipIndex("https://download.pytorch.org/whl/cu128", ["torch"])'),
            )
        if isinstance(self.packages, str):
            raise SkyUsageError(
                _("PipIndex(packages={packages!r}): not a list").format(packages=self.packages),
                hint=f"packages=[{self.packages!r}]",
            )
        object.__setattr__(self, "packages", tuple(self.packages))

    def serves(self, requirements: Sequence[str]) -> bool:
        """Return whether one of some requirements may come from it."""
        named = {normalized_name(each) for each in self.packages}
        return not named or any(normalized_name(each) in named for each in requirements)


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
                    _(
                        "image: {package} is compiled for {platforms}, node {rank} is {name}; "
                        "it is private here, so no index is asked for it"
                    ).format(
                        package=package, platforms=package.platforms, rank=rank, name=there.name
                    ),
                    hint=HINT,
                )


def image_packages(pip: Sequence[str], indexes: Sequence[PipIndex] = ()) -> ImagePackages:
    """Determine how nodes get the packages of an image.

    Parameters
    ----------
    indexes
        Indexes that nodes ask first.

    Raises
    ------
    SkyUsageError
        Another version is asked for of a package that no index is asked for.
    SkyBootstrapError
        It cannot be told which files belong to a package that must be sent.
    """
    from jupyter_sky.machines.packages.plan import local_index_settings, plan_named

    if not pip:
        return ImagePackages(PackageRequest())
    urls = [index.url for index in indexes if index.serves(pip)]
    settings = local_index_settings()
    plan = plan_named(pip, replace(settings, extra=(*urls, *settings.extra)))
    for package in plan.sent:
        if not package.files:
            raise SkyBootstrapError(
                _(
                    "image: {package} is private here, and it is not recorded which files it has"
                ).format(package=package),
                hint=HINT,
            )
    environment = dict(plan.environment)
    for name in ("UV_INDEX", "PIP_EXTRA_INDEX_URL") if urls else ():
        others = [each for each in environment.get(name, "").split() if each not in urls]
        environment[name] = " ".join((*urls, *others))
    packages = tuple(plan.requirements.values())
    return ImagePackages(PackageRequest(packages, plan.dropped, environment), plan.sent)

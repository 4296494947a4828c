"""Image: the packages, files and variables that a node needs before calls run there.

Whatever is made for it is kept on the node by its content: the second pool with the same image
finds all of it, and of a folder of which one file has changed that file alone is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jupyter_sky.base.errors import SkyBootstrapError, SkyUsageError
from jupyter_sky.base.remote.environment_spec import python_minor_version
from jupyter_sky.base.remote.package_names import check_package
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.images.image_packages import (
    ImagePackages,
    PipIndex,
    image_packages,
)
from jupyter_sky.execution.functions.images.volumes import Volume, checked_volumes
from jupyter_sky.execution.functions.node import image_install
from jupyter_sky.execution.functions.node.image_install import ProcessSetup
from jupyter_sky.machines.engines.node.file_cache import FileTree

_APT = re.compile(r"[a-z0-9][a-z0-9+.-]*(=[A-Za-z0-9.+:~-]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Image:
    """Environment of a pool's functions.

    Attributes
    ----------
    python : str
        ``auto`` for this notebook's own minor version. Functions for another one travel as source,
        with the plain values and installed modules that they name; see `calls.portable`.
    pip : sequence of str
        Requirements, such as ``torch>=2.4``, beside what the node has. One that is installed here
        from a folder, a repository or a private index is sent from here instead.
    pip_indexes : sequence of PipIndex
        Package indexes that nodes ask before the default one.
    apt : sequence of str
        Packages of the system (Debian, Ubuntu).
    env : mapping of str to str
        Environment variables, set before anything of yours is imported.
    shell_vars : mapping of str to str
        Environment variables whose values each node computes by a shell command, with those of
        `env` set: ``{"CORES": "nproc"}``.
    includes : sequence of str
        Folders and ``.py`` files of this machine, imported there by their own names. Of folders,
        keys and passwords (``.env``, ``*.pem``) and links that lead elsewhere are left out, with a
        warning.
    excludes : sequence of str
        Patterns of names or paths that are left out, beside version control and caches.
    bootstrap_timeout : float
        Seconds that one node may take.
    volumes : sequence of Volume
        Data of stores that every node has in a folder before its first call.
    metrics : None
        Nodes always report the use of processors, memory and accelerators (``sky.status()``):
        anything else than None is refused.
    skyward_source : str
        ``auto`` or ``local``, which are the same: nodes get this package as it is here.

    Examples
    --------
    >>> image = Image(pip=["torch", "numpy"], env={"KERAS_BACKEND": "jax"})
    >>> image == Image(pip=["torch", "numpy"], env={"KERAS_BACKEND": "jax"})
    True
    >>> len(image.digest)
    16
    """

    python: str = "auto"
    pip: Sequence[str] = ()
    apt: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    includes: Sequence[str] = ()
    excludes: Sequence[str] = ()
    bootstrap_timeout: float = 1800.0
    pip_indexes: Sequence[PipIndex] = ()
    shell_vars: Mapping[str, str] = field(default_factory=dict, hash=False)
    metrics: None = None
    skyward_source: str = "auto"
    volumes: Sequence[Volume] = ()

    def __post_init__(self) -> None:
        self._check_skyward_names()
        object.__setattr__(self, "volumes", checked_volumes(self.volumes, "Image"))
        for name in ("pip", "apt", "includes", "excludes"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        for name in ("env", "shell_vars"):
            variables = _variables(name, getattr(self, name))
            object.__setattr__(self, name, MappingProxyType(variables))
        if not isinstance(self.python, str) or not re.fullmatch(r"auto|3\.\d+", self.python):
            raise SkyUsageError(
                _("Image(python={python!r}): not a version").format(python=self.python),
                hint=_('such as "auto" or "3.12"'),
            )
        for package in self.pip:
            check_package(package, "Image(pip=...)")
        for package in self.apt:
            if not _APT.fullmatch(package):
                raise SkyUsageError(
                    _("Image(apt={package!r}): not the name of a package").format(package=package),
                    hint=_('such as "ffmpeg"'),
                )

    def _check_skyward_names(self) -> None:
        """Check the parameters that are there for programs written for Skyward."""
        indexes = (self.pip_indexes,) if isinstance(self.pip_indexes, PipIndex) else None
        object.__setattr__(self, "pip_indexes", indexes or tuple(self.pip_indexes))
        for index in self.pip_indexes:
            if not isinstance(index, PipIndex):
                raise SkyUsageError(
                    _("Image(pip_indexes=...): {index!r} is not an index").format(index=index),
                    hint=f"pip_indexes=[sky.PipIndex({str(index)!r})]",
                )
        if self.metrics is not None:
            raise SkyUsageError(
                _(
                    "Image(metrics={metrics!r}): nodes always report the use of "
                    "processors, memory and accelerators, and nothing else"
                ).format(metrics=self.metrics),
                hint=_("leave it out; see sky.status() and the panel"),
            )
        if self.skyward_source not in ("auto", "local"):
            raise SkyUsageError(
                _(
                    "Image(skyward_source={skyward_source!r}): nodes get jupyter_sky as it "
                    "is here, from no index or repository"
                ).format(skyward_source=self.skyward_source),
                hint=_("leave it out"),
            )

    def __reduce__(self) -> Any:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {"env": dict(self.env), "shell_vars": dict(self.shell_vars)}
        return _restore, ({**values, **plain},)

    @property
    def digest(self) -> str:
        """Hash of the image as 16 hexadecimal digits; files count by their names."""
        return image_install.digest(
            [_version(self.python), *(f"{n}={getattr(self, n)}" for n in ("pip", "apt"))]
            + [f"{name}={value}" for name, value in sorted(self.env.items())]
            + [f"{name}=$({value})" for name, value in sorted(self.shell_vars.items())]
            + [f"index {index}" for index in self.pip_indexes]
            + [f"{n}={getattr(self, n)}" for n in ("includes", "excludes")]
            + [f"volume {each}" for each in self.volumes]
        )

    @property
    def modules(self) -> frozenset[str]:
        """Top-level modules that `includes` brings."""
        return frozenset(Path(text).expanduser().resolve().stem for text in self.includes)

    def check(self) -> None:
        """Raise errors that can be known before a machine is paid for.

        Raises
        ------
        SkyUsageError
            A folder that should be included is not there.
        SkyBootstrapError
            There is no such package, or they do not fit each other; has the resolver's last lines.
        """
        self.layout()
        request = self.packages().request
        settings = [tuple(request.settings.items())] if self.pip_indexes else []
        if request.packages and (
            why := image_install.resolution_error(
                request.packages, request.without, *settings, **self.python_option()
            )
        ):
            raise SkyBootstrapError(
                _("image: {packages} cannot be installed anywhere:\n{why}").format(
                    packages=" ".join(request.packages), why=why
                ),
                hint=_("no machine was asked for"),
            )

    def layout(self) -> FileTree:
        """Return the files that `includes` brings."""
        return image_install.included_files(Path.cwd(), self.includes, self.excludes)

    def packages(self) -> ImagePackages:
        """Return the packages that `pip` names, installed from an index or sent."""
        packages = image_packages(self.pip, self.pip_indexes)
        return replace(packages, request=replace(packages.request, **self.python_option()))

    def python_option(self) -> dict[str, str]:
        """Return the minor version of its Python as an argument, if that is another than ours."""
        version = _version(self.python)
        return {} if version == _version("auto") else {"python": version}

    def setup(self) -> ProcessSetup:
        """Return the setup that every new process of a node runs before its first call."""
        packages = self.packages()
        trees = [self.layout().digest] if self.includes else []
        trees += [package.tree.digest for package in packages.sent]
        return ProcessSetup(
            dict(self.env), packages.without_credentials(), tuple(trees), dict(self.shell_vars)
        )


def _restore(values: dict[str, Any]) -> Image:
    return Image(**values)


def _version(python: str) -> str:
    return python_minor_version() if python == "auto" else python


def _texts(name: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SkyUsageError(
            _("Image({name}={given!r}): not a list").format(name=name, given=given),
            hint=_("such as {name}=[{given!r}]").format(name=name, given=str(given)),
        )
    texts = tuple(str(each) if isinstance(each, Path) else each for each in given)
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise SkyUsageError(
                _("Image({name}=...): {text!r} is not a text").format(name=name, text=text)
            )
    return texts


def _variables(parameter: str, given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise SkyUsageError(
            _("Image({parameter}={given!r}): not a mapping").format(
                parameter=parameter, given=given
            ),
            hint=_('such as {parameter}={{"HF_HOME": "/data"}}').format(parameter=parameter),
        )
    for name, value in given.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise SkyUsageError(
                _("Image({parameter}=...): {name!r} is not the name of a variable").format(
                    parameter=parameter, name=name
                )
            )
        if not isinstance(value, str):
            raise SkyUsageError(
                _("Image({parameter}=...): {name} is {value!r}, not a text").format(
                    parameter=parameter, name=name, value=value
                ),
                hint=f"{parameter}={{{name!r}: '...'}}",
            )
    return dict(given)


DEFAULT_IMAGE = Image()
"""The image of pools that are given none: what the nodes have."""

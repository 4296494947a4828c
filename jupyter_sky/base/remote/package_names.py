"""Names of Python packages as users write them, and addresses of what serves them."""

from __future__ import annotations

import re

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

_OPTION = re.compile(r"(^|\s)-{1,2}\w")
_FILE = re.compile(r"(?i)(^|\s*@\s*)file:")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s,]*@")
_PATH = re.compile(r"[/\\]|^\.|\.(whl|zip|tar\.\w+|tgz)$|^~")


def check_package(package: str, option: str) -> None:
    """Refuse an entry of a list of packages that an installer would not take for a package.

    Parameters
    ----------
    package
        A requirement, the address of an archive or repository, or the path of a file.
    option
        The place of the list, for the message: ``--pip`` or ``Image(pip=...)``.

    Raises
    ------
    SkyUsageError
        It is an option of the installer, names a file by an address, or is no requirement.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    given = f"{option} {package!r}"
    if _OPTION.search(package):
        raise SkyUsageError(
            _("{given}: an option of the installer, not a package").format(given=given),
            hint=_(
                "name packages only; the index that pip.conf or uv.toml sets here is "
                "used there, and an editable package that is installed here is sent "
                "when it is imported"
            ),
        )
    if re.search(r"[\r\n\0]", package):
        raise SkyUsageError(_("{given}: a line break in the name of a package").format(given=given))
    if _FILE.search(package):
        raise SkyUsageError(
            _("{given}: a file: address, which means another file on each machine").format(
                given=given
            ),
            hint=_("bring the file and name it by its path: --sync acme.whl --pip ./acme.whl"),
        )
    if _PATH.search(package) and " @ " not in package:
        return
    try:
        Requirement(package)
    except InvalidRequirement as error:
        why = str(error).splitlines()[0]
        raise SkyUsageError(
            _("{given}: not a requirement: {why}").format(given=given, why=why),
            hint=_('such as "torch>=2.4"'),
        ) from None


def normalized_name(package: str) -> str:
    """Return the normalized name of a requirement; empty for files and addresses.

    Examples
    --------
    >>> normalized_name("Acme_Secret[gpu] >= 1.4"), normalized_name("./acme.whl")
    ('acme-secret', '')
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        requirement = Requirement(package)
    except InvalidRequirement:
        return ""
    return "" if requirement.url else canonicalize_name(requirement.name)


def without_credentials(text: str) -> str:
    """Return text without the user names and passwords of addresses in it.

    Examples
    --------
    >>> without_credentials("no answer from https://ada:s3cr3t@pypi.acme.com/simple")
    'no answer from https://pypi.acme.com/simple'
    """
    return _CREDENTIALS.sub("", text)

"""Places of saves: a folder of this machine, alone or with a copy in a store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from jupyter_sky.base.errors import SkyCheckpointError, SkyError
from jupyter_sky.base.store.atomic_file import atomic_file
from jupyter_sky.base.translation import _
from jupyter_sky.execution.checkpoints.save_format import PackedState, write_state

if TYPE_CHECKING:
    from jupyter_sky.machines.storage.datasets.data import Storage

_NAME = re.compile(r"(\d{6})-(\d{10})\.sky")
_PARTIAL = re.compile(r".*\.(\d+)\.partial")


class PlaceError(SkyCheckpointError):
    """A place does not take a save, or does not give it back."""


@dataclass(frozen=True, slots=True, order=True)
class SaveNumber:
    """Number of a save; the greatest is the newest.

    Attributes
    ----------
    generation : int
        Number of the machine that wrote it: one that was replaced cannot overtake its successor.
    step : int
        Number of the save.

    Examples
    --------
    >>> SaveNumber(0, 7).name, SaveNumber.parse("000001-0000000002.sky")
    ('000000-0000000007.sky', SaveNumber(generation=1, step=2))
    """

    generation: int
    step: int

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.generation:06d}-{self.step:010d}.sky"

    @classmethod
    def parse(cls, name: str) -> SaveNumber | None:
        """Return the number of a file, or None where it is no save."""
        match = _NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2])) if match else None


class SavePlace(Protocol):
    """Place that keeps saves."""

    def numbers(self) -> list[SaveNumber]:
        """Return the numbers of its saves, the newest first."""
        ...

    def open(self, number: SaveNumber) -> BinaryIO:
        """Open a save for reading."""
        ...

    def write(self, number: SaveNumber, packed: PackedState, keep: int) -> None:
        """Write a save, whole or not at all, then remove all but the newest `keep`."""
        ...


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """Folder of this machine.

    Attributes
    ----------
    folder : Path
        Folder that holds the saves of one state alone.
    """

    folder: Path

    def __str__(self) -> str:
        return str(self.folder)

    def numbers(self) -> list[SaveNumber]:
        """Return the numbers of its saves, the newest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return sorted(filter(None, map(SaveNumber.parse, names)), reverse=True)

    def open(self, number: SaveNumber) -> BinaryIO:
        """Open a save for reading."""
        return self.path(number).open("rb")

    def path(self, number: SaveNumber) -> Path:
        """Return the file of a save."""
        return self.folder / number.name

    def write(self, number: SaveNumber, packed: PackedState, keep: int) -> None:
        """Write a save, whole or not at all, then remove all but the newest `keep`.

        Raises
        ------
        PlaceError
            The disk does not take it.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(self.path(number)) as file:
                write_state(packed, file)
        except OSError as error:
            raise PlaceError(
                _("a save of {size:,} bytes does not fit in {folder}: {error}").format(
                    size=packed.size, folder=self.folder, error=error.strerror or error
                ),
                hint=_("free some space, or name another place: to="),
            ) from error
        for old in self.numbers()[keep:]:
            self.path(old).unlink(missing_ok=True)

    def remove_partials(self) -> None:
        """Remove what processes have left that have ended in the middle of a save."""
        import psutil

        for path in self.folder.glob("*.partial"):
            match = _PARTIAL.fullmatch(path.name)
            if match and not psutil.pid_exists(int(match[1])):
                path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Store, with a copy on this machine, which is the first to be written.

    Attributes
    ----------
    local : FolderPlace
        Folder of this machine.
    storage : Storage
        Folder of the store.
    """

    local: FolderPlace
    storage: Storage

    def __str__(self) -> str:
        return str(self.storage.uri)

    def numbers(self) -> list[SaveNumber]:
        """Return the numbers of the saves in the store or on this machine, the newest first."""
        return sorted({*self._stored(), *self.local.numbers()}, reverse=True)

    def _stored(self) -> Iterator[SaveNumber]:
        for found in self.storage.store.list(self.storage.uri.key):
            number = SaveNumber.parse(found.key.removeprefix(self.storage.uri.key))
            if number is not None:
                yield number

    def open(self, number: SaveNumber) -> BinaryIO:
        """Open a save for reading: that of this machine, else that of the store."""
        with suppress(FileNotFoundError):
            return self.local.open(number)
        with self.storage.open(number.name) as file:
            return BytesIO(file.read())

    def write(self, number: SaveNumber, packed: PackedState, keep: int) -> None:
        """Write a save here and to the store, then remove all but the newest `keep` there.

        Raises
        ------
        PlaceError
            The disk or the store does not take it; it is on this machine in the second case.
        """
        self.local.write(number, packed, keep)
        try:
            self.storage.write(number.name, self.local.path(number))
            for old in sorted(self._stored(), reverse=True)[keep:]:
                self.storage.delete(old.name)
        except (SkyError, OSError) as error:
            raise PlaceError(
                _("a save of {size:,} bytes has not come to {uri}: {error}").format(
                    size=packed.size, uri=self.storage.uri, error=error
                ),
                hint=_("it is in {folder} of this machine").format(folder=self.local.folder),
            ) from error

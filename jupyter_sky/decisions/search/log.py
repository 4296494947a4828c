"""The log of a search, one line of JSON for each event: what it takes to go on later."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.measurement import Measurement

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Dropped:
    """End of a try without a value: its machine was refused, or cannot be paid for."""


class SearchLog:
    """Events of a search, in a file or nowhere.

    The first line says which search it is; then come ``ask`` lines, before a point is measured,
    and ``run`` lines, after. A search that is killed between the two measures the point again.

    Parameters
    ----------
    path
        The file, made when it does not exist; None to keep nothing.
    header
        What must be the same for the search to go on.

    Raises
    ------
    SkyUsageError
        When the file holds another search, or no search, or cannot be written.
    """

    def __init__(self, path: str | Path | None, header: Mapping[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.events: list[dict[str, Any]] = []
        self._file = None
        if self.path is None:
            return
        wanted = {"search": _VERSION, **json.loads(json.dumps(header, default=str))}
        try:
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            lines = self._whole_lines(text)
            self._check(lines, wanted)
            self.events = lines[1:]
            self._file = self.path.open("w", encoding="utf-8")  # without a line cut short
            for line in lines or [wanted]:
                self._write(line)
        except (OSError, UnicodeDecodeError) as error:
            raise SkyUsageError(
                _("log={path!r}: {error}").format(path=str(self.path), error=error),
                hint=_("give the path of a file in a folder"),
            ) from None

    def _whole_lines(self, text: str) -> list[dict[str, Any]]:
        """Return the lines, without a last one that was cut when its writer was killed."""
        lines = []
        for number, line in enumerate(text.splitlines()):
            try:
                lines.append(json.loads(line))
                if not isinstance(lines[-1], dict):
                    raise ValueError("not an event")
            except ValueError:
                if number and number == len(text.splitlines()) - 1:
                    break
                raise SkyUsageError(
                    _("{path}, line {number} is not of a search").format(
                        path=self.path, number=number + 1
                    ),
                    hint=_("give the log of a search, or a path where there is no file yet"),
                ) from None
        return lines

    def _check(self, lines: list[dict[str, Any]], wanted: dict[str, Any]) -> None:
        if not lines:
            return
        found = lines[0]
        differ = [key for key in wanted | found if found.get(key) != wanted.get(key)]
        if differ:
            words = [f"{key} {found.get(key)!r}, not {wanted.get(key)!r}" for key in differ]
            raise SkyUsageError(
                _("{path} is the log of another search: {words}").format(
                    path=self.path, words="; ".join(words)
                ),
                hint=_("ask for the same search, or give another file"),
            )

    def _write(self, event: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()

    def ask(self, number: int, index: int) -> None:
        """Note that a try begins."""
        self._write({"ask": number, "point": index})

    def run(self, number: int, run: Measurement) -> None:
        """Note one run of a try."""
        self._write({"run": number, **asdict(run)})

    def drop(self, number: int) -> None:
        """Note that a try has ended without a value."""
        self._write({"drop": number})

    def replay(self) -> Iterator[tuple[int, int | Measurement | Dropped]]:
        """Yield the events of the file in order.

        A try that began is its number and point, a run its number and measurement.
        """
        for event in self.events:
            try:
                if "ask" in event:
                    yield int(event["ask"]), int(event["point"])
                elif "drop" in event:
                    yield int(event["drop"]), Dropped()
                else:
                    given = dict(event)
                    yield int(given.pop("run")), Measurement(**given)
            except (KeyError, TypeError, ValueError):
                raise SkyUsageError(
                    _("{path}: {event} is no event of a search").format(
                        path=self.path, event=event
                    ),
                    hint=_("give another file and begin anew"),
                ) from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

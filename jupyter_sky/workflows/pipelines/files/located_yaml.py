"""Documents of YAML whose values know their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

MOST_VALUES = 100_000
"""Values of a document, counted where they stand and at each alias."""


@dataclass(frozen=True, slots=True)
class Located:
    """A value of a document.

    Attributes
    ----------
    value
        Text, number, truth value or None; a list, or a dict by text, of others.
    line
        Its line in the file, from 1.
    """

    value: Any
    line: int

    @property
    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {key: each.plain for key, each in self.value.items()}
        if isinstance(self.value, list):
            return [each.plain for each in self.value]
        return self.value


def read_documents(text: str, file: str) -> list[Located]:
    r"""Return the documents of a file, without those that are empty.

    Parameters
    ----------
    text
        Content of the file.
    file
        Its name, for messages.

    Raises
    ------
    SkyUsageError
        It is not YAML, a key is given twice or is no text, or aliases make it too large.

    Examples
    --------
    >>> (found,) = read_documents("name: train\nresources:\n  cpus: 4\n", "task.yaml")
    >>> found.plain, found.value["resources"].value["cpus"].line
    ({'name': 'train', 'resources': {'cpus': 4}}, 3)
    """
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        nodes = []
        while loader.check_node():
            nodes.append(loader.get_node())
        reader = _Reader(loader, file)
        return [found for node in nodes if (found := reader.read(node)).value is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise error_at(file, mark.line + 1 if mark else 1, problem) from None
    finally:
        loader.dispose()


def error_at(file: str, line: int, message: str, hint: str = "") -> SkyUsageError:
    """Return an error that names the line of a file."""
    text = _("{file}, line {line}: {message}").format(file=file, line=line, message=message)
    return SkyUsageError(text, hint=hint or None)


class _Reader:
    """Reads nodes of one file."""

    def __init__(self, loader: Any, file: str) -> None:
        self._loader, self._file, self._count = loader, file, 0
        self._open: set[int] = set()
        self._merged: set[int] = set()

    def read(self, node: Any) -> Located:
        import yaml

        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MOST_VALUES or id(node) in self._open:
            raise error_at(self._file, line, _("aliases make it too large"))
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                self._merge(node)
                return Located(dict(self._pairs(node)), line)
            if isinstance(node, yaml.SequenceNode):
                return Located([self.read(each) for each in node.value], line)
            return Located(self._loader.construct_object(node), line)
        finally:
            self._open.discard(id(node))

    def _merge(self, node: Any) -> None:
        """Take what ``<<`` brings into a mapping; none of its own keys may be there twice."""
        if id(node) in self._merged:  # it stands at an alias, too
            return
        self._merged.add(id(node))
        seen: set[str] = set()
        for key, __ in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                name = self._key(key)
                if name in seen:
                    line = key.start_mark.line + 1
                    raise error_at(self._file, line, _("{name} is given twice").format(name=name))
                seen.add(name)
        self._loader.flatten_mapping(node)

    def _key(self, key: Any) -> str:
        name = self._loader.construct_object(key)
        if not isinstance(name, str | int | float) or isinstance(name, bool):
            line = key.start_mark.line + 1
            raise error_at(self._file, line, _("{name!r} is no key").format(name=name))
        return str(name)

    def _pairs(self, node: Any) -> Iterator[tuple[str, Located]]:
        for key, value in node.value:
            yield self._key(key), Located(self.read(value).value, key.start_mark.line + 1)

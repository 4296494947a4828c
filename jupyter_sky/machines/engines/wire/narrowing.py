# pyright: strict
"""Checks of values of unknown types, whose parts then have the type `Any`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return whether a value is a list."""
    return isinstance(value, list)


def is_list_or_tuple(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a value is a list or a tuple."""
    return isinstance(value, list | tuple)


def is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    """Return whether a value is a dict."""
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Return whether a value is a mapping."""
    return isinstance(value, Mapping)


def class_of(value: object) -> type:
    """Return the class of a value."""
    return type(value)

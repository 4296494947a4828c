"""JSON as an API or a file gives it, unchecked; the code that reads a member checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonObject = dict[str, Any]
"""JSON object that its owner may change."""
JsonMapping = Mapping[str, Any]
"""JSON object that is only read."""

"""Records of clusters that have ended, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def recorded_ends(data: Path) -> list[dict[str, Any]]:
    """List the ends of clusters, the latest last."""
    found = [json.loads(path.read_text()) for path in data.glob("local/*/ended.json")]
    return sorted(found, key=lambda record: record["time"])

"""Origins of prices in words."""

from __future__ import annotations

import re

import pytest

from jupyter_sky.knowledge.catalog import load
from jupyter_sky.knowledge.catalog.price_origin import describe_origin, format_date


@pytest.mark.parametrize(
    ("source", "day", "short", "detail"),
    [
        ("aws-price-list-via-karpenter-aws-2026-07", "2026-07-20", "AWS, 20 Jul 2026", "Jul 2026"),
        ("lambda-v8-catalogue", "", "Lambda, date unknown", "Lambda v8 catalogue"),
        ("gpu-price-tracker-2025-11", "2025-11-16", "GPU price tracker, 16 Nov 2025", "Nov 2025"),
        ("gcp-accelerators-2026-v8-catalogue", "2026", "Google Cloud, 2026", "accelerators"),
        ("offers.csv", "2026-05-01", "offers.csv, 1 May 2026", ""),
        ("this machine", "2026-11-23", "this machine", ""),
        ("", "", "", ""),
        ("aws-a, azure-b", "2026-07-01", "AWS and Azure, 1 Jul 2026", "AWS a; Azure b"),
    ],
)
def test_origin(source: str, day: str, short: str, detail: str) -> None:
    found = describe_origin(source, day)
    assert found.short.startswith(short) and detail in found.detail


def test_no_source_of_the_catalog_is_shown_as_a_slug() -> None:
    for source in load().offers.categories("source"):
        found = describe_origin(source, "2026-07-05")
        assert not re.search(r"[a-z]-[a-z]|\d{4}-\d{2}|\+", found.text), found.text
        assert len(found.short) < 40


def test_what_is_no_date_is_kept() -> None:
    assert [format_date(text) for text in ("2026-13-01", "spring", "2026-02-30")] == [
        "2026-13-01",
        "spring",
        "2026-02-30",
    ]

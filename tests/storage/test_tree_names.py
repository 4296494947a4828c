"""Keys as paths: nothing outside the folder, nothing renamed, a sentence for what cannot be."""

from __future__ import annotations

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.machines.storage.stores.uri import (
    exact_name,
    fold_of_platform,
    folded_name,
    map_keys,
)

ACUTE, COMPOSED = "\N{COMBINING ACUTE ACCENT}", "caf\N{LATIN SMALL LETTER E WITH ACUTE}"


def test_keys_lose_their_prefix() -> None:
    names = map_keys("s3://b/d/", "d/", [("d/x.csv", 1), ("d/y/z.csv", 2)])
    assert names.files == {"d/x.csv": "x.csv", "d/y/z.csv": "y/z.csv"}


def test_marker_is_a_folder_and_that_of_the_prefix_is_nothing() -> None:
    names = map_keys("s3://b/d/", "d/", [("d/", 0), ("d/empty/", 0), ("d/a", 1)])
    assert (names.files, names.folders) == ({"d/a": "a"}, ("empty",))


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("../../etc/passwd", "climbs out"),
        ("a/../b", "climbs out"),
        ("/etc/passwd", "begins with /"),
        ("a//b", "// inside"),
        ("a/./b", "part ."),
        ("a/", "ends with /, and is not empty"),
        ("n" * 256, "at most 255 bytes"),
        ("é" * 128, "at most 255 bytes"),
        ("/".join(["n" * 200] * 20), "at most 3,500 bytes"),
        ("a\0b", "zero byte"),
    ],
)
def test_key_that_no_folder_can_hold(key: str, reason: str) -> None:
    with pytest.raises(SkyUsageError, match=reason) as raised:
        map_keys("s3://b/", "", [("fine", 1), (key, 1)])
    assert "s3://b/" in raised.value.message
    assert raised.value.hint is not None


def test_longest_name_is_held() -> None:
    assert map_keys("s3://b/", "", [("n" * 255, 1)]).files == {"n" * 255: "n" * 255}


def test_object_and_folder_of_one_name() -> None:
    with pytest.raises(SkyUsageError, match="'x' and 'x/y/z' cannot be in a folder"):
        map_keys("s3://b/", "", [("x", 1), ("x/y/z", 1)])


@pytest.mark.parametrize(
    "twins", [("A", "a"), ("caf\N{LATIN SMALL LETTER E WITH ACUTE}", f"cafe{ACUTE}")]
)
def test_twins_on_a_file_system_that_takes_them_for_one(twins: tuple[str, str]) -> None:
    sizes = [(name, 1) for name in twins]
    assert set(map_keys("s3://b/", "", sizes, exact_name).files) == set(twins)
    with pytest.raises(SkyUsageError, match="case and accents"):
        map_keys("s3://b/", "", sizes, folded_name)


def test_platforms_compare_names_differently() -> None:
    assert fold_of_platform("darwin")("A") == fold_of_platform("darwin")("a")
    assert fold_of_platform("linux")("A") != fold_of_platform("linux")("a")

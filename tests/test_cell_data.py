"""``--data``, ``--mount`` and ``--out``: addresses, paths, and sentences for what is neither."""

from __future__ import annotations

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.values import CellData, CellUpload


@pytest.mark.parametrize(
    ("text", "uri", "path"),
    [
        ("s3://imagenet/train", "s3://imagenet/train", "data/train"),
        ("s3://imagenet/train/", "s3://imagenet/train/", "data/train"),
        ("s3://imagenet", "s3://imagenet", "data/imagenet"),
        ("s3://imagenet/train:/data", "s3://imagenet/train", "/data"),
        ("s3://imagenet/train:./data/t", "s3://imagenet/train", "data/t"),
        ("s3://b/odd:name.csv", "s3://b/odd:name.csv", "data/name.csv"),
        ("s3://b/odd:name.csv:./x.csv", "s3://b/odd:name.csv", "x.csv"),
        ("file:/srv/data", "file:/srv/data", "data/data"),
        ("file:///srv/data:./here", "file:///srv/data", "here"),
        ("./local/set", "./local/set", "data/set"),
        ("local:/x", "local", "/x"),
        ("s3:/b/x", "s3:/b/x", "data/x"),
        ("./local/set:./elsewhere", "./local/set", "elsewhere"),
        (
            "s3://b/k?endpoint=http://127.0.0.1:9000",
            "s3://b/k?endpoint=http://127.0.0.1:9000",
            "data/k",
        ),
        (
            "s3://b/k?endpoint=http://127.0.0.1:9000:./k2",
            "s3://b/k?endpoint=http://127.0.0.1:9000",
            "k2",
        ),
        ("az://account/container/x", "az://account/container/x", "data/x"),
    ],
)
def test_data_is_an_address_and_a_path(text: str, uri: str, path: str) -> None:
    assert parse_cell_line(f"--data '{text}'").data == (CellData(uri, path),)
    assert parse_cell_line(f"--mount '{text}'").mounts == (CellData(uri, path),)


@pytest.mark.parametrize(
    ("text", "upload"),
    [
        ("./model:gs://mine/runs/7", CellUpload("model", "gs://mine/runs/7")),
        ("model/:s3://b/7/!", CellUpload("model", "s3://b/7/", True)),
        ("m.pt:file:/srv/m.pt", CellUpload("m.pt", "file:/srv/m.pt")),
        ("m.pt:./saved/", CellUpload("m.pt", "./saved/")),
        ("m.pt:saved/", CellUpload("m.pt", "saved/")),
        (
            "m:s3://b/k?endpoint=http://127.0.0.1:9000",
            CellUpload("m", "s3://b/k?endpoint=http://127.0.0.1:9000"),
        ),
    ],
)
def test_out_is_a_path_and_an_address(text: str, upload: CellUpload) -> None:
    assert parse_cell_line(f"--out '{text}'").uploads == (upload,)


def test_several_data() -> None:
    options = parse_cell_line("--data s3://b/x,gs://c/y:./y --data s3://b/z")
    assert [each.path for each in options.data] == ["data/x", "y", "data/z"]


@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("--data s3://b/x:../up", ["--data s3://b/x:../up", "leads out of the working folder"]),
        ("--data s3://b/x:.", ["the whole folder", "./data/train"]),
        ("--data s3://b/x:/", ["/ is the whole folder"]),
        ("--data s3://a/x,s3://b/x", ["would both be at data/x", "--data s3://b/x:./data/other"]),
        ("--out s3://b/x:./model", ["not a path and an address", "the path comes first"]),
        ("--out ./model", ["not a path and an address"]),
        ("--out ../model:s3://b/x", ["leads out of the working folder"]),
        ("--data", ["--data needs a value"]),
    ],
)
def test_bad_data_options_say_what_was_asked(line: str, pieces: list[str]) -> None:
    with pytest.raises(SkyUsageError) as raised:
        parse_cell_line(line)
    for piece in pieces:
        assert piece in str(raised.value)

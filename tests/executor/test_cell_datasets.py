"""Cells with ``--data`` and ``--out``: data are there before the cell, cached, and kept apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.machines.storage.datasets.mounts import missing_for_mounts
from tests.conftest import Notebook
from tests.emulators.object_store import ObjectStore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(folder: Path) -> Path:
    made = folder.parent / "home"
    made.mkdir(exist_ok=True)
    return made


@pytest.fixture(scope="module")
def notebook(
    data_dir: Path, folder: Path, home: Path, sky_env: dict[str, str]
) -> Iterator[Notebook]:
    """A kernel with a home of its own, where the cache of its machine is."""
    env = {
        **sky_env,
        "SKY_DATA_DIR": str(data_dir),
        "HOME": str(home),
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
    }
    made = Notebook(folder, env, "analysis.ipynb")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in a folder elsewhere."""
    made = tmp_path_factory.mktemp("store") / "train"
    (made / "sub").mkdir(parents=True)
    (made / "a.txt").write_text("one")
    (made / "sub/b.txt").write_text("two")
    (made / "big.bin").write_bytes(bytes(range(256)) * 256 * 300)  # more than a part
    return made


def cached_bytes(home: Path) -> int:
    """Bytes of the objects in the machine's cache."""
    files = (home / ".cache/jupyter_sky/data/objects").glob("??/*")
    return sum(file.stat().st_size for file in files)


def test_dataset_is_a_folder_of_the_cell_and_cached(
    notebook: Notebook, train: Path, home: Path
) -> None:
    listing = (
        "from pathlib import Path\n"
        "p = Path('data/train')\n"
        "print(sorted(str(f.relative_to(p)) for f in p.rglob('*') if f.is_file()))\n"
        "print((p / 'sub/b.txt').read_text(), oct((p / 'a.txt').stat().st_mode & 0o222))\n"
        "import hashlib; print(hashlib.md5((p / 'big.bin').read_bytes()).hexdigest())"
    )
    first = notebook.run(f"%%sky --data file:{train}\n{listing}")
    assert first.status == "ok", first.evalue
    assert first.stdout.splitlines()[:2] == ["['a.txt', 'big.bin', 'sub/b.txt']", "two 0o0"]
    content = (train / "big.bin").read_bytes()
    assert first.stdout.splitlines()[2] == hashlib.md5(content).hexdigest()
    assert "19.7 MB in 3 objects" in first.status_line and "brought in" in first.status_line
    size = cached_bytes(home)
    assert size == 6 + 256 * 256 * 300
    second = notebook.run(f"%%sky --data file:{train}\n{listing}")
    assert second.stdout == first.stdout
    assert "there already, 0 bytes moved" in second.status_line
    assert cached_bytes(home) == size


def test_changed_dataset_is_brought_anew_and_the_rest_kept(notebook: Notebook, train: Path) -> None:
    (train / "a.txt").write_text("changed")
    ran = notebook.run(
        f"%%sky --data {train}/:./data/train\nprint(open('data/train/a.txt').read())"
    )
    assert ran.stdout == "changed\n"
    assert "19.7 MB were there already" in ran.status_line


def test_single_file_is_a_file(notebook: Notebook, train: Path) -> None:
    ran = notebook.run(f"%%sky --data {train}/a.txt:./one.txt\nprint(open('one.txt').read())")
    assert ran.stdout == "changed\n", ran.evalue


def test_relative_address_is_below_the_notebook(notebook: Notebook, folder: Path) -> None:
    (folder / "beside").mkdir()
    (folder / "beside/x").write_text("here")
    ran = notebook.run("%%sky --data ./beside\nprint(open('data/beside/x').read())")
    assert ran.stdout == "here\n", ran.evalue


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    """A bucket of an S3-compatible store."""
    with ObjectStore("r2", min_part=1024) as server:
        server.create("bucket")
        server.put("bucket", "set/a", b"one")
        server.put("bucket", "set/sub/b", b"two" * 10_000)
        yield server


def test_data_of_a_bucket_come_once(notebook: Notebook, bucket: ObjectStore) -> None:
    bucket.forget_counts()
    cell = (
        f"%%sky --data s3://bucket/set?endpoint={bucket.url}\n"
        "print(open('data/set/a').read(), len(open('data/set/sub/b').read()))"
    )
    first = notebook.run(cell)
    assert first.stdout == "one 30000\n", first.evalue
    assert bucket.count("GET /bucket/set") == 2
    second = notebook.run(cell)
    assert second.stdout == first.stdout
    assert bucket.count("GET /bucket/set") == 2, "no byte is asked for again"
    assert "30.0 kB in 2 objects" in second.status_line
    assert "there already, 0 bytes moved" in second.status_line


def test_dry_run_measures_and_brings_nothing(notebook: Notebook, bucket: ObjectStore) -> None:
    bucket.forget_counts()
    shown = notebook.run(f"%%sky --dry-run --data s3://bucket/set?endpoint={bucket.url}\n1")
    assert "data/set: 30.0 kB in 2 objects" in shown.result
    assert bucket.count("GET /bucket/set") == 0


def test_folder_is_mounted_without_a_copy(notebook: Notebook, train: Path) -> None:
    ran = notebook.run(
        f"%%sky --mount file:{train}:./mounted\n"
        "import os; print(os.path.realpath('mounted'), os.path.exists('mounted/a.txt'))"
    )
    assert ran.stdout == f"{train} True\n", ran.evalue


@pytest.mark.skipif(bool(missing_for_mounts()), reason=f"needs {missing_for_mounts()}")
def test_engines_of_a_machine_share_a_mount(notebook: Notebook, bucket: ObjectStore) -> None:
    bucket.forget_counts()
    options = f"--nodes 2 --cluster two --mount s3://bucket/set?endpoint={bucket.url}:./m"
    ran = notebook.run(f"%%sky {options}\nprint(len(open('m/sub/b').read()))")
    assert ran.stdout.count("30000") == 2, ran.traceback
    single = f"--cluster two --mount s3://bucket/set/a?endpoint={bucket.url}:./one"
    assert notebook.run(f"%%sky {single}\nprint(open('one').read())").stdout.count("one") == 2
    assert len(mounted(notebook)) == 2 and bucket.count("GET /bucket/set/sub/b") == 1
    bucket.put("bucket", "set/sub/b", b"new")
    ran = notebook.run(f"%%sky {options}\nprint(open('m/sub/b').read())")
    assert ran.stdout.count("new") == 2, ran.traceback
    assert len(mounted(notebook)) == 2, "the mount of what was there before is gone"
    bucket.put("bucket", "set/sub/b", b"two" * 10_000)
    notebook.run("%sky down two")
    assert not mounted(notebook)


def mounted(notebook: Notebook) -> list[str]:
    """Return the file systems of FUSE below the data directory."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    folder = str(Path(notebook.directory).parent)
    return [line for line in lines if " fuse" in line and folder in line]


@pytest.mark.parametrize(
    ("option", "pieces"),
    [
        ("{train}x", ["there is no file or folder", "did you mean"]),
        ("{train}:in", ["there is no file or folder", "a path begins with ./ or /", ":./in"]),
        ("{train}:/sky-nowhere", ["absolute path on a machine of local", "./data/train"]),
        ("{train}:./taken.txt", ["there is a file at", "give another path"]),
        ("s9://b/x", ["no scheme that is known"]),
        (
            "{train} --mount ssh://mine/x",
            ["files of an SSH host are not streamed", "--data ssh://mine/x:./data/x"],
        ),
        ("{train} --disk 0.001", ["--disk 0.001: the data have 0.0 GiB", "has room"]),
    ],
)
def test_bad_data_say_why_before_the_cell_runs(
    notebook: Notebook, train: Path, option: str, pieces: list[str]
) -> None:
    notebook.run("%%sky\nopen('taken.txt', 'w').close()")
    ran = notebook.run(f"%%sky --data {option.format(train=train)}\nprint('ran')")
    assert ran.status == "error" and "ran\n" not in ran.stdout
    for piece in pieces:
        assert piece in ran.traceback, ran.traceback


# -- --out -----------------------------------------------------------------------------------------


def test_new_files_are_uploaded_and_old_ones_are_not(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    write = "import os; os.makedirs('model/sub', exist_ok=True)\nopen('model/old', 'w').write('o')"
    assert notebook.run(f"%%sky\n{write}").status == "ok"
    ran = notebook.run(
        f"%%sky --out ./model:s3://bucket/runs/7/?endpoint={bucket.url}\n"
        "open('model/sub/w.bin', 'wb').write(bytes(40_000_000)); open('model/n', 'w').write('n')\n"
        "'result'"
    )
    assert ran.status == "ok", ran.evalue
    assert ran.result == "'result'"
    keys = [key for key in bucket.keys("bucket") if key.startswith("runs/7/")]
    assert keys == ["runs/7/n", "runs/7/sub/w.bin"]
    assert bucket.content("bucket", "runs/7/sub/w.bin") == bytes(40_000_000)
    assert "model: 2 files (40.0 MB) uploaded to s3://bucket/runs/7/" in ran.status_line
    assert bucket.open_uploads("bucket") == 0


def test_single_file_is_uploaded_under_the_name_that_is_asked(
    notebook: Notebook, folder: Path, tmp_path: Path
) -> None:
    ran = notebook.run(f"%%sky --out x.txt:file:{tmp_path}/y.txt\nopen('x.txt', 'w').write('x')")
    assert ran.status == "ok", ran.evalue
    assert [each.name for each in tmp_path.iterdir()] == ["y.txt"]
    ran = notebook.run("%%sky --out x.txt:./home/\nopen('x.txt', 'w').write('again')")
    assert (folder / "home/x.txt").read_text() == "again", ran.evalue


def test_cell_that_writes_nothing_says_so(notebook: Notebook, tmp_path: Path) -> None:
    ran = notebook.run(f"%%sky --out x.txt:file:{tmp_path}/\npass")
    assert ran.status == "ok"
    assert "the cell has written no new file (1 files there)" in ran.status_line
    assert not list(tmp_path.iterdir())


def test_files_of_a_failed_cell_are_uploaded_only_with_a_mark(
    notebook: Notebook, tmp_path: Path
) -> None:
    cell = "open('state', 'w').write('s'); 1 / 0"
    plain = notebook.run(f"%%sky --out state:file:{tmp_path}/plain\n{cell}")
    marked = notebook.run(f"%%sky --out state:file:{tmp_path}/marked!\n{cell}")
    assert plain.ename == marked.ename == "ZeroDivisionError"
    assert [each.name for each in tmp_path.iterdir()] == ["marked"]


def test_upload_that_is_refused_is_an_error_after_the_results_are_bound(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    bucket.fail("PUT /bucket/no/", "AccessDenied", times=10)
    ran = notebook.run(
        f"%%sky -o kept --out y:s3://bucket/no/?endpoint={bucket.url}\n"
        "kept = 3; open('y', 'w').write('y')"
    )
    assert ran.status == "error" and "Permission" in ran.ename
    assert notebook.run("kept").result == "3"


# -- -o NAME@URI -----------------------------------------------------------------------------------


def test_result_is_kept_in_a_store_and_fetched_on_use(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    option = f"-o 'model@s3://bucket/kept/?endpoint={bucket.url}'"
    ran = notebook.run(f"%%sky {option}\nmodel = bytearray(40_000_000); model[-1] = 7")
    assert ran.status == "ok", ran.evalue
    assert "model: 40.0 MB kept in s3://bucket/kept/model.value" in ran.status_line
    assert "kept/model.value" in bucket.keys("bucket") and bucket.open_uploads("bucket") == 0
    bucket.forget_counts()
    assert "in s3://bucket/kept/model.value" in notebook.run("model").result
    assert bucket.requests == [], "a handle moves nothing"
    assert notebook.run("model.count(7), len(model.fetch())").result == "(1, 40000000)"
    assert notebook.run("%sky get model").status == "ok"
    assert notebook.run("type(model).__name__, model[-1]").result == ("('bytearray', 7)")


def test_small_result_is_kept_and_outlives_its_cluster(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    option = f"-c short -o 'd@s3://bucket/d?endpoint={bucket.url}'"
    assert notebook.run(f"%%sky {option}\nd = {{'a': [1, 2]}}").status == "ok"
    notebook.run("%sky down short")
    assert notebook.run("d.fetch()").result == "{'a': [1, 2]}"
    assert "bring it here first" in notebook.run("%%sky -i d\nd").traceback
    bucket.put("bucket", "d", b"another")
    notebook.run("d._value = ()")
    assert "SkySourceChanged" in notebook.run("d.fetch()").traceback


def test_result_is_kept_in_the_scratch_that_the_settings_name(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    ran = notebook.run("%%sky -o kept@store\nprint('ran')\nkept = 'x'")
    assert "local: there is no scratch" in ran.traceback and ran.stdout == ""
    assert 'Sky.scratch = {"local": "URI"}' in ran.traceback
    scratch = {"local": f"s3://bucket/tmp?endpoint={bucket.url}"}
    assert notebook.run(f"%config Sky.scratch = {scratch}").status == "ok"
    for value in ("first", "second"):
        ran = notebook.run(f"%%sky -o kept@store\nkept = {value!r}")
        assert ran.status == "ok", ran.evalue
        notebook.run(f"{value} = kept")
    (prefix,) = {key.rpartition("/")[0] for key in bucket.keys("bucket") if key[:4] == "tmp/"}
    assert notebook.run("first.fetch(), second.fetch()").result == "('first', 'second')"
    assert f"s3://bucket/{prefix}/kept-" in notebook.run("first").result


def test_run_takes_data_and_uploads(notebook: Notebook, bucket: ObjectStore, train: Path) -> None:
    ran = notebook.run(
        "import jupyter_sky as sky\n"
        f"read = sky.run(\"open('w', 'w').write('x'); open('data/train/sub/b.txt').read()\",\n"
        f"    data=sky.Storage({str(train)!r}), out={{'w': 's3://bucket/w?endpoint={bucket.url}'}})"
    )
    assert notebook.run("read").result == "'two'", ran.traceback
    assert bucket.content("bucket", "w") == b"x"
    ran = notebook.run(f"sky.run(\"open('t/a.txt').read()\", data={{'t': {str(train)!r}}})")
    assert ran.status == "ok", ran.traceback


def test_missing_bucket_is_said_before_the_cell_runs(
    notebook: Notebook, bucket: ObjectStore
) -> None:
    ran = notebook.run(f"%%sky --data s3://none-such/x?endpoint={bucket.url}\nprint('ran')")
    assert ran.status == "error" and "ran\n" not in ran.stdout
    assert "none-such" in ran.traceback

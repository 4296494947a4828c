"""Names and versions of data engines in the options of cells and in Python."""

from __future__ import annotations

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.data_engines import parse_engine
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.spark_version import spark_version


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("flink", "known: spark, dask, ray"),
        ("rey", "did you mean ray?"),
        ("sparc==3", "did you mean spark?"),
        ("", "known: spark, dask, ray"),
    ],
)
def test_unknown_engine_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(SkyUsageError, match="there is no such data engine") as caught:
        parse_engine(name, "--engine")
    assert caught.value.hint == hint


@pytest.mark.parametrize("nodes", [(1, 3), sky.Nodes(2)])
def test_pool_with_an_engine_has_a_number_of_nodes(nodes: object) -> None:
    with pytest.raises(SkyUsageError, match="is a range") as caught:
        sky.up(engine="ray", vcpus=1, nodes=nodes)
    assert caught.value.hint == "such as sky.up(engine='ray', nodes=2)"


def test_version_is_read_with_the_name() -> None:
    assert parse_cell_line('--engine "ray == 2.60.*"').engine == "ray==2.60.*"
    assert parse_cell_line('--engine "Dask>=2026.1, <2027"').engine == "dask>=2026.1,<2027"
    with pytest.raises(SkyUsageError, match="==two is not a version"):
        parse_cell_line("--engine ray==two")


def test_version_of_spark_is_that_of_its_client() -> None:
    ours = spark_version()
    for clause in (f"=={ours}", ">=3.5", ">=4"):
        assert parse_cell_line(f'--engine "spark{clause}"').engine == "spark"
    with pytest.raises(SkyUsageError, match=f"version of the client here, {ours}") as caught:
        parse_cell_line('--engine "spark==99.*"')
    assert caught.value.hint == 'choose that: pip install "pyspark-client==99.*"'


@pytest.mark.parametrize("clause", ["==3.5.*", "<4", "==3.5.6", "~=3.4"])
def test_server_of_spark_3_has_no_token(clause: str) -> None:
    with pytest.raises(SkyUsageError, match="would take queries from anyone") as caught:
        parse_cell_line(f'--engine "spark{clause}"')
    assert f'--service "spark{clause}" takes a managed one' in str(caught.value.hint)
    assert "spark.sql.ansi.enabled=false" in str(caught.value.hint)


@pytest.mark.parametrize("option", ["--sql", "--service own-spark"])
def test_sql_and_services_are_for_spark(option: str) -> None:
    assert parse_cell_line(f"{option} --engine spark").engine == "spark"
    with pytest.raises(SkyUsageError, match=f"{option.split()[0]} is for Spark"):
        parse_cell_line(f"{option} --engine ray")


def test_services_of_pools_are_for_spark() -> None:
    with pytest.raises(SkyUsageError, match="a service is for Spark"):
        sky.up(service="own-spark", engine="dask")

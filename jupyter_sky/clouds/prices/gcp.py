"""Google Cloud: the billing catalog's SKUs, with machine types, accelerators and zones.

TPUs are not read: their slices are in no list of Compute Engine. The rows that the catalog knows
of them stay, with their own dates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices import gcp_skus as skus
from jupyter_sky.clouds.prices import http
from jupyter_sky.clouds.prices.entries import (
    canonical_accelerator,
    make_offer,
    make_table,
    nominal_memory,
    read_entries,
)
from jupyter_sky.clouds.prices.fetcher import TRY_LATER_HINT, Fetcher, Recovery, today
from jupyter_sky.clouds.prices.page_cache import Page
from jupyter_sky.clouds.prices.source import (
    KnownOffers,
    SourceData,
    SpotPrice,
    missing_sdk,
)

_COMPUTE_ENGINE = "services/6F81-5844-456A"
_TIMEOUT_SECONDS = 300.0  # seconds that one page may take with its retries
_SOURCES = ("gcp-billing-catalog", "gcp-machine-types")
_VENDORS = {  # by series; where one series has machines of several vendors it is not here
    "a2": "Intel", "a3": "Intel", "a4": "Intel", "c2": "Intel", "c3": "Intel", "c4": "Intel",
    "g2": "Intel", "h3": "Intel", "m1": "Intel", "m2": "Intel", "m3": "Intel", "n1": "Intel",
    "n2": "Intel", "n4": "Intel", "x4": "Intel", "z3": "Intel", "c2d": "AMD", "c3d": "AMD",
    "c4d": "AMD", "n2d": "AMD", "n4d": "AMD", "t2d": "AMD", "t2a": "Ampere", "c4a": "Google",
    "n4a": "Google",
}  # fmt: skip


@dataclass(frozen=True)
class GcpPrices:
    """Prices of Google Cloud, with google-cloud-billing and google-cloud-compute.

    Parameters
    ----------
    billing, compute
        Addresses of the two services; Google's own unless given.
    project
        Project whose view of machine types is read; that of the credentials unless given.
    credentials
        Credentials of google-auth; the application default ones unless given.

    Examples
    --------
    >>> GcpPrices().cloud
    'gcp'
    """

    billing: str | None = None
    compute: str | None = None
    project: str | None = None
    credentials: Any = None

    cloud = "gcp"
    kinds = frozenset({"vm", "accelerator-attach"})

    def check(self) -> None:
        """Raise when an SDK, credentials or a project are missing."""
        try:
            import google.cloud.billing_v1
            import google.cloud.compute_v1  # noqa: F401
        except ImportError:
            packages = "google-cloud-billing and google-cloud-compute"
            raise missing_sdk(self.cloud, packages) from None
        self._identity()

    def _identity(self) -> tuple[Any, str]:
        """Return credentials and the project."""
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError

        credentials, project = self.credentials, self.project
        if credentials is None:
            try:
                credentials, default = google.auth.default()
            except DefaultCredentialsError:
                raise SkyRefreshError(
                    _("gcp: no credentials were found: its price list answers to accounts only"),
                    hint=_("gcloud auth application-default login"),
                ) from None
            project = project or default
        project = project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        if not project:
            raise SkyRefreshError(
                _("gcp: no project is set to list machine types of"),
                hint=_(
                    "gcloud auth application-default set-quota-project PROJECT, or set "
                    "GOOGLE_CLOUD_PROJECT"
                ),
            )
        return credentials, project

    def fetch(self, fetch: Fetcher, known: KnownOffers) -> SourceData:
        """Read the four lists and add up what each machine costs."""
        rows, listed = self._read_rows(fetch, known)
        unpriced = sum(row["on_demand_usd_h"] is None for row in rows)
        notes = ["TPU slices as they were known"]
        if unpriced:
            notes.append(f"{unpriced} rows without a price: a part of the machine has no SKU")
        dates: dict[str, str] = {name: today() for name in _SOURCES}
        tables = {"offers": make_table("offers", rows)}
        if egress := skus.egress_rows(listed, _SOURCES[0]):
            tables["egress"] = make_table("egress", egress)
        return SourceData(tables, dates, tuple(notes))

    def spot_prices(self, fetch: Fetcher, known: KnownOffers) -> list[SpotPrice]:
        """Read the same lists, as prices are of parts of machines; return one for each region."""
        found = {
            (row["region"], row["instance_type"]): row["spot_usd_h"]
            for row in self._read_rows(fetch, known)[0]
            if row["spot_usd_h"] is not None and row["kind"] == "vm"
        }
        return [SpotPrice(region, "", machine, usd) for (region, machine), usd in found.items()]

    def _read_rows(
        self, fetch: Fetcher, known: KnownOffers
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return rows of offers, and what SKUs tell of places and of data that move."""
        lists = fetch.map(("SKUs", "machine types", "accelerators", "zones"), self._reader(fetch))
        listed, machines, gpus, zones = lists
        prices = skus.index(record for record in listed if "what" in record)
        up = {zone["name"] for zone in zones}
        rows = list(_rows(prices, [m for m in machines if m["zone"] in up], known))
        attached = _attached(prices, (gpu for gpu in gpus if gpu["zone"] in up), rows)
        return [*rows, *attached], [record for record in listed if "what" not in record]

    def _reader(self, fetch: Fetcher) -> Any:
        from google.cloud import billing_v1, compute_v1  # type: ignore[attr-defined]

        credentials, project = self._identity()

        def made(client: Any, address: str | None) -> Any:
            options = {"api_endpoint": address} if address else None
            return client(credentials=credentials, transport="rest", client_options=options)

        catalog = made(billing_v1.CloudCatalogClient, self.billing)
        types = made(compute_v1.MachineTypesClient, self.compute)
        accelerators = made(compute_v1.AcceleratorTypesClient, self.compute)
        zones = made(compute_v1.ZonesClient, self.compute)
        place = {"project": project, "max_results": 500}
        calls = {
            "SKUs": (catalog.list_skus, {"parent": _COMPUTE_ENGINE, "page_size": 5000}, _sku),
            "machine types": (types.aggregated_list, place, _machines),
            "accelerators": (accelerators.aggregated_list, place, _accelerators),
            "zones": (zones.list, place, _zone),
        }
        return lambda name: fetch.pages(name, _make_page_reader(*calls[name]))

    def explain(self, error: Exception) -> Recovery | SkyError:
        """Classify an exception of google-api-core or google-auth."""
        from google.api_core import exceptions as api
        from google.auth.exceptions import GoogleAuthError
        from google.protobuf.json_format import ParseError

        error = getattr(error, "cause", None) or error  # a RetryError wraps the last failure
        if isinstance(error, (ParseError, *http.INVALID_RESPONSES)):
            return Recovery.RETRY
        if isinstance(error, api.BadRequest) and "token" in str(error).lower():
            return Recovery.RESTART
        if isinstance(error, api.Unauthorized | api.Forbidden | GoogleAuthError):
            hint = (
                "gcloud auth application-default login; the account needs compute.viewer and the "
                "Cloud Billing API enabled"
            )
            return SkyRefreshError(_("gcp: {error}").format(error=error), hint=hint)
        if isinstance(error, api.GoogleAPICallError):
            return SkyRefreshError(_("gcp: {error}").format(error=error), hint=TRY_LATER_HINT)
        return SkyRefreshError(
            _("gcp: cannot be reached: {error}").format(error=error), hint=_("check the network")
        )


def _make_page_reader(call: Any, asked: Mapping[str, Any], reader: Any) -> Any:
    """Return a function that gets one page of a list of Google's."""
    from google.api_core.retry import Retry, if_transient_error

    patience = Retry(if_transient_error, initial=1.0, maximum=60.0, timeout=_TIMEOUT_SECONDS)

    def get(token: str | None) -> Page:
        request = {**asked, "page_token": token or ""}
        answer = next(iter(call(request=request, retry=patience).pages))
        entries = getattr(answer, "skus", None) or answer.items
        listed = entries.items() if hasattr(entries, "items") else entries
        records, skipped = read_entries(listed, reader)
        flat = [each for record in records for each in record]
        return Page(flat, answer.next_page_token or None, skipped)

    return get


# -- entries; each gives a list of records, or None ----------------------------------------


def _sku(sku: Any) -> list[dict[str, Any]] | None:
    from google.cloud import billing_v1  # type: ignore[attr-defined]

    listed = billing_v1.Sku.to_dict(sku, preserving_proto_field_name=False)
    if moved := skus.transfer(listed):
        return [moved]
    records = [skus.price(listed), skus.place(listed)]
    return [record for record in records if record] or None


def _machines(entry: tuple[str, Any]) -> list[dict[str, Any]]:
    place, scoped = entry
    zone = place.removeprefix("zones/")
    found = []
    for machine in scoped.machine_types:
        gpu = machine.accelerators[0] if machine.accelerators else None
        found.append(
            {
                "zone": zone,
                "name": machine.name,
                "vcpus": float(machine.guest_cpus),
                "memory_gib": machine.memory_mb / 1024,
                "arch": "arm64" if machine.architecture == "ARM64" else "x86_64",
                "gpu": gpu.guest_accelerator_type if gpu else "",
                "gpu_count": float(gpu.guest_accelerator_count) if gpu else None,
                "disks": machine.bundled_local_ssds.partition_count,
            }
        )
    return [machine for machine in found if machine["name"] and machine["vcpus"]]


def _accelerators(entry: tuple[str, Any]) -> list[dict[str, Any]]:
    place, scoped = entry
    return [
        {
            "zone": place.removeprefix("zones/"),
            "name": gpu.name,
            "most": gpu.maximum_cards_per_instance,
        }
        for gpu in scoped.accelerator_types
    ]


def _zone(zone: Any) -> list[dict[str, Any]] | None:
    return [{"name": zone.name}] if zone.status == "UP" else None


# -- rows ----------------------------------------------------------------------------------


def _rows(
    prices: skus.Prices, machines: Iterable[Mapping[str, Any]], known: KnownOffers
) -> Iterator[dict[str, Any]]:
    for machine in machines:
        region = machine["zone"].rpartition("-")[0]
        name, before = machine["name"], known.machines.get(machine["name"], {})
        gpu = canonical_accelerator(machine["gpu"]) if machine["gpu"] else ""
        yield make_offer(
            **_priced(partial(_sum, prices, region, machine)),
            region=region,
            zone=machine["zone"],
            instance_type=name,
            vcpus=machine["vcpus"],
            memory_gib=machine["memory_gib"],
            arch=machine["arch"],
            cpu_vendor=before.get("cpu_vendor") or _VENDORS.get(name.partition("-")[0], ""),
            accelerator=gpu,
            accelerator_count=machine["gpu_count"],
            accelerator_memory_gib=nominal_memory(gpu) if gpu else None,
            source="+".join(_SOURCES),
        )


def _attached(
    prices: skus.Prices, gpus: Iterable[Mapping[str, Any]], hosts: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Return GPUs for N1 machines: each alone, and with the eight vCPUs that carry it."""
    carriers = {(host["zone"], host["instance_type"]): host for host in hosts}
    for gpu in gpus:
        if gpu["name"] not in _ATTACHED:
            continue
        alone = _make_gpu_row(prices, gpu)
        yield alone
        count = 1
        while count <= max(1, gpu["most"]):
            host = carriers.get((gpu["zone"], f"n1-standard-{8 * count}"))
            if host is not None:
                yield _make_hosted_gpu_row(alone, host, count)
            count *= 2


def _make_gpu_row(prices: skus.Prices, gpu: Mapping[str, Any]) -> dict[str, Any]:
    name, region = gpu["name"], gpu["zone"].rpartition("-")[0]
    canonical = canonical_accelerator(name)
    return make_offer(
        **_priced(lambda usage: prices.get((region, usage, f"gpu/{name}"))),
        region=region,
        zone=gpu["zone"],
        instance_type=f"n1-attach/{canonical}",
        kind="accelerator-attach",
        arch="x86_64",
        cpu_vendor="Intel",
        accelerator=canonical,
        accelerator_count=1.0,
        accelerator_memory_gib=nominal_memory(canonical),
        source="gcp-billing-catalog",
    )


def _make_hosted_gpu_row(
    gpu: Mapping[str, Any], host: Mapping[str, Any], count: int
) -> dict[str, Any]:
    """Return an N1 machine with GPUs, under the name that the catalog gives it."""

    def both(column: str) -> float | None:
        if gpu[column] is None or host[column] is None:
            return None
        return round(host[column] + count * gpu[column], 6)

    names = ("accelerator", "accelerator_memory_gib", "price_date", "spot_scope", "spot_date")
    facts = {**host, **{name: gpu[name] for name in names}}
    return make_offer(
        **facts
        | {
            "instance_type": f"{host['instance_type']}+{gpu['accelerator']}:{count}",
            "accelerator_count": float(count),
            "on_demand_usd_h": both("on_demand_usd_h"),
            "spot_usd_h": both("spot_usd_h"),
        }
    )


_ATTACHED = {f"nvidia-tesla-{name}" for name in ("k80", "p4", "p100", "v100", "t4")}


def _sum(prices: skus.Prices, region: str, machine: Mapping[str, Any], usage: str) -> float | None:
    return skus.machine_price(prices, region, usage, machine)


def _priced(total: Callable[[str], float | None]) -> dict[str, Any]:
    """Return both prices with their sources and dates."""
    price, spot = total("OnDemand"), total("Preemptible")
    return {
        "cloud": "gcp",
        "on_demand_usd_h": round(price, 6) if price is not None else None,
        "price_date": today() if price is not None else "",
        "spot_usd_h": round(spot, 6) if spot is not None else None,
        "spot_scope": "region" if spot is not None else "",
        "spot_date": today() if spot is not None else "",
        "zone_basis": "zone",
    }

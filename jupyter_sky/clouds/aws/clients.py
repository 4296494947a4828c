"""AWS credentials by boto3's own rules, and clients by service and region."""

from __future__ import annotations

import configparser
import os
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_sky.clouds.provider.classification import ProviderError

if TYPE_CHECKING:
    from botocore.client import BaseClient

DEFAULT_REGION = "us-east-1"
"""The region that is asked about the others, where none is configured."""
MAX_PARALLEL_REGIONS = 8
"""Number of regions that are asked at the same time."""
_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_PROFILE_KEYS = "aws_access_key_id sso_session sso_start_url role_arn credential_process".split()
_PROFILE_KEYS += ["login_session"]
_UNKNOWN_IDENTITY_CODES = ("AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException")

T = TypeVar("T")


def configured() -> str:
    """Return in words which credentials boto3 would take, empty without any; asks nobody.

    Those of a machine's own role are not found this way: only the network knows of them.
    """
    profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    if profile:
        return f"profile {profile}"
    for variable in _VARIABLES:
        if os.environ.get(variable):
            return f"environment variable {variable}"
    for path in _credential_files():
        if _has_credentials(path):
            return f"default profile of {path}"
    return ""


class AwsClients:
    """Clients of boto3 that know of credentials set or renewed since they were made.

    Threads may share it, as they may share clients.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fingerprint: object = None
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], BaseClient] = {}

    def client(self, service: str, region: str, *, once: bool = False) -> BaseClient:
        """Return a client.

        Parameters
        ----------
        once
            Send each request once, for those that make something: botocore would repeat even
            what is refused for want of capacity.
        """
        from botocore.config import Config

        with self._lock:
            session, key = self._current_session(), (service, region, once)
            if key not in self._clients:
                tries = {"total_max_attempts": 1 if once else 3, "mode": "standard"}
                config = Config(connect_timeout=10, read_timeout=60, retries=tries)
                self._clients[key] = session.client(service, region_name=region, config=config)
            return self._clients[key]

    def home_region(self) -> str:
        """Return the region that is configured, or `DEFAULT_REGION`."""
        with self._lock:
            return self._current_session().region_name or DEFAULT_REGION

    def partition(self, region: str) -> str:
        """Return the part of AWS that a region is in, as names (ARN) have it."""
        with self._lock:
            return self._current_session().get_partition_for_region(region)

    def call_regions(
        self, ask: Callable[[str], list[T]], regions: Collection[str] | None = None
    ) -> list[T]:
        """Ask in regions, all that are enabled unless told, and return all answers.

        A region that is not enabled has none: nothing can be launched there.
        """
        from botocore.exceptions import ClientError

        if regions is None:
            answer = self.client("ec2", self.home_region()).describe_regions()
            regions = [each["RegionName"] for each in answer["Regions"]]
        if not regions:
            return []

        def one(region: str) -> list[T]:
            try:
                return ask(region)
            except ClientError as error:
                if self._is_region_disabled(region, error):
                    return []
                raise

        with ThreadPoolExecutor(min(MAX_PARALLEL_REGIONS, len(regions))) as workers:
            return [each for answers in workers.map(one, sorted(regions)) for each in answers]

    @contextmanager
    def annotate_region_errors(self, region: str) -> Iterator[None]:
        """Raise another error where a region is not enabled: AWS says there that keys are wrong."""
        from botocore.exceptions import ClientError

        try:
            yield
        except ClientError as error:
            if not self._is_region_disabled(region, error):
                raise
            told = f"the region {region} is not enabled for this account"
            raise ProviderError(told, code="OptInRequired") from None

    def _is_region_disabled(self, region: str, said: Any) -> bool:
        """Whether a refusal comes from a region that is not enabled."""
        from botocore.exceptions import BotoCoreError, ClientError

        if said.response["Error"]["Code"] not in _UNKNOWN_IDENTITY_CODES:
            return False
        try:
            answer = self.client("ec2", self.home_region()).describe_regions(AllRegions=True)
        except (BotoCoreError, ClientError):
            return False  # it does not know us elsewhere either
        off = {r["RegionName"] for r in answer["Regions"] if r["OptInStatus"] == "not-opted-in"}
        return region in off

    def _current_session(self) -> Any:
        """Return the session; a new one when settings or files have changed."""
        from boto3.session import Session

        mark = _settings_fingerprint()
        if self._session is None or mark != self._fingerprint:
            self._session, self._fingerprint, self._clients = Session(), mark, {}
        return self._session


def _credential_files() -> tuple[Path, Path]:
    """Return the files that boto3 reads: credentials and settings."""
    credentials = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    settings = os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"
    return Path(credentials).expanduser(), Path(settings).expanduser()


def _has_credentials(path: Path) -> bool:
    """Whether the default profile of a file names credentials or where they come from."""
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error):
        return False
    return parser.has_section("default") and any(
        parser.has_option("default", key) for key in _PROFILE_KEYS
    )


def _settings_fingerprint() -> object:
    """Return a value that changes when credentials or settings do."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    times = [path.stat().st_mtime_ns if path.exists() else 0 for path in _credential_files()]
    return settings, times

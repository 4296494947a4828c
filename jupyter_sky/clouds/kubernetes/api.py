"""Requests to clusters of Kubernetes, by its official client and the contexts of a kubeconfig."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.provider.classification import ProviderError

IN_CLUSTER = "in-cluster"
"""Context of a pod that reaches its own cluster by its service account."""
KUBECONFIG = "KUBECONFIG"
"""Variable with the kubeconfigs, and the code of errors in them."""
TIMEOUT_SECONDS = (10, 60)
"""Seconds to connect, and between two pieces of an answer."""
PAGE = 50
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Context:
    """Cluster and user of a kubeconfig.

    Attributes
    ----------
    namespace : str
        Where pods are launched.
    """

    name: str
    namespace: str


def kubeconfig() -> str:
    """Return the files of the kubeconfig that are there; empty without any."""
    named = os.environ.get(KUBECONFIG) or str(Path.home() / ".kube" / "config")
    paths = [path for path in named.split(os.pathsep) if path and Path(path).expanduser().is_file()]
    return os.pathsep.join(paths)


def _file_state() -> tuple[tuple[str, int], ...]:
    """Return the files of the kubeconfig with the times of their last change."""
    paths = kubeconfig().split(os.pathsep)
    return tuple((path, os.stat(Path(path).expanduser()).st_mtime_ns) for path in paths if path)


def has_account() -> bool:
    """Whether this process runs in a pod that may ask its own cluster."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (_ACCOUNT / "token").is_file()


def connect(context: str) -> Any:
    """Return the API of pods and nodes of a context; the client is imported now.

    Raises
    ------
    ProviderError
        The kubeconfig cannot be used.
    """
    from kubernetes import client, config

    settings = client.Configuration()
    settings.retries = 0  # retries are left to `RetryingCaller`
    try:
        if context == IN_CLUSTER:
            config.load_incluster_config(client_configuration=settings)
        else:
            config.load_kube_config(kubeconfig(), context, settings, persist_config=False)
    except (config.ConfigException, OSError, TypeError, ValueError) as error:
        text = _("context {context} of the kubeconfig cannot be used: {error}")
        raise ProviderError(text.format(context=context, error=error), code=KUBECONFIG) from None
    return client.CoreV1Api(client.ApiClient(settings))


class KubernetesApi:
    """Connections to the clusters of a kubeconfig; each is made with its first request.

    Parameters
    ----------
    contexts
        Names of the contexts to use, separated by commas; empty for all.
    namespace
        Of pods; empty for that of each context.
    """

    def __init__(self, contexts: str = "", namespace: str = "") -> None:
        self._named = [name.strip() for name in contexts.split(",") if name.strip()]
        self._namespace = namespace
        self._connections: dict[tuple[str, Any], Any] = {}
        self._contexts: dict[Any, list[Context]] = {}
        self._lock = threading.Lock()

    def contexts(self) -> list[Context]:
        """Return the contexts to use; sends nothing.

        Raises
        ------
        ProviderError
            The kubeconfig cannot be read, or lacks a context that is named.
        """
        state = _file_state()
        found = self._contexts.get(state)
        if found is None:
            found = self._read_contexts()
            self._contexts = {state: found}
        return found

    def _read_contexts(self) -> list[Context]:
        if not kubeconfig():
            namespace = "default"
            with suppress(OSError):
                namespace = (_ACCOUNT / "namespace").read_text().strip()
            return [Context(IN_CLUSTER, self._namespace or namespace)] if has_account() else []
        from kubernetes import config
        from yaml import YAMLError

        try:
            listed: Any = config.list_kube_config_contexts(kubeconfig())[0]
        except (config.ConfigException, OSError, TypeError, ValueError, YAMLError) as error:
            raise ProviderError(f"{kubeconfig()}: {error}", code=KUBECONFIG) from None
        found = {
            each["name"]: self._namespace or each["context"].get("namespace") or "default"
            for each in listed
        }
        if missing := [name for name in self._named if name not in found]:
            text = _("{path} has no context {name}; it has {found}")
            known = ", ".join(found)
            message = text.format(path=kubeconfig(), name=missing[0], found=known)
            raise ProviderError(message, code=KUBECONFIG)
        return [Context(name, found[name]) for name in self._named or found]

    def namespace(self, context: str) -> str:
        """Return the namespace of pods in a context."""
        return next((each.namespace for each in self.contexts() if each.name == context), "default")

    def call(self, context: str, operation: str, *words: Any, **options: Any) -> Any:
        """Send a request; return the answer as the API writes it.

        Parameters
        ----------
        operation
            Method of the client, such as ``list_namespaced_pod``.

        Raises
        ------
        ProviderError
            The cluster refuses.
        ConnectionError
            No answer has come; the request may have been carried out.
        """
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        api = self._connection(context)
        send = partial(getattr(api, operation), *words, _request_timeout=TIMEOUT_SECONDS)
        try:
            return api.api_client.sanitize_for_serialization(send(**options))
        except ApiException as error:
            raise read_refusal(error.status, error.body, error.reason, error.headers) from None
        except (HTTPError, OSError) as error:
            raise ConnectionError(f"{context}: {error}") from None

    def list_all(
        self, context: str, operation: str, *words: Any, **options: Any
    ) -> Iterator[JsonObject]:
        """Yield the items of a list of several pages; see `call`."""
        more = ""
        while True:
            page = {"limit": PAGE} | ({"_continue": more} if more else {})
            found = self.call(context, operation, *words, **page, **options)
            yield from found.get("items") or ()
            more = (found.get("metadata") or {}).get("continue") or ""
            if not more:
                return

    def _connection(self, context: str) -> Any:
        key = context, _file_state()  # tokens in it may have been replaced
        with self._lock:
            if key not in self._connections:
                self._connections[key] = connect(context)
            return self._connections[key]


@cache
def find_clusters(contexts: str, namespace: str) -> KubernetesApi:
    """Return the connections of this process by these settings; see `KubernetesApi`."""
    return KubernetesApi(contexts, namespace)


def read_refusal(
    status: int | None, body: str | None, reason: str | None, headers: Mapping[str, str] | None
) -> ProviderError:
    """Return a refusal with the reason and the message of the API's ``Status``.

    Examples
    --------
    >>> body = '{"kind": "Status", "reason": "AlreadyExists", "message": "pods a already exists"}'
    >>> read_refusal(409, body, "Conflict", None).code
    'AlreadyExists'
    """
    told: Any = {}
    with suppress(ValueError, TypeError):
        told = json.loads(body or "")
    told = told if isinstance(told, dict) else {}
    return ProviderError(
        str(told.get("message") or reason or body or status),
        code=str(told.get("reason") or ""),
        status=status or 0,
        retry_after=(headers or {}).get("Retry-After"),
    )

"""Reading LLMDeployments and their pods as a user, from the cluster of the kubeconfig."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import ClientError
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, ApiException, CoreV1Api, CustomObjectsApi

from paternoster_contract import labels
from paternoster_contract.error_text import error_text
from paternoster_contract.http.paths import METRICS
from paternoster_operator.cluster.api_requests import LONGEST_ANSWER, read_bounded

TIMEOUT_SECONDS = 10
MOST_PODS = 500
"""Pods that are read of one fleet, or of one installation."""
OPERATOR_SELECTOR = "app.kubernetes.io/part-of=paternoster,app.kubernetes.io/component=operator"


@dataclass(frozen=True, slots=True)
class _Context:
    """The kubeconfig's current context: its name, its namespace, and its API server."""

    name: str
    namespace: str
    api: CustomObjectsApi
    core: CoreV1Api


def read_resource(name: str, namespace: str | None) -> Mapping[str, Any]:
    """Read one LLMDeployment of the kubeconfig's current context; ``namespace`` is the context's own when None.

    Raises ``OSError`` that says where it was searched and why it could not be read.
    """

    async def read() -> Mapping[str, Any]:
        async with _current_context() as context:
            where = namespace or context.namespace
            try:
                found = await context.api.get_namespaced_custom_object(
                    labels.GROUP, labels.VERSION, where, labels.PLURAL, name, _request_timeout=TIMEOUT_SECONDS
                )
            except ApiException as error:
                if error.status != 404:
                    raise
                raise OSError(
                    f"there is no LLMDeployment {where}/{name} in the cluster of context {context.name}"
                ) from error
        return cast(Mapping[str, Any], found)

    return asyncio.run(read())


def read_resources(namespace: str | None, *, all_namespaces: bool) -> Sequence[Mapping[str, Any]]:
    """Read the LLMDeployments of one namespace, or of all, in the kubeconfig's current context.

    Raises ``OSError`` that says which API server could not be read and why.
    """

    async def read() -> Sequence[Mapping[str, Any]]:
        async with _current_context() as context:
            kind = labels.GROUP, labels.VERSION
            if all_namespaces:
                found = await context.api.list_cluster_custom_object(
                    *kind, labels.PLURAL, _request_timeout=TIMEOUT_SECONDS
                )
            else:
                found = await context.api.list_namespaced_custom_object(
                    *kind, namespace or context.namespace, labels.PLURAL, _request_timeout=TIMEOUT_SECONDS
                )
        return cast(Sequence[Mapping[str, Any]], cast(Mapping[str, Any], found)["items"])

    return asyncio.run(read())


def read_pods(namespace: str, selector: str) -> Sequence[Mapping[str, Any]]:
    """Read the pods of ``namespace`` with the labels of ``selector``; raises ``OSError`` as :func:`read_resource`."""

    async def read() -> Sequence[Mapping[str, Any]]:
        async with _current_context() as context:
            # As JSON: the client's own types refuse what an older or newer API server leaves out.
            found = await context.core.list_namespaced_pod_without_preload_content(
                namespace, label_selector=selector, limit=MOST_PODS, _request_timeout=TIMEOUT_SECONDS
            )
            if found.status != 200:
                raise ApiException(status=found.status, reason=found.reason)
            listed = await found.json()
        return cast(Sequence[Mapping[str, Any]], listed["items"])

    return asyncio.run(read())


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """One operator's answer for its metrics."""

    operator: str
    """Name of its pod, or its URL."""
    answer: str | OSError
    """Text of the metrics, or why there is none."""
    at: float
    """Time of the answer, on the monotonic clock."""
    pod: Mapping[str, Any] | None = None
    """None where a URL names the operator."""


def read_operators(namespace: str | None) -> Sequence[MetricsPage]:
    """Read the metrics of every operator in ``namespace``, by the API server's proxy of pods.

    ``namespace`` is the context's own when None. Raises ``OSError`` as :func:`read_resource`.
    """

    async def read() -> Sequence[MetricsPage]:
        async with _current_context() as context:
            where = namespace or context.namespace
            found = await context.core.list_namespaced_pod_without_preload_content(
                where, label_selector=OPERATOR_SELECTOR, limit=MOST_PODS, _request_timeout=TIMEOUT_SECONDS
            )
            if found.status != 200:
                raise ApiException(status=found.status, reason=found.reason)
            pods = (await found.json())["items"]
            if not pods:
                raise OSError(
                    f"namespace {where} in the cluster of context {context.name} has no pod with the labels "
                    f"{OPERATOR_SELECTOR}; -n names the namespace of the operators"
                )
            return await asyncio.gather(*(_read_page(context.core, where, pod) for pod in pods))

    return asyncio.run(read())


async def _read_page(core: CoreV1Api, namespace: str, pod: Mapping[str, Any]) -> MetricsPage:
    declared = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
    port = next((each["containerPort"] for each in declared if each.get("name") == "http"), 8080)
    text: str | OSError
    try:
        response = await core.connect_get_namespaced_pod_proxy_with_path_without_preload_content(
            f"{pod['metadata']['name']}:{port}", namespace, METRICS.strip("/"), _request_timeout=TIMEOUT_SECONDS
        )
        body = await read_bounded(response, LONGEST_ANSWER)
        text = body.decode(errors="replace") if response.status == 200 else OSError(f"HTTP {response.status}")
    except (ApiException, ClientError, TimeoutError, OSError, ValueError) as error:
        text = OSError(error_text(error) or "no answer in time")
    return MetricsPage(pod["metadata"]["name"], text, time.monotonic(), pod)


@asynccontextmanager
async def _current_context() -> AsyncIterator[_Context]:
    """The context to read from; an error of its API server becomes an ``OSError`` that names the server."""
    try:
        _, context = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
        await config.load_kube_config()  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        raise OSError(f"no usable kubeconfig: {error}") from error
    async with ApiClient() as client:
        host = client.configuration.host
        try:
            yield _Context(
                context["name"],
                context["context"].get("namespace") or "default",
                CustomObjectsApi(client),
                CoreV1Api(client),
            )
        except ApiException as error:
            raise OSError(f"{host}: HTTP {error.status}: {error.reason}") from error
        except (ConnectionError, TimeoutError) as error:
            raise OSError(f"{host}: {error_text(error)}") from error

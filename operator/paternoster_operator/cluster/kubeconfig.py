"""Reading one LLMDeployment as a user, from the cluster of the kubeconfig."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, ApiException, CustomObjectsApi

from paternoster_contract import labels

TIMEOUT_SECONDS = 10


def read_resource(name: str, namespace: str | None) -> Mapping[str, Any]:
    """The LLMDeployment in the kubeconfig's current context; ``namespace`` is the context's own when None.

    Raises ``OSError`` that says where it was looked for and why it could not be read.
    """
    return asyncio.run(_read(name, namespace))


async def _read(name: str, namespace: str | None) -> Mapping[str, Any]:
    try:
        _, context = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
        await config.load_kube_config()  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        raise OSError(f"no usable kubeconfig: {error}") from error
    where = namespace or context["context"].get("namespace") or "default"
    async with ApiClient() as api:
        try:
            found = await CustomObjectsApi(api).get_namespaced_custom_object(
                labels.GROUP, labels.VERSION, where, labels.PLURAL, name, _request_timeout=TIMEOUT_SECONDS
            )
        except ApiException as error:
            if error.status == 404:
                raise OSError(
                    f"there is no LLMDeployment {where}/{name} in the cluster of context {context['name']}"
                ) from error
            raise OSError(f"{api.configuration.host}: HTTP {error.status}: {error.reason}") from error
        except (OSError, TimeoutError) as error:
            raise OSError(f"{api.configuration.host}: {error or type(error).__name__}") from error
    return cast(Mapping[str, Any], found)

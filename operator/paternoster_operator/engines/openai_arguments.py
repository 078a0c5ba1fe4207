"""A server of the OpenAI API, whatever its program: the manifest has that and its flags.

The operator's own settings come as ``$(NAME)`` in command, arguments and environment, which Kubernetes replaces by
variables of the container, and ``paternoster up`` likewise.
"""

from collections.abc import Sequence
from dataclasses import replace

from paternoster_contract.http import paths
from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.row import NOT_PASSED
from paternoster_operator.engines.adapter import Actuator, BoundPort, Capabilities, Continuation, Launch, RuntimeType
from paternoster_operator.engines.arguments import list_refusals, write_variables

MODEL_ENV = "PATERNOSTER_MODEL"
PORT_ENV = "PATERNOSTER_PORT"
HOST_ENV = "PATERNOSTER_HOST"
REFUSALS = sorted(
    list_refusals(RuntimeType.OPENAI, "the server"), key=lambda refusal: refusal.reason == NOT_PASSED.refused
)


class OpenAiKind:
    """Any server of the OpenAI API with ``GET /health``, such as llama.cpp's."""

    type = RuntimeType.OPENAI
    actuator = Actuator.GATEWAY
    health_path = paths.HEALTH
    capabilities = Capabilities(
        live_cap=True, token_budget=False, queue_limit=False, step_costs=False, drain=False, text_chains=False,
        continuation=Continuation.NONE,
    )  # fmt: skip
    finishes_requests = False
    inherits_sockets = False
    refusals = REFUSALS

    def launch(self, settings: EngineArgs, args: Sequence[str] = ()) -> Launch:
        """The image's own program, where the manifest names none."""
        return Launch([], list(args), {HOST_ENV: "", PORT_ENV: "", **write_variables(settings)})

    def start_locally(self, launch: Launch, host: str, port: BoundPort, admin: BoundPort | None) -> Launch:
        return replace(launch, env={**launch.env, PORT_ENV: str(port.number), HOST_ENV: host})

    def find_owned_flags(self, args: Sequence[str]) -> list[str]:
        """None: all flags are the manifest's."""
        return []

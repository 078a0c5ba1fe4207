"""Where an engine listens, whom it answers, and how it ends."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from paternoster_contract.flags import Settings
from paternoster_contract.http import origins
from paternoster_contract.settings.kv_events import KVEventsSetting


def _check_origins(value: str | None) -> str | None:
    return None if value is None else origins.check_origin(value)


class ServerSettings(Settings):
    """Ports, keys, metrics and the drain."""

    host: str = Field(default="127.0.0.1", description="address to listen on; :: for every one, of IPv4 and IPv6")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    admin_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="port of the admin API, on the same address; 0 takes a free one, without one there is no admin API",
    )
    api_keys: str | None = Field(
        default=None,
        min_length=1,
        description="file of the keys that clients may send, one a line, or a folder of such files; read again as it "
        "changes (default: nobody needs a key)",
    )
    admin_keys: str | None = Field(
        default=None,
        min_length=1,
        description="the same for the admin API; its keys are not those of the API, and there must be some where the "
        "API has some",
    )
    identity_header: bool = Field(
        default=False,
        description="believe whom a request is from where it says so in X-Paternoster-Identity; only for an engine "
        "whose api-keys are a gateway's alone, as whoever has one of them can be any tenant",
    )
    allowed_origins: Annotated[str | None, AfterValidator(_check_origins)] = Field(
        default=None,
        description="origins of web pages that may call the API from their visitors' browsers, separated by commas, "
        "such as https://chat.example.org, or * for all (default: none)",
    )
    parse_special_tokens: bool = Field(
        default=False,
        description="let what is spelled like a control token in chat messages, such as <|im_end|>, be that token; "
        "otherwise it is plain text",
    )
    disable_any_whitespace: bool = Field(
        default=False,
        description="let JSON that answers are held to have no white space between its tokens, as under vLLM's "
        "structured-outputs-config; otherwise blanks and indented lines, and a request may ask for it",
    )
    drain_timeout: float = Field(default=300, ge=0, description="seconds that SIGTERM lets running requests finish in")
    vllm_metrics: bool = Field(
        default=False,
        description="also export the core metrics under vLLM's names, as endpoint pickers and recipes for autoscalers "
        "read them: 480 series more for an idle engine",
    )
    kv_events_config: KVEventsSetting | None = Field(
        default=None,
        description="publish blocks that the prefix cache gains and loses over ZMQ: JSON with vLLM's fields, such as "
        '{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557"}; subscribers read the tokens of every prompt',
    )

    def check_admin_keys(self, opened: str) -> None:
        """Raises ``ValueError`` where the API needs keys and the admin API, at what ``opened`` names, has none."""
        if self.api_keys is not None and self.admin_keys is None:
            raise ValueError(
                f"{opened} without admin_keys: they must be set where api_keys is, as anybody could drain the engine"
            )

    @model_validator(mode="after")
    def _check_ports_and_keys(self) -> Self:
        if self.admin_port == self.port != 0:
            raise ValueError(f"admin_port is {self.admin_port}: must differ from port; 0 takes a free one")
        if self.identity_header and self.api_keys is None:
            raise ValueError("identity_header is True: must be False without api_keys, as anybody could say anything")
        if self.admin_port is not None:
            self.check_admin_keys(f"admin_port is {self.admin_port}")
        return self

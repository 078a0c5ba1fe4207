"""Where an engine listens, whom it answers, and how it ends."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from paternoster_contract.flags import Settings
from paternoster_contract.http import origins
from paternoster_contract.settings.kv_events import KVEventsSetting
from paternoster_contract.settings.row import (
    OPERATOR_SETS,
    RUNTIME_ARGS,
    SGLANG_ARGS,
    OtherEngines,
    SpecField,
    Translation,
    add_note,
    refuse_rest,
)

_PAGES = add_note("pages call gateways, which have their own")


def _check_origins(value: str | None) -> str | None:
    return None if value is None else origins.check_origin(value)


# fmt: off
class ServerSettings(Settings):
    """Ports, keys, metrics and the drain."""

    host: Annotated[str, OPERATOR_SETS,
        OtherEngines(Translation("host", always=True), Translation("host", always=True),
                     Translation(variable="PATERNOSTER_HOST"))] = Field(
        default="127.0.0.1", description="address to listen on; :: for every one, of IPv4 and IPv6")
    port: Annotated[int, OPERATOR_SETS,
        OtherEngines(Translation("port", always=True), Translation("port", always=True),
                     Translation(variable="PATERNOSTER_PORT"))] = Field(
        default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    admin_port: Annotated[int | None, OPERATOR_SETS,
        OtherEngines(add_note("the plugin answers on the API's port"), add_note("SGLang answers on the API's port"),
                     add_note("it has no admin API"))] = Field(
        default=None, ge=0, le=65535,
        description="port of the admin API, on the same address; 0 takes a free one, without one there is no admin API")
    api_keys: Annotated[str | None, OPERATOR_SETS,
        OtherEngines(
            add_note("the plugin reads the folder of keys"),
            add_note("gateways check clients' keys; SGLang's port is open to whom the network policy admits"),
            add_note("gateways check clients' keys; the server's port is open to whom the network policy admits"))
    ] = Field(
        default=None, min_length=1,
        description="file of the keys that clients may send, one a line, or a folder of such files; read again as it "
        "changes (default: nobody needs a key)")
    admin_keys: Annotated[str | None, OPERATOR_SETS,
        OtherEngines(
            add_note("the plugin reads the folder of keys"),
            add_note("SGLang's port is open to whom the network policy admits"),
            add_note("it has no admin API"))] = Field(
        default=None, min_length=1,
        description="the same for the admin API; its keys are not those of the API, and there must be some where the "
        "API has some")
    identity_header: Annotated[bool, OPERATOR_SETS,
        OtherEngines(
            add_note("the plugin believes the gateway's headers of streams; vLLM has no tenants"),
            add_note("gateways check clients; SGLang has no tenants"),
            add_note("gateways check clients; it has no tenants"))] = Field(
        default=False,
        description="believe whom a request is from where it says so in X-Paternoster-Identity; only for an engine "
        "whose api-keys are a gateway's alone, as whoever has one of them can be any tenant")
    allowed_origins: Annotated[
        str | None, AfterValidator(_check_origins), OtherEngines(_PAGES, _PAGES, _PAGES)] = Field(
        default=None,
        description="origins of web pages that may call the API from their visitors' browsers, separated by commas, "
        "such as https://chat.example.org, or * for all (default: none)")
    parse_special_tokens: Annotated[bool, SpecField("engine.parseSpecialTokens"),
        OtherEngines(add_note("vLLM always lets what is spelled like a control token be one"))] = Field(
        default=False,
        description="Let what is spelled like a control token in chat messages, such as <|im_end|>, be that token; "
        "otherwise it is plain text.")
    disable_any_whitespace: Annotated[bool,
        SpecField("engine.disableAnyWhitespace", "Let JSON that answers are held to have no white space between its "
                  "tokens, as if each request asked for that."),
        OtherEngines(refuse_rest("use engine.runtime.args, as --structured-outputs-config"), refuse_rest(SGLANG_ARGS))
    ] = Field(
        default=False,
        description="let JSON that answers are held to have no white space between its tokens, as under vLLM's "
        "structured-outputs-config; otherwise blanks and indented lines, and a request may ask for it")
    drain_timeout: Annotated[float, SpecField("drain.timeoutSeconds", by_hand=True),
        OtherEngines(
            Translation("shutdown-timeout", "{:g}".format, always=True),
            add_note("the grace period of pods; SGLang finishes what runs, without a limit"),
            add_note("time from the deletion of a pod to SIGTERM, which ends what runs at such a server"))] = Field(
        default=300, ge=0, description="seconds that SIGTERM lets running requests finish in")
    vllm_metrics: Annotated[bool,
        SpecField("engine.vllmMetrics", "Also export the core metrics under vLLM's names; as the operator's setting "
                  "for all fleets when unset.", default=None),
        OtherEngines(refuse_rest("vLLM always exports its metrics", None, True),
                     refuse_rest("SGLang's metrics have its own names"))] = Field(
        default=False,
        description="also export the core metrics under vLLM's names, as endpoint pickers and recipes for autoscalers "
        "read them: 480 series more for an idle engine")
    kv_events_config: Annotated[KVEventsSetting | None,
        OtherEngines(
            add_note("use `engine.runtime.args`, as `--kv-events-config`: the events are the same"),
            add_note("use `engine.runtime.args`, as `--kv-events-config`"),
            RUNTIME_ARGS)] = Field(
        default=None,
        description="publish blocks that the prefix cache gains and loses over ZMQ: JSON with vLLM's fields, such as "
        '{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557"}; subscribers read the tokens of every prompt')

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

"""Queries that the dashboards have in common. Both have the variables ``namespace`` and ``llmdeployment``."""

from grafana_json import Json, annotation

OF_ENGINES = 'namespace=~"$namespace", llmdeployment=~"$llmdeployment"'
"""Engines get these labels from the scrape."""
OF_OPERATOR = 'namespace=~"$namespace", name=~"$llmdeployment"'
"""The operator's series name their LLMDeployment themselves."""


def engine(metric: str, *matchers: str) -> str:
    return f"paternoster_engine_{metric}{{{', '.join((OF_ENGINES, *matchers))}}}"


def operator(metric: str, *matchers: str) -> str:
    return f"paternoster_operator_{metric}{{{', '.join((OF_OPERATOR, *matchers))}}}"


def gateway(metric: str, *matchers: str) -> str:
    """The gateway's series have models as labels and no LLMDeployment."""
    return f"paternoster_gateway_{metric}" + (f"{{{', '.join(matchers)}}}" if matchers else "")


def rate(selector: str) -> str:
    return f"rate({selector}[$__rate_interval])"


def grouped(expression: str, by: str = "namespace, llmdeployment", how: str = "sum") -> str:
    return f"{how} by ({by}) ({expression})"


def operator_gauge(metric: str, *matchers: str, by: str = "namespace, name") -> str:
    """A gauge of the operator; with a standby, two may report the same LLMDeployment for a moment."""
    return grouped(operator(metric, *matchers), by, "max")


def counted(selector: str, window: str) -> str:
    """Events in ``window`` of a counter that appears with its first event, which ``increase`` does not see."""
    return f"(({selector} unless {selector} offset {window}) or increase({selector}[{window}]))"


def quantiles(selector: str) -> list[tuple[str, str]]:
    """(expression, legend) of the median and the 95th percentile over everything selected."""
    return [
        (f"histogram_quantile({quantile}, {grouped(rate(selector), 'le')})", f"p{round(quantile * 100)}")
        for quantile in (0.5, 0.95)
    ]


def of_process(metric: str, components: str) -> str:
    """A process's own metric with its component and version; ``components``: a pattern."""
    build = f'paternoster_build_info{{component=~"{components}"}}'
    return f"{metric} * on (namespace, pod) group_left (component, version) {build}"


DECISIONS = operator("decisions_total")

ANNOTATIONS: list[Json] = [
    annotation(
        "Decisions",
        grouped(f"{counted(DECISIONS, '1m')} > 0", "namespace, name, loop, action, reason"),
        "{{namespace}}/{{name}}: {{loop}} {{action}}",
        "{{reason}}",
        "blue",
    ),
    annotation(
        "Stalled",
        operator_gauge("condition", 'type="Stalled"', 'status="True"', by="namespace, name, reason"),
        "{{namespace}}/{{name}} is stalled",
        "{{reason}}",
        "red",
    ),
]

"""The publisher's sampling settings in ``status``: from what engines report, and back for the routing table. Pure."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from paternoster_contract.default_parameters import DefaultParameters
from paternoster_operator.api.types.status import DefaultParametersStatus


def write_default_parameters(parameters: DefaultParameters) -> dict[str, Any]:
    """Write ``status.defaultParameters``: the API has no floating-point numbers, so fractions are strings."""
    values = {
        name: str(value) if isinstance(value, float) else value for name, value in parameters.list_set_values().items()
    }
    return DefaultParametersStatus.model_validate(values).model_dump(by_alias=True, exclude_none=True)


def read_default_parameters(status: Mapping[str, Any]) -> DefaultParameters | None:
    """Read parameters of a ``status``; None where it has none, or none that requests could have."""
    if "defaultParameters" not in status:
        return None
    try:
        values = DefaultParametersStatus.model_validate(status["defaultParameters"]).model_dump(exclude_none=True)
        return DefaultParameters(**values)
    except ValidationError:
        return None

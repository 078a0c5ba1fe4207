"""Fields of the resource that are made from the table of engine settings, ``paternoster_contract.settings``."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field
from pydantic.alias_generators import to_snake
from pydantic.fields import FieldInfo

from paternoster_contract.settings.engine_args import EngineArgs
from paternoster_contract.settings.row import OtherEngines, SettingRow, SpecField, list_rows
from paternoster_operator.api.types.fields import INT32, INT64, Document

T = TypeVar("T", bound=Document)
_LARGEST_INT32 = 2**31 - 1


def add_settings(section: str, first: Sequence[str] = (), last: Sequence[str] = ()) -> Callable[[type[T]], type[T]]:
    """Give a type of the resource the fields that the table has below ``section`` of spec.

    The CRD has those named in ``first`` first, and those in ``last`` at the end.
    """

    def extend(document: type[T]) -> type[T]:
        fields = document.model_fields | {
            to_snake(row.field.path.rpartition(".")[2]): _make_field(row, row.field)
            for row in list_rows(EngineArgs, EngineArgs.field_order)
            if row.field is not None and row.field.path.rpartition(".")[0] == section and not row.field.by_hand
        }
        names = dict.fromkeys((*first, *(name for name in fields if name not in last), *last))
        document.__pydantic_fields__ = {name: fields[name] for name in names}
        document.model_rebuild(force=True)
        return document

    return extend


def _make_field(row: SettingRow, field: SpecField) -> FieldInfo:
    """Type and bounds are the setting's own, where the table has no others; an integer has a format."""
    info = row.info if field.annotation is None else FieldInfo.from_annotation(field.annotation)
    checks: list[Any] = [each for each in info.metadata if not isinstance(each, SpecField | OtherEngines)]
    annotation: Any = info.annotation
    form = None
    if annotation in (int, int | None):
        most = next((check.le for check in checks if hasattr(check, "le")), None)
        form = INT64 if most is not None and most > _LARGEST_INT32 else INT32
        checks += [Field(le=_LARGEST_INT32)] if most is None else []
    made = Field(
        default=row.field_default,
        alias=field.path.rpartition(".")[2],
        description=field.description or row.info.description,
        json_schema_extra=form,
    )
    annotation = annotation if row.field_default is not None else annotation | None
    return FieldInfo.from_annotation(Annotated[(annotation, *checks, made)])  # type: ignore[arg-type]

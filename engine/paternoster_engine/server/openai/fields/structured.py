"""What an answer must be: OpenAI's ``response_format``, vLLM's ``structured_outputs``, older and SGLang's fields."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from paternoster_engine.sampling.grammars.source import GrammarSource, Kind
from paternoster_engine.server.bodies.invalid_fields import MAX_LISTED
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.fields.body import (
    Body,
    Text,
    allow_only,
    own_names,
    report_ignored,
    whole_characters,
)
from paternoster_engine.server.openai.fields.counts import count_free_values
from paternoster_http.json_bounds import JsonTooLarge, bounded_json, count_values

MAX_CHOICES = 4096
MAX_TAGS = 128
ANY_OBJECT = {"type": "object"}


def _parse_schema(value: Any) -> Any:
    """A JSON schema that is an object, also as text; raises ``ValueError``."""
    if isinstance(value, str):
        try:
            value = bounded_json(whole_characters(value).encode(), "the schema")
        except ValueError as error:
            raise ValueError(f"is not JSON: {error}") from error
        except JsonTooLarge as error:
            raise ValueError(f"cannot be enforced: {error}") from error
    if not isinstance(value, dict):
        raise ValueError("must be an object, or the text of one in JSON")
    # A schema that cannot be written is refused here, where the error can name the field.
    count_free_values(count_values(_write_json(value).encode(), "the schema"))
    return value


def _write_json(value: Any) -> str:
    """Write JSON in the order in which it came: that of properties means something. Raises ``ValueError``."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    return whole_characters(text)


Schema = Annotated[Any, AfterValidator(_parse_schema)]
Choice = Annotated[list[Annotated[Text, Field(min_length=1)]], Field(min_length=1, max_length=MAX_CHOICES)]
NonEmptyText = Annotated[Text, Field(min_length=1)]


class StrictBody(Body):
    """An unknown part might change what is allowed: it is refused, not left out."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def _read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Keep only as many unknown parts as an error can list."""
        unknown = given.keys() - own_names(cls)
        if len(unknown) <= MAX_LISTED:
            return given
        left_out = set(islice(unknown, MAX_LISTED, None))
        return {name: value for name, value in given.items() if name not in left_out}


class Structure(StrictBody):
    begin: NonEmptyText
    schema_: Schema = Field(default_factory=dict, alias="schema", description="of the JSON between begin and end")
    end: Text


class StructuralTag(StrictBody):
    """Free text in which whatever follows a trigger must be one of the structures."""

    type: Literal["structural_tag"]
    structures: Annotated[list[Structure], Field(min_length=1, max_length=MAX_TAGS)]
    triggers: Annotated[list[NonEmptyText], Field(min_length=1, max_length=MAX_TAGS)]


class JsonSchema(StrictBody):
    name: NonEmptyText = Field(max_length=64)
    description: Text | None = None
    schema_: Schema = Field(alias="schema")
    strict: bool | None = Field(
        default=None, description="true: a schema that cannot be enforced as a whole is refused"
    )


class TextFormat(StrictBody):
    type: Literal["text"]


class JsonObjectFormat(StrictBody):
    type: Literal["json_object"]


class JsonSchemaFormat(StrictBody):
    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | StructuralTag, Field(discriminator="type")
]


def _parse_structural_tag(value: Any) -> StructuralTag:
    return StructuralTag.model_validate(_parse_schema(value))


class StructuredOutputs(StrictBody):
    """One of the ways to say what is allowed."""

    json_: Schema | None = Field(default=None, alias="json", description="a JSON schema")
    regex: NonEmptyText | None = None
    choice: Choice | None = None
    grammar: NonEmptyText | None = Field(default=None, description="in Lark or GBNF")
    json_object: bool = Field(default=False, description="any JSON object")
    structural_tag: Annotated[Any, AfterValidator(_parse_structural_tag)] | None = None
    disable_any_whitespace: bool = Field(
        default=False, description="no white space between the tokens of JSON, in place of blanks and indented lines"
    )
    disable_additional_properties: Annotated[Any, allow_only(False, True)] = False
    disable_fallback: Annotated[Any, allow_only(False)] = False
    whitespace_pattern: Annotated[Any, allow_only()] = None

    @model_validator(mode="after")
    def _check_one_given(self) -> Self:
        given = [name for name, _ in self.list_sources()]
        if len(given) != 1:
            raise ValueError(
                "give exactly one of json, regex, choice, grammar, json_object=true and structural_tag, not "
                f"{' and '.join(given) or 'none'}"
            )
        return self

    def list_sources(self) -> Iterator[tuple[str, GrammarSource]]:
        for name, source in self._given_sources():
            yield name, source._replace(compact=self.disable_any_whitespace)

    def _given_sources(self) -> Iterator[tuple[str, GrammarSource]]:
        yield from _given_sources(
            {"json": self.json_, "regex": self.regex, "choice": self.choice, "grammar": self.grammar}
        )
        if self.json_object:
            yield "json_object", GrammarSource("json", _write_json(ANY_OBJECT))
        if self.structural_tag is not None:
            yield "structural_tag", _of_tag(self.structural_tag)


class Structured(NamedTuple):
    field: str
    """Where the body says so."""
    source: GrammarSource
    strict: bool = False
    """Whether a schema is refused of which something cannot be enforced."""


OTHER_FORMS: Mapping[str, Kind] = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "json_schema": "json",
    "regex": "regex",
    "ebnf": "grammar",
}
"""vLLM's older fields, and SGLang's, which ``structured_outputs`` precedes."""


class StructuredFields(Body):
    """Fields of structured output in chat and text completions."""

    response_format: ResponseFormat = Field(default_factory=lambda: TextFormat(type="text"))
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: NonEmptyText | None = None
    guided_choice: Choice | None = None
    guided_grammar: NonEmptyText | None = None
    json_schema: Schema | None = Field(default=None, description="as guided_json, of SGLang")
    regex: NonEmptyText | None = Field(default=None, description="as guided_regex, of SGLang")
    ebnf: NonEmptyText | None = Field(default=None, description="as guided_grammar, of SGLang")
    guided_whitespace_pattern: Annotated[Any, allow_only()] = None

    def find_structure(self) -> Structured | None:
        """What the answer must be; raises :class:`InvalidValue` where two fields ask for different forms.

        Beside ``structured_outputs``, those of ``OTHER_FORMS`` are for other servers: passed over, and reported where
        they differ.
        """
        every, others = list(self._list_forms()), list(self._list_other_forms())
        if self.structured_outputs is None:
            every += others
        else:
            precedent = every[-1].source._replace(compact=False)
            report_ignored(*(each.field for each in others if each.source != precedent))
        for each in every[1:]:
            if each.source != every[0].source:
                field, other = each.field, every[0].field
                message = f"{field}: not allowed together with {other}: give one of the two"
                raise InvalidValue(field, message, other=other)
        return every[0] if every else None

    def _list_forms(self) -> Iterator[Structured]:
        match self.response_format:
            case JsonObjectFormat():
                yield Structured("response_format", GrammarSource("json", _write_json(ANY_OBJECT)))
            case JsonSchemaFormat(json_schema=schema):
                source = GrammarSource("json", _write_json(schema.schema_))
                yield Structured("response_format.json_schema.schema", source, bool(schema.strict))
            case StructuralTag() as tag:
                yield Structured("response_format", _of_tag(tag))
        if self.structured_outputs is not None:
            for name, source in self.structured_outputs.list_sources():
                yield Structured(f"structured_outputs.{name}", source)

    def _list_other_forms(self) -> Iterator[Structured]:
        for field, kind in OTHER_FORMS.items():
            for _, source in _given_sources({kind: getattr(self, field)}):
                yield Structured(field, source)


def _given_sources(
    values: Mapping[Kind, str | Sequence[str] | Mapping[str, Any] | None],
) -> Iterator[tuple[Kind, GrammarSource]]:
    for kind, value in values.items():
        if value is not None:
            yield kind, GrammarSource(kind, value if isinstance(value, str) else _write_json(value))


def _of_tag(tag: StructuralTag) -> GrammarSource:
    return GrammarSource("structural_tag", _write_json(tag.model_dump(by_alias=True)))

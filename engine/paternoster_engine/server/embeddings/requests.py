"""What clients may ask of a model that embeds. As for text, unknown fields are left out and named in the answer."""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from paternoster_contract.limits import MAX_PRIORITY, MIN_PRIORITY
from paternoster_engine.server.errors import InvalidValue
from paternoster_engine.server.openai.fields.body import Body, Text, allow_only, text_or_list, texts_or_ids

MAX_TEXTS = 2048
"""Texts of one call; OpenAI's limit of ``input``."""
MAX_TOKENS = 300_000
"""Tokens of one call, over all its texts; OpenAI's limit of ``input``."""

Input = Annotated[list[str | list[int]], texts_or_ids(MAX_TEXTS)]
NonEmpty = Annotated[Text, Field(min_length=1)]
Texts = Annotated[list[NonEmpty], text_or_list(str, MAX_TEXTS), Field(min_length=1, max_length=MAX_TEXTS)]
Dtype = Literal["float", "int8", "uint8", "binary", "ubinary"]
"""Format of the numbers of a vector in an answer."""
INPUT_TYPE = (
    "what the texts are for: search_query or query, search_document, document or passage, classification, clustering, "
    "or the name of one of the model's prompts; where the model has a prompt for it, it comes before each text"
)
T = TypeVar("T")


def _one_of(first: tuple[str, T | None], second: tuple[str, T | None]) -> T | None:
    """The value of one field under two names; raises ``ValueError`` where these differ."""
    (name, value), (other, same) = first, second
    if value is not None and same is not None and value != same:
        raise ValueError(f"{name}: is {value}, and {other}, its other name, {same}: give one of them")
    return same if value is None else value


class VectorRequest(Body):
    """What all of them have in common; meanings as for text."""

    model: Text | None = Field(default=None, description="served model (default: the one there is)")
    user: Text | None = Field(
        default=None,
        max_length=256,
        description="of no effect: whom texts are from is what their key says",
    )
    priority: int = Field(default=0, ge=MIN_PRIORITY, le=MAX_PRIORITY, description="class; lower is served first")
    cache_salt: Text | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="serve texts from prefixes of the same salt alone, and keep their own from others",
    )
    deadline_ms: int | None = Field(
        default=None, ge=1, lt=2**53, description="milliseconds after which a text is not worth its step any more"
    )
    truncate_prompt_tokens: int | None = Field(
        default=None,
        ge=-1,
        description="cut longer texts to this many tokens, those around a text counted; -1 is the model's length. A "
        "text that is too long is refused without it",
    )
    add_special_tokens: Annotated[Any, allow_only(True)] = True
    normalize: Annotated[Any, allow_only()] = None
    activation: Annotated[Any, allow_only()] = None
    use_activation: Annotated[Any, allow_only()] = None


class EmbeddingRequest(VectorRequest):
    """``POST /v1/embeddings``."""

    input: Input
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="base64: float32 in the order of bytes of x86"
    )
    dimensions: int | None = Field(
        default=None, ge=1, description="this number of first components, of length 1 again; for models made to be cut"
    )
    prompt_name: Text | None = Field(
        default=None, description="which of the prompts in the model's own files comes before each text"
    )
    input_type: Text | None = Field(default=None, min_length=1, description=f"{INPUT_TYPE}; as Voyage")
    output_dimension: int | None = Field(default=None, ge=1, description="other name of dimensions, as Voyage")
    output_dtype: Dtype = Field(
        default="float",
        description="as Voyage: int8 is each vector by its largest number, up to 127, and uint8 that plus 128; ubinary "
        "is a bit for each number above 0, eight in one, and binary that minus 128",
    )
    truncation: bool | None = Field(
        default=None, description="cut longer texts to the model's length, as Voyage; they are refused without it"
    )
    embed_dtype: Annotated[Any, allow_only("float32")] = "float32"
    endianness: Annotated[Any, allow_only("native", "little")] = "native"
    padding: Annotated[Any, allow_only("do_not_pad")] = "do_not_pad"
    truncation_side: Annotated[Any, allow_only("right")] = "right"
    messages: Annotated[Any, allow_only([])] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        if self.prompt_name is not None and any(isinstance(text, list) for text in self.input):
            raise ValueError("prompt_name: goes before texts, and input has token ids")
        if self.prompt_name is not None and self.input_type is not None:
            raise ValueError("prompt_name: is another way to give input_type: give one of them")
        self.dimensions = _one_of(("dimensions", self.dimensions), ("output_dimension", self.output_dimension))
        return self


class TextContent(Body):
    type: Literal["text"]
    text: NonEmpty


class CohereInput(Body):
    content: list[TextContent] = Field(
        min_length=1, max_length=MAX_TEXTS, description="texts of which one vector is made; newlines join them"
    )


class CohereEmbedRequest(VectorRequest):
    """``POST /v2/embed``."""

    texts: list[NonEmpty] | None = Field(default=None, min_length=1, max_length=MAX_TEXTS)
    inputs: list[CohereInput] | None = Field(
        default=None, min_length=1, max_length=MAX_TEXTS, description="in place of texts"
    )
    input_type: Text | None = Field(default=None, min_length=1, description=INPUT_TYPE)
    embedding_types: list[Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]] = Field(
        default=["float"],
        min_length=1,
        max_length=6,
        description="forms of each vector in the answer, as output_dtype of /v1/embeddings; base64 is of float32",
    )
    truncate: Literal["NONE", "START", "END"] = Field(
        default="END", description="where to cut longer texts; with START a prompt stays. NONE: they are refused"
    )
    max_tokens: int | None = Field(
        default=None,
        ge=3,
        description="cut longer texts to this many tokens, those around a text counted; the model's length is the most",
    )
    output_dimension: int | None = Field(default=None, ge=1, description="as dimensions of /v1/embeddings")
    truncate_prompt_tokens: Annotated[Any, allow_only()] = None
    images: Annotated[Any, allow_only()] = None

    @model_validator(mode="after")
    def _check_texts(self) -> Self:
        if (self.texts is None) == (self.inputs is None):
            given = "neither" if self.texts is None else "both"
            raise ValueError(f"texts: give exactly one of texts and inputs, not {given}")
        return self

    def read_texts(self) -> tuple[str, list[str]]:
        """Name of the field that has the texts, and the texts."""
        if self.texts is not None:
            return "texts", self.texts
        return "inputs", ["\n".join(part.text for part in each.content) for each in self.inputs or ()]


class PairsRequest(VectorRequest):
    """Request with queries and documents."""

    max_tokens_per_query: int | None = Field(
        default=None, ge=0, description="cut longer queries to this many tokens; 0 and null: none is cut"
    )
    max_tokens_per_doc: int | None = Field(
        default=None, ge=0, description="the same of documents, as Cohere and vLLM have it"
    )
    truncate: bool = Field(
        default=False, description="cut documents to what the model's length leaves; false: a longer one is refused"
    )
    truncation: bool | None = Field(default=None, description="other name of truncate, which it overrides")

    @property
    def cuts_documents(self) -> bool:
        return self.truncate if self.truncation is None else self.truncation


class Document(Body):
    text: NonEmpty


class RerankRequest(PairsRequest):
    """``POST /v1/rerank``."""

    truncate: bool = Field(
        default=True,
        description="cut documents to what the model's length leaves, as Cohere; false: a longer one is refused",
    )
    query: NonEmpty
    documents: list[NonEmpty | Document] = Field(min_length=1, max_length=MAX_TEXTS)
    top_n: int | None = Field(
        default=None, ge=0, description="answer with this number of the best ones; 0 and null for all"
    )
    top_k: int | None = Field(default=None, ge=1, description="other name of top_n, as Voyage")
    return_documents: bool = Field(default=True, description="answer with their texts, too")

    @model_validator(mode="after")
    def _check_count(self) -> Self:
        self.top_n = _one_of(("top_n", self.top_n), ("top_k", self.top_k))
        return self

    @property
    def texts(self) -> list[str]:
        return [item if isinstance(item, str) else item.text for item in self.documents]


class ScoreRequest(PairsRequest):
    """``POST /v1/score``: texts to compare, each under one of vLLM's names for them."""

    queries: Texts | None = Field(default=None, description="one text for all documents, or as many as those")
    documents: Texts | None = None
    text_1: Texts | None = Field(default=None, description="other name of queries")
    data_1: Texts | None = Field(default=None, description="the same")
    text_2: Texts | None = Field(default=None, description="other name of documents")
    data_2: Texts | None = Field(default=None, description="the same")
    items: Texts | None = Field(default=None, description="the same")

    def read_pairs(self) -> tuple[list[str], list[str], str, str]:
        """The queries, the documents, and what the body calls the two; raises :class:`InvalidValue`."""
        first, queries = self._read_only_field("queries", "text_1", "data_1")
        second, documents = self._read_only_field("documents", "text_2", "data_2", "items")
        if len(queries) not in (1, len(documents)):
            raise InvalidValue(
                first,
                f"{first}: must be one text or as many as {second}, which are {len(documents)}, not {len(queries)}",
            )
        return queries, documents, first, second

    def _read_only_field(self, *names: str) -> tuple[str, list[str]]:
        given = [(name, texts) for name in names if (texts := getattr(self, name)) is not None]
        if len(given) != 1:
            given_names = " and ".join(name for name, _ in given) or "none"
            raise InvalidValue(names[0], f"{names[0]}: give exactly one of {', '.join(names)}, not {given_names}")
        return given[0]

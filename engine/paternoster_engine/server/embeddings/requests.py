"""What clients may ask of a model that embeds. As for text, unknown fields are left out and named in the answer."""

from typing import Annotated, Any, Literal, Self

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
    embed_dtype: Annotated[Any, allow_only("float32")] = "float32"
    endianness: Annotated[Any, allow_only("native", "little")] = "native"
    padding: Annotated[Any, allow_only("do_not_pad")] = "do_not_pad"
    truncation_side: Annotated[Any, allow_only("right")] = "right"
    messages: Annotated[Any, allow_only([])] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        if self.prompt_name is not None and any(isinstance(text, list) for text in self.input):
            raise ValueError("prompt_name: goes before texts, and input has token ids")
        return self


class PairsRequest(VectorRequest):
    """Of queries and documents."""

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
    return_documents: bool = Field(default=True, description="answer with their texts, too")

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

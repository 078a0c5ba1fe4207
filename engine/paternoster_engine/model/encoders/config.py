"""What an encoder is: its sizes, what its layers do, and by which names its files have them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paternoster_engine.model.config import LARGEST_HEAD, LARGEST_SIZE, LONGEST_CONTEXT
from paternoster_engine.model.errors import UnsupportedModelError
from paternoster_engine.model.fields import Fields, shorten_value
from paternoster_engine.model.pooling import Pooling
from paternoster_engine.model.sampling_defaults import NO_DEFAULTS, SamplingDefaults
from paternoster_engine.model.unread_fields import ENCODER_CONFIG, RecordedFields, refuse_unread

MOST_LAYERS = 2**12
MOST_TOKEN_TYPES = 256
Activation = Literal["gelu", "gelu_tanh", "relu"]
ACTIVATIONS: Mapping[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
"""Names in ``config.json`` -> ours."""


@dataclass(frozen=True, slots=True)
class Encoders:
    """One family's own; all of them are post-norm, with learned positions, token types and biases everywhere."""

    prefix: str
    """Prefix of tensors' names where a head stands beside the encoder."""
    head: tuple[str, str]
    """The two matrices of a head that scores: a dense one with tanh, and the one that makes a number of it."""
    positions_from_padding: bool = False
    """A text's first position is the one after ``pad_token_id`` (fairseq's rule)."""


ROBERTA = Encoders("roberta.", ("classifier.dense", "classifier.out_proj"), positions_from_padding=True)
ENCODERS: Mapping[str, Encoders] = {
    "bert": Encoders("bert.", ("bert.pooler.dense", "classifier")),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
}
"""``model_type`` of a config.json."""


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """What the tensors' shapes and the forward pass are derived from."""

    architecture: str
    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_positions: int
    first_position: int
    """Position of a text's first token."""
    num_token_types: int
    norm_eps: float
    activation: Activation
    head: tuple[str, str] | None
    """Names of the matrices that make a score; None for a model that embeds."""
    score: Literal["sigmoid", "none"]
    """What is made of the number that the head gives."""
    pooling: Pooling

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """No defaults, since encoders do not sample."""
        return NO_DEFAULTS

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def context_length(self) -> int:
        """Tokens that have a position."""
        return self.num_positions - self.first_position

    def tensor_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The name and the shape of every tensor that is loaded, by the names of a file without a head."""
        hidden, inner = self.hidden_size, self.intermediate_size
        yield "embeddings.word_embeddings.weight", (self.vocab_size, hidden)
        yield "embeddings.position_embeddings.weight", (self.num_positions, hidden)
        yield "embeddings.token_type_embeddings.weight", (self.num_token_types, hidden)
        matrices = {f"attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")}
        matrices |= {"attention.output.dense": (hidden, hidden), "intermediate.dense": (inner, hidden)}
        matrices["output.dense"] = (hidden, inner)
        norms = ["embeddings.LayerNorm"]
        for number in range(self.num_layers):
            prefix = f"encoder.layer.{number}."
            for name, shape in matrices.items():
                yield f"{prefix}{name}.weight", shape
                yield f"{prefix}{name}.bias", shape[:1]
            norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
        for norm in norms:
            yield f"{norm}.weight", (hidden,)
            yield f"{norm}.bias", (hidden,)
        if self.head is not None:
            for name, outputs in zip(self.head, (hidden, 1), strict=True):
                yield f"{name}.weight", (outputs, hidden)
                yield f"{name}.bias", (outputs,)


def encoder_config(values: Mapping[str, Any], name: str, pooling: Pooling | None) -> EncoderConfig:
    """From a parsed ``config.json``; ``pooling``: what the files beside it say, None where there are none.

    Raises :class:`UnsupportedModelError` naming the field.
    """
    values = RecordedFields.wrap_fields(values)
    fields = Fields(values, "config.json")
    architecture = fields.read_text("model_type")
    family = ENCODERS[architecture]
    hidden = fields.read_integer("hidden_size", LARGEST_SIZE)
    heads = fields.read_integer("num_attention_heads", hidden)
    if hidden % heads or hidden // heads > LARGEST_HEAD:
        raise fields.describe_refusal(
            "num_attention_heads", heads, f"a divisor of {hidden} that leaves at most {LARGEST_HEAD}"
        )
    if (kind := fields.read_text("position_embedding_type", default="absolute")) != "absolute":
        raise fields.describe_refusal("position_embedding_type", kind, "'absolute'")
    activation = fields.read_text("hidden_act", default="gelu")
    if activation not in ACTIVATIONS:
        raise fields.describe_refusal("hidden_act", activation, f"one of {', '.join(ACTIVATIONS)}")
    positions = fields.read_integer("max_position_embeddings", LONGEST_CONTEXT, default=512)
    padding = (
        fields.read_integer("pad_token_id", LARGEST_SIZE, least=0, default=1) if family.positions_from_padding else -1
    )
    if padding + 1 >= positions:
        raise fields.describe_refusal("pad_token_id", padding, f"below {positions - 1}, so that there is a position")
    scores = any(item.endswith("ForSequenceClassification") for item in fields.read_texts("architectures", default=[]))
    if scores:
        _check_one_label(fields)
        pooling = Pooling("cls", 1, normalized=False, scores=True)
    refuse_unread(values, ENCODER_CONFIG)
    return EncoderConfig(
        architecture=architecture,
        name=fields.read_text("_name_or_path", default="") or name,
        vocab_size=fields.read_integer("vocab_size", LARGEST_SIZE),
        hidden_size=hidden,
        intermediate_size=fields.read_integer("intermediate_size", LARGEST_SIZE),
        num_layers=fields.read_integer("num_hidden_layers", MOST_LAYERS),
        num_heads=heads,
        num_positions=positions,
        first_position=padding + 1,
        num_token_types=fields.read_integer("type_vocab_size", MOST_TOKEN_TYPES, default=2),
        norm_eps=fields.read_positive("layer_norm_eps", default=1e-12),
        activation=ACTIVATIONS[activation],
        head=family.head if scores else None,
        score="none" if _is_identity(fields) else "sigmoid",
        pooling=pooling or Pooling("mean", hidden),
    )


def _check_one_label(fields: Fields) -> None:
    """Raises :class:`UnsupportedModelError` for a head with several classes."""
    labels = fields.read_mapping("id2label")
    count = len(labels) if labels else fields.read_integer("num_labels", LARGEST_SIZE, default=2)
    if count != 1:
        raise UnsupportedModelError(
            f"config.json: a classifier with {count} labels ({shorten_value(list(labels.values()))}): "
            "must have one, a score"
        )


def _is_identity(fields: Fields) -> bool:
    """Whether the score is the number itself, as cross-encoders' files say in one of two places."""
    activation = fields.read_mapping("sentence_transformers").get("activation_fn")
    activation = activation or fields.read_text("sbert_ce_default_activation_function", default="")
    if activation and str(activation).rpartition(".")[2] not in ("Identity", "Sigmoid"):
        raise fields.describe_refusal("activation_fn", activation, "torch's Identity or Sigmoid")
    return str(activation).endswith("Identity")

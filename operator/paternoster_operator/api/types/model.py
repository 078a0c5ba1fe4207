"""Which model is served, where it comes from and where a fetched one is kept; no logic but the address's grammar."""

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from paternoster_contract.limits import MAX_ALIASES
from paternoster_contract.quantity import ByteQuantity
from paternoster_operator.api.types.fields import Document, ImagePullPolicy, ServedName, SubdomainName
from paternoster_operator.api.types.scheduling import SecretName
from paternoster_operator.api.types.settings_fields import add_settings
from paternoster_sources.address import is_remote, parse_address
from paternoster_sources.errors import InvalidAddress
from paternoster_sources.image import ImageAddress, is_image, parse_image

SOURCE_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
_SOURCES = (
    r"package://[A-Za-z_][A-Za-z0-9_.]*",
    r"file:///.+",
    r"pvc://[a-z0-9]([-.a-z0-9]*[a-z0-9])?(/.*)?",
    rf"hf://{SOURCE_NAME}/{SOURCE_NAME}(/|[@/][^\s?#]+)?",
    rf"(s3|gs)://{SOURCE_NAME}(/[^\s?#]*)?",
    r"https://[^\s?#/]+/[^\s?#]+(#sha256=[0-9a-fA-F]{64})?",
    r"oci-(archive|layout):///[^\s?#]+(#[^\s#]*)?",
    r"oci://(localhost|[A-Za-z0-9-]+[.:][A-Za-z0-9.:-]+)/[^\s?#]+",
)
REMOTE = "^(hf|s3|gs|https|oci-archive|oci-layout)://"
"""How sources begin that a model is fetched from."""
FETCHED = "hf://, s3://, gs://, https://, oci-archive:// or oci-layout://"
"""The same for people."""
CLAIM = "pvc://"
IMAGE = "^oci://"
"""How a source begins that the nodes mount."""


def check_source(source: str) -> str:
    """``source``, if the one who fetches it can read it."""
    if is_remote(source) or is_image(source):
        try:
            parse_address(source) if is_remote(source) else parse_image(source)
        except InvalidAddress as error:
            raise ValueError(str(error).removeprefix(f"model {source!r}: ")) from error
    return source


def check_folder(source: str) -> str:
    """``source``, if it is one as above, and of a folder."""
    if is_remote(check_source(source)) and (file := parse_address(source).file) is not None:
        raise ValueError(f"must be a folder, not the file {file}")
    return source


class CacheEmptyDir(Document):
    """A folder of the node that goes with its pod."""

    size_limit: ByteQuantity | None = None
    """Most that models may take; the node must have as much ephemeral-storage free. Without it the pod has no limit of
    ephemeral-storage, unless resources.limits names one, to which the model then counts."""


class CacheHostPath(Document):
    """A folder of the node that stays: its next pod need not fetch again."""

    path: str = Field(max_length=1024, pattern=r"^(/[^/]+)+$")
    """Made where it is not there; user or group 65532 must be able to write it."""


class CacheClaim(Document):
    """A PersistentVolumeClaim of the namespace, which all replicas may share: one fetches, the others wait."""

    name: SubdomainName


class ModelCache(Document):
    """Where fetched models are kept; exactly one of these."""

    empty_dir: CacheEmptyDir | None = None
    host_path: CacheHostPath | None = None
    claim: CacheClaim | None = None


@add_settings("model", last=("credentials_secret_ref", "cache"))
class Model(Document):
    """Which model is served, and under what name."""

    source: Annotated[str, Field(max_length=2048, pattern=f"^({'|'.join(_SOURCES)})$"), AfterValidator(check_source)]
    """Where the weights are: package://python_package that carries one .gguf file; file:///path inside the engine's
    image or a mounted volume; pvc://claim/path on a PersistentVolumeClaim of the namespace, mounted read-only;
    oci://registry/name:tag, with @sha256:..., /path in the image or both after it, an image that the node mounts
    read-only; or where each pod fetches them from before its engine starts: hf://org/name, with @revision, /file.gguf
    or both after it; s3://bucket/prefix; gs://bucket/prefix; https://host/path/file.gguf, with #sha256=... after it;
    oci-archive:///path/image.tar and oci-layout:///path/folder on a volume of podTemplate, with #tag=...&path=..."""
    image_pull_policy: ImagePullPolicy | None = None
    """When the node asks the registry of an oci:// source: Always, for IfNotPresent not if it has the image, for Never
    never; when unset Always for the tag latest or none, IfNotPresent for others."""
    served_name: ServedName | None = None
    """Name that clients use; when unset the resource's own name, after its namespace and a slash where the operator
    wants names to begin so. It belongs to the fleet that claimed it first."""
    aliases: list[ServedName] = Field(default_factory=list, max_length=MAX_ALIASES)
    """Further names that clients may use; answers and metrics have servedName. A fleet has all of its names or, where
    one belongs to another fleet, those that it had."""
    credentials_secret_ref: SecretName | None = None
    """Secret whose keys are environment of the container that fetches the model: HF_TOKEN; AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_REGION; GOOGLE_SERVICE_ACCOUNT_KEY; also HF_ENDPOINT or AWS_ENDPOINT_URL. Of an oci://
    source the Secret that the node pulls with, of the type kubernetes.io/dockerconfigjson."""
    cache: ModelCache | None = None
    """Where a fetched model is kept; an emptyDir when unset."""

    if TYPE_CHECKING:  # what the catalogue reads
        task: ClassVar[str | None]

    @property
    def remote(self) -> bool:
        """Whether it is fetched before an engine starts."""
        return is_remote(self.source)

    @property
    def remote_file(self) -> str | None:
        """Name of the one file that a fetched model's address has, without its folders."""
        return (parse_address(self.source).file or "").rpartition("/")[2] or None

    @property
    def cache_limit(self) -> str | None:
        """Most that models may take of a pod's own storage; None where they take none of it, or any amount."""
        return None if self.cache is None or self.cache.empty_dir is None else self.cache.empty_dir.size_limit

    @property
    def claim(self) -> tuple[str, str] | None:
        """The PersistentVolumeClaim that has the model, and its path there, empty or after a slash."""
        if not self.source.startswith(CLAIM):
            return None
        claim, slash, path = self.source.removeprefix(CLAIM).partition("/")
        return claim, slash + path

    @property
    def image(self) -> ImageAddress | None:
        """The image that the nodes mount."""
        return parse_image(self.source) if is_image(self.source) else None

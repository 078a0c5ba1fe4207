"""Why a model cannot be fetched. A class's name is the reason, one word that a condition of Kubernetes may carry."""


class SourceError(ValueError):
    """The message names the address, the value and what is allowed."""

    transient = False
    """Whether the same call may succeed later with nothing changed here."""

    @property
    def reason(self) -> str:
        return type(self).__name__


class InvalidAddress(SourceError):
    """The address cannot be read."""


class SourceNotFound(SourceError):
    """There is no such repository, bucket, folder or file."""


class RevisionNotFound(SourceError):
    """The repository has no such branch, tag or commit."""


class Unauthorized(SourceError):
    """No credentials, wrong ones, or ones that do not reach this far."""


class GatedModel(SourceError):
    """The model's terms have to be accepted by the owner of the token first."""


class NoWeights(SourceError):
    """Nothing there that an engine reads."""


class UnsafeWeights(SourceError):
    """The weights are pickles alone, which run code when they are read."""


class AmbiguousWeights(SourceError):
    """Several models, and none was named."""


class UnsafeListing(SourceError):
    """The source says something that no honest source says: a name with ``..``, a negative size."""


class TooLarge(SourceError):
    """More files or bytes than a model has."""


class NotCached(SourceError):
    """The model is not in the cache, and the network is not to be asked."""


class Corrupted(SourceError):
    """The bytes that came are not those that were promised."""

    transient = True


class NoSpace(SourceError):
    """The disk or the cache's limit has no room for the model."""

    transient = True


class CacheUnusable(SourceError):
    """The cache's folder cannot be written."""

    transient = True


class Unreachable(SourceError):
    """The source did not answer, or broke off, as often as it was tried."""

    transient = True


class Interrupted(Exception):
    """One attempt failed in a way that another may not; never leaves this package."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        """``after``: seconds that the server asked to wait."""
        super().__init__(message)
        self.after = after

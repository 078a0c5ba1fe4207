"""Why a model cannot be served. Each message names the value and what is allowed."""


class ModelError(ValueError):
    """The model cannot be loaded."""


class ModelSourceError(ModelError):
    """The model's address leads to no usable file."""


class ModelUnavailable(ModelSourceError):
    """The model could not be fetched now; later it may be, with nothing changed here."""


class UnsupportedModelError(ModelError):
    """The file is readable, but asks for something that is not built in."""

from tests.load.conftest import server

__all__ = ["server"]

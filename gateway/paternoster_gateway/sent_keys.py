"""The keys that the gateway itself sends, to engines and to the operator."""

from collections.abc import Awaitable, Callable, Mapping

import aiohttp

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import derive_key

MOST_REMEMBERED = 10_000
"""Most peers recorded as accepting another key than the first; no gateway has that many replicas."""

Send = Callable[[Mapping[str, str]], Awaitable[aiohttp.ClientResponse]]


class SentKeys:
    """Keys for one purpose, each made from a root key: the first is sent, the next only where that is refused.

    While root keys are exchanged, the files of the gateway and of its peers change at different moments; each peer
    accepts a key of one of the roots.
    """

    def __init__(self, roots: KeyFiles | None, purpose: str) -> None:
        """Without ``roots`` no key is sent."""
        self._roots = roots
        self._purpose = purpose
        self._accepted_roots: dict[str, str] = {}
        """Root whose key a peer accepted last, where that is not the first root, by URL."""

    async def send(self, send: Send, url: str, subject: str = "") -> aiohttp.ClientResponse:
        """Return the answer to ``send``, which gets the headers with the key for ``subject``.

        Its status is 401 if ``url`` accepts none of the keys. Raises what ``send`` raises.
        """
        roots = self._roots.keys if self._roots else ()
        if not roots:
            return await send({})
        for root in (order := self._order_roots(url, roots)):
            answer = await send({"Authorization": f"Bearer {derive_key(root, self._purpose, subject)}"})
            if answer.status != 401:
                self._record_accepted(url, root, roots)
                break
            if root != order[-1]:
                answer.release()
        return answer

    def make_headers(self, subject: str = "") -> dict[str, str]:
        """Headers with the first root's key for ``subject``, of a request that another program sends; none without."""
        roots = self._roots.keys if self._roots else ()
        return {"Authorization": f"Bearer {derive_key(roots[0], self._purpose, subject)}"} if roots else {}

    def _order_roots(self, url: str, roots: tuple[str, ...]) -> tuple[str, ...]:
        last = self._accepted_roots.get(url)
        return (last, *(root for root in roots if root != last)) if last in roots else roots

    def _record_accepted(self, url: str, root: str, roots: tuple[str, ...]) -> None:
        self._accepted_roots.pop(url, None)
        if root != roots[0]:
            self._accepted_roots[url] = root
            if len(self._accepted_roots) > MOST_REMEMBERED:
                del self._accepted_roots[next(iter(self._accepted_roots))]

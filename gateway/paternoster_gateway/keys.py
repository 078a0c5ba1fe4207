"""The keys that the gateway itself sends, to engines and to the operator."""

from collections.abc import Awaitable, Callable, Mapping

import aiohttp

from paternoster_contract.access.key_files import KeyFiles
from paternoster_contract.access.keys import derive

MOST_REMEMBERED = 10_000
"""Peers that took another key than the first: more of them than replicas behind any gateway are of no use."""

Send = Callable[[Mapping[str, str]], Awaitable[aiohttp.ClientResponse]]


class SentKeys:
    """Keys for one purpose, each made from a root key: the first is sent, the next only where that is refused.

    While a root is exchanged, its files change at different moments here and there, and every peer takes one of them.
    """

    def __init__(self, roots: KeyFiles | None, purpose: str) -> None:
        """Without ``roots`` no key is sent."""
        self._roots = roots
        self._purpose = purpose
        self._taken: dict[str, str] = {}
        """The root whose key a peer took last, by URL, where that was not the first."""

    async def send(self, send: Send, url: str, subject: str = "") -> aiohttp.ClientResponse:
        """The answer to ``send``, which is given the headers with the key for ``subject``.

        It is 401 if ``url`` took none of the keys. Raises what ``send`` raises.
        """
        roots = self._roots.keys if self._roots else ()
        if not roots:
            return await send({})
        for root in (order := self._order(url, roots)):
            answer = await send({"Authorization": f"Bearer {derive(root, self._purpose, subject)}"})
            if answer.status != 401:
                self._remember(url, root, roots)
                break
            if root != order[-1]:
                answer.release()
        return answer

    def _order(self, url: str, roots: tuple[str, ...]) -> tuple[str, ...]:
        last = self._taken.get(url)
        return (last, *(root for root in roots if root != last)) if last in roots else roots

    def _remember(self, url: str, root: str, roots: tuple[str, ...]) -> None:
        self._taken.pop(url, None)
        if root != roots[0]:
            self._taken[url] = root
            if len(self._taken) > MOST_REMEMBERED:
                del self._taken[next(iter(self._taken))]

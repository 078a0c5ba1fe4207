"""How other routers choose a replica for a prompt, as their documentation has it; with our index where they may."""

from collections.abc import Collection, Mapping

from paternoster_contract.routing import Replica
from paternoster_gateway.prefixes.prefix_index import NO_PREFIX, Prefix
from paternoster_gateway.routing.least_loaded import ReadyReplicas
from paternoster_gateway.routing.prefix_routing import Pick, PrefixRouting, PromptChain


class LlmdRouting(PrefixRouting):
    """llm-d's default: `prefix-cache-affinity-filter`, then `token-load-scorer`; its thresholds, and exact prefixes."""

    AFFINITY = 0.80
    MAX_PENALTY_SECONDS = 18.0

    def __init__(self, peak_tokens_per_second: float) -> None:
        """``peak_tokens_per_second``: `peakPrefillThroughput`, which llm-d has its users measure."""
        super().__init__()
        self._peak = peak_tokens_per_second

    def pick(
        self,
        model: str,
        prompt: PromptChain,
        ready: ReadyReplicas,
        avoid: Collection[str],
        in_flight: Mapping[str, int],
        now: float,
    ) -> tuple[Replica, Pick] | None:
        urls = [url for url in ready.urls if url not in avoid]
        if not urls:
            return None
        found = self.find(model, prompt, now)
        near = [url for url in urls if 1 - prompt.rest_behind(found.get(url, NO_PREFIX)) / prompt.size >= self.AFFINITY]
        load = self._waiting
        if near and (_least(load, near) - _least(load, urls)) / self._peak <= self.MAX_PENALTY_SECONDS:
            urls = near
        least = _least(load, urls)
        return _picked(self._random.choice([u for u in urls if load.get(u, 0.0) <= least]), ready, found)


class SmgRouting(PrefixRouting):
    """SMG's `cache_aware`: a tree of the texts that each worker was sent, and its thresholds."""

    MATCH = 0.3
    IMBALANCE, IMBALANCE_RATIO = 64, 1.5

    def _store_sent(self, model: str, prompt: PromptChain, url: str, now: float) -> None:
        self._remember_history(model, prompt, url)

    def pick(
        self,
        model: str,
        prompt: PromptChain,
        ready: ReadyReplicas,
        avoid: Collection[str],
        in_flight: Mapping[str, int],
        now: float,
    ) -> tuple[Replica, Pick] | None:
        urls = [url for url in ready.urls if url not in avoid]
        if not urls:
            return None
        found = self._sent.find(prompt.digests)
        loads = {url: in_flight.get(url, 0) for url in urls}
        low, high = min(loads.values()), max(loads.values())
        if high - low > self.IMBALANCE and high > self.IMBALANCE_RATIO * low:
            return _picked(min(urls, key=lambda url: loads[url]), ready, found)
        best = max(urls, key=lambda url: found.get(url, NO_PREFIX).pieces)
        if 1 - prompt.rest_behind(found.get(best, NO_PREFIX)) / prompt.size <= self.MATCH:
            best = min(urls, key=self._sent.count)
        return _picked(best, ready, found)


def _least(load: Mapping[str, float], urls: Collection[str]) -> float:
    return min(load.get(url, 0.0) for url in urls)


def _picked(url: str, ready: ReadyReplicas, found: Mapping[str, Prefix]) -> tuple[Replica, Pick]:
    promised = max((prefix.tokens for prefix in found.values()), default=0)
    return ready.get_replica(url), Pick(found.get(url, NO_PREFIX), promised, 0.0, len(ready))

"""Which replica answers a prompt with the least delay to all: by what it holds of it, and by what is queued there."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from paternoster_contract.routing import Replica
from paternoster_gateway.prefixes.expected_pieces import ExpectedPieces
from paternoster_gateway.prefixes.prefix_index import NO_PREFIX, Prefix, PrefixIndex
from paternoster_gateway.routing.cache_credit import CacheCredit
from paternoster_gateway.routing.least_loaded import ReadyReplicas
from paternoster_gateway.routing.pace import ReplicaPace

TOKENS_PER_BYTE = 0.25
"""Until replicas of the fleet report how many tokens texts have."""
MAX_TOKENS_PER_BYTE = 4.0
"""A prompt has more tokens than its text by its template alone; a report above this is not believed."""
LEARN_SHARE = 0.1
"""Share of a report in the mean."""
MAX_SENT_PIECES = 31_250
"""Pieces remembered of what a replica was sent that publishes nothing; llm-d remembers as many blocks."""
MAX_CANDIDATES = 64
"""Replicas that are compared for a request; of more, those that hold most of it and others by chance."""


@dataclass(frozen=True, slots=True)
class PromptChain:
    """A text as a chain of pieces."""

    digests: Sequence[int]
    """Digests of all text up to the end of each piece."""
    ends: Sequence[int]
    """Bytes up to the end of each piece."""
    size: int
    """Bytes of the whole text."""

    def rest_behind(self, prefix: Prefix) -> int:
        """Bytes beyond ``prefix``."""
        return self.size - self.ends[prefix.pieces - 1] if prefix.pieces else self.size


class PromptTokens(NamedTuple):
    """What an engine reports of a prompt that it has computed."""

    prompt: int
    cached: int
    """How many of them it had cached."""


@dataclass(slots=True)
class Pick:
    """Why a replica got a request."""

    held: Prefix
    """What is cached of the prompt at the replica that was chosen."""

    promised_tokens: int
    """Prompt tokens cached at the replica that holds most of them."""
    seconds: float
    """Expected to be added to the times to first bytes, its own and those of requests behind it."""
    candidates: int
    costs: Sequence[tuple[str, float]] = ()
    """Seconds of every candidate, by its URL."""


@dataclass(slots=True)
class SentRequest:
    """A request at a replica, as it was when it was sent."""

    at: float
    tokens: int
    """Prompt tokens that the replica has to compute for it."""
    all_tokens: float
    """Prompt tokens by the gateway's count."""
    claimed: float
    """Tokens of these that are cached there by its claims."""
    ahead: int
    """Prompt tokens that were to be computed there before."""
    beside: int
    """Requests there before."""
    cached: int
    """Prompt tokens that it holds, by its reports."""
    prompt: PromptChain
    pace: ReplicaPace
    expected_seconds: float | None = None
    """Expected time to its first byte; None until answers of the fleet have shown how long that takes."""


class PrefixRouting:
    """The caches of all replicas by URL, what waits at each, and the pace of each fleet."""

    def __init__(self, seed: int | str = 0) -> None:
        """``seed``: of the choices among equals, which gateways side by side must not make alike."""
        self.reported = PrefixIndex()
        """What replicas publish; a replica that is not in it publishes nothing that is believed."""
        self._expected = ExpectedPieces()
        """What publishing replicas were sent a moment ago."""
        self._isolates: dict[str, bool] = {}
        """Whether the cache of a publishing replica is parted by tenant, by URL."""
        self._sent = PrefixIndex()
        """What other replicas were sent."""
        self._credit = CacheCredit()
        self._waiting: dict[str, int] = {}
        """Prompt tokens to compute for requests that wait for their first byte."""
        self._paces: defaultdict[str, ReplicaPace] = defaultdict(ReplicaPace)
        self._tokens_per_byte: dict[str, float] = {}
        self._random = Random(seed)

    def pick(
        self,
        model: str,
        prompt: PromptChain,
        ready: ReadyReplicas,
        avoid: Collection[str],
        in_flight: Mapping[str, int],
        now: float,
    ) -> tuple[Replica, Pick] | None:
        """The replica of least cost outside ``avoid``, and why; None where there is none."""
        found = self.find(model, prompt, now)
        urls = self._find_candidates(ready, found, avoid)
        if not urls:
            return None
        pace, per_byte = self.get_pace(model), self.tokens_per_byte(model)
        per_token, per_request = pace.seconds_per_token, pace.seconds_per_request
        waiting, size, ends = self._waiting, prompt.size, prompt.ends
        factor = pace.delay_factor(len(ready), now)
        costs, savings, promised = [], [], 0
        for url in urls:
            own = 0.0
            if (held := found.get(url)) is not None:
                own = ends[held.pieces - 1] * self.find_credit(url)
                promised = max(promised, held.tokens)
            tokens = waiting.get(url, 0) + factor * per_byte * (size - own)
            costs.append(per_token * tokens + per_request * in_flight.get(url, 0))
            savings.append(per_token * factor * per_byte * own)
        # No estimate is finer than a piece.
        margin = per_token * per_byte * size / len(prompt.digests)
        at, ignored = self._pick_least(urls, costs, margin, in_flight), False
        by_claims = self._is_won_by_claims(at, costs, savings, margin)
        while by_claims and not self._credit.may_win(model, urls[at], len(ready)):
            costs[at] += savings[at]
            savings[at] = 0.0
            at, ignored = self._pick_least(urls, costs, margin, in_flight), True
            by_claims = self._is_won_by_claims(at, costs, savings, margin)
        url = urls[at]
        self._credit.count_pick(model, url, by_claims=by_claims, ignored=ignored)
        return ready.get_replica(url), Pick(
            found.get(url, NO_PREFIX), promised, costs[at], len(urls), tuple(zip(urls, costs, strict=True))
        )

    def _pick_least(
        self, urls: Sequence[str], costs: Sequence[float], margin: float, in_flight: Mapping[str, int]
    ) -> int:
        """Its place in ``urls``."""
        most = min(costs) + margin
        near = [at for at, cost in enumerate(costs) if cost <= most]
        if len(near) == 1:
            return near[0]
        if len(near) > 2:
            near = self._random.sample(near, 2)
        return min(near, key=lambda at: (in_flight.get(urls[at], 0), self._random.random()))

    def _is_won_by_claims(self, at: int, costs: list[float], savings: Sequence[float], margin: float) -> bool:
        """Whether another replica might have been chosen, had the one at ``at`` held nothing."""
        if not savings[at] or len(costs) < 2:
            return False
        return costs[at] + savings[at] + margin >= min(costs[:at] + costs[at + 1 :])

    def find(self, model: str, prompt: PromptChain, now: float) -> Mapping[str, Prefix]:
        """The longest beginning of ``prompt`` that each replica holds, or was sent."""
        found = dict(self.reported.find(prompt.digests))
        for url, prefix in self._sent.find(prompt.digests).items():
            if prefix.pieces > found.get(url, NO_PREFIX).pieces:
                found[url] = prefix
        for url, pieces in self._expected.find(prompt.digests, now).items():
            if pieces > found.get(url, NO_PREFIX).pieces:
                found[url] = Prefix(pieces, round(self.tokens_per_byte(model) * prompt.ends[pieces - 1]))
        return found

    def begin_report(self, url: str, *, isolates_tenants: bool) -> None:
        """The replica at ``url`` publishes what it holds from now on, and nothing before counts."""
        self.remove_replica(url)
        self.reported.store(url, ())
        self._isolates[url] = isolates_tenants

    def end_report(self, url: str) -> None:
        """What the replica at ``url`` published is not believed any more."""
        if url in self._isolates:
            self.remove_replica(url)

    def isolates_tenants(self, urls: Collection[str]) -> bool:
        """Whether chains have the tenant: where any of these replicas has caches by tenant, or none publishes its own.

        What one tenant sent is not found by another one, whatever an engine does that does not state it.
        """
        published = [self._isolates[url] for url in urls if url in self._isolates]
        return any(published) if published else True

    def find_credit(self, url: str) -> float:
        """The part of what a replica reports to hold that it delivers; from 0 to 1."""
        return self._credit.find_credit(url)

    def send(self, model: str, prompt: PromptChain, pick: Pick, url: str, beside: int, now: float) -> SentRequest:
        """Count what a replica has to compute for a request that is sent there now, and remember what it will hold."""
        per_byte = self.tokens_per_byte(model)
        ahead, all_tokens = self._waiting.get(url, 0), per_byte * prompt.size
        claimed = all_tokens - per_byte * prompt.rest_behind(pick.held)
        tokens = round(all_tokens - claimed * self.find_credit(url) if claimed else all_tokens)
        self._waiting[url] = ahead + tokens
        pace = self.get_pace(model)
        pace.observe_work(tokens, now)
        self._store_sent(model, prompt, url, now)
        expected = pace.expect_seconds(tokens + ahead, beside) if pace.has_samples else None
        return SentRequest(now, tokens, all_tokens, claimed, ahead, beside, pick.held.tokens, prompt, pace, expected)

    def _store_sent(self, model: str, prompt: PromptChain, url: str, now: float) -> None:
        if url in self.reported:
            self._expected.add(url, prompt.digests, now)
        else:
            self._remember_history(model, prompt, url)

    def _remember_history(self, model: str, prompt: PromptChain, url: str) -> None:
        per_byte = self.tokens_per_byte(model)
        pieces = [(digest, round(per_byte * end)) for digest, end in zip(prompt.digests, prompt.ends, strict=True)]
        self._sent.store_expected(url, pieces, MAX_SENT_PIECES)

    def on_prompt_tokens(self, model: str, url: str, sent: SentRequest, tokens: PromptTokens) -> PromptTokens | None:
        """A replica reports how many tokens a prompt has, and how many it had cached; None where that cannot be."""
        size = sent.prompt.size
        if not 0 < tokens.prompt <= MAX_TOKENS_PER_BYTE * size or not 0 <= tokens.cached <= tokens.prompt:
            return None
        before = self.tokens_per_byte(model)
        self._tokens_per_byte[model] = before + (tokens.prompt / size - before) * LEARN_SHARE
        if sent.cached:
            self._credit.observe_report(url, sent.cached, tokens.cached)
        return tokens

    def on_first_byte(
        self, model: str, sent: SentRequest, url: str, now: float, *, served: bool, tokens: PromptTokens | None = None
    ) -> None:
        """The prompt is computed, or will not be; ``tokens``: as the replica reports them."""
        rest = self._waiting.pop(url, 0) - sent.tokens
        if rest > 0:
            self._waiting[url] = rest
        if tokens is not None:
            sent.tokens = round(tokens.prompt - tokens.cached * self.find_credit(url))
        if served:
            sent.pace.observe_first_byte(sent.tokens + sent.ahead, sent.beside, now - sent.at)
            self._credit.observe_first_byte(
                model,
                url,
                prompt=sent.all_tokens,
                claimed=sent.claimed if tokens is None else min(sent.claimed, tokens.cached),
                ahead=sent.ahead,
                beside=sent.beside,
                seconds=now - sent.at,
            )

    def retain_only(self, models: Collection[str], urls: Mapping[str, str], ready: Collection[str]) -> None:
        """Forget all other fleets and replicas: they have left the routing table.

        ``urls``: each with the namespace of its fleet. ``ready``: of these; engines of others may have restarted, and
        so lost what they were sent.
        """
        self.reported.namespaces = self._sent.namespaces = urls
        for url in set(self._sent.replicas) - set(ready):
            self.forget_sent(url)
        for replica in {*self.reported.replicas, *self._sent.replicas} - set(urls):
            self.remove_replica(replica)
        self._credit.retain_only(set(models), set(urls))
        for by_model in (self._paces, self._tokens_per_byte):
            for model in by_model.keys() - set(models):
                del by_model[model]

    def forget_sent(self, url: str) -> None:
        """Forget what a replica was sent that publishes nothing: its engine may have restarted."""
        self._sent.remove_replica(url)

    def remove_replica(self, url: str) -> None:
        """Forget what a replica holds: its engine has restarted, or is gone."""
        self.reported.remove_replica(url)
        self._sent.remove_replica(url)
        self._isolates.pop(url, None)
        self._expected.remove_replica(url)

    def get_pace(self, model: str) -> ReplicaPace:
        return self._paces[model]

    def tokens_per_byte(self, model: str) -> float:
        return self._tokens_per_byte.get(model, TOKENS_PER_BYTE)

    def _find_candidates(self, ready: ReadyReplicas, found: Mapping[str, Prefix], avoid: Collection[str]) -> list[str]:
        urls = [url for url in ready.urls if url not in avoid]
        if len(urls) <= MAX_CANDIDATES:
            return urls
        least = ready.pick(avoid=avoid, turn=self._random.randrange(len(urls)))
        chosen = {least.url} if least else set()
        holders = [url for url in found if url in ready.urls and url not in avoid]
        if len(holders) > MAX_CANDIDATES // 2:
            self._random.shuffle(holders)
            holders.sort(key=lambda url: -found[url].pieces)
        chosen.update(holders[: MAX_CANDIDATES // 2])
        chosen.update(self._random.sample(urls, MAX_CANDIDATES // 2))
        return sorted(chosen)

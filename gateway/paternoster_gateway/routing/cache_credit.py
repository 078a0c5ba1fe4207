"""What replicas deliver of the prefixes that they claim to hold, by the gateway's own clock. Pure.

A replica states what it has cached, and by a header what of it a prompt found. Neither is believed alone: a prompt that
is cached has its first byte sooner than one that is not, by the time that the tokens between take. That time is learnt
from prompts of the same fleet of which little is cached.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from paternoster_gateway.routing.pace import ReplicaPace

DOUBT_TOKENS = 4096.0
"""Cached tokens that a replica that is new is taken to have delivered; they fade as answers come."""
REPORT_FADE = 0.9
"""Factor by which a replica's own reports lose weight with each report."""
TIME_SHARE = 0.03
"""Share of the measured credit that is forgotten with each measurement: times are less exact than reports."""
REGAIN_SHARE = 0.05
"""Share of it that is forgotten with each answer that claims had no part in, so that they are measured anew."""
UNCACHED_SHARE = 0.25
"""Most of a prompt that may be cached where its time is one of a prompt that is not."""
LEVEL_SHARE = 0.2
"""Share of a prompt without cache in how much later than expected such prompts have been of late."""
SPREAD_SHARE = 0.05
FULL_SHARE = 0.5
"""Delivered part from which claims count in full: the times of a busy fleet show no more."""
CONFIRMED_SHARE = 0.75
"""Delivered part below which the requests that a replica wins by its claims are bounded."""
RECENT_PICKS = 64
MOST_UNMEASURED = 16
"""Picks that claims decide while nothing is measured; of more, one in ``UNMEASURED_EVERY`` ignores them."""
UNMEASURED_EVERY = 4


@dataclass(slots=True)
class _Delivered:
    """Cached tokens that were expected, and how many of them came; both fade."""

    expected: float = DOUBT_TOKENS
    delivered: float = DOUBT_TOKENS

    @property
    def share(self) -> float:
        return self.delivered / self.expected if self.expected > 0 else 1.0

    def add(self, expected: float, delivered: float, fade: float) -> None:
        self.expected, self.delivered = fade * self.expected + expected, fade * self.delivered + delivered


@dataclass(slots=True)
class _Replica:
    reported: _Delivered = field(default_factory=_Delivered)
    measured: _Delivered = field(default_factory=_Delivered)
    credit: float = 1.0
    """Credit by reports and by times."""

    def update_credit(self) -> None:
        self.credit = self.reported.share * min(1.0, max(0.0, self.measured.share) / FULL_SHARE)


@dataclass(slots=True)
class _Fleet:
    uncached: ReplicaPace = field(default_factory=ReplicaPace)
    """Pace of prompts of which little is cached."""
    late: float = 0.0
    """Seconds that such prompts have taken more than ``uncached`` expects, of late."""
    spread: float = 0.0
    """Squared seconds by which they differ from it."""
    picks: deque[str | None] = field(default_factory=lambda: deque(maxlen=RECENT_PICKS))
    """The last ones: which replica its claims decided for, None where load did."""
    decided: int = 0
    """Picks that claims decided, where no prompt without cache was measured."""


class CacheCredit:
    """Credit of each replica's claims by its URL, and by fleet what prompts without a cache take."""

    def __init__(self) -> None:
        self._replicas: defaultdict[str, _Replica] = defaultdict(_Replica)
        self._fleets: defaultdict[str, _Fleet] = defaultdict(_Fleet)

    def find_credit(self, url: str) -> float:
        """The part of what a replica claims to hold that it delivers; from 0 to 1."""
        replica = self._replicas.get(url)
        return 1.0 if replica is None else replica.credit

    def may_win(self, model: str, url: str, replicas: int) -> bool:
        """Whether the claims of a replica may decide for it now.

        Those of one whose times do not confirm them win it no more than twice an equal share of the fleet's requests,
        or three quarters of those of two replicas. Some are ignored while there is nothing to measure them by.
        """
        fleet = self._fleets.get(model)
        if fleet is None:
            return True
        if not fleet.uncached.has_samples:
            return fleet.decided < MOST_UNMEASURED or fleet.decided % UNMEASURED_EVERY != 0
        replica = self._replicas.get(url)
        if replica is None or replica.measured.share >= CONFIRMED_SHARE:
            return True
        return fleet.picks.count(url) < RECENT_PICKS * min(2 / replicas, (1 + 1 / replicas) / 2)

    def count_pick(self, model: str, url: str, *, by_claims: bool, ignored: bool) -> None:
        """Count a choice; ``by_claims``: the claims of the replica at ``url`` decided, ``ignored``: some were not."""
        fleet = self._fleets[model]
        fleet.picks.append(url if by_claims else None)
        fleet.decided += by_claims or ignored

    def observe_report(self, url: str, claimed: int, cached: int) -> None:
        """A replica reports that it had ``cached`` of the ``claimed`` tokens: less counts against it, whatever came."""
        replica = self._replicas[url]
        replica.reported.add(claimed, min(cached, claimed), REPORT_FADE)
        replica.update_credit()

    def observe_first_byte(
        self, model: str, url: str, *, prompt: float, claimed: float, ahead: float, beside: int, seconds: float
    ) -> None:
        """A first byte came after ``seconds``; the others are tokens by the gateway's count, and requests beside it."""
        fleet = self._fleets[model]
        pace = fleet.uncached
        if claimed <= UNCACHED_SHARE * prompt:
            if pace.has_samples:
                late = seconds - pace.expect_seconds(prompt - claimed + ahead, beside)
                fleet.late += LEVEL_SHARE * (late - fleet.late)
                fleet.spread += SPREAD_SHARE * (late * late - fleet.spread)
            pace.observe_first_byte(prompt - claimed + ahead, beside, seconds)
            if (replica := self._replicas.get(url)) is not None:
                replica.measured.add(REGAIN_SHARE * DOUBT_TOKENS, REGAIN_SHARE * DOUBT_TOKENS, 1 - REGAIN_SHARE)
                replica.update_credit()
        elif pace.has_samples:
            saving = pace.seconds_per_token * claimed
            saved = pace.expect_seconds(prompt + ahead, beside) + fleet.late - seconds
            # As far above all that was claimed as below nothing: what is not measured at all comes to a half.
            part = min(2.0, max(-1.0, saved / saving))
            replica = self._replicas[url]
            # What is lost in how much times differ anyway counts for little, and so does not move it by chance.
            weight = saving**2 / (saving**2 + fleet.spread)
            replica.measured.add(weight * claimed, weight * part * claimed, 1 - TIME_SHARE * weight)
            replica.update_credit()

    def retain_only(self, models: set[str], urls: set[str]) -> None:
        """Forget all other fleets and replicas. A replica that only began its reports anew keeps what it has."""
        for url in self._replicas.keys() - urls:
            del self._replicas[url]
        for model in self._fleets.keys() - models:
            del self._fleets[model]

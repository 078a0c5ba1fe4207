"""AIBrix by hand: APA's ratio, KPA's two windows, the guard for pending pods, the cooldown as its source has it."""

from peer_policies.aibrix import Observed, PodAutoscaler, PodAutoscalerSettings
from peer_policies.aibrix_apa import apa
from peer_policies.aibrix_kpa import KpaSettings, kpa
from peer_policies.bounds import Bounds

APA = PodAutoscalerSettings()
KPA = KpaSettings()


def test_apa_up_in_proportion_and_at_most_twice() -> None:
    assert apa(APA, Observed(0.6, 0.6), 4) == (5, 0.6)
    assert apa(APA, Observed(1.0, 1.0), 4)[0] == 8
    assert apa(PodAutoscalerSettings(target_value=0.2), Observed(0.9, 0.9), 4)[0] == 8


def test_apa_holds_within_a_tenth() -> None:
    assert apa(APA, Observed(0.54, 0.9), 4)[0] == 4
    assert apa(APA, Observed(0.46, 0.1), 4)[0] == 4


def test_apa_down_at_most_to_half() -> None:
    assert apa(APA, Observed(0.4, 0.4), 5)[0] == 4
    assert apa(APA, Observed(0.01, 0.01), 5)[0] == 2


def test_kpa_reads_a_mean_as_a_total() -> None:
    # At its target a pod wants one pod, however many there are; the rate makes it half of them.
    assert kpa(KPA, Observed(0.5, 0.5), 6)[0] == 3
    assert kpa(KPA, Observed(0.5, 0.5), 1)[0] == 1


def test_kpa_with_the_sum_is_knatives() -> None:
    assert kpa(KPA, Observed(2.1, 2.1), 4) == (5, 2.1)
    assert kpa(KPA, Observed(2.1, 3.9), 4) == (5, 2.1)


def test_kpa_panics_above_twice_the_stable_value() -> None:
    assert kpa(KPA, Observed(1.0, 2.2), 4) == (5, 2.2)
    assert kpa(KPA, Observed(1.0, 2.0), 4) == (2, 1.0)
    assert kpa(KPA, Observed(0.0, 1.4), 1) == (2, 1.4)


def test_the_window_is_a_mean_over_pods_and_time(observe, stats) -> None:
    policy = PodAutoscaler(
        PodAutoscalerSettings(observe_window_seconds=20.0, panic_window_seconds=10.0),
        Bounds(1, 10),
        apa,
        in_proportion=True,
    )
    low, high = stats(kv_blocks_used=400), stats(kv_blocks_used=600)
    assert policy.decide(observe(0, [low, high])).replicas == 2
    # (0.5 + 0.9) / 2 = 0.7, and 2 * 0.7 / 0.5 = 2.8.
    assert policy.decide(observe(10, [stats(kv_blocks_used=900)] * 2)).replicas == 3


def test_pending_pods_count_as_idle_upwards_and_as_busy_downwards(observe, stats) -> None:
    def decide(kv: int, ready: int, replicas: int) -> int:
        policy = PodAutoscaler(APA, Bounds(1, 20), apa, in_proportion=True)
        return policy.decide(observe(0, [stats(kv_blocks_used=kv)] * ready, replicas=replicas)).replicas

    # 4 pods at 0.9 want 8; with 2 of them pending, 0.45 a pod wants 3.6, and up is never down.
    assert decide(900, 4, 4) == 8
    assert decide(900, 2, 4) == 4
    # 3 of 4 ready at 0.9: 0.675 a pod wants 5.4.
    assert decide(900, 3, 4) == 6
    # 4 pods at 0.1 want 2, the step's limit; with 2 pending (0.1 * 2 + 0.5 * 2) / 0.5 = 2.4.
    assert decide(100, 4, 4) == 2
    assert decide(100, 2, 4) == 3


def test_kpas_guard_has_no_pods_in_its_formula(observe, stats) -> None:
    def decide(kv: int, ready: int, replicas: int, **kind: bool) -> int:
        policy = PodAutoscaler(KpaSettings(target_value=0.1), Bounds(1, 20), kpa, **kind)
        return policy.decide(observe(0, [stats(kv_blocks_used=kv)] * ready, replicas=replicas)).replicas

    # A mean of 0.9 wants 9, and twice 4 is the most; with 2 of 4 pending 0.45 wants 5.
    assert decide(900, 4, 4) == 8
    assert decide(900, 2, 4) == 5
    # A sum of 1.8 wants 18 whatever is pending.
    assert decide(900, 2, 4, summed=True) == 8
    # A mean of 0.1 wants 1, and half of 4 is the least; two pending pods at target and 0.1 * 2 want 4.
    assert decide(100, 4, 4) == 2
    assert decide(100, 2, 4) == 4
    # A sum of 0.08 and two at target want 2.8.
    assert decide(40, 2, 4, summed=True) == 3


def test_the_cooldown_takes_the_lowest_wish_of_its_window(observe, stats) -> None:
    settings = PodAutoscalerSettings(observe_window_seconds=10.0, panic_window_seconds=10.0)
    policy = PodAutoscaler(settings, Bounds(1, 20), apa, in_proportion=True)
    assert policy.decide(observe(0, [stats(kv_blocks_used=100)] * 8)).replicas == 4
    # The wish is 7 of 8 now, but 4 was wished before, and four pods go at once.
    assert policy.decide(observe(10, [stats(kv_blocks_used=430)] * 8)).replicas == 4
    # Outside the window it is forgotten.
    assert policy.decide(observe(311, [stats(kv_blocks_used=430)] * 8)).replicas == 7


def test_bounds_and_silence(observe, stats) -> None:
    policy = PodAutoscaler(APA, Bounds(2, 5), apa, in_proportion=True)
    assert policy.decide(observe(0, [stats(kv_blocks_used=990)] * 4)).replicas == 5
    assert policy.decide(observe(10, [], replicas=4)).replicas == 4

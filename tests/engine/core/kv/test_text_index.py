"""The pieces that are reported are those that a request for their text would find, after every step of any trace."""

from hypothesis import given, settings
from tests.engine.core.kv.followed_engine import FollowedEngine
from tests.engine.core.traces import NUM_TRACES, Arrival, arrivals, caps, configs, play

from paternoster_engine.core.config import SchedulerConfig


@settings(max_examples=NUM_TRACES, deadline=None)
@given(configs, arrivals, caps)
def test_reported_pieces_equal_the_pool_on_any_trace(
    config: SchedulerConfig, traffic: list[Arrival], caps: list[int]
) -> None:
    engine = FollowedEngine(config)
    play(engine, traffic, caps)
    if config.prefix_cache:
        assert not engine.missing()
    engine.scheduler.reset_prefix_cache()
    engine.follow()
    assert engine.reported == {}
    assert engine.index.num_rows == engine.index.num_pieces == 0

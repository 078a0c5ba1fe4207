"""Sequences that another engine began lead those that none has admitted."""

from paternoster_contract.stream_journal import JournalEntry
from paternoster_engine.core.config import SchedulerConfig
from paternoster_engine.core.request import Request
from paternoster_engine.core.request_spec import RequestSpec
from paternoster_engine.core.sampling_params import SamplingParams
from paternoster_engine.core.scheduler import Scheduler
from paternoster_engine.server.continuation.restored import restore_output

CONFIG = SchedulerConfig(max_num_seqs=1, max_batched_tokens=64, max_model_len=64, block_size=8, num_blocks=16)


def request(name: str) -> Request:
    return Request(RequestSpec(name, [1, 2, 3], SamplingParams(max_tokens=8)))


def test_a_stream_that_goes_on_leads_those_that_have_not_begun() -> None:
    scheduler = Scheduler(CONFIG)
    waiting, moved = [request(f"new-{number}") for number in range(3)], request("moved")
    restore_output([moved], [JournalEntry(0, (5, 6))], vocab_size=10)
    for each in (*waiting, moved):
        scheduler.add(each)
    batch = scheduler.schedule(1.0)
    assert [item.request for item in batch.scheduled] == [moved]
    assert batch.num_tokens == 5

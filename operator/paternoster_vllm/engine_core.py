"""What runs in the process of vLLM's engine core: its scheduler's limits, moved between steps, and counts of its work.

The core serves calls between steps, so a limit acts on the step after the call.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from paternoster_vllm.limits import LONGEST_QUEUE_MILLISECONDS, QUEUE
from paternoster_vllm.queue_limit import AdmissionPace
from paternoster_vllm.step_sums import StepMeter

log = logging.getLogger(__name__)

UTILITY = "paternoster_control"
"""Name of the method by which the API server reaches this process."""
CAP, BUDGET, CAPACITY = "max_num_active_reqs", "max_num_scheduled_tokens", "max_num_running_reqs"
"""Attributes of vLLM's scheduler: most requests that may run, most tokens of a step, slots of the model runner."""
REQUIRED = (CAP, BUDGET, CAPACITY, "running", "waiting", "schedule", "_preempt_request", "_free_request")
"""All that is read, set or wrapped; a scheduler that lacks one is not steered."""
END_OF_STEP = "update_from_output"
"""Method of the scheduler that has the output of a step first. Without it steps are not measured."""
STEP_SUMS = "step_sums"
"""Field of the report; empty where steps are not measured."""
ROOM, SECONDS_BETWEEN = "room_for_requests", "seconds_between_admissions"
"""Fields of the report for the API server: requests that it may let in, None is no limit; and the queue's pace."""
_CONTROL = "_paternoster_control"


class Unsupported(RuntimeError):
    """This vLLM lacks what the plugin needs; the text names it."""


class SchedulerControl:
    """Moves the limits of one scheduler, and counts what it does from now on."""

    def __init__(self, scheduler: Any) -> None:
        """Raises :class:`Unsupported`."""
        missing = [name for name in REQUIRED if not hasattr(scheduler, name)]
        if missing:
            raise Unsupported(f"the scheduler {type(scheduler).__name__} has no {', '.join(missing)}")
        self._scheduler = scheduler
        self._instance = secrets.token_hex(16)
        self._started_at = time.time()
        self._capacity = int(getattr(scheduler, CAPACITY))
        self._max_batched_tokens = int(getattr(scheduler, BUDGET))
        self._token_budget = self._max_batched_tokens
        self._max_queue_milliseconds = 0
        self._pace = AdmissionPace()
        self._counts = dict.fromkeys(
            (
                "steps_total", "scheduled_tokens_total", "preemptions_total", "requests_preempted_total",
                "tokens_lost_total", "recomputed_tokens_total", "requests_finished_total",
            ),
            0,
        )  # fmt: skip
        self._lost: dict[str, int] = {}
        """Tokens that each preempted request had computed, by its id, until it runs again or ends."""
        self._wrap_method("schedule", self._schedule)
        self._wrap_method("_preempt_request", self._preempt)
        self._wrap_method("_free_request", self._free)
        self._steps = StepMeter()
        if not hasattr(scheduler, END_OF_STEP):
            self._steps.stop_measuring(f"the scheduler {type(scheduler).__name__} has no {END_OF_STEP}")
        elif _count_stages(scheduler) > 1:
            self._steps.stop_measuring("a step of a pipeline of several stages is not the time between two tokens")
        else:
            self._wrap_method(END_OF_STEP, self._update)
        if self._steps.fault:
            log.warning("paternoster_vllm: steps are not measured: %s", self._steps.fault)

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Set ``live_cap``, ``token_budget`` and ``max_queue_milliseconds`` as far as ``limits`` has them.

        A lower cap preempts no request: the scheduler admits none until fewer run. Raises ``ValueError`` out of range.
        """
        for field, least, most in (
            ("live_cap", 1, self._capacity),
            ("token_budget", 1, self._max_batched_tokens),
            (QUEUE, 0, LONGEST_QUEUE_MILLISECONDS),
        ):
            if field in limits and not least <= limits[field] <= most:
                raise ValueError(f"{field} is {limits[field]}: must be {least} to {most}")
        if "live_cap" in limits:
            setattr(self._scheduler, CAP, limits["live_cap"])
        self._token_budget = limits.get("token_budget", self._token_budget)
        self._max_queue_milliseconds = limits.get(QUEUE, self._max_queue_milliseconds)

    def self_test(self) -> None:
        """Set both limits one lower, read them back, restore them; raises :class:`Unsupported`.

        No step runs between these, as the core serves a call between steps.
        """
        for name, most in ((CAP, self._capacity), (BUDGET, self._max_batched_tokens)):
            before, lower = getattr(self._scheduler, name), max(1, most - 1)
            setattr(self._scheduler, name, lower)
            found = getattr(self._scheduler, name)
            setattr(self._scheduler, name, before)
            if found != lower or getattr(self._scheduler, name) != before:
                raise Unsupported(f"the scheduler's {name} was set to {lower} and reads {found}")

    def report_state(self) -> dict[str, Any]:
        """Limits, state and counts in one flat document."""
        scheduler = self._scheduler
        return {
            "instance": self._instance,
            "started_at": self._started_at,
            "capacity": self._capacity,
            "live_cap": int(getattr(scheduler, CAP)),
            "max_batched_tokens": self._max_batched_tokens,
            "token_budget": self._token_budget,
            QUEUE: self._max_queue_milliseconds,
            ROOM: self._count_room(),
            SECONDS_BETWEEN: self._pace.seconds_between(time.monotonic()),
            "draining": False,
            "max_model_len": int(getattr(scheduler, "max_model_len", 0)),
            "running": len(scheduler.running),
            "waiting": self._count_waiting(),
            **self._read_kv(),
            **self._counts,
            STEP_SUMS: self._steps.total,
        }

    def _count_waiting(self) -> int:
        # Newer versions queue requests apart that wait for a grammar or for KV of another engine.
        return len(self._scheduler.waiting) + len(getattr(self._scheduler, "skipped_waiting", ()))

    def _count_room(self) -> int | None:
        """Requests that may come so that none waits longer than was set; None: any number."""
        places = self._pace.count_places(self._max_queue_milliseconds, time.monotonic())
        if places is None:
            return None
        # Where the last step left requests, memory may keep fewer running than the cap.
        free = 0 if self._pace.waiting else int(getattr(self._scheduler, CAP)) - len(self._scheduler.running)
        return places + free - self._count_waiting()

    def _read_kv(self) -> dict[str, int]:
        """Size and use of the KV pool; empty where this vLLM keeps it elsewhere."""
        pool: Any = getattr(getattr(self._scheduler, "kv_cache_manager", None), "block_pool", None)
        try:
            blocks, free = int(pool.num_gpu_blocks) - 1, int(pool.get_num_free_blocks())  # one block is a placeholder
            return {
                "kv_block_size": int(self._scheduler.block_size),
                "kv_blocks": blocks,
                "kv_blocks_used": blocks - free,
            }
        except AttributeError:
            return {}

    def _wrap_method(self, name: str, wrapper: Callable[..., Any]) -> None:
        original = getattr(self._scheduler, name)
        setattr(self._scheduler, name, lambda *args, **kwargs: wrapper(original, *args, **kwargs))

    def _schedule(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # Below one token for each that runs, the first of the list would run to their end while the others stand still.
        setattr(
            self._scheduler,
            BUDGET,
            min(max(self._token_budget, len(self._scheduler.running)), self._max_batched_tokens),
        )
        started = time.monotonic()
        output = original(*args, **kwargs)
        # A runner of version 2 has preempted requests that run again among the new ones.
        admitted = sum(each.req_id not in self._lost for each in output.scheduled_new_reqs)
        self._pace.count_step(admitted, self._count_waiting(), time.monotonic())
        tokens = output.total_num_scheduled_tokens
        if tokens > 0:
            self._counts["steps_total"] += 1
            self._counts["scheduled_tokens_total"] += tokens
            self._steps.begin_step(output, started)
        if self._lost:
            self._count_recomputed(output)
        return output

    def _update(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if args and not self._steps.fault:
            self._steps.end_step(args[0], time.monotonic())
            if self._steps.fault:
                log.warning("paternoster_vllm: steps are measured no more: %s", self._steps.fault)
        return result

    def _count_recomputed(self, output: Any) -> None:
        """Count what a preempted request had computed when it runs again, less what the prefix cache still has."""
        cached = output.scheduled_cached_reqs
        resumed = [(each.req_id, each.num_computed_tokens) for each in output.scheduled_new_reqs]
        for request_id, found in [*zip(cached.req_ids, cached.num_computed_tokens, strict=True), *resumed]:
            if request_id in self._lost:
                self._counts["recomputed_tokens_total"] += max(0, self._lost.pop(request_id) - found)

    def _preempt(self, original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        lost, first = int(request.num_computed_tokens), request.num_preemptions == 0
        result = original(request, *args, **kwargs)
        self._counts["preemptions_total"] += 1
        self._counts["requests_preempted_total"] += first
        self._counts["tokens_lost_total"] += lost
        self._lost[request.request_id] = lost
        return result

    def _free(self, original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        self._counts["requests_finished_total"] += 1
        self._lost.pop(request.request_id, None)
        return original(request, *args, **kwargs)


def _count_stages(scheduler: Any) -> int:
    """Stages of a pipeline, whose steps overlap; 1 where the scheduler names none."""
    return int(getattr(getattr(scheduler, "parallel_config", None), "pipeline_parallel_size", 1))


def call_control(core: Any, limits: dict[str, int]) -> dict[str, Any]:
    """The method of the engine core: sets ``limits``, which may be empty, and returns the report.

    Its first call runs the self-test. An answer with ``unsupported`` names what this vLLM lacks; nothing was set then.
    """
    control = getattr(core, _CONTROL, None)
    try:
        if control is None:
            control = SchedulerControl(core.scheduler)
            control.self_test()
            setattr(core, _CONTROL, control)
        control.set_limits(limits)
        return control.report_state()
    except Unsupported as error:
        return {"unsupported": str(error)}

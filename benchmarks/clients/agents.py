"""``python benchmarks clients.agents``: coding agents hold a session of three turns with one real model.

Claude Code, Codex, OpenCode, Qwen Code, Pi, Continue and Cline: each reads a file with its own tool for commands, and
goes on in the same session twice (Cline in two others). First they call an engine, then what ``paternoster up`` runs: a
gateway that asks for a key, and an engine behind it. They send what they send to their makers' servers, but for shorter
instructions and, of some, one tool instead of all: SmolLM2 reads 8,192 tokens.
Between agent and model stands a recorder. SmolLM2 is too small to call a tool by itself, so the recorder makes each
turn begin with a call of the tool, and restricts the command to reading the file. All else is the agent's and the
model's own: how the call is written and read, the result, the answer. Printed is how much of each prompt was in the
cache, by the usage that the agent gets.
"""

import argparse
import asyncio
import hashlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from clients.coding_agents import AGENTS, CONTEXT, FILE, QUESTIONS, WORD, Agent, Session
from clients.recorder import Call, recorder
from clients.run import LIMIT, MODEL, SOURCE, engine
from harness.local_fleet import FleetError, LocalFleet, manifest

KV_CACHE = "900Mi"
LEAST_CACHED = 0.9
"""Least part of the prompt before that is cached."""


@contextmanager
def engine_alone() -> Iterator[tuple[str, str]]:
    """The URL of an engine, and a key, which it does not ask for."""
    with engine(CONTEXT, KV_CACHE) as url:
        yield url, "none"


@contextmanager
def gateway() -> Iterator[tuple[str, str]]:
    """The URL of a gateway before one engine, as ``paternoster up`` runs them, and the key that it asks for."""
    key = secrets.token_hex()
    entry = f"- {{name: agents, sha256: {hashlib.sha256(key.encode()).hexdigest()}}}\n"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "agents"}, "stringData": {"key": entry}}
    fleet = manifest(
        MODEL, model={"source": SOURCE}, autoscaling={"minReplicas": 1, "maxReplicas": 1},
        engine={"maxNumSeqs": 4, "maxModelLen": CONTEXT, "kvCacheMemory": KV_CACHE},
        security={"apiKeys": [{"name": "agents"}]},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        local = LocalFleet(fleet, 1, Path(folder), (secret,))
        runner.run(local.__aenter__())
        try:
            yield local.endpoint, key
        finally:
            runner.run(local.__aexit__())


PLACES: dict[str, Callable[[], AbstractContextManager[tuple[str, str]]]] = {"engine": engine_alone, "gateway": gateway}


def run(agent: Agent, url: str, key: str) -> Sequence[Call]:
    """The calls of a session; raises ``RuntimeError`` with what went wrong in it."""
    program = agent.client.install() / "node_modules/.bin"
    with tempfile.TemporaryDirectory() as folder, recorder(agent.path, agent.force, url) as (through, calls):
        session = Session(program, through, key, Path(folder) / "home")
        work = Path(folder) / "work"
        session.home.mkdir()
        work.mkdir()
        (work / FILE).write_text(f"The word is {WORD}.\n")
        environment = {"HOME": str(session.home), "PATH": os.environ["PATH"], **agent.environment(session)}
        for command in agent.commands(session):
            before = len(calls)
            done = subprocess.run(
                command, cwd=work, env=environment, stdin=subprocess.DEVNULL, timeout=LIMIT, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            output = (done.stdout + done.stderr)[-2000:]
            turn = [call for call in calls[before:] if call.tools or call.status != 200]
            if failed := next((call for call in turn if call.status != 200), None):
                raise RuntimeError(f"status {failed.status}: {failed.error}")
            if done.returncode:
                raise RuntimeError(f"exit status {done.returncode}: {output}")
            began = [call.forced for call in turn][:2] == [True, False] and WORD.encode() in turn[1].request
            if not began:
                raise RuntimeError(f"no call of a tool and its result in {len(turn)} calls: {output}")
    return [call for call in calls if call.tools]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [agent.name for agent in AGENTS]
    parser.add_argument("names", nargs="*", metavar="AGENT", help=", ".join(names))
    parser.add_argument(
        "--place", choices=[*PLACES], help="what the agents call, in place of first one, then the other"
    )
    args = parser.parse_args()
    wanted = args.names
    if unknown := set(wanted) - set(names):
        parser.error(f"AGENT is {min(unknown)!r}: must be one of {', '.join(names)}")
    if shutil.which("npm") is None:
        parser.error("npm is not on PATH: the agents are programs of node")
    failed = 0
    for place, opened in PLACES.items():
        if args.place not in (None, place):
            continue
        with opened() as (url, key):
            for agent in AGENTS:
                if wanted and agent.name not in wanted:
                    continue
                try:
                    failed += _print(place, agent, run(agent, url, key))
                except (RuntimeError, FleetError, subprocess.SubprocessError, OSError) as error:
                    failed += 1
                    print(f"{place}, {agent.name}: FAILED: {error}", flush=True)
    return 1 if failed else 0


def _print(place: str, agent: Agent, calls: Sequence[Call]) -> bool:
    """A line for each call; True where one found too little in the cache."""
    ignored = calls[0].ignored or "nothing"
    print(f"{place}, {agent.name}: {len(QUESTIONS)} turns, {calls[0].tools} tools; ignored: {ignored}")
    lacking = False
    before = 0
    for number, call in enumerate(calls, 1):
        prompt, cached = agent.counted(call.usage)
        found = f", {min(cached, before) / before:.1%} of the one before" if before else ""
        print(f"  {number}: prompt of {prompt} tokens, {cached} in the cache{found}", flush=True)
        lacking |= cached < LEAST_CACHED * before
        before = prompt
    return lacking

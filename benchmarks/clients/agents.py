"""``python benchmarks clients.agents``: Claude Code and Codex hold a session of three turns against one real engine.

Each reads a file with its own tool for commands, and goes on in the same session twice. They send what they send to
their makers' servers, but for shorter instructions and, of Claude Code's tools, one: SmolLM2 reads 8,192 tokens.
Between agent and engine stands a recorder. SmolLM2 is too small to call a tool by itself, so the recorder makes each
turn begin with a call of the tool, and holds the command to reading the file. All else is the agent's and the model's
own: how the call is written and read, the result, the answer. Printed is how much of each prompt was in the cache.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from clients.run import LIMIT, MODEL, Client, engine

CONTEXT = 8192
"""Tokens that SmolLM2 reads."""
FILE, WORD = "note.txt", "heron"
COMMAND = f"cat {FILE}"
QUESTIONS = (f"Read {FILE}.", "Read it again.", "And once more.")
INSTRUCTIONS = "You are a coding agent. Answer with one short sentence."
STOP = [".", "\n"]
"""Ends the model's answers, which may be long; not its calls."""
LEAST_CACHED = 0.9
"""Of the prompt before."""


@dataclass(frozen=True)
class Call:
    """One call of the engine, as its answer counts it."""

    status: int
    prompt: int
    cached: int
    tools: int
    ignored: str
    forced: bool
    """Whether it had to call the tool."""
    result: bool
    """Whether the file's text was in the request."""


class Agent:
    """What is known of one agent's program and of its API."""

    name: str
    client: Client
    path: str
    tool: str
    argument: str

    def commands(self, program: Path, url: str, home: Path) -> Iterator[list[str]]:
        """One for each turn."""
        raise NotImplementedError

    def environment(self, url: str) -> dict[str, str]:
        return {}

    def force(self, body: dict[str, Any]) -> bool:
        """Hold the tool to reading the file, and make a turn begin with it; True where it does."""
        raise NotImplementedError

    def counted(self, usage: dict[str, Any]) -> tuple[int, int]:
        """Tokens of the prompt, and of these in the cache."""
        raise NotImplementedError

    @property
    def schema(self) -> dict[str, Any]:
        held = {self.argument: {"type": "string", "const": COMMAND}}
        return {"type": "object", "properties": held, "required": [self.argument], "additionalProperties": False}


class ClaudeCode(Agent):
    name, path, tool, argument = "claude-code", "/v1/messages", "Bash", "command"
    client = Client("claude-code", ("@anthropic-ai/claude-code@2.1.332",), (), python="")

    def commands(self, program: Path, url: str, home: Path) -> Iterator[list[str]]:
        fixed = ["--model", MODEL, "--system-prompt", INSTRUCTIONS, "--tools", "Bash", "--allowedTools", "Bash"]
        for turn, question in enumerate(QUESTIONS):
            yield [str(program / "claude"), *fixed, *(["--continue"] if turn else []), "--print", question]

    def environment(self, url: str) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }  # fmt: skip

    def force(self, body: dict[str, Any]) -> bool:
        body["temperature"] = 0
        for tool in body.get("tools", []):
            if tool["name"] == self.tool:
                tool |= {"input_schema": self.schema, "strict": True}
        last = next(message for message in reversed(body["messages"]) if message["role"] != "system")
        content = last["content"]
        answered = isinstance(content, list) and any(block["type"] == "tool_result" for block in content)
        body |= {"stop_sequences": STOP} if answered else {"tool_choice": {"type": "tool", "name": self.tool}}
        return not answered

    def counted(self, usage: dict[str, Any]) -> tuple[int, int]:
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached


class Codex(Agent):
    name, path, tool, argument = "codex", "/v1/responses", "exec_command", "cmd"
    client = Client("codex", ("@openai/codex@0.169.0",), (), python="")

    def commands(self, program: Path, url: str, home: Path) -> Iterator[list[str]]:
        folder = home / ".codex"
        folder.mkdir()
        (folder / "instructions.md").write_text(INSTRUCTIONS)
        settings = {
            "model": MODEL, "model_provider": "engine", "model_instructions_file": str(folder / "instructions.md"),
            "sandbox_mode": "danger-full-access", "approval_policy": "never",
        }  # fmt: skip
        provider = {"name": "engine", "base_url": f"{url}/v1", "wire_api": "responses"}
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        lines += ["[model_providers.engine]", *(f"{name} = {json.dumps(value)}" for name, value in provider.items())]
        (folder / "config.toml").write_text("\n".join(lines) + "\n")
        for turn, question in enumerate(QUESTIONS):
            rest = ["resume", "--last"] if turn else []
            yield [str(program / "codex"), "exec", "--skip-git-repo-check", *rest, question]

    def force(self, body: dict[str, Any]) -> bool:
        body["temperature"] = 0
        for tool in body.get("tools", []):
            if tool.get("name") == self.tool:
                tool |= {"parameters": self.schema, "strict": True}
        answered = body["input"][-1]["type"].endswith("_output")
        body |= {"stop": STOP} if answered else {"tool_choice": {"type": "function", "name": self.tool}}
        return not answered

    def counted(self, usage: dict[str, Any]) -> tuple[int, int]:
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


AGENTS: Sequence[Agent] = (ClaudeCode(), Codex())


@contextmanager
def recorder(agent: Agent, url: str) -> Iterator[tuple[str, list[Call]]]:
    """The URL of one that hands ``agent``'s requests to the engine at ``url``, and what it recorded."""
    calls: list[Call] = []
    place = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            asked = urlsplit(self.path).path == agent.path
            body = json.loads(data)
            forced = asked and agent.force(body)
            connection = HTTPConnection(place.hostname or "", place.port, timeout=LIMIT)
            connection.request("POST", self.path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            if asked:
                counted = agent.counted(_usage(answer)) if response.status == 200 else (0, 0)
                ignored = response.headers.get("x-paternoster-ignored") or ""
                calls.append(
                    Call(response.status, *counted, len(body.get("tools", [])), ignored, forced, WORD.encode() in data)
                )
            self.send_response(response.status)
            self.send_header("content-type", response.headers["content-type"])
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _usage(answer: bytes) -> dict[str, Any]:
    """The last that a stream's events, or a plain answer, tell."""
    found: dict[str, Any] = {}
    for line in answer.decode().splitlines():
        text = line.removeprefix("data: ")
        event = json.loads(text) if text.startswith("{") else {}
        told = event.get("usage") or (event.get("response") or event.get("message") or {}).get("usage")
        found = told or found
    return found


def run(agent: Agent, url: str) -> Sequence[Call]:
    """The calls of a session; raises ``RuntimeError`` with what went wrong in it."""
    program = agent.client.install() / "node_modules/.bin"
    with tempfile.TemporaryDirectory() as folder, recorder(agent, url) as (through, calls):
        home, work = Path(folder) / "home", Path(folder) / "work"
        home.mkdir()
        work.mkdir()
        (work / FILE).write_text(f"The word is {WORD}.\n")
        environment = {"HOME": str(home), "PATH": os.environ["PATH"], **agent.environment(through)}
        for command in agent.commands(program, through, home):
            before = len(calls)
            done = subprocess.run(
                command, cwd=work, env=environment, stdin=subprocess.DEVNULL, timeout=LIMIT, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            told = (done.stdout + done.stderr)[-2000:]
            if done.returncode:
                raise RuntimeError(f"exit status {done.returncode}: {told}")
            turn = calls[before:]
            began = [call.forced for call in turn][:2] == [True, False] and turn[1].result
            if not began or any(call.status != 200 for call in turn):
                raise RuntimeError(f"no call of a tool and its result in {turn}: {told}")
    return calls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [agent.name for agent in AGENTS]
    parser.add_argument("names", nargs="*", metavar="AGENT", help=", ".join(names))
    wanted = parser.parse_args().names
    if unknown := set(wanted) - set(names):
        parser.error(f"AGENT is {min(unknown)!r}: must be one of {', '.join(names)}")
    if shutil.which("npm") is None:
        parser.error("npm is not on PATH: the agents are programs of node")
    failed = 0
    with engine(CONTEXT, "900Mi") as url:
        for agent in AGENTS:
            if wanted and agent.name not in wanted:
                continue
            try:
                failed += _print(agent, run(agent, url))
            except (RuntimeError, subprocess.SubprocessError, OSError) as error:
                failed += 1
                print(f"{agent.name}: FAILED: {error}", flush=True)
    return 1 if failed else 0


def _print(agent: Agent, calls: Sequence[Call]) -> bool:
    """A line for each call; True where one found too little in the cache."""
    print(f"{agent.name}: {len(QUESTIONS)} turns, {calls[0].tools} tools; ignored: {calls[0].ignored or 'nothing'}")
    lacking = False
    before = 0
    for number, call in enumerate(calls, 1):
        found = f", {min(call.cached, before) / before:.1%} of the one before" if before else ""
        print(f"  {number}: prompt of {call.prompt} tokens, {call.cached} in the cache{found}", flush=True)
        lacking |= call.cached < LEAST_CACHED * before
        before = call.prompt
    return lacking

"""The programs of coding agents: how a session is held with each, and what its requests and usage look like."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clients.run import MODEL, Client

CONTEXT = 8192
"""Tokens that SmolLM2 reads."""
FILE, WORD = "note.txt", "heron"
COMMAND = f"cat {FILE}"
QUESTIONS = (f"Read {FILE}.", "Read it again.", "And once more.")
INSTRUCTIONS = "You are a coding agent. Answer with one short sentence."
STOP = [".", "\n"]
"""Ends the model's answers, which may be long; not its calls."""


@dataclass(frozen=True)
class Session:
    """Where an agent runs, and what it calls."""

    program: Path
    """Folder of its program."""
    url: str
    key: str
    home: Path


def ask_each(session: Session, program: str, fixed: Sequence[str], again: str, flag: str = "") -> Iterator[list[str]]:
    """A command for each question; ``again``: words with which a session goes on; ``flag``: that of a question."""
    for turn, question in enumerate(QUESTIONS):
        yield [str(session.program / program), *fixed, *(again.split() if turn else []), *flag.split(), question]


class Agent:
    """One agent: its program, its tool for commands, and the API that it calls."""

    name: str
    client: Client
    path: str
    tool: str
    argument: str
    command: str | list[str] = COMMAND
    """Value of that argument."""
    others: Mapping[str, object] = {}
    """Arguments that the tool needs besides the command."""

    def commands(self, session: Session) -> Iterator[list[str]]:
        """One for each turn."""
        raise NotImplementedError

    def environment(self, session: Session) -> dict[str, str]:
        return {}

    def force(self, body: dict[str, Any]) -> bool:
        """Restrict the tool to reading the file, and make a turn begin with a call of it; True where it does."""
        raise NotImplementedError

    def counted(self, usage: dict[str, Any]) -> tuple[int, int]:
        """Tokens of the prompt, and of these in the cache."""
        raise NotImplementedError

    @property
    def schema(self) -> dict[str, Any]:
        held = {name: {"const": value} for name, value in {self.argument: self.command, **self.others}.items()}
        return {"type": "object", "properties": held, "required": [*held], "additionalProperties": False}


class _OfMessages(Agent):
    path = "/v1/messages"

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


class _OfChats(Agent):
    path = "/v1/chat/completions"

    def force(self, body: dict[str, Any]) -> bool:
        body["temperature"] = 0
        if not body.get("tools"):
            return False
        for tool in body["tools"]:
            if tool["function"]["name"] == self.tool:
                tool["function"] |= {"parameters": self.schema, "strict": True}
        answered = body["messages"][-1]["role"] == "tool"
        choice = {"type": "function", "function": {"name": self.tool}}
        body |= {"stop": STOP} if answered else {"tool_choice": choice}
        return not answered

    def counted(self, usage: dict[str, Any]) -> tuple[int, int]:
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class ClaudeCode(_OfMessages):
    name, tool, argument = "claude-code", "Bash", "command"
    client = Client("claude-code", ("@anthropic-ai/claude-code@2.1.332",), (), python="")

    def commands(self, session: Session) -> Iterator[list[str]]:
        fixed = ["--model", MODEL, "--system-prompt", INSTRUCTIONS, "--tools", "Bash", "--allowedTools", "Bash"]
        yield from ask_each(session, "claude", fixed, "--continue", "--print")

    def environment(self, session: Session) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": session.url, "ANTHROPIC_API_KEY": session.key, "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }  # fmt: skip


class Codex(Agent):
    name, path, tool, argument = "codex", "/v1/responses", "exec_command", "cmd"
    client = Client("codex", ("@openai/codex@0.169.0",), (), python="")

    def commands(self, session: Session) -> Iterator[list[str]]:
        folder = session.home / ".codex"
        folder.mkdir()
        (folder / "instructions.md").write_text(INSTRUCTIONS)
        settings = {
            "model": MODEL, "model_provider": "engine", "model_instructions_file": str(folder / "instructions.md"),
            "sandbox_mode": "danger-full-access", "approval_policy": "never",
        }  # fmt: skip
        provider = {"name": "engine", "base_url": f"{session.url}/v1", "wire_api": "responses", "env_key": "ENGINE_KEY"}
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        lines += ["[model_providers.engine]", *(f"{name} = {json.dumps(value)}" for name, value in provider.items())]
        (folder / "config.toml").write_text("\n".join(lines) + "\n")
        yield from ask_each(session, "codex", ["exec", "--skip-git-repo-check"], "resume --last")

    def environment(self, session: Session) -> dict[str, str]:
        return {"ENGINE_KEY": session.key}

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


class OpenCode(_OfChats):
    name, tool, argument = "opencode", "bash", "command"
    client = Client("opencode", ("opencode-ai@1.18.33",), (), python="")
    others: Mapping[str, object] = {"description": "reads the file"}

    def commands(self, session: Session) -> Iterator[list[str]]:
        folder = session.home / ".config/opencode"
        folder.mkdir(parents=True)
        provider = {
            "npm": "@ai-sdk/openai-compatible", "name": "engine",
            "options": {"baseURL": f"{session.url}/v1", "apiKey": session.key},
            "models": {MODEL: {"name": MODEL, "limit": {"context": CONTEXT, "output": 512}}},
        }  # fmt: skip
        settings = {
            "provider": {"engine": provider}, "model": f"engine/{MODEL}", "small_model": f"engine/{MODEL}",
            "autoupdate": False, "share": "disabled",
            "agent": {"build": {"prompt": INSTRUCTIONS, "tools": {"*": False, self.tool: True}}},
        }  # fmt: skip
        (folder / "opencode.json").write_text(json.dumps(settings))
        yield from ask_each(session, "opencode", ["run"], "--continue")


class QwenCode(_OfChats):
    name, tool, argument = "qwen-code", "run_shell_command", "command"
    client = Client("qwen-code", ("@qwen-code/qwen-code@0.24.4",), (), python="")
    others: Mapping[str, object] = {"is_background": False}
    excluded = (
        "agent", "enter_worktree", "exit_worktree", "get_goal", "list_agents", "record_artifact", "report_findings",
        "send_message", "skill", "task_stop", "tool_call", "tool_search", "update_goal",
    )  # fmt: skip
    """Offered whatever ``--core-tools`` says; together with the instructions they fill the context."""

    def commands(self, session: Session) -> Iterator[list[str]]:
        fixed = ["--auth-type", "openai", "--openai-base-url", f"{session.url}/v1", "--openai-api-key", session.key]
        fixed += ["--model", MODEL, "--system-prompt", INSTRUCTIONS, "--core-tools", self.tool, "--yolo"]
        for other in self.excluded:
            fixed += ["--exclude-tools", other]
        yield from ask_each(session, "qwen", fixed, "--continue", "--prompt")


class Pi(_OfChats):
    name, tool, argument = "pi", "bash", "command"
    client = Client("pi", ("@mariozechner/pi-coding-agent@0.73.1",), (), python="")

    def commands(self, session: Session) -> Iterator[list[str]]:
        folder = session.home / ".pi/agent"
        folder.mkdir(parents=True)
        model = {"id": MODEL, "contextWindow": CONTEXT, "maxTokens": 512}
        provider = {
            "baseUrl": f"{session.url}/v1", "api": "openai-completions", "apiKey": session.key, "models": [model]
        }  # fmt: skip
        (folder / "models.json").write_text(json.dumps({"providers": {"engine": provider}}))
        # It keeps 16,384 tokens free for a summary, which is more than there are.
        (folder / "settings.json").write_text(json.dumps({"compaction": {"enabled": False}}))
        fixed = ["--offline", "--provider", "engine", "--model", MODEL]
        yield from ask_each(session, "pi", fixed, "--continue", "--print")


class Continue(_OfChats):
    name, tool, argument = "continue", "Bash", "command"
    client = Client("continue", ("@continuedev/cli@1.5.47",), (), python="")

    def commands(self, session: Session) -> Iterator[list[str]]:
        folder = session.home / ".continue"
        folder.mkdir()
        model = {
            "name": MODEL, "provider": "openai", "model": MODEL, "apiBase": f"{session.url}/v1", "apiKey": session.key,
            "roles": ["chat"], "capabilities": ["tool_use"],
            "defaultCompletionOptions": {"contextLength": CONTEXT, "maxTokens": 512},
        }  # fmt: skip
        settings = {"name": "agents", "version": "1.0.0", "schema": "v1", "models": [model]}
        # JSON is YAML.
        (folder / "config.yaml").write_text(json.dumps(settings))
        fixed = ["--config", str(folder / "config.yaml"), "--auto"]
        yield from ask_each(session, "cn", fixed, "--resume", "--print")


class Cline(_OfChats):
    name, tool, argument, command = "cline", "run_commands", "commands", [COMMAND]
    client = Client("cline", ("cline@3.0.65",), (), python="")

    def commands(self, session: Session) -> Iterator[list[str]]:
        data, provider = session.home / ".cline/data", "openai-compatible"
        (data / "settings").mkdir(parents=True)
        settings = {"provider": provider, "apiKey": session.key, "model": MODEL, "baseUrl": f"{session.url}/v1"}
        entry = {"settings": settings, "updatedAt": "2026-11-29T00:00:00.000Z", "tokenSource": "manual"}
        providers = {"version": 1, "lastUsedProvider": provider, "modes": {}, "providers": {provider: entry}}
        (data / "settings/providers.json").write_text(json.dumps(providers))
        # Without a terminal it begins a new session each time: --id is for its own interface.
        for question in QUESTIONS:
            yield [str(session.program / "cline"), "--system", INSTRUCTIONS, "--json", question]

    def environment(self, session: Session) -> dict[str, str]:
        # Without it a process stays behind that later sessions share.
        return {"CLINE_SESSION_BACKEND_MODE": "local"}


AGENTS: Sequence[Agent] = (ClaudeCode(), Codex(), OpenCode(), QwenCode(), Pi(), Continue(), Cline())

"""LiteLLM's proxy as a process before an engine, called by OpenAI's client; run in its environment."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

START_SECONDS = 240
SECRET = "sk-proxy-of-a-test"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Kyoto", "Paris", "Tokyo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def start_proxy(url: str, model: str, port: int, folder: Path) -> subprocess.Popen[bytes]:
    """Its process, once it answers; raises ``TimeoutError`` with the end of its log."""
    parameters = {"model": f"hosted_vllm/{model}", "api_base": f"{url}/v1", "api_key": "none"}
    config, log = folder / "config.yaml", folder / "log"
    config.write_text(json.dumps({"model_list": [{"model_name": "through", "litellm_params": parameters}]}))
    command = [Path(sys.executable).with_name("litellm"), "--config", config, "--host", "127.0.0.1"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"LITELLM_MASTER_KEY": SECRET},
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5)
        except OSError:
            time.sleep(0.5)
        else:
            return process
    process.kill()
    process.wait()
    raise TimeoutError(f"the proxy does not answer: {log.read_text()[-2000:]}")


def call_through(url: str) -> list[str]:
    """A whole and a streamed answer, and the argument of a tool's call."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key=SECRET, max_retries=0)
    question = [{"role": "user", "content": "What is the capital of Japan?"}]
    weather = [{"role": "user", "content": "What is the weather in Tokyo?"}]
    create = client.chat.completions.create
    whole = create(model="through", messages=question, temperature=0).choices[0].message.content
    chunks = create(model="through", messages=question, temperature=0, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = create(model="through", messages=weather, temperature=0, tools=[TOOL], tool_choice=choice)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "weather", call
    return [whole, streamed, json.loads(call.function.arguments)["city"]]


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        free_port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        proxy = start_proxy(sys.argv[1], sys.argv[2], free_port, Path(name))
        try:
            texts = call_through(f"http://127.0.0.1:{free_port}")
        finally:
            proxy.terminate()
            proxy.wait()
    assert all("Tokyo" in text for text in texts), texts
    print(f"{len(texts)} answers", flush=True)

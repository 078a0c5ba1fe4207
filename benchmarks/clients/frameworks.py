"""A whole and a streamed answer through each Python framework; run in their own environment, with an engine's URL.

Through LiteLLM also a loop with tools; LangChain's and Pydantic AI's are in the engine's tests.
"""

import json
import sys
from collections.abc import Callable
from typing import Literal

URL, MODEL = sys.argv[1] + "/v1", sys.argv[2]
QUESTION = "What is the capital of Japan?"
PARTS = [{"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}}]
"""Parts that agents send to whatever model they are set to."""


def langchain() -> list[str]:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL, base_url=URL, api_key="none", temperature=0, stream_usage=True)
    messages = [HumanMessage(PARTS)]  # type: ignore[arg-type]
    answer = model.invoke(messages)
    assert answer.usage_metadata["input_token_details"]["cache_read"] >= 0
    return [answer.text, "".join(chunk.text for chunk in model.stream(messages))]


def litellm() -> list[str]:
    import litellm as library

    chat_arguments = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": "none", "temperature": 0}
    chat_arguments |= {"messages": [{"role": "user", "content": PARTS}], "metadata": {"trace": "1"}, "user": "u"}
    whole = library.completion(**chat_arguments, custom_field=1)
    chunks = library.completion(**chat_arguments, stream=True, stream_options={"include_usage": True})
    return [whole.choices[0].message.content, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)]


def litellm_with_tools() -> list[str]:
    """Two calls and an answer, whole and streamed: what the model wrote as the city."""
    import litellm as library

    library.suppress_debug_info = True
    city = {"type": "string", "enum": ["Kyoto", "Paris", "Tokyo"]}
    tools = {"weather": {"city": city}, "population": {"city": city}}
    chat_arguments = {
        "model": f"openai/{MODEL}",
        "api_base": URL,
        "api_key": "none",
        "temperature": 0,
        "max_tokens": 100,
    }
    chat_arguments["tools"] = [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {"type": "object", "properties": of, "required": [*of], "additionalProperties": False},
            },
        }
        for name, of in tools.items()
    ]
    written = []
    for stream in (False, True):
        messages = [{"role": "user", "content": "What is the weather in Tokyo, and how many live there?"}]
        for name in tools:
            choice = {"type": "function", "function": {"name": name}}
            answer = library.completion(**chat_arguments, messages=messages, tool_choice=choice, stream=stream)
            message = (library.stream_chunk_builder([*answer]) if stream else answer).choices[0].message
            (call,) = message.tool_calls
            assert call.function.name == name
            written.append(json.loads(call.function.arguments)["city"])
            result = {"role": "tool", "tool_call_id": call.id, "content": "rain" if name == "weather" else "14000000"}
            messages += [message.model_dump(), result]
        last = library.completion(**chat_arguments, messages=messages, tool_choice="none", stream=stream)
        message = (library.stream_chunk_builder([*last]) if stream else last).choices[0].message
        assert message.content, message
        assert not message.tool_calls, message
    return written


def pydantic_ai() -> list[str]:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=URL, api_key="none"))
    settings = OpenAIChatModelSettings(temperature=0, openai_continuous_usage_stats=True)
    agent = Agent(model, model_settings=settings)
    streamed = agent.run_stream_sync(QUESTION)
    return [agent.run_sync(QUESTION).output, "".join(streamed.stream_text(delta=True))]


def openai_agents() -> list[str]:
    """An answer through each of its APIs, and the argument with which a tool is run before another one."""
    import agents
    import openai

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=URL, api_key="none")
    called = []

    def weather(city: Literal["Kyoto", "Paris", "Tokyo"]) -> str:
        """The weather in a city."""
        called.append(city)
        return f"rain in {city}"

    answers = []
    for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
        settings = agents.ModelSettings(temperature=0, max_tokens=60)
        agent = agents.Agent(name="guide", model=kind(MODEL, client), model_settings=settings)
        answers.append(agents.Runner.run_sync(agent, QUESTION).final_output)
        chosen = agents.ModelSettings(temperature=0, max_tokens=60, tool_choice="weather")
        # The agent stops after the tool: which one SmolLM2 calls next by itself says nothing of an engine.
        agent = agents.Agent(
            name="guide", model=kind(MODEL, client), model_settings=chosen, tools=[agents.function_tool(weather)],
            tool_use_behavior="stop_on_first_tool",
        )  # fmt: skip
        answers.append(agents.Runner.run_sync(agent, "What is the weather in Tokyo?").final_output)
    assert called == ["Tokyo", "Tokyo"], called
    return answers


def instructor() -> list[str]:
    """An object of a model's, whole and while it grows."""
    import instructor as library
    import openai
    from pydantic import BaseModel

    class Capital(BaseModel):
        city: Literal["Kyoto", "Paris", "Tokyo"]

    client = library.from_openai(openai.OpenAI(base_url=URL, api_key="none"), mode=library.Mode.JSON_SCHEMA)
    messages = [{"role": "user", "content": f"{QUESTION} Answer with its name alone."}]
    chat_arguments = {
        "model": MODEL,
        "messages": messages,
        "temperature": 0,
        "response_model": Capital,
        "max_retries": 0,
    }
    *_, last = client.chat.completions.create_partial(**chat_arguments)
    return [client.chat.completions.create(**chat_arguments).city, last.city]


FRAMEWORKS: tuple[Callable[[], list[str]], ...] = (
    langchain, litellm, litellm_with_tools, pydantic_ai, openai_agents, instructor,
)  # fmt: skip

if __name__ == "__main__":
    for framework in FRAMEWORKS:
        texts = framework()
        assert all("Tokyo" in text for text in texts), (framework.__name__, texts)
        print(f"{framework.__name__}: {len(texts)} answers", flush=True)

"""One library for structured answers or agents; run in its own environment, with an engine's URL, a model, its name."""

import asyncio
import json
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal

URL, MODEL = sys.argv[1] + "/v1", sys.argv[2]
QUESTION = "What is the capital of Japan?"
WEATHER = "What is the weather in Tokyo?"
CITIES = ["Kyoto", "Paris", "Tokyo"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": CITIES}, "people": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


class City(StrEnum):
    KYOTO = "Kyoto"
    PARIS = "Paris"
    TOKYO = "Tokyo"


def is_capital(value: Any) -> bool:
    """Whether ``value`` is of :data:`SCHEMA`."""
    return set(value) == {"city", "people"} and value["city"] in CITIES and value["people"] in range(1, 100)


def guidance() -> str:
    """Its grammars, which it sends in vLLM's fields of before and after 0.12 at once."""
    from guidance import assistant, gen, select, user
    from guidance import json as json_of
    from guidance.models.experimental import VLLMModel

    def write(question: str, grammar: Any, name: str) -> str:
        model = VLLMModel(MODEL, base_url=URL, api_key="none", echo=False)
        with user():
            model += question
        with assistant():
            model += grammar
        return str(model[name])

    city = write(QUESTION, select(CITIES, name="city"), "city")
    assert city in CITIES, city
    year = write("Name a year.", gen("year", regex="(19|20)[0-9]{2}"), "year")
    assert re.fullmatch("(19|20)[0-9]{2}", year), year
    text = write(QUESTION, json_of(name="capital", schema=SCHEMA), "capital")
    assert is_capital(json.loads(text)), text
    return f"{city}, {year}, {json.loads(text)}"


def outlines() -> str:
    """Every kind of type that it has: an object, a choice, a pattern, a grammar; and a stream."""
    import openai
    import outlines as library
    from outlines.types import CFG, Regex
    from pydantic import BaseModel, ConfigDict

    class Capital(BaseModel):
        model_config = ConfigDict(extra="forbid")
        city: Literal["Kyoto", "Paris", "Tokyo"]

    client = openai.OpenAI(base_url=URL, api_key="none")
    model = library.from_vllm(client, MODEL)
    settings = {"temperature": 0, "max_tokens": 60}
    Capital.model_validate_json(model(QUESTION, Capital, **settings))
    Capital.model_validate_json("".join(model.stream(QUESTION, Capital, **settings)))
    Capital.model_validate_json(library.from_openai(client, MODEL)(QUESTION, Capital, **settings))
    city = model(QUESTION, Literal["Kyoto", "Paris", "Tokyo"], **settings)
    assert city in CITIES, city
    year = model("Name a year.", Regex("(19|20)[0-9]{2}"), **settings)
    assert re.fullmatch("(19|20)[0-9]{2}", year), year
    answer = model("Is Tokyo in Japan?", CFG('start: "yes" | "no"'), **settings)
    assert answer in ("yes", "no"), answer
    return f"{city}, {year}, {answer}"


def dspy() -> str:
    """An object of each of its adapters, by a schema where the model is registered as one that reads them."""
    import dspy as library
    from dspy.lm15 import AccessPolicy, ModelSupport, OpenAIChatCompat, ProviderDefinition, register_provider

    class Capital(library.Signature):  # type: ignore[misc, unused-ignore]
        question: str = library.InputField()
        city: Literal["Kyoto", "Paris", "Tokyo"] = library.OutputField()

    access = AccessPolicy(provider="engine", env_keys=("ENGINE_KEY",), base_url=URL)
    register_provider(
        ProviderDefinition.chat(access, compat=OpenAIChatCompat()),
        supports=ModelSupport(response_schema=True, function_calling=True),
    )
    model = library.LM(f"engine/{MODEL}", api_base=URL, api_key="none", temperature=0, max_tokens=100, cache=False)
    cities = []
    for adapter in (library.ChatAdapter(), library.JSONAdapter()):
        with library.context(lm=model, adapter=adapter):
            cities.append(library.Predict(Capital)(question=QUESTION).city)
    assert set(cities) <= set(CITIES), cities
    assert model.history[-1]["kwargs"]["response_format"] != {"type": "json_object"}, model.history[-1]
    return ", ".join(cities)


def llama_index() -> str:
    """A whole and a streamed chat, an object, and a tool that it runs."""
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike
    from pydantic import BaseModel, ConfigDict

    class Capital(BaseModel):
        model_config = ConfigDict(extra="forbid")
        city: Literal["Kyoto", "Paris", "Tokyo"]

    def weather(city: Literal["Kyoto", "Paris", "Tokyo"]) -> str:
        """The weather in a city."""
        return f"rain in {city}"

    model = OpenAILike(
        model=MODEL, api_base=URL, api_key="none", is_chat_model=True, is_function_calling_model=True, temperature=0,
        max_tokens=60, context_window=1024,
    )  # fmt: skip
    messages = [ChatMessage(QUESTION)]
    answers = [model.chat(messages).message.content, "".join(part.delta or "" for part in model.stream_chat(messages))]
    assert all("Tokyo" in answer for answer in answers), answers
    capital = model.as_structured_llm(Capital).complete(QUESTION).raw
    assert capital.city in CITIES
    called = model.predict_and_call([FunctionTool.from_defaults(weather)], WEATHER, tool_choice="weather")
    assert called.response == "rain in Tokyo", called
    return f"2 answers, {capital}, {called.response}"


def haystack() -> str:
    """A whole and a streamed chat, a tool's call, and the answer to its result."""
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import tool
    from haystack.utils import Secret

    @tool
    def weather(city: Annotated[Literal["Kyoto", "Paris", "Tokyo"], "a city"]) -> str:
        """The weather in a city."""
        return f"rain in {city}"

    pieces: list[str] = []
    model = OpenAIChatGenerator(
        model=MODEL,
        api_base_url=URL,
        api_key=Secret.from_token("none"),
        generation_kwargs={"temperature": 0, "max_tokens": 60},
    )
    question = [ChatMessage.from_user(QUESTION)]
    answer = model.run(question)["replies"][0].text
    streamed = model.run(question, streaming_callback=lambda chunk: pieces.append(chunk.content))["replies"][0].text
    assert "Tokyo" in answer == streamed == "".join(pieces), (answer, streamed)
    history = [ChatMessage.from_user(WEATHER)]
    choice = {"type": "function", "function": {"name": "weather"}}
    reply = model.run(history, tools=[weather], generation_kwargs={"tool_choice": choice})["replies"][0]
    (call,) = reply.tool_calls
    assert (call.tool_name, call.arguments) == ("weather", {"city": "Tokyo"}), call
    history += [reply, ChatMessage.from_tool(weather.invoke(**call.arguments), origin=call)]
    last = model.run(history, tools=[weather], generation_kwargs={"tool_choice": "none"})["replies"][0]
    assert last.text, last
    assert not last.tool_calls, last
    return f"3 answers, {call.arguments}"


def semantic_kernel() -> str:
    """A whole and a streamed chat, and a function that it runs before the answer."""
    return asyncio.run(_semantic_kernel())


async def _semantic_kernel() -> str:
    import openai
    from semantic_kernel import Kernel
    from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import kernel_function

    called = []

    class Weather:
        @kernel_function(description="The weather in a city")  # type: ignore[untyped-decorator, unused-ignore]
        def weather(self, city: Annotated[City, "a city"]) -> str:
            called.append(city)
            return f"rain in {city.value}"

    model = OpenAIChatCompletion(
        ai_model_id=MODEL, async_client=openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
    )
    kernel = Kernel()
    kernel.add_service(model)
    kernel.add_plugin(Weather(), "plugin")
    history = ChatHistory()
    history.add_user_message(QUESTION)
    settings = OpenAIChatPromptExecutionSettings(temperature=0, max_tokens=60)
    chunks = [str(part[0]) async for part in model.get_streaming_chat_message_contents(history, settings)]
    answers = [str(await model.get_chat_message_content(history, settings)), "".join(chunks)]
    assert all("Tokyo" in answer for answer in answers), answers
    history = ChatHistory()
    history.add_user_message(WEATHER)
    settings.function_choice_behavior = FunctionChoiceBehavior.Required(maximum_auto_invoke_attempts=1)
    last = await model.get_chat_message_content(history, settings, kernel=kernel)
    assert called, last
    assert set(called) == {City.TOKYO}, called
    assert str(last), last
    return f"3 answers, {called[0].value}"


LIBRARIES: tuple[Callable[[], str], ...] = (guidance, outlines, dspy, llama_index, haystack, semantic_kernel)

if __name__ == "__main__":
    (library,) = (each for each in LIBRARIES if each.__name__ == sys.argv[3])
    print(library(), flush=True)

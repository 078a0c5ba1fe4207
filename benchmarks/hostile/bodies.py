"""Request bodies that are quick to send and slow to read: a shape for each part of a body that is read in a loop.

Each is filled to a size with one item, so that a list, an object or a text is as long as the size allows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hostile.shared_fleets import MODEL


@dataclass(frozen=True, slots=True)
class HostileBody:
    """``head``, ``item`` repeated with ``separator`` between, ``tail``; ``{i}`` in ``item`` is its number."""

    name: str
    path: str
    head: str
    item: str
    tail: str
    separator: str = ","

    def of_size(self, size: int) -> bytes:
        """The body in at most ``size`` bytes; raises ``ValueError`` where two items have no room."""
        room = size - len((self.head + self.tail).encode()) + len(self.separator)
        items: list[str] = []
        if "{i}" in self.item:
            while room > 0:
                items.append(self.item.replace("{i}", str(len(items))) + self.separator)
                room -= len(items[-1].encode())
            items.pop()
        else:
            items = [self.item + self.separator] * (room // len((self.item + self.separator).encode()))
        if len(items) < 2:
            raise ValueError(f"size is {size}: too small for {self.name}")
        inner = "".join(items).removesuffix(self.separator or "\0")
        return (self.head + inner + self.tail).encode()


CHAT, COMPLETION, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
COUNT, EMBEDDINGS, RERANK, SCORE = "/v1/messages/count_tokens", "/v1/embeddings", "/v1/rerank", "/v1/score"
EMBED = "/v2/embed"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"

SHORT = '"max_tokens":1,"max_output_tokens":1'
"""Fields of every body: an answer takes no time. Routes without such a field ignore it."""
REQUIRED: Mapping[str, str] = {
    CHAT: '"messages":[{"role":"user","content":"up"}]',
    COMPLETION: '"prompt":"up"',
    RESPONSES: '"input":"up"',
    MESSAGES: '"messages":[{"role":"user","content":"up"}]',
    COUNT: '"messages":[{"role":"user","content":"up"}]',
    EMBEDDINGS: '"input":"up"',
    EMBED: '"texts":["up"]',
    RERANK: '"query":"up","documents":["up"]',
    SCORE: '"queries":"up","documents":["up"]',
    TOKENIZE: '"prompt":"up"',
    DETOKENIZE: '"tokens":[1]',
}
"""Fields with which a request of each route is right."""

VALUES: Mapping[str, str] = {
    "objects": "[<{}>]",
    "lists": "[<[]>]",
    "digits": "[<1>]",
    "nulls": "[<null>]",
    "texts": '[<"">]',
    "booleans": "[<true>]",
    "fractions": "[<1e5>]",
    "lists of digits": "[<[1]>]",
    "objects with a type": '[<{"type":"text"}>]',
    "names": '{<"{i}":1>}',
    "same names": '{<"a":1>}',
    "objects by name": '{<"{i}":{}>}',
    "objects by one name": '{<"":{}>}',
}
"""A list or an object of each kind."""
FIELDS: Mapping[str, str] = {
    CHAT: "messages tools tool_choice documents chat_template_kwargs logit_bias stop metadata stop_token_ids "
    "allowed_token_ids bad_words functions response_format structured_outputs guided_json guided_choice "
    "stream_options prediction modalities model unknown",
    COMPLETION: "prompt logit_bias stop stop_token_ids allowed_token_ids bad_words unknown",
    RESPONSES: "input tools tool_choice include metadata text reasoning context_management logit_bias "
    "chat_template_kwargs stop unknown",
    MESSAGES: "messages system tools tool_choice stop_sequences metadata thinking output_config mcp_servers "
    "context_management cache_control unknown",
    COUNT: "messages system tools",
    EMBEDDINGS: "input model unknown",
    EMBED: "texts inputs embedding_types images",
    RERANK: "query documents unknown",
    SCORE: "queries documents text_1",
    TOKENIZE: "prompt messages tools documents chat_template_kwargs",
    DETOKENIZE: "tokens",
}
"""Fields of each route that a list or an object may be tried for."""

PART, INPUT_PART = '{"type":"text","text":"a"}', '{"type":"input_text","text":"a"}'
USER = '"messages":[{"role":"user","content":'
ASSISTANT = USER + '"a"},{"role":"assistant",'
CALL = '{"id":"{i}","type":"function","function":{"name":"f","arguments":"{}"}}'
FUNCTION = '{"type":"function","name":"f","parameters":{}}'
LONG = "a" * 2100
"""A text of which just not 2,048 are in the largest body."""
OBJECTS = "[" + ",".join(["{}"] * 10_000) + "]"


def _several(item: str, count: int) -> str:
    return "[" + ",".join([item] * count) + "]"


SHAPES_BY_PATH: Mapping[str, Mapping[str, str]] = {
    CHAT: {
        "parts that are wrong": USER + "[<{}>]}]",
        "parts": USER + f"[<{PART}>]}}]",
        "parts of messages": f'"messages":[<{{"role":"user","content":{_several(PART, 50)}}}>]',
        "parts of long messages": f'"messages":[<{{"role":"user","content":{_several(PART, 1000)}}}>]',
        "parts of thinking": ASSISTANT + f'"content":[{{"type":"thinking","thinking":[<{PART}>]}}]}}]',
        "annotations": USER + '"a","annotations":[<{}>]}]',
        "parsed": ASSISTANT + '"content":"a","parsed":[<{}>]}]',
        "messages": '"messages":[<{"role":"user","content":"a"}>]',
        "messages of unknown roles": '"messages":[<{"role":"x","content":"a"}>]',
        "calls": ASSISTANT + f'"tool_calls":[<{CALL}>]}}]',
        "calls of messages": f'"messages":[<{{"role":"assistant","tool_calls":{_several(CALL, 20)}}}>]',
        "arguments as a text": ASSISTANT
        + '"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\\"a\\":[<{}>]}"}}]}]',
        "arguments as an object": ASSISTANT
        + '"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":{"a":[<{}>]}}}]}]',
        "variables": '%,"chat_template_kwargs":{"a":[<{}>]}',
        "names of variables": '%,"chat_template_kwargs":{"a":{<"{i}":[]>}}',
        "one document": '%,"documents":[{"a":[<{}>]}]',
        "documents": '%,"documents":[<{"text":"a"}>]',
        "tools": '%,"tools":[<{"type":"function","function":{"name":"f{i}"}}>]',
        "parameters of a tool": '%,"tools":[{"type":"function","function":{"name":"f","parameters":{"a":[<{}>]}}}]',
        "parameters of tools": '%,"tools":[<{"type":"function","function":{"name":"f{i}","parameters":{"a":'
        + OBJECTS
        + "}}}>]",
        "a schema": '%,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"enum":[<{}>]}}}',
        "a schema of properties": '%,"guided_json":{"properties":{<"{i}":{}>}}',
        "a schema as a text": '%,"guided_json":"{\\"enum\\":[<{}>]}"',
        "structural tags": '%,"response_format":{"type":"structural_tag","triggers":["a"],"structures":['
        '<{"begin":"a","schema":{},"end":"a"}>]}',
        "choices": '%,"guided_choice":[<"{i}">]',
        "biases": '%,"logit_bias":{<"{i}":1>}',
        "biases that are wrong": '%,"logit_bias":{<"{i}":"a">}',
        "metadata": '%,"metadata":{<"{i}":"a">}',
        "metadata that are wrong": '%,"metadata":{<"{i}":1>}',
        "unknown fields": '%,<"f{i}":1>',
        "unknown fields of parts": USER + '[<{"type":"text","text":"a","f{i}":1}>]}]',
        "one text": USER + '"<<a>>"}]',
        "words": USER + '"<<a >>"}]',
        "escapes": USER + r'"<<\n>>"}]',
        "escaped letters": USER + r'"<<\u00e9>>"}]',
        "escaped quotes": USER + r'"<<\">>"}]',
        "escaped backslashes": USER + r'"<<\\>>"}]',
        "pairs of surrogates": USER + r'"<<\ud83d\ude00>>"}]',
        "lone surrogates": USER + r'"<<\ud83d>>"}]',
        "white space": "%<< >>",
        "one number": '%,"seed":<<1>>',
        "one fraction": '%,"temperature":0.<<1>>',
        "long numbers": f'%,"f":[<{"1" * 4300}>]',
        "nested lists": '%,"f":<<[>>',
        "nested objects": '%,"f":<<{"a":>>',
        "a text without an end": '%,"f":"<<a>>',
        "quotes": '%,"f":<<">>',
    },
    COMPLETION: {
        "token ids": '"prompt":[<1>]',
        "token ids that are wrong": '"prompt":["a",<1>]',
        "lists of token ids": f'"prompt":[<{_several("1", 16_000)}>]',
        "prompts": '"prompt":[<"a">]',
        "one text": '"prompt":"<<a >>"',
    },
    RESPONSES: {
        "items": '"input":[<{"role":"user","content":"a"}>]',
        "long items of the assistant": f'"input":[<{{"role":"assistant","content":"{LONG}"}}>]',
        "long items of the system": f'"input":[<{{"role":"system","content":"{LONG}"}}>]',
        "items that are wrong": '"input":[<{}>]',
        "parts": f'"input":[{{"role":"user","content":[<{INPUT_PART}>]}}]',
        "parts that are wrong": '"input":[{"role":"user","content":[<{}>]}]',
        "parts of items": f'"input":[<{{"role":"user","content":{_several(INPUT_PART, 50)}}}>]',
        "calls": '"input":[<{"type":"function_call","call_id":"{i}","name":"f","arguments":"{}"}>]',
        "an output": '"input":[{"type":"shell_call_output","call_id":"a","output":[<{}>]}]',
        "an action": '"input":[{"type":"shell_call","call_id":"a","action":{"a":[<{}>]}}]',
        "an error": '"input":[{"type":"mcp_call","id":"a","name":"f","arguments":"{}","error":{"a":[<{}>]}}]',
        "encrypted content": '"input":[{"type":"reasoning","encrypted_content":[<{}>]}]',
        "parameters of a tool": '%,"tools":[{"type":"function","name":"f","parameters":{"a":[<{}>]}}]',
        "parameters of tools": '%,"tools":[<{"type":"function","name":"f{i}","parameters":{"a":' + OBJECTS + "}}>]",
        "namespaces": f'%,"tools":[<{{"type":"namespace","name":"n{{i}}","tools":{_several(FUNCTION, 128)}}}>]',
        "tools that searches found": '"input":[<{"type":"tool_search_output","call_id":"{i}","tools":'
        + _several(FUNCTION, 128)
        + "}>]",
        "allowed tools": '%,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[<{}>]}',
        "a schema": '%,"text":{"format":{"type":"json_schema","name":"a","schema":{"enum":[<{}>]}}}',
    },
    MESSAGES: {
        "blocks": f"{USER}[<{PART}>]}}]",
        "blocks that are wrong": f"{USER}[<{{}}>]}}]",
        "blocks of messages": f'"messages":[<{{"role":"user","content":{_several(PART, 50)}}}>]',
        "messages": '"messages":[<{"role":"user","content":"a"}>]',
        "long messages": f'"messages":[<{{"role":"user","content":"{LONG}"}}>]',
        "results": f'{USER}[{{"type":"tool_result","tool_use_id":"a","content":[<{PART}>]}}]}}]',
        "an input": f'{ASSISTANT}"content":[{{"type":"tool_use","id":"a","name":"f","input":{{"a":[<{{}}>]}}}}]}}]',
        "cache marks": f'{USER}[{{"type":"text","text":"a","cache_control":[<{{}}>]}}]}}]',
        "a document": f'{USER}[{{"type":"document","source":{{"type":"content","content":[<{PART}>]}}}}]}}]',
        "system blocks": f'%,"system":[<{PART}>]',
        "tools": '%,"tools":[<{"name":"f{i}","input_schema":{}}>]',
        "a schema of a tool": '%,"tools":[{"name":"f","input_schema":{"a":[<{}>]}}]',
        "a schema": '%,"output_config":{"format":{"type":"json_schema","schema":{"enum":[<{}>]}}}',
        "servers": '%,"mcp_servers":[{"a":[<{}>]}]',
    },
    COUNT: {"blocks": f'"messages":[{{"role":"user","content":[<{PART}>]}}]'},
    EMBEDDINGS: {
        "token ids": '"input":[<1>]',
        "lists of token ids": '"input":[<[1]>]',
        "long lists of token ids": f'"input":[<{_several("1", 1000)}>]',
        "texts": '"input":[<"a">]',
        "long texts": f'"input":[<"{"a word " * 60}">]',
    },
    EMBED: {
        "texts": '"texts":[<"a">]',
        "inputs": f'"inputs":[<{{"content":{_several(PART, 50)}}}>]',
        "parts of an input": f'"inputs":[{{"content":[<{PART}>]}}]',
        "types": '"texts":["a"],"embedding_types":[<"float">]',
    },
    RERANK: {
        "documents": '"query":"a","documents":[<{"text":"a"}>]',
        "documents that are wrong": '"query":"a","documents":[<{}>]',
    },
    SCORE: {"texts": '"queries":"a","documents":[<"a">]'},
    TOKENIZE: {
        "parts": f'"messages":[{{"role":"user","content":[<{PART}>]}}]',
        "one text": '"prompt":"<<a >>"',
        "names of tokens": '"return_token_strs":true,"prompt":"<<a >>"',
    },
    DETOKENIZE: {"token ids": '"tokens":[<1>]'},
}
"""Behind the model's name. ``<...>`` is repeated with commas between, ``<<...>>`` without; ``%``: what is required."""


def _body(path: str, name: str, shape: str) -> HostileBody:
    begin, separator, end = ("<<", "", ">>") if "<<" in shape else ("<", ",", ">")
    head, _, rest = shape.replace("%", REQUIRED[path], 1).partition(begin)
    item, _, tail = rest.rpartition(end)
    return HostileBody(name, path, f'{{"model":"{MODEL}",{SHORT},{head}', item, tail + "}", separator)


def _whole() -> Iterator[HostileBody]:
    """Bodies that are a list or an object of each kind."""
    for kind, value in VALUES.items():
        head, _, rest = value.partition("<")
        item, _, tail = rest.rpartition(">")
        yield HostileBody(f"a body of {kind}", CHAT, head, item, tail)


def _of_fields() -> Iterator[HostileBody]:
    for path, fields in FIELDS.items():
        for field in fields.split():
            for kind, value in VALUES.items():
                yield _body(path, f"{field} of {kind}", f'%,"{field}":{value}')


SHAPES = (
    *(_body(path, name, shape) for path, shapes in SHAPES_BY_PATH.items() for name, shape in shapes.items()),
    *_whole(),
)
"""Each part of a body that a route reads in a loop."""
EVERY = (*SHAPES, *_of_fields())
"""These, and each kind of value in each field that may have a list or an object."""

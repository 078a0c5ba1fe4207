"""How chat templates of published models branch: which roles they know, drop and refuse, and how they read content.

Each is written here in as few words as branch in the same way; marks around texts are our own.
"""

_ALTERNATE = "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
_CALLS = (
    '{% for c in m.tool_calls %}<tool_call>{"name": "{{ c.function.name }}", "arguments": '
    "{{ c.function.arguments | tojson }}}</tool_call>{% endfor %}"
)
_TOOLS = "{% for t in tools %}{{ t | tojson }}{% endfor %}"
_DEEPSEEK_CALLS = (
    "{% for c in m['tool_calls'] %}{{ c['type'] + ' ' + c['function']['name'] + ' ' + c['function']['arguments'] }}"
    "{% endfor %}"
)
_QWEN25 = (
    "{% if tools %}[system]{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    + _TOOLS
    + "{% else %}[system]{% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}helpful"
    "{% endif %}{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'user' or (m.role == 'system' and not loop.first) "
    "or (m.role == 'assistant' and not m.tool_calls) %}"
    "[{{ m.role }}]{{ m.content }}"
    "{% elif m.role == 'assistant' %}[assistant]{% if m.content %}{{ m.content }}{% endif %}"
    + _CALLS
    + "{% elif m.role == 'tool' %}[user]<tool_response>{{ m.content }}</tool_response>{% endif %}{% endfor %}"
)
_QWEN3 = (
    "{% if tools %}[system]{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    + _TOOLS
    + "{% elif messages[0].role == 'system' %}[system]{{ messages[0].content }}{% endif %}"
    "{% set ns = namespace(last=messages | length - 1, searching=true) %}"
    "{% for m in messages[::-1] %}{% if ns.searching and m.role == 'user' and m.content is string "
    "and not m.content.startswith('<tool_response>') %}{% set ns.searching = false %}"
    "{% set ns.last = messages | length - loop.index %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set content = m.content if m.content is string else '' %}"
    "{% if m.role == 'user' or (m.role == 'system' and not loop.first) %}[{{ m.role }}]{{ content }}"
    "{% elif m.role == 'assistant' %}{% set thought = m.reasoning_content or '' %}"
    "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}[assistant]"
    "{% if loop.index0 > ns.last and thought %}<think>{{ thought }}</think>{% endif %}{{ content }}"
    "{% if m.tool_calls %}" + _CALLS + "{% endif %}"
    "{% elif m.role == 'tool' %}[user]<tool_response>{{ content }}</tool_response>{% endif %}{% endfor %}"
)
_QWEN35 = (
    "{% macro text(content) %}{% if content is string %}{{ content }}{% elif content is iterable %}"
    "{% for part in content %}{% if 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}"
    "{% if tools %}[system]" + _TOOLS + "{% endif %}"
    "{% for m in messages %}{% if m.role == 'system' %}"
    "{% if not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "[system]{{ text(m.content) }}"
    "{% elif m.role == 'user' %}[user]{{ text(m.content) }}"
    "{% elif m.role == 'assistant' %}[assistant]{{ text(m.content) }}{% if m.tool_calls %}" + _CALLS + "{% endif %}"
    "{% elif m.role == 'tool' %}[user]<tool_response>{{ text(m.content) }}</tool_response>"
    "{% else %}{{ raise_exception('Unexpected message role.') }}{% endif %}{% endfor %}"
)
_DEEPSEEK_V3 = (
    "{% set ns = namespace(system='') %}"
    "{% for m in messages %}{% if m['role'] == 'system' %}{% set ns.system = m['content'] %}{% endif %}{% endfor %}"
    "{{ ns.system }}{% for m in messages %}"
    "{% if m['role'] == 'user' %}[user]{{ m['content'] }}{% endif %}"
    "{% if m['role'] == 'assistant' and m['content'] is none %}[assistant]" + _DEEPSEEK_CALLS + "{% endif %}"
    "{% if m['role'] == 'assistant' and m['content'] is not none %}[assistant]{{ m['content'] }}{% endif %}"
    "{% if m['role'] == 'tool' %}[tool]{{ m['content'] }}{% endif %}{% endfor %}"
)
_DEEPSEEK_R1 = _DEEPSEEK_V3.replace(
    "[assistant]{{ m['content'] }}", "[assistant]{{ m['content'].split('</think>')[-1] }}"
)
_R1_DISTILL = _DEEPSEEK_R1.replace("and m['content'] is none", "and m['tool_calls']")
_PHI4 = (
    "{% for m in messages %}{% if m['role'] == 'system' %}[system]{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}[user]{{ m['content'] }}"
    "{% elif m['role'] == 'assistant' %}[assistant]{{ m['content'] }}{% endif %}{% endfor %}"
)
_PHI3 = _PHI4.replace("m['role'] == 'system'", "m['role'] == 'system' and m['content']")
_PHI4_MINI = (
    "{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none %}"
    "[system]{{ m['content'] }}{{ m['tools'] }}{% else %}[{{ m['role'] }}]{{ m['content'] }}{% endif %}{% endfor %}"
)
_CHATML = "{% for m in messages %}{{ '[' + m['role'] + ']' + m['content'] }}{% endfor %}"
_HERMES3 = (
    "[system]{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
    "{% if m.role == 'user' or m.role == 'system' or (m.role == 'assistant' and m.tool_calls is not defined) %}"
    "{{ '[' + m.role + ']' + m.content }}"
    "{% elif m.role == 'assistant' %}[assistant]"
    + _CALLS
    + "{% elif m.role == 'tool' %}<tool_response>{{ m.content }}</tool_response>{% endif %}{% endfor %}"
)
_LLAMA31 = (
    "{% if not tools is defined %}{% set tools = none %}{% endif %}"
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}"
    "{% set messages = messages[1:] %}"
    "{% else %}{% set system = '' %}{% endif %}[system]{{ system }}"
    "{% if not tools is none %}{% if messages | length != 0 %}{% set first = messages[0]['content'] | trim %}"
    "{% set messages = messages[1:] %}{% else %}{{ raise_exception('no first user message') }}{% endif %}"
    "[user]" + _TOOLS + "{{ first }}{% endif %}"
    "{% for m in messages %}{% if not (m.role == 'ipython' or m.role == 'tool' or 'tool_calls' in m) %}"
    "[{{ m['role'] }}]{{ m['content'] | trim }}"
    "{% elif 'tool_calls' in m %}{% if not m.tool_calls | length == 1 %}"
    "{{ raise_exception('single calls only') }}{% endif %}"
    '{% set c = m.tool_calls[0].function %}[assistant]{"name": "{{ c.name }}", "parameters": '
    "{{ c.arguments | tojson }}}"
    "{% else %}[ipython]{% if m.content is mapping or m.content is iterable %}{{ m.content | tojson }}"
    "{% else %}{{ m.content }}{% endif %}{% endif %}{% endfor %}"
)
_MISTRAL_CALLS = (
    "[TOOL_CALLS]{% for c in m.tool_calls %}{{ c.function | tojson }}"
    "{% if c.id is not defined or c.id | length != 9 %}{{ raise_exception('ids have nine letters') }}"
    "{% endif %}{{ c.id }}"
    "{% endfor %}"
)
_MISTRAL_V3 = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}"
    "{% else %}{% set rest = messages %}{% endif %}"
    "{% set users = rest | selectattr('role', 'equalto', 'user') | list %}"
    "{% set ns = namespace(index=0) %}{% for m in rest %}"
    "{% if not (m.role == 'tool' or m.role == 'tool_results' "
    "or (m.tool_calls is defined and m.tool_calls is not none)) %}"
    "{% if (m['role'] == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set ns.index = ns.index + 1 %}{% endif %}{% endfor %}"
    "{% for m in rest %}{% if m['role'] == 'user' %}"
    "{% if tools is not none and m == users[-1] %}[AVAILABLE_TOOLS]" + _TOOLS + "{% endif %}"
    "{% if loop.last and system is defined %}[INST]{{ system }} {{ m['content'] }}{% else %}[INST]"
    "{{ m['content'] }}{% endif %}"
    "{% elif m.tool_calls is defined and m.tool_calls is not none %}"
    + _MISTRAL_CALLS
    + "{% elif m['role'] == 'assistant' %}{{ ' ' + m['content'] | trim }}"
    "{% elif m['role'] == 'tool' %}[TOOL_RESULTS]{{ m.content | string }}"
    "{% if m.tool_call_id | length != 9 %}{{ raise_exception('ids have nine letters') }}{% endif %}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported') }}{% endif %}{% endfor %}"
)
_MISTRAL_SMALL = (
    _MISTRAL_V3.replace(
        "{% for m in rest %}{% if m['role'] == 'user' %}",
        "{% if system is defined %}[SYSTEM_PROMPT]{{ system }}{% endif %}"
        "{% for m in rest %}{% if m['role'] == 'user' %}",
    )
    .replace("{% if loop.last and system is defined %}[INST]{{ system }} {{ m['content'] }}{% else %}", "")
    .replace("[INST]{{ m['content'] }}{% endif %}", "[INST]{{ m['content'] }}")
)
_GEMMA2 = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}" + _ALTERNATE + "{% if m['role'] == 'assistant' %}{% set role = 'model' %}"
    "{% else %}{% set role = m['role'] %}{% endif %}{{ '[' + role + ']' + m['content'] | trim }}{% endfor %}"
)
_GEMMA3 = (
    "{% if messages[0]['role'] == 'system' %}"
    "{% if messages[0]['content'] is string %}{% set prefix = messages[0]['content'] + ' ' %}"
    "{% else %}{% set prefix = messages[0]['content'][0]['text'] + ' ' %}{% endif %}{% set rest = messages[1:] %}"
    "{% else %}{% set prefix = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}" + _ALTERNATE + "[{{ 'model' if m.role == 'assistant' else m.role }}]"
    "{{ prefix if loop.first else '' }}"
    "{% if m['content'] is string %}{{ m['content'] | trim }}{% elif m['content'] is iterable %}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] | trim }}{% endif %}{% endfor %}"
    "{% else %}{{ raise_exception('Invalid content type') }}{% endif %}{% endfor %}"
)
_GRANITE3 = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}"
    "{% else %}{% set system = 'granite' %}{% set rest = messages %}{% endif %}[system]{{ system }}"
    "{% if tools %}[tools]{{ tools | tojson }}{% endif %}"
    "{% for d in documents or [] %}[document]{{ d['text'] }}{% endfor %}"
    "{% for m in rest %}[{{ m['role'] }}]{{ m['content'] }}{% for c in m.tool_calls or [] %}"
    "{{ c.function | tojson }}{% endfor %}"
    "{% endfor %}"
)
_GPT_OSS = (
    "{% if messages[0].role == 'developer' or messages[0].role == 'system' %}"
    "{% set instructions = messages[0].content %}"
    "{% set rest = messages[1:] %}{% else %}{% set instructions = '' %}{% set rest = messages %}{% endif %}"
    "[developer]{{ instructions }}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
    "{% set called = namespace(name=none) %}{% for m in rest %}{% if m.role == 'assistant' %}"
    "{% if 'tool_calls' in m %}{% set later = namespace(final=false) %}"
    "{% for n in rest[loop.index:] %}{% if n.role == 'assistant' and 'tool_calls' not in n %}"
    "{% set later.final = true %}"
    "{% endif %}{% endfor %}{% set c = m.tool_calls[0].function %}"
    "{% if m.content and m.thinking %}{{ raise_exception('not both') }}"
    "{% elif (m.content or m.thinking) and not later.final %}[analysis]{{ m.content or m.thinking }}{% endif %}"
    "[commentary]{{ c.name }}{{ c.arguments | tojson }}{% set called.name = c.name %}"
    "{% else %}[final]{{ m.content }}{% set called.name = none %}{% endif %}"
    "{% elif m.role == 'tool' %}{% if called.name is none %}{{ raise_exception('no call before') }}{% endif %}"
    "[{{ called.name }}]{{ m.content | tojson }}{% elif m.role == 'user' %}[user]{{ m.content }}{% endif %}{% endfor %}"
)
_SMOLLM3 = (
    "{% if messages[0].role == 'system' %}"
    "{% set system = messages[0].content.replace('/no_think', '').rstrip() %}{% endif %}"
    "[system]{{ system }}{% if xml_tools or python_tools %}{% for t in xml_tools %}{{ t | string }}"
    "{% endfor %}{% endif %}"
    "{% for m in messages %}{% set content = m.content if m.content is string else '' %}"
    "{% if m.role == 'user' %}[user]{{ content }}{% elif m.role == 'assistant' %}[assistant]{{ content }}"
    "{% elif m.role == 'tool' %}[user]{{ content }}{% endif %}{% endfor %}"
)
_OLMO2 = (
    "{% for m in messages %}{% if m['role'] == 'system' %}[system]{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}[user]{{ m['content'] }}"
    "{% elif m['role'] == 'assistant' %}{% if not loop.last %}[assistant]{{ m['content'] }}</s>"
    "{% else %}[assistant]{{ m['content'] }}{% endif %}{% endif %}{% endfor %}"
)
_SMOLVLM = (
    "{% for m in messages %}{{ m['role'] | capitalize }}:{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}<end>{% endfor %}"
)
_LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}"
    "{% else %}{% set rest = messages %}{% set system = false %}{% endif %}"
    "{% for m in rest %}"
    + _ALTERNATE
    + "{% if loop.index0 == 0 and system != false %}{% set content = system + ' ' + m['content'] %}"
    "{% else %}{% set content = m['content'] %}{% endif %}"
    "{% if m['role'] == 'user' %}[INST]{{ content | trim }}"
    "{% elif m['role'] == 'assistant' %}{{ ' ' + content | trim }}{% endif %}{% endfor %}"
)

SHAPES = {
    "chatml": _CHATML,
    "deepseek-r1": _DEEPSEEK_R1,
    "deepseek-r1-distill-llama": _DEEPSEEK_R1,
    "deepseek-r1-distill-qwen": _R1_DISTILL,
    "deepseek-v3": _DEEPSEEK_V3,
    "gemma-2": _GEMMA2,
    "gemma-3": _GEMMA3,
    "gpt-oss": _GPT_OSS,
    "granite-3": _GRANITE3,
    "hermes-3": _HERMES3,
    "llama-2": _LLAMA2,
    "llama-3.1": _LLAMA31,
    "mistral-7b-v0.3": _MISTRAL_V3,
    "mistral-small-3": _MISTRAL_SMALL,
    "olmo-2": _OLMO2,
    "phi-3": _PHI3,
    "phi-4": _PHI4,
    "phi-4-mini": _PHI4_MINI,
    "qwen2.5": _QWEN25,
    "qwen3": _QWEN3,
    "qwen3.5": _QWEN35,
    "smollm3": _SMOLLM3,
    "smolvlm": _SMOLVLM,
}  # fmt: skip

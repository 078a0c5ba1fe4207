"""What chat templates of real families do with calls of tools, their answers and reasoning, in as little as says it."""

QWEN3 = (
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif %}"
    "{% for m in messages %}<|im_start|>"
    "{% if m.role == 'tool' %}user\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% else %}{{ m.role }}\n"
    "{% if m.reasoning_content is string %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '\n' }}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": '
    "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{{ c.function.arguments | tojson }}"
    "{% endif %}}{{ '\n' }}</tool_call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
DEEPSEEK_R1 = (
    "{% for m in messages %}"
    "{% if m['role'] == 'assistant' and m['tool_calls'] %}{% for tool in m['tool_calls'] %}"
    "{{ tool['function']['name'] + '\n```json\n' + tool['function']['arguments'] + '\n```' }}{% endfor %}"
    "{% elif m['role'] == 'tool' %}{{ '[' + m['content'] + ']' }}"
    "{% else %}{% set content = m['content'].split('</think>')[-1] %}{{ m['role'] + ':' + content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<think>\n' }}{% endif %}"
)
LLAMA3 = (
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|start_header_id|>"
    "{% if 'tool_calls' in m %}"
    "{% if m.tool_calls | length > 1 %}{{ raise_exception('one at once') }}{% endif %}"
    "{% set c = m.tool_calls[0].function %}assistant\n\n"
    '{"name": "{{ c.name }}", "parameters": {{ c.arguments | tojson }}}'
    "{% elif m.role == 'tool' %}ipython\n\n{{ {'output': m.content} | tojson }}"
    "{% else %}{{ m.role }}\n\n{{ m.content | trim }}{% endif %}<|eot_id|>{% endfor %}"
)
MISTRAL = (
    "{% for m in messages %}"
    "{% if m.tool_calls is defined and m.tool_calls is not none %}{{ '[TOOL_CALLS] [' }}"
    "{% for c in m.tool_calls %}{% set out = c.function | tojson %}{{ out[:-1] }}"
    "{% if c.id is not defined or c.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}"
    "{{ ', \"id\": \"' + c.id + '\"}' }}{{ ', ' if not loop.last }}{% endfor %}{{ ']</s>' }}"
    "{% elif m.role == 'tool' %}"
    "{% if m.tool_call_id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}"
    "{{ '[TOOL_RESULTS] ' + m.name + ' ' + m.tool_call_id + ' ' + m.content + '[/TOOL_RESULTS]' }}"
    "{% else %}{{ '[INST] ' + m.content + '[/INST]' }}{% endif %}{% endfor %}"
)
HARMONY = (
    "Reasoning: {{ reasoning_effort or 'medium' }}\n"
    "{% for m in messages %}"
    "{% if m.role == 'assistant' and m.tool_calls %}"
    "{% if m.content and m.thinking %}{{ raise_exception('cannot have both') }}{% endif %}"
    "{% if m.content or m.thinking %}<|start|>assistant<|channel|>analysis<|message|>"
    "{{ m.content or m.thinking }}<|end|>{% endif %}{% set c = m.tool_calls[0].function %}"
    "<|start|>assistant to=functions.{{ c.name }}<|channel|>commentary json<|message|>"
    "{{ c.arguments | tojson }}<|call|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)

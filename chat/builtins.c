// The formats themselves are their models' own; the texts here are ours.
#include "builtins.h"

// Roles and texts between Llama 3's control tokens, as Meta's ChatFormat puts them.
#define LLAMA3_MESSAGES                                                                            \
    "{%- macro begin(role) %}{{ '<|start_header_id|>' ~ role ~ '<|end_header_id|>\n\n' }}{% "      \
    "endmacro %}"                                                                                  \
    "{%- macro message(m) %}"                                                                      \
    "{{ begin('ipython' if m.role == 'tool' else m.role) }}"                                       \
    "{{ m.content | trim if m.content is string else m.content | tojson if m.content }}"           \
    "{%- for call in m.tool_calls or [] %}{% set f = call.function or call %}"                     \
    "{{ '; ' if not loop.first }}"                                                                 \
    "{{ '{\"name\": ' ~ f.name | tojson ~ ', \"parameters\": ' ~ (f.arguments or {}) | tojson ~ "  \
    "'}' }}"                                                                                       \
    "{%- endfor %}{{ '<|eot_id|>' }}{% endmacro %}"
#define LLAMA3_ANSWER "{%- if add_generation_prompt %}{{ begin('assistant') }}{% endif %}"

// What every model is told about calls where its format has no words of its own.
#define TOOL_LIST(call)                                                                            \
    "{%- macro tool_list() %}"                                                                     \
    "You can call these functions:\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"      \
    "\nTo call one, answer with nothing but\n" call "\n{% endmacro %}"

static const char llama3[] = LLAMA3_MESSAGES TOOL_LIST(
    "{\"name\": \"...\", \"parameters\": {...}}") "{{ bos_token }}{% if tools %}{{ begin('system') "
                                                  "~ tool_list() ~ "
                                                  "'<|eot_id|>' }}{% endif %}"
                                                  "{% for m in messages %}{{ message(m) }}{% "
                                                  "endfor %}" LLAMA3_ANSWER;

// From 3.1 on there is always a system message, with two dates.
static const char llama31[] = LLAMA3_MESSAGES TOOL_LIST(
    "{\"name\": \"...\", \"parameters\": {...}}") "{{ bos_token ~ begin('system') }}"
                                                  "{% if tools %}{{ 'Environment: ipython\n' }}{% "
                                                  "endif %}"
                                                  "{{ 'Cutting Knowledge Date: December "
                                                  "2023\nToday Date: ' ~ "
                                                  "strftime_now('%d %b %Y') ~ '\n\n' }}"
                                                  "{% if tools %}{{ tool_list() ~ '\n' }}{% endif "
                                                  "%}"
                                                  "{% if messages and messages[0].role == 'system' "
                                                  "%}"
                                                  "{{ messages[0].content | trim }}{% set messages "
                                                  "= messages[1:] %}{% "
                                                  "endif %}{{ '<|eot_id|>' }}"
                                                  "{% for m in messages %}{{ message(m) }}{% "
                                                  "endfor %}" LLAMA3_ANSWER;

static const char chatml[] = TOOL_LIST("<tool_call>\n{\"name\": \"...\", \"arguments\": "
                                       "{...}}\n</tool_call>") "{% if tools %}{{ "
                                                               "'<|im_start|>system\n' ~ "
                                                               "tool_list() ~ '<|im_end|>\n' }}{% "
                                                               "endif %}"
                                                               "{% for m in messages %}{{ "
                                                               "'<|im_start|>' "
                                                               "~ m.role ~ '\n' ~ (m.content or "
                                                               "'') }}"
                                                               "{% for call in m.tool_calls or [] "
                                                               "%}{% "
                                                               "set f = call.function or call %}"
                                                               "{{ '\n' if m.content or not "
                                                               "loop.first }}"
                                                               "{{ '<tool_call>\n{\"name\": ' ~ "
                                                               "f.name | "
                                                               "tojson ~ ', \"arguments\": ' ~ "
                                                               "(f.arguments or {}) | tojson }}"
                                                               "{{ '}\n</tool_call>' }}{% endfor "
                                                               "%}{{ "
                                                               "'<|im_end|>\n' }}{% endfor %}"
                                                               "{% if add_generation_prompt %}{{ "
                                                               "'<|im_start|>assistant\n' }}{% "
                                                               "endif %}";

// As TinyLlama was trained.
static const char zephyr[] = "{% for m in messages %}"
                             "{{ '<|' ~ (m.role if m.role in ['system', 'assistant'] else 'user') "
                             "~ '|>\n' ~ (m.content or '') ~ eos_token }}"
                             "{{ '\n' if not loop.last or add_generation_prompt }}{% endfor %}"
                             "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}";

// The system message stands in the first turn.
static const char llama2[] = "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' ~ "
                             "(m.content or '') | trim ~ ' ' ~ eos_token }}"
                             "{% elif m.role != 'system' %}{{ bos_token ~ '[INST] ' }}"
                             "{% if not loop.first and loop.previtem.role == 'system' %}{{ "
                             "'<<SYS>>\n' ~ loop.previtem.content ~ "
                             "'\n<</SYS>>\n\n' }}{% endif %}"
                             "{{ (m.content or '') | trim ~ ' [/INST]' }}{% endif %}{% endfor %}";

static const char mistral[] =
    "{{ bos_token }}"
    "{% if tools %}{{ '[AVAILABLE_TOOLS] ' ~ tools | tojson ~ '[/AVAILABLE_TOOLS]' }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% if m.tool_calls %}{{ '[TOOL_CALLS] [' }}{% for call in m.tool_calls %}{% set f = "
    "call.function or call %}"
    "{{ ', ' if not loop.first }}"
    "{{ '{\"name\": ' ~ f.name | tojson ~ ', \"arguments\": ' ~ (f.arguments or {}) | tojson }}"
    "{{ ', \"id\": ' ~ call.id | tojson if call.id }}{{ '}' }}{% endfor %}{{ ']' }}"
    "{% else %}{{ ' ' ~ m.content }}{% endif %}{{ eos_token }}"
    "{% elif m.role in ['tool', 'ipython'] %}{{ '[TOOL_RESULTS] {\"content\": ' ~ m.content | "
    "tojson }}"
    "{{ ', \"call_id\": ' ~ m.tool_call_id | tojson if m.tool_call_id }}{{ '}[/TOOL_RESULTS]' }}"
    "{% elif m.role != 'system' %}{{ '[INST] ' }}"
    "{% if not loop.first and loop.previtem.role == 'system' %}{{ loop.previtem.content ~ '\n\n' "
    "}}{% endif %}"
    "{{ m.content ~ '[/INST]' }}{% endif %}{% endfor %}";

static const char vicuna[] =
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ m.content ~ '\n\n' }}"
    "{% elif m.role == 'assistant' %}{{ 'ASSISTANT: ' ~ m.content ~ eos_token ~ '\n' }}"
    "{% else %}{{ 'USER: ' ~ m.content ~ '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";

static const char alpaca[] =
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ m.content ~ '\n\n' }}"
    "{% elif m.role == 'assistant' %}{{ '### Response:\n' ~ m.content ~ eos_token ~ '\n\n' }}"
    "{% else %}{{ '### Instruction:\n' ~ m.content ~ '\n\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}";

// A model that was made for no dialogue tells on.
static const char none[] =
    "{% for m in messages %}{{ ' ' if not loop.first and m.role != 'assistant' }}"
    "{{ m.content }}{% endfor %}";

const BuiltinTemplate builtin_templates[] = {
    {"llama3", llama3}, {"llama3.1", llama31}, {"llama3.2", llama31}, {"llama3.3", llama31},
    {"llama2", llama2}, {"chatml", chatml},    {"zephyr", zephyr},    {"mistral", mistral},
    {"vicuna", vicuna}, {"alpaca", alpaca},    {"none", none},        {0},
};

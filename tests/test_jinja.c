// The template language. Jinja2 3.1.2 rendered the expected texts with the settings of
// transformers.
//
// tests/jinja_cases.jsonl has rows {"template", "text"}, or {"template", "error"} with a part of
// the message. The variables are those below. tests/jinja_templates.jsonl has chat templates in the
// manner of model repositories: {"template", "texts"}, a text or null (an error) for each of the
// dialogues in the first row.
#include "base/files.h"
#include "chat/jinja/jinja.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
static const char variables[] =
    "{\"s\": \"Hello, World\", \"u\": \"  \303\274n\303\257code \316\251 \344\270\255\346\226\207 \\n\", \"n\": null, \"t\": true, \"i\": 7, \"f\": 2.5, \"l\": [3, 1, 2], \"m\": [\"b\", \"A\", \"c\"], \"d\": {\"b\": 1, \"a\": [1, 2.0, \"x'y\"], \"items\": \"odd\", \"c\": {\"k\": \"v\"}}, \"e\": \"\", \"el\": [], \"huge\": 123456789012345678901234567890, \"q\": \"it's \\\"q\\\" \\\\ \\n\\u0007\342\200\213\", \"msgs\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"U1\", \"n\": 2}, {\"role\": \"assistant\", \"content\": \"A1\"}], \"html\": \"<a>&'\", \"tup\": [[\"a\", 1], [\"b\", 2]]}";
static const char *const cases[][2] = {
    {"{{ missing is defined }}{{ missing is undefined }}{{ d.zzz is defined }}{{ d.zzz }}|{{ d['zzz'] }}|{{ l[10] }}|{{ l[-1] }}{{ l[-4] }}",
     "FalseTrueFalse|||2"},
    {"{{ d['items'] }}",
     "odd"},
    {"{{ 'ab' * t }}{{ 'ab' * false }}|{{ true * 'c' }}",
     "ab|c"},
    {"{% for x in l %}{% if x == 3 %}{% break %}{% endif %}{% else %}a{% endfor %}{% for x in l %}{% if x == 2 %}{% break %}{% endif %}{% else %}b{% endfor %}{% for x in l %}{{ x }}{% continue %}{% else %}c{% endfor %}{% for x in l %}{% else %}d{% endfor %}",
     "a312c"},
    {"{{ 1.000000000000000000000000000000000000000000000000000000000000000000e5 }}",
     "100000.0"},
    {"{{ strftime_now('%d %b %Y') }} {{ strftime_now('in the year %Y, on the day called %A, the %d of %B, at %H:%M \303\251') }}{{ strftime_now('') }}",
     "26 Jul 2024 in the year 2024, on the day called Friday, the 26 of July, at 00:00 \303\251"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
     "b=1;a=[1, 2.0, \"x'y\"];items=odd;c={'k': 'v'};"},
    {"{% for k in d %}{{ k }},{% endfor %}{% for c in s[:3] %}{{ c }}.{% endfor %}",
     "b,a,items,c,H.e.l."},
    {"{{ s[0] }}{{ s[-1] }}{{ s[2:5] }}{{ s[::-1] }}{{ s[::2] }}{{ s[-5:] }}{{ s[:-5] }}{{ s[100:] }}{{ s[5:2] }}|{{ u[3] }}{{ u[::-1] }}{{ s[100] }}",
     "HdllodlroW ,olleHHlo olWorldHello, |n\n \346\226\207\344\270\255 \316\251 edoc\303\257n\303\274  "},
    {"{{ l[1:] }}{{ l[::-1] }}{{ l[:2] }}{{ l[-2:] }}{{ l[::2] }}{{ l[5:] }}{{ l[2:0:-1] }}{{ l[-10:10] }}",
     "[1, 2][2, 1, 3][3, 1][1, 2][3, 2][][2, 1][3, 1, 2]"},
    {"{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 7 }} {{ 1.5 * 2 }} {{ 10 // 3.0 }} {{ 5.5 % 2 }}",
     "5.0 3 -4 2 -2 1.0 3.0 3.0 1.5"},
    {"{{ 1 ~ 'a' ~ none ~ [1] }} {{ 'a' * 3 }} {{ [1] + [2] }} {{ (1,) + (2, 3) }} {{ () }} {{ (1,) }} {{ 'a' 'b' }}",
     "1aNone[1] aaa [1, 2] (1, 2, 3) () (1,) ab"},
    {"{{ 1 < 2 }} {{ (1 < 2) > 5 }} {{ 'a' in 'abc' }} {{ 2 in l }} {{ 'b' in d }} {{ 5 not in l }} {{ not true }} {{ not 1 == 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' == 1 }} {{ l == [3,1,2] }} {{ d == d }}",
     "True False True True True True False True True True False True True"},
    {"{{ 'yes' if t else 'no' }} {{ 'x' if n }}| {{ (1 if false) is defined }} {{ 1 if false else 2 if false else 3 }}",
     "yes | False 3"},
    {"{{ n or 'dflt' }} {{ s and i }} {{ e or el or 0 }} {{ not e }} {{ 0 or none }}",
     "dflt 7 0 True None"},
    {"{{ s | upper }} {{ s|lower }} {{ 'hello world foo-bar' | title }} {{ \"it's a x\" | title }} {{ \"it's a x\".title() }} {{ s|capitalize }} {{ u|upper }} {{ '\303\200\303\211 \316\251 \320\257'|lower }} {{ u | trim }}|",
     "HELLO, WORLD hello, world Hello World Foo-Bar It's A X It'S A X Hello, world   \303\234N\303\217CODE \316\251 \344\270\255\346\226\207 \n \303\240\303\251 \317\211 \321\217 \303\274n\303\257code \316\251 \344\270\255\346\226\207|"},
    {"{{ s | length }} {{ u|length }} {{ l | count }} {{ d|length }} {{ missing|length }} {{ e|length }}",
     "12 16 3 4 0 0"},
    {"{{ l|sort }} {{ m|sort }} {{ m|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ msgs|sort(attribute='role')|map(attribute='content')|list }}",
     "[1, 2, 3] ['A', 'b', 'c'] ['A', 'b', 'c'] [3, 2, 1] ['A1', 'S', 'U1']"},
    {"{{ l|first }} {{ l|last }} {{ s|first }} {{ s|last }} {{ el|first }}| {{ el|first is defined }}",
     "3 2 H d | False"},
    {"{{ l|join }} {{ l|join(', ') }} {{ msgs|join(',', attribute='role') }} {{ ', '.join(m) }} {{ s|join('-') }} {{ d|join(',') }}",
     "312 3, 1, 2 system,user,assistant b, A, c H-e-l-l-o-,- -W-o-r-l-d b,a,items,c"},
    {"{{ m|map('upper')|join(' ') }} {{ m | map('lower') | list }} {{ msgs|map(attribute='n', default=0)|list }} {{ l|map('string')|list }} {{ msgs|map(attribute='n')|list }}",
     "B A C ['b', 'a', 'c'] [0, 2, 0] ['3', '1', '2'] [Undefined, 2, Undefined]"},
    {"{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ l|select('gt', 1)|list }} {{ [0,1,'',none,'a']|select|list }} {{ msgs|selectattr('role','equalto','user')|map(attribute='content')|list }} {{ msgs|rejectattr('role','in',['user','system'])|list|length }} {{ msgs|selectattr('n')|list|length }} {{ msgs | selectattr('n', 'defined') | list | length }}",
     "[3, 1] [2] [3, 2] [1, 'a'] ['U1'] 1 1 1"},
    {"{{ d|tojson }} {{ d|tojson(indent=2) }} {{ q|tojson }} {{ [1,2.0,1e100,none,true,huge]|tojson }} {{ d|tojson(separators=(',',':')) }} {{ d|tojson(sort_keys=true) }} {{ u|tojson(ensure_ascii=true) }} {{ '\360\237\230\200\303\251'|tojson(ensure_ascii=True) }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ {'a':[]}|tojson(indent=4) }} {{ (1,2)|tojson }}",
     "{\"b\": 1, \"a\": [1, 2.0, \"x'y\"], \"items\": \"odd\", \"c\": {\"k\": \"v\"}} {\n  \"b\": 1,\n  \"a\": [\n    1,\n    2.0,\n    \"x'y\"\n  ],\n  \"items\": \"odd\",\n  \"c\": {\n    \"k\": \"v\"\n  }\n} \"it's \\\"q\\\" \\\\ \\n\\u0007\342\200\213\" [1, 2.0, 1e+100, null, true, 123456789012345678901234567890] {\"b\":1,\"a\":[1,2.0,\"x'y\"],\"items\":\"odd\",\"c\":{\"k\":\"v\"}} {\"a\": [1, 2.0, \"x'y\"], \"b\": 1, \"c\": {\"k\": \"v\"}, \"items\": \"odd\"} \"  \\u00fcn\\u00efcode \\u03a9 \\u4e2d\\u6587 \\n\" \"\\ud83d\\ude00\\u00e9\" [] {} {\n    \"a\": []\n} [1, 2]"},
    {"{{ d|dictsort }} {{ {'B':1,'a':2,'C':0}|dictsort }}",
     "[('a', [1, 2.0, \"x'y\"]), ('b', 1), ('c', {'k': 'v'}), ('items', 'odd')] [('a', 2), ('B', 1), ('C', 0)]"},
    {"{{ d|items|list }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 'dd') }} {{ d|list }}",
     "[('b', 1), ('a', [1, 2.0, \"x'y\"]), ('items', 'odd'), ('c', {'k': 'v'})] ['b', 'a', 'items', 'c'] [1, [1, 2.0, \"x'y\"], 'odd', {'k': 'v'}] 1 None dd ['b', 'a', 'items', 'c']"},
    {"{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(maxsplit=1) }} {{ 'a b  c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('b')[0] }}",
     "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b,c'] ['a', 'b c'] ['a', 'b  c '] [] [''] a"},
    {"{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.strip('ab') }}|{{ '\\n\\nx\\n'.lstrip('\\n') }}|{{ 'xax'|trim('x') }}",
     "x|x |  x|a|c|x\n|a"},
    {"{{ 'aXbXc'.replace('X', '-') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'aaa'|replace('a','b',1) }} {{ 'abc'.replace('z','y') }} {{ 5|replace('5','6') }}",
     "a-b-c bba -a-b-c- baa abc 6"},
    {"{{ s.startswith('Hell') }} {{ s.endswith('ld') }} {{ s.startswith(('x','H')) }} {{ s.find('o') }} {{ s.find('zz') }}",
     "True True True 4 -1"},
    {"{{ '12'|int }} {{ none|int(5) }} {{ 3.9|int }} {{ '-3'|int }} {{ ' 42 '|int }} {{ true|int }} {{ none|int }}",
     "12 5 3 -3 42 1 0"},
    {"{{ 1|string ~ 'x' }} {{ none|string }} {{ [1,'a']|string }} {{ missing|string }}|",
     "1x None [1, 'a'] |"},
    {"{{ missing|default('x') }} {{ e|default('x') }}| {{ e|default('x', true) }} {{ n|default('x') }} {{ n|d('x', boolean=true) }} {{ missing|default }}|",
     "x | x None x |"},
    {"{{ html|escape }} {{ html|e }} {{ html|safe }} {{ ('<b>'|safe) + html }} {{ html + ('<b>'|safe) }} {{ ('<b>'|safe) ~ html }} {{ '<b>'|safe|upper }}",
     "&lt;a&gt;&amp;&#39; &lt;a&gt;&amp;&#39; <a>&' <b>&lt;a&gt;&amp;&#39; &lt;a&gt;&amp;&#39;<b> <b><a>&' <B>"},
    {"{{ s is string }}{{ i is string }}{{ i is number }}{{ t is number }}{{ t is boolean }}{{ f is float }}{{ i is integer }}{{ t is integer }}{{ d is mapping }}{{ l is mapping }}{{ l is iterable }}{{ s is iterable }}{{ i is iterable }}{{ l is sequence }}{{ d is sequence }}{{ n is none }}{{ n is not none }}{{ missing is none }}{{ missing is iterable }}{{ missing is sequence }}{{ range is callable }}{{ t is true }}{{ 1 is true }}{{ t is false }}{{ d.items() is iterable }}{{ d.items() is sequence }}{{ huge is number }}",
     "TrueFalseTrueTrueTrueTrueTrueFalseTrueFalseTrueTrueFalseTrueTrueTrueFalseFalseTrueTrueTrueTrueFalseFalseTrueFalseTrue"},
    {"{{ 4 is even }}{{ 3 is odd }}{{ 1 is eq 1 }}{{ 1 is sameas 1 }}{{ 'a' is in 'abc' }}{{ 2 is lt 3 }}{{ 2 is ge(3) }}{{ 2 is not in [1,2] }}{{ 'x' is equalto 'x' }}",
     "TrueTrueTrueTrueTrueTrueFalseFalseTrue"},
    {"{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
     "1032TrueFalse31;2121FalseFalse332;3210FalseTrue31;"},
    {"{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }},{% else %}none{% endfor %}",
     "31False,22True,"},
    {"{% for x in [] %}{{ x }}{% else %}empty{% endfor %}{% for x in missing %}{% else %}E2{% endfor %}",
     "emptyE2"},
    {"{% set ns = namespace(found=false, c=0) %}{% for x in l if not ns.found %}{% set ns.c = ns.c + 1 %}{% if x == 1 %}{% set ns.found = true %}{% endif %}{{ x }}{% endfor %}{{ ns.c }}{{ ns.found }}",
     "312True"},
    {"{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }},{% endfor %}{{ x }}",
     "4,2,3,1"},
    {"{% if true %}{% set z = 5 %}{% endif %}{{ z }}",
     "5"},
    {"{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
     "01345"},
    {"{{ range(3)|list }}{{ range(2,8,3)|list }}{{ range(5,0,-2)|list }}{{ range(0)|list }}{{ range(3)[1] }}{{ range(3)|length }}{{ range(4)[1:3]|list }}",
     "[0, 1, 2][2, 5][5, 3, 1][]13[1, 2]"},
    {"{% macro m(a, b='B', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=1, a=2) }}{{ m() }}{{ m('<')|length }}",
     "[1BNone][12None][1B3][21None][BNone]8"},
    {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(5) }}",
     "543210"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% for (k, v) in tup %}{{ k }}{{ v }}{% endfor %}",
     "12(1, 2)a1b2"},
    {"{% set cap %}  text {{ s }} {% endset %}[{{ cap }}]{% set cap2 | trim | upper %}  t {% endset %}[{{ cap2 }}]",
     "[  text Hello, World ][T]"},
    {"{% filter upper %}abc {{ s }}{% endfilter %}",
     "ABC HELLO, WORLD"},
    {"a  {%- if true -%}  b  {%- endif -%}  c",
     "abc"},
    {"a  {{- 'x' -}}  b",
     "axb"},
    {"  {%+ if true %}b{% endif +%}",
     "  b"},
    {"{{ {'a': 1, 'b': [1, 2], \"c\": {\"d\": none}} }} {{ {} }} {{ {'a':1}.a }} {{ {'a': 1,}['a'] }} {{ [1,2,] }}",
     "{'a': 1, 'b': [1, 2], 'c': {'d': None}} {} 1 1 [1, 2]"},
    {"{{ \"a\\nb\\t\\\\ \\x41 \\u00e9 \\' \\\" \\q\" }} {{ 'a\"b' }} {{ \"a'b\" }}",
     "a\nb\011\\ A \303\251 ' \" \\q a\"b a'b"},
    {"{{ m|reverse|list }} {{ s|reverse }}",
     "['c', 'A', 'b'] dlroW ,olleH"},
    {"{{ 'a\\nb\\n\\nc'|indent }} {{ 'a\\nb'|indent(2, true) }} {{ 'a\\n\\nb'|indent(2, blank=true) }} {{ 'a\\nb'|indent('> ') }} {{ 'a\\n'|indent(2) }}|",
     "a\n    b\n\n    c   a\n  b a\n  \n  b a\n> b a\n|"},
    {"{{ 1.0 }} {{ 0.1 }} {{ 1e3 }} {{ 123456789.123 }} {{ 1e15 }} {{ 1e16 }} {{ 1.5e-7 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }} {{ 100000000000000000000.0 }} {{ 3.0e2 }}",
     "1.0 0.1 1000.0 123456789.123 1000000000000000.0 1e+16 1.5e-07 0.0001 1e-05 -0.0 1e+20 300.0"},
    {"{{ i.x }}|{{ i['x'] }}|{{ s.x }}|{{ n.x }}|{{ n[0] }}|{{ i[0] }}",
     "|||||"},
    {"{{ 'a' ~ missing }}",
     "a"},
    {"{{ missing == missing2 }} {{ missing == none }} {{ missing in l }} {{ 'x' in missing }}",
     "True False False False"},
    {"{% generation %}{{ s }}{% endgeneration %}",
     "Hello, World"},
    {"{{ true and false or true }} {{ 1 in [1] and 2 not in [1] }} {{ not 1 in [2] }} {{ (not 1) in [false] }}",
     "True True True True"},
    {"{{ s.split(', ')[-1].strip().lower() }} {{ 'abc'|first|upper }} {{ msgs[-1]['content'] ~ msgs[0].role }} {{ msgs[1:]|length }} {{ msgs[0]['content'] if msgs[0]['role'] == 'system' else '' }}",
     "world A A1system 2 S"},
    {"{{ [none, true, 1.0, 'x', [], {}]|string }} {{ ['\\u200b', 'a\\u00a0b', '\\x7f', '\\u3000', '\\U0001F600'] }}",
     "[None, True, 1.0, 'x', [], {}] ['\\u200b', 'a\\xa0b', '\\x7f', '\\u3000', '\360\237\230\200']"},
    {"{{ tup|map('first')|list }} {{ tup|map('join', '-')|list }} {{ ['a','b']|map('replace', 'a', 'z')|list }} {{ m|map('length')|list }}",
     "['a', 'b'] ['a-1', 'b-2'] ['z', 'b'] [1, 1, 1]"},
    {"{{ namespace(a=1).a }} {% set n2 = namespace(x=1, y=2) %}{{ n2.x }}{{ n2.y }}{{ n2.zz }}| {% set n2.zz = [1] %}{{ n2.zz + [2] }}{{ n2['x'] }}",
     "1 12| [1, 2]1"},
    {"{%- set q = 1 -%} {{- q -}} {%- if q == 1 %} y {%- endif %}",
     "1 y"},
    {"{{ '' if e else '\\n' }}x",
     "\nx"},
    {"{{ s if s is string else s|tojson }} {{ d.c|tojson if d.c is mapping and d.c is not string }} {{ (d.c is mapping) and (d.c is not string) }}",
     "Hello, World {\"k\": \"v\"} True"},
    {"{{ s is defined and s }} {{ not missing is defined }} {{ missing is not defined }} {{ s is string and i is number or false }}",
     "Hello, World True True True"},
    {"{{ d.b.c is defined }} {{ d['c']['k'] is defined }} {{ 'k' in d.c }} {{ d.c.k in ['v'] }} {{ d['a'][0] + d['a'][1] }}",
     "False True True True 3.0"},
    {"{% set x = s %}{% if x %}{% set x = x|upper %}{% endif %}{{ x }} {% for i in [1] %}{% set x = 'inner' %}{{ x }}{% endfor %}{{ x }}",
     "HELLO, WORLD innerHELLO, WORLD"},
    {"{{ 1 if 1 is odd else 2 }} {{ d is mapping and d }} {{ [1,2] is sequence and 'y' }}",
     "1 {'b': 1, 'a': [1, 2.0, \"x'y\"], 'items': 'odd', 'c': {'k': 'v'}} y"},
    {"{{- '\\n' }}z{{ '\\n' -}}   w",
     "\nz\nw"},
    {"{% if not (s is defined and s is not none) %}a{% elif i %}b{% else %}c{% endif %}",
     "b"},
    {"{% for m in msgs %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ 'X' }}{% endif %}{{ '<' + m.role + '>' }}{% endfor %}",
     "X<system>X<user>X<assistant>"},
    {"{{ ('a', 'b')[1] }} {{ ('a', 'b')|join }} {{ ('a','b') == ['a','b'] }} {{ ('x' ~ 1, 2) }}",
     "b ab False ('x1', 2)"},
    {"{{ '' ~ l ~ d.c }} {{ l ~ '' }}",
     "[3, 1, 2]{'k': 'v'} [3, 1, 2]"},
    {"{{ l|tojson|length }} {{ u|tojson|safe }}",
     "9 \"  \303\274n\303\257code \316\251 \344\270\255\346\226\207 \\n\""},
    {"{{ \"tab\\there\"|tojson }} {{ \"\\u2028\\x7f<>&'\"|tojson }}",
     "\"tab\\there\" \"\342\200\250\177<>&'\""},
    {"{{ msgs|selectattr('role', '==', 'user')|list|count }} {{ msgs|map(attribute='role')|join(',') }} {{ (msgs|selectattr('role','equalto','tool')|list)[0] is defined }} {{ (msgs|first).role }}",
     "1 system,user,assistant False system"},
    {"{{ x.y if x is defined else 'nox' }} {{ x is defined and x.y }}",
     "nox False"},
    {"  {% if true %}  \n  x\n  {% endif %}  \ny\n",
     "  \n  x\n  \ny"},
    {"a\n  {%+ if true %}b{% endif +%}\nc\n\n",
     "a\n  b\nc\n"},
    {"{# c #}\nx{#- c -#}  y  {# z #}\n  {# i #}\nz\r\nw",
     "xy  z\nw"},
    {"{%- for x in l -%}\n  {{- x }}\n{%- endfor %}\n",
     "312"},
    {"{% if e %}\n a\n{% elif i %}\n b\n{% else %}\n c\n{% endif %}\nd",
     " b\nd"},
    {"{% set ns = namespace() %}{% for x in l %}{% set ns.l = loop %}{% endfor %}{% macro m(a, b, c) %}{{ a ~ b ~ c }}{{ caller() if caller }}{% endmacro %}{{ m(1, 2, 3) }}{{ ns.l.index }}{{ ns.l.last }}{{ ns.l.previtem }}{{ ns.l.nextitem }}{{ ns.l.length }}",
     "1233True13"},
    {"{% set ns = namespace(k=[]) %}{% for x in l if x %}{% set ns.k = ns.k + [loop, {'a': loop}] %}{% endfor %}{{ 'x' * 3 }}{{ ns.k[0].index }}{{ ns.k[5].a.index0 }}{{ ns.k[2] == ns.k[3].a }}{{ ns.k[2] in ns.k }}",
     "xxx32TrueTrue"},
    {"{{ {'c': {'b': 1, 'a': 2}, 'aa': none, 'b': 0, 'a': true}|tojson(sort_keys=true) }}",
     "{\"a\": true, \"aa\": null, \"b\": 0, \"c\": {\"a\": 2, \"b\": 1}}"},
    {"{{ [{'a': 8}, {'a': 9}]|join('-', 'a') }}{{ [{}]|map(attribute='a', default='z')|list }}{{ tup|sort(attribute=1, reverse=true)|map(attribute=0)|join }}",
     "8-9['z']ba"},
    {"{{ l[9223372036854775807:] }}{{ l[-9223372036854775807 - 1:9223372036854775807] }}{{ l[::9223372036854775807] }}{{ l[::-9223372036854775807 - 1] }}{{ s[:huge] }}{{ l[-huge:] if false else l[:huge] }}{{ l[9223372036854775807] }}",
     "[][3, 1, 2][3][2]Hello, World[3, 1, 2]"},
    {"{{ range(9223372036854775806, 9223372036854775807)|list }}{{ range(0, -9223372036854775807 - 1, -9223372036854775807 - 1)|list }}{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807)|list }}{{ range(9223372036854775807, 0)|list }}",
     "[9223372036854775806][0][-9223372036854775807, 0][]"},
    {"{{ -9223372036854775807 - 1 }} {{ (-9223372036854775807 - 1) // 1 }} {{ (-9223372036854775807 - 1) % -1 }} {{ huge == huge + 0.0 }} {{ huge in [1, huge] }}",
     "-9223372036854775808 -9223372036854775808 0 True True"},
    {"{{ s.lower == 1 }}{{ s.lower is callable }}",
     "FalseTrue"},
    {"a\r\nb\rc\n|{{ 'x' }}\r\n",
     "a\nb\nc\n|x"},
    {"{% for x in [1, 2, 3] if x > 1 %}{{ loop.index0 }}{{ loop.index }}{% if loop.first %}{{ x }}{% endif %};{% endfor %}",
     "012;12;"},
    {"{{ true + 1 }} {{ true * 2.5 }} {{ -true }} {{ 3 * 'ab' }} {{ huge / 1e29 }} {{ huge * 1.0 }} {{ 1.0 - huge }} {{ 2.5 // 1 }}",
     "2 2.5 -1 ababab 1.234567890123457 1.2345678901234568e+29 -1.2345678901234568e+29 2.0"},
    {"{{ '\304\200\304\201\304\266\304\267\304\271\305\271\305\276 \305\220\305\221\316\243\316\222 \321\240 \322\212 \324\200\324\261\326\207 \306\240\306\257\310\230 \341\272\240\341\272\241\303\200\303\236\305\270 \316\206\316\210\316\214\316\216 \320\200\320\257\344\270\255\302\275\342\205\247\342\222\266'|lower }} {{ '\304\201\304\267\305\272\305\221 \317\203\316\262 \321\241 \322\213 \325\241 \341\272\241\306\241\306\260\310\231 \303\240\303\276\303\277 \316\254\316\255\317\214\317\215 \321\220\321\217 \344\270\255\302\2751\342\205\267\342\223\220'|upper }} {{ '\303\251a b\303\211 \303\237a'[:5].title() }} {{ '\303\251a-\303\251B x\344\270\255y'|title }} {{ '\321\217\320\257\303\211'|capitalize }} {{ ['\303\251', 'a', '\303\211', 'B']|sort }} {{ {'\303\261': 1, 'z': 2, '\346\227\245': 3}|dictsort }} {{ 'ab\\x00cd'|title|length }} {{ 'x\\x00<'|escape|length }}",
     "\304\201\304\201\304\267\304\267\304\272\305\272\305\276 \305\221\305\221\317\203\316\262 \321\241 \322\213 \324\201\325\241\326\207 \306\241\306\260\310\231 \341\272\241\341\272\241\303\240\303\276\303\277 \316\254\316\255\317\214\317\215 \321\220\321\217\344\270\255\302\275\342\205\267\342\223\220 \304\200\304\266\305\271\305\220 \316\243\316\222 \321\240 \322\212 \324\261 \341\272\240\306\240\306\257\310\230 \303\200\303\236\305\270 \316\206\316\210\316\214\316\216 \320\200\320\257 \344\270\255\302\2751\342\205\247\342\222\266 \303\211a B\303\251 \303\211a-\303\211b X\344\270\255y \320\257\321\217\303\251 ['a', 'B', '\303\251', '\303\211'] [('z', 2), ('\303\261', 1), ('\346\227\245', 3)] 5 6"},
    {"{{ 'a b'.split(none, 5) }} {{ 'a b c'.split(none, 0) }}",
     "['a', 'b'] ['a b c']"},
    {"{{ 'abc'.startswith('') }} {{ 'abc'.endswith('') }} {{ ''.startswith('a') }} {{ 'abc'.startswith(('a', 'b')) }} {{ 'abc'.endswith(('x', 'y')) }} {{ 'abc'.startswith(()) }}",
     "True True False True False False"},
    {"{{ [{'a': 1}]|map(attribute='a')|list }} {{ [{'-1': 3}]|map(attribute='-1')|list }} {{ [{'': 2}]|map(attribute='')|list }} {{ tup|map(attribute=1)|list }} {{ [{'a/b': 3, 'a-b': 4}]|map(attribute='a/b')|list }}",
     "[1] [3] [2] [1, 2] [3]"},
    {"{{ ('<b>'|safe)|string ~ '<' }} {{ ('<b>'|safe)|string|e }} {{ 'a\"b'|e }} {{ ('<'|safe)|e }}",
     "<b>< <b> a&#34;b <"},
    {"{{ 'a\\n'|indent(2, blank=true) }}| {{ 'a\\n\\n'|indent(1, true, true) }}| {{ ''|indent(blank=true) }}|",
     "a\n  |  a\n \n | |"},
    {"{{ 'a\\r\\n'|indent(1) }}|{{ 'a\\r\\n'|indent(1, blank=true) }}|{{ 'a\\n\\r'|indent(1) }}|",
     "a\n|a\n |a\n|"},
    {"{{ ''|indent }}| {{ ''|indent(first=true) }}| {{ 'a'|indent(0) }}",
     "|     | a"},
    {"{{ 5|int }} {{ huge|int }} {{ -((f * 1e308 * 10)) }} {{ ((f * 1e308 * 10))|string }} {{ [-((f * 1e308 * 10))] }} {{ [(f * 1e308 * 10) - (f * 1e308 * 10)] }} {{ ((f * 1e308 * 10) - (f * 1e308 * 10))|tojson }} {{ [(f * 1e308 * 10), -((f * 1e308 * 10))]|tojson }} {{ [1]|int(9) }}",
     "5 123456789012345678901234567890 -inf inf [-inf] [nan] NaN [Infinity, -Infinity] 9"},
    {"{{ missing|items|list }} {{ {'a': 1}|items|list }}",
     "[] [('a', 1)]"},
    {"{{ true is even }} {{ 1.5 is sequence }} {{ [1] is iterable }}",
     "False False True"},
    {"{{ 'abc'[-3] }}{{ 'abc'[-4] }}|{{ 'abc'[true] }}|{{ l[true] }}|{{ l['x'] }}|{{ l[1.5] }}|{{ l[none] }}|{{ d[none] }}|{{ d.items()[0] }}|{{ 'abc'['x'] }}|{{ d[missing] }}|{{ (1, 2)[0] }}",
     "a|b|1||||||||1"},
    {"{{ l[:huge] }}{{ l[huge:] }}{{ (1, 2, 3)[::-1] }}{{ (1, 2, 3)[::2] }}{{ l[2:1:1] }}{{ l[1:2:-1] }}{{ 'abc'[1:2:-1] }}|{{ (1, 2, 3)[1:] }}{{ [][::2] }}{{ l[::100] }}{{ l[::-100] }}",
     "[3, 1, 2][](3, 2, 1)(1, 3)[][]|(2, 3)[][3][2]"},
    {"{{ {1: 2, none: 3, 2.5: 4, true: 5} }} {{ {(1, 2): 3}[(1, 2)] }} {{ 1.0 in {1: 2} }} {{ {1: 2}[1.0] }}",
     "{1: 5, None: 3, 2.5: 4} 3 True 2"},
    {"{{ namespace() == namespace() }} {{ range(2) == range(2) }} {{ (l|map('string')) == 1 }} {{ none == none }} {{ l|first == none }} {{ {'a': 1} == {'b': 1} }} {{ {'a': 1} == {'a': 2} }} {{ {'a': 1} == {} }} {{ 1 == '1' }}",
     "False True False True False False False False False"},
    {"{% macro a() %}{% endmacro %}{% macro b() %}{% endmacro %}{{ a == a }} {{ a == b }} {{ a == 1 }}{% for x in l %}{{ loop == loop }}{% set ns = namespace(l=loop) %}{{ ns.l == loop }}{% endfor %}{% set n1 = namespace() %}{{ n1 == n1 }}",
     "True False FalseTrueTrueTrueTrueTrueTrueTrue"},
    {"{{ 'a' <= 'a' }} {{ 1 <= 2 }} {{ 2 <= 1 }} {{ 2 >= 1 }} {{ 1 >= 1 }} {{ 1 >= 2 }} {{ true < 2 }} {{ 1.5 < 2 }} {{ 'b' >= 'a' }}",
     "True True False True True False True True True"},
    {"{{ ['\\x00', '\\U000e0001', '\\u0600', '\\x85', 'it\\'s \"x\"'] }} {{ ['\\b\\f'] }} {{ '\\b\\f\\t'|tojson }} {{ [true, false]|tojson }} {{ [false, true] }} {{ '\\U0001F600'|tojson(ensure_ascii=true) }} {{ '\\x7f'|tojson(ensure_ascii=true) }}",
     "['\\x00', '\\U000e0001', '\\u0600', '\\x85', 'it\\'s \"x\"'] ['\\x08\\x0c'] \"\\b\\f\\t\" [true, false] [False, True] \"\\ud83d\\ude00\" \"\\u007f\""},
    {"{{ '\303\251a' }}{% set \303\251 = 5 %}{{ \303\251 }}{{ 1e+2 }} {{ 1E2 }} {{ 12.5e-1 }} {{ {'a': {'b': 5}}.a.b }} {{ [[1, 2], [3, 4]][1][0] }} {{ tup[1][0] }} {{ '\\ud7ff'|length }}{{ '\\ue000'|length }}",
     "\303\251a5100.0 100.0 1.25 5 3 b 11"},
    {"{{ +5 }} {{ + 5 }} {{ - -5 }} {{ not not 1 }} {{ 9 is gt(3) and 1 }} {{ 3 not in [1] }} {{ 3 not in [3] }} {{ s is not none and s is string }}",
     "5 5 5 True 1 True False True"},
    {"{% set (a, b) = [1, 2] %}{{ a }}{{ b }}",
     "12"},
    {"{% set y | replace('a', 'b') | upper %}abc{% endset %}{{ y }}{% filter replace('a', 'b')|upper %}abc{% endfilter %}",
     "BBCBBC"},
    {"{{ 0.0 is false }} {{ 0.0 and 1 }} {{ 2.5 and 1 }} {{ range and 1 }} {{ namespace() and 1 }} {{ (l|map('string')) and 1 }} {{ d.items() and 1 }} {{ range(0) or 2 }}",
     "False 0.0 1 1 1 1 1 2"},
    {"{{ ''|first is defined }}{{ 'a\\u001cb\\u001f'.split() }}{{ '\\x1f a'.strip() }}{{ '\\u00a0x\\u3000'|trim }}",
     "False['a', 'b']ax"},
    {"{{ 'a,b,c'.rsplit(',', 1) }} {{ 'abc'.rsplit('x') }} {{ 'xabc'.removeprefix('x') }} {{ 'abcx'.removesuffix('x') }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }}",
     "['a,b', 'c'] ['abc'] abc abc True False True True"},
    {"{{ s.title() }}{{ '99'|int + 1 }}{{ d._x is defined }} {{ 'abc'[1.5] is defined }}",
     "Hello, World100False False"},
    {"{{ loop is defined }}{% for x in l %}{{ loop is defined }}{% endfor %}{{ ('a' 'b')|length }}{{ \"a\" \"b\" 'c' }}",
     "FalseTrueTrueTrue2abc"},
    {"{% macro m(varargs, kwargs=8) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ namespace(varargs=1).varargs }}",
     "181"},
    {"{{ +true }}{{ +false + 1 }}{{ +1.5 }}{{ +-+1 }}{{ -+true }}",
     "111.5-1-1"},
    {"{{ 'a\\nb\\r\\nc\\rd\\x0be\\x0cf\\x1cg\\x1dh\\x1ei\\x85j\\u2028k\\u2029l\\tm'|indent(1) }}{{ 'a\\r\\n\\r\\nb\\r'|indent('>', true, true) }}|{{ 'a\\n \\n\\nb\\n\\n'|indent(1) }}|{{ ('<a>\\n'|safe)|indent(2, true) ~ '<' }}",
     "a\n b\n c\n d\n e\n f\n g\n h\n i\n j\n k\n l\011m>a\n>\n>b|a\n  \n\n b\n\n|  <a>\n<"},
    {"{% for k, v in tup if v %}{{ loop.last }}{{ k }}{% endfor %}{% for k, v in tup %}{{ loop.nextitem }}{% endfor %}{% for (k, v) in d|dictsort if k < 'c' %}{{ loop.index }}{% endfor %}{% for x in tup if x %}{{ loop.nextitem }}{% endfor %}",
     "FalseaTrueb['b', 2]12['b', 2]"},
    {"{{ range(5)[1:3]|list }}{{ range(5)[::-2]|list }}{{ range(5)[1:3] == [1, 2] }}{{ range(5)[1:3] == range(1, 3) }}{{ (1, 2, 3)[:2] }}",
     "[1, 2][4, 2, 0]FalseTrue(1, 2)"},
};
// clang-format on

static bool is_template_text(const Json *j) { return str_is(j->key, "bos_token"); }

// Renders a template with JSON variables. On failure *text is "ERROR ...".
static bool render(const char *source, const char *json, Buffer *text, Buffer *mask) {
    JsonDoc doc = {0};
    Error err = {0};
    struct tm now = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_wday = 5, .tm_yday = 207};

    bool ok = json_parse(&doc, json, strlen(json), &err);
    CHECK(ok, "%s: %s", json, err.text);
    Jinja *t = ok ? jinja_open(str_of(source), "test", &err) : NULL;
    ok = t && jinja_render(t, &(JinjaInput){&doc.root, 1, NULL, is_template_text, &now}, text, mask,
                           &err);
    if (!ok) buffer_printf(text, "ERROR %s", err.text);
    jinja_close(t);
    json_free(&doc);
    return ok;
}

static void language(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buffer text = {0}, mask = {0};
        buffer_puts(&text, "");

        render(cases[i][0], variables, &text, &mask);
        CHECK(!strcmp(text.data, cases[i][1]), "%s: found \"%s\", expected \"%s\"", cases[i][0],
              text.data, cases[i][1]);

        buffer_free(&text);
        buffer_free(&mask);
    }
}

// Calls `check` for the rows of a file, with the first row.
static void for_each_row(const char *path, void (*check)(const Json *first, const Json *row)) {
    Buffer file = {0};
    Error err = {0};
    JsonDoc first = {0};
    int n = 0;
    bool is_read = file_read(path, &file, &err);
    CHECK(is_read, "%s", err.text);

    for (char *at = file.data; is_read && at < file.data + file.len; n++) {
        char *end = strchr(at, '\n');
        JsonDoc row = {0};
        bool ok = json_parse(n ? &row : &first, at, (size_t)(end - at), &err);
        CHECK(ok, "%s: row %d: %s", path, n + 1, err.text);
        if (!ok) break;
        check(first.root, n ? row.root : first.root);
        json_free(&row);
        at = end + 1;
    }

    CHECK(n > 50, "%s: %d rows", path, n);
    json_free(&first);
    buffer_free(&file);
}

static const char *text_of_member(const Json *object, const char *name) {
    const Json *member = json_get_string(object, name);
    return member ? str_copy(member->string).data : NULL;
}

static void check_case(const Json *first, const Json *row) {
    (void)first;
    Buffer text = {0}, mask = {0};
    const char *source = text_of_member(row, "template");
    const char *expected = text_of_member(row, "text");
    const char *error = text_of_member(row, "error");
    buffer_puts(&text, "");

    bool ok = render(source, variables, &text, &mask);
    CHECK(ok == !error, "%s: %s", source, text.data);
    CHECK(error ? test_matches(text.data, error) : expected && !strcmp(text.data, expected),
          "%s: found \"%s\", expected \"%s\"", source, text.data, error ? error : expected);

    free((char *)source);
    free((char *)expected);
    free((char *)error);
    buffer_free(&text);
    buffer_free(&mask);
}

static void more_language(void) { for_each_row("tests/jinja_cases.jsonl", check_case); }

static void check_template(const Json *first, const Json *row) {
    if (row == first) return;
    const Json *dialogue = json_get(first, "dialogues")->child;
    const Json *name = json_get_string(row, "name");
    const Json *expected = json_get(row, "texts")->child;
    struct tm now = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_wday = 5, .tm_yday = 207};
    Error err = {0};
    Jinja *t = jinja_open(json_get_string(row, "template")->string, "test", &err);
    CHECK(t, "%.*s: %s", SHOWN(name->string), err.text);

    for (int i = 0; t && dialogue; dialogue = dialogue->next, expected = expected->next, i++) {
        Buffer text = {0}, mask = {0};
        bool ok = jinja_render(t, &(JinjaInput){&dialogue, 1, NULL, is_template_text, &now}, &text,
                               &mask, &err);
        bool has_text = expected->kind == JSON_STRING;
        CHECK(ok == has_text && (!ok || str_eq(buffer_str(&text), expected->string)),
              "%.*s, dialogue %d: %s", SHOWN(name->string), i, ok ? text.data : err.text);
        buffer_free(&text);
        buffer_free(&mask);
    }
    jinja_close(t);
}

static void templates_in_the_manner(void) {
    for_each_row("tests/jinja_templates.jsonl", check_template);
}

static const char *const refused_templates[][2] = {
    {"{{ n[1:] }}", "'NoneType' object has no slices"},
    {"{{ i[1:] }}", "'int' object has no slices"},
    {"{{ t[:1] }}", "'bool' object has no slices"},
    {"{{ f[::2] }}", "'float' object has no slices"},
    {"{{ d[1:] }}", "'dict' object has no slices"},
    {"{{ d.items()[1:] }}", "'dict_items' object has no slices"},
    {"{{ missing[1:] }}", "'missing' is undefined"},
    {"{{ +n }}", "unary +: 'NoneType'"},
    {"{{ +l }}", "unary +: 'list'"},
    {"{{ +d }}", "unary +: 'dict'"},
    {"{{ +s }}", "unary +: 'str'"},
    {"{{ +missing }}", "'missing' is undefined"},
    {"{{ -n }}", "unary -: 'NoneType'"},
    {"{{ missing|int }}", "'missing' is undefined"},
    {"{{ 5|indent }}", "expected a string, found 'int'"},
    {"{{ 9223372036854775808 }}", "the number 9223372036854775808 is too large"},
    {"{% macro m() %}{{ varargs }}{% endmacro %}{{ m(x=1) }}", "m has no parameter 'x'"},
    {"{% macro m(varargs) %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}",
     "m takes at most 1 arguments, found 2"},
    {"{% macro m(a, b) %}{% endmacro %}{{ m(1, a=2) }}", "m: two arguments 'a'"},
    {"{{ s|replace('a', 'b', old='c') }}", "replace: two arguments 'old'"},
    {"{{ 1 not 2 }}", "found \"not\""},
    {"a\nb {{ missing.x }}", "test: line 2: 'missing' is undefined"},
    {"{{ d.zz.x }}", "'dict object' has no attribute 'zz'"},
    {"\n\n{% unknown %}", "line 3: unknown tag 'unknown'"},
    {"{% include 'x' %}", "unknown tag 'include'"},
    {"{{ s|nosuch }}", "no filter named 'nosuch'"},
    {"{{ s is nosuch }}", "no test named 'nosuch'"},
    {"{{ nosuch() }}", "'nosuch' is undefined"},
    {"{{ s.nosuch() }}", "'str object' has no attribute 'nosuch'"},
    {"{{ l.append(1) }}", "may not change a list"},
    {"{{ d.pop('a') }}", "may not change a dict"},
    {"{{ s.__class__ }}", "unsafe"},
    {"{{ 'a' + 1 }}", "unsupported operand types for +: 'str' and 'int'"},
    {"{{ 1 + missing }}", "'missing' is undefined"},
    {"{{ 1 / 0 }}", "division by zero"},
    {"{{ 7 % 0 }}", "by zero"},
    {"{% for x in n %}{% endfor %}", "'NoneType' object is not iterable"},
    {"{{ (m|select)|length }}", "has no len()"},
    {"{{ m|map('upper')|tojson }}", "Object of type generator is not JSON serializable"},
    {"{{ raise_exception('Only ' ~ i ~ ' roles') }}", "line 1: Only 7 roles"},
    {"{% if s %}", "expected 'endif'"},
    {"{% endif %}", "unknown tag 'endif'"},
    {"{{ s", "a tag has no end"},
    {"{{ 'abc }}", "a string has no end"},
    {"{# x", "a comment has no end"},
    {"{{ }}", "expected an expression"},
    {"{{ a b }}", "expected ... found \"b\""},
    {"{{ (1 }}", "a tag has no end"},
    {"{{ @ }}", "unexpected character '@'"},
    {"{% set 5 = 3 %}", "cannot assign"},
    {"{% set s.x = 3 %}", "non-namespace"},
    {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "f takes at most 1 arguments, found 2"},
    {"{{ range(200000) }}", "at most 100000"},
    {"\xff", "invalid UTF-8 at byte 0"},
    {"{{ 'abc'.startswith((1,)) }}", "expected ... found 'int'"},
    {"{{ {1: 1, 'a': 2}|tojson(sort_keys=true) }}", "'<' not supported"},
    {"{{ (1, 2)|dictsort }}", "expected ... found 'tuple'"},
    {"{{ range(0, -9223372036854775807 - 1, -1) }}", "at most 100000"},
    {"{{ range(-9223372036854775807, 9223372036854775807) }}", "at most 100000"},
    {"{{ -(-9223372036854775807 - 1) }}", "too large"},
    {"{{ (-9223372036854775807 - 1) // -1 }}", "too large"},
    {"{{ 9223372036854775807 * -3 }}", "too large"},
    {"{{ huge + 1 }}", "too large"},
    {"{{ range(huge) }}", "too large"},
    {"{{ 1e30|int }}", "too large"},
    {"{{ 'a b'.split('') }}", "empty separator"},
    {"{{ [1]|tojson(separators=[',']) }}", "separators: expected ... found 1"},
    {"{{ l|map('string')|last }}", "'generator' object is not reversible"},
    {"{{ 5|length }}", "object of type 'int' has no len()"},
    {"{{ l|map|list }}", "map requires a filter argument"},
    {"{{ l|map(x=1)|list }}", "map requires a filter argument"},
    {"{{ l|selectattr|list }}", "need an attribute"},
    {"{{ range(1, 2, 0) }}", "must not be zero"},
    {"{{ s|upper(1) }}", "upper takes at most 0 arguments, found 1"},
    {"{{ s|replace('a', nope=1) }}", "replace has no parameter 'nope'"},
    {"{{ s|replace('a') }}", "replace needs an argument 'new'"},
    {"{{ s.find() }}", "find needs an argument 'sub'"},
    {"{{ i() }}", "'int' object is not callable"},
    {"{{ 'x'() }}", "'str' object is not callable"},
    {"{{ l[::0] }}", "slice step cannot be zero"},
    {"{% set a, b = [1] %}", "expected 2 values to unpack, found 1"},
    {"{% for a, b in [[1, 2, 3]] %}{% endfor %}", "expected 2 values to unpack, found 3"},
    {"{% for x in l %}{{ loop(l) }}{% endfor %}", "only a recursive loop can be called"},
    {"{% for x in l %}{{ loop.nosuch }}{% endfor %}", "loop has no attribute 'nosuch'"},
    {"{{ {} * 2 }}", "unsupported operand types for *: 'dict' and 'int'"},
    {"{{ 2 * none }}", "unsupported operand types for *: 'int' and 'NoneType'"},
    {"{{ (1,) + (2,) + [3] }}", "unsupported operand types for +: 'tuple' and 'list'"},
    {"{{ {} + {} }}", "unsupported operand types for +: 'dict' and 'dict'"},
    {"{{ 7 // 0 }}", "integer division or modulo by zero"},
    {"{{ 7.5 // 0 }}", "division by zero"},
    {"{{ huge // 2 }}", "too large"},
    {"{{ -'a' }}", "bad operand type for unary -: 'str'"},
    {"{{ -huge }}", "too large"},
    {"{{ 'a' - 1 }}", "unsupported operand types for -: 'str' and 'int'"},
    {"{{ range('a') }}", "expected ... found 'str'"},
    {"{{ {[1]: 2} }}", "unhashable"},
    {"{{ {{}: 2} }}", "unhashable"},
    {"{{ 1 < 'a' }}", "'<' not supported between instances of 'int' and 'str'"},
    {"{{ {} < {} }}", "'<' not supported between instances of 'dict' and 'dict'"},
    {"{{ none >= none }}", "'<' not supported"},
    {"{{ '99999999999999999999'|int }}", "too large"},
    {"{{ namespace({'a': 1}) }}", "a 'Namespace' has no text"},
    {"{{ range(*[1, 2]) }}", "a 'range' has no text"},
    {"{{ namespace(**d) }}", "a 'Namespace' has no text"},
    {"{% macro m() %}{% endmacro %}{% call m() %}x{% endcall %}", "m has no parameter 'caller'"},
    {"{% set ns = namespace() %}{% for x in [1, 2, 3] if x == 1 or ns.l.last %}{% set ns.l = "
     "loop %}{{ loop.last }}{% endfor %}",
     "the condition of a loop uses this loop"},
    {"{{ 5 in 'abc' }}", "requires string as left operand, not int"},
    {"{{ {(1, 2): 3}|tojson }}", "keys must be str, int, float, bool or None, found 'tuple'"},
    {"{{ range }}", "a 'function' has no text"},
    {"{{ d.items() }}", "has no text"},
    {"{% for x in l %}{{ loop }}{% endfor %}", "has no text"},
    {"{{ missing|tojson }}", "Object of type Undefined is not JSON serializable"},
    {"{{ 99999999999999999999999999999999999999999999999999999999999999999999999999999999 }}",
     "is too large"},
    {"{{ 1e9999 }}", "is too large"},
    {"{{ l[] }}", "expected an index"},
    {"{{ 1 is odd is even }}", "a test of a test needs brackets"},
    {"{% if %}x{% endif %}", "expected an expression"},
    {"{% set x = 'a' 5 %}", "expected"},
    {"{{ s|upper", "a tag has no end"},
    {"{% for x of l %}{% endfor %}", "expected in, found"},
    {"{% set a.b.c %}x{% endset %}", ""},
};

static void refusals(void) {
    for (size_t i = 0; i < sizeof refused_templates / sizeof *refused_templates; i++) {
        Buffer text = {0}, mask = {0};
        CHECK(!render(refused_templates[i][0], variables, &text, &mask) &&
                  test_matches(text.data, refused_templates[i][1]),
              "%s: %s", refused_templates[i][0], text.data);
        buffer_free(&text);
        buffer_free(&mask);
    }
}

// The expected texts show bytes with mask 0, which come from the variables, as dots.
static void provenance(void) {
    static const char json[] = "{\"a\":\"<x>\",\"l\":[\"p\",\"q\"],\"bos_token\":\"<s>\"}";
    static const char *const masked[][2] = {
        {"<{{ a }}>", "<...>"},
        {"{{ bos_token }}{{ 'b' ~ a + 'c' }}", "<s>b...c"},
        {"{{ a.replace('x', 'YY') }}{{ ('[' + a + ']')|upper }}", ".YY.[...]"},
        {"{{ l|join('-') }}{{ '<>'.join(l) }}", ".-..<>."},
        {"{% macro m(x) %}({{ x }}){% endmacro %}{{ m(a) }}{{ m('!') }}", "(...)(!)"},
        {"{% set c %}<{{ a }}{% endset %}{{ c[:2] }}{{ c[1:] }}{{ c.split('x')[0] }}", "<....<."},
        {"{% filter trim %} <{{ a }}> {% endfilter %}", "<...>"},
        {"{{ ('<' ~ a)|tojson }}", ".<...."},
        {"{{ (a ~ '|')|list }}", ".................|.."},
        {"{{ ('<|' ~ a ~ '|>').strip('<|') }}{{ ' x '.strip() }}",
         "..|>x"}, // strip() also removes the first byte of a, "<"
        {"{{ {'<k>': a} }}", "..<k>........."},
        {"{{ [a, '<b>']|first }}{{ [a, '<b>'][1] }}", "...<b>"},

        // Formats: what a field writes is data, except strings of the template.
        {"{{ '<%s|%s>' % (a, 'b') }}", "<...|b>"},
        {"{{ '<%(k)s>' % {'k': a} }}{{ '[%d%%]' % 7 }}", "<...>[.%]"},
        {"{{ '%r' % '<b>' }}{{ '%-3s|' % 'b' }}", ".<b>.b..|"},
        {"{{ '<{}|{}>'.format(a, 'b') }}{{ '{:*>3}|{:3}'.format('b', a) }}", "<...|b>**b|..."},
        {"{{ '<{:>5}>'.format(a) }}{{ '{:x}'.format(255) }}", "<.....>.."},
        {"{{ a.format('<b>') }}{{ (a ~ '%s') % '<b>' }}", "......<b>"},
        {"{{ ('{' ~ a ~ '}').format(**{a: '<b>'}) }}", "<b>"},
        {"{{ '{:{}}'.format('b', a ~ '>3') if false }}{{ '<%s>'|format(l) }}", "<..........>"},
        {"{{ 'b'.center(5, a[0]) }}{{ a.center(5, '*') }}", "..b..*...*"},
        {"{{ 'a&b'|urlencode }}{{ a|urlencode }}", "a...b......."},
        {"{{ ('<b> ' * 3)|truncate(8, true, a, 0) }}", "<b> <..."},

        // Calls, loops, and raw text.
        {"{% macro m() %}<{{ caller(a) }}>{% endmacro %}{% call(x) m() %}({{ x }}){% endcall %}",
         "<(...)>"},
        {"{% macro m() %}{{ varargs[0] }}{{ kwargs.k }}{% endmacro %}{{ m(a, k='<b>') }}",
         "...<b>"},
        {"{% for x in [[a], '<b>'] recursive %}{{ loop(x) if x is not string else x }}|{% endfor "
         "%}",
         "...||<b>|"},
        {"{% raw %}<{{ a }}>{% endraw %}{% with b = a, c = '<c>' %}{{ b }}{{ c }}{% endwith %}",
         "<{{ a }}>...<c>"},
        {"{{ [a, '<b>']|max }}{{ ['<b>', a]|unique|join('-') }}", "...<b>-..."},
        {"{% set j = joiner('|') %}{{ j() }}{{ a }}{{ j() }}{{ [a, 'b']|batch(1)|first|first }}",
         "...|..."},
        {"{{ {'<k>': a}|tojson }}{{ (a ~ '<b>').partition('<b>')[1] }}", "..<k>.........<b>"},
    };

    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++) {
        Buffer text = {0}, mask = {0};
        CHECK(render(masked[i][0], json, &text, &mask) && mask.len == text.len, "%s: %s",
              masked[i][0], text.data);

        // Compare the text with dots in the place of variables.
        for (size_t k = 0; k < mask.len; k++)
            if (!mask.data[k]) text.data[k] = '.';
        CHECK(!strcmp(text.data, masked[i][1]), "%s: found %s, expected %s", masked[i][0],
              text.data, masked[i][1]);

        buffer_free(&text);
        buffer_free(&mask);
    }
}

// `before`, then n times `part`, then `after`.
static char *repeated(const char *before, const char *part, int n, const char *after) {
    Buffer b = {0};
    buffer_puts(&b, before);
    for (int i = 0; i < n; i++) buffer_puts(&b, part);
    buffer_puts(&b, after);
    return b.data;
}

static char *nested(int n, const char *open, const char *close) {
    char *head = repeated("{{ ", open, n, "1");
    char *all = repeated(head, close, n, " }}");
    free(head);
    return all;
}

// Frees the n templates after every test_step(4)th was rendered: each must fail, with a message
// that names a limit.
static void check_limits(char **templates, int n) {
    for (int i = 0; i < n; i += test_step(4)) {
        Buffer text = {0}, mask = {0};
        CHECK(!render(templates[i], "{\"s\":\"x\"}", &text, &mask), "%.60s", templates[i]);
        CHECK(strstr(text.data, "too ") || strstr(text.data, "more than") ||
                  strstr(text.data, "at most") || strstr(text.data, "deeper"),
              "%.60s: %s", templates[i], text.data);

        buffer_free(&text);
        buffer_free(&mask);
    }

    for (int i = 0; i < n; i++) free(templates[i]);
}

// Templates that would run forever or exhaust memory or the stack.
static void hostile(void) {
    static const char doubling[] =
        "{% set ns = namespace(x='0123456789') %}{% for i in range(60) %}";
    char *bad[] = {
        // Texts and lists that double 60 times, six nested loops, recursion.
        repeated(doubling, "", 0, "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
        repeated(doubling, "", 0, "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
        repeated(doubling, "", 0, "{% set ns.x = ns.x.replace('', ns.x) %}{% endfor %}"),
        repeated(doubling, "", 0, "{{ ns.x * 100000000 }}{% endfor %}"),
        repeated("", "{% for i in range(100000) %}", 6,
                 "{{ i }}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}{% endfor %}"),
        repeated("{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}", "", 0, ""),
        repeated("{% macro f(x) %}{% if x %}{{ f(x - 1) }}{{ f(x - 1) }}{% endif %}{% endmacro "
                 "%}{{ f(60) }}",
                 "", 0, ""),

        // Nesting, chains, and a long string in the source.
        nested(50000, "(", ")"),
        nested(50000, "[", "]"),
        repeated("{{ ", "not ", 50000, "1 }}"),
        repeated("{{ ", "- ", 50000, "1 }}"),
        repeated("{{ 1", "+1", 50000, " }}"),
        repeated("{{ s", ".x", 50000, " }}"),
        repeated("{{ s", "|upper", 30000, " }}"),
        repeated("{{ s ", "if 1 else 2 ", 20000, "}}"),
        repeated("{% if 0 %}", "{% elif 0 %}", 20000, "{% endif %}"),
        repeated("", "{% if 1 %}", 20000, ""),
        repeated("{{ '", "x", 300000, "' }}"),

        // Calls with thousands of arguments, also in all running calls together.
        repeated("{{ namespace(1", ", 1", 4096, ") }}"),
        repeated("{{ range(1, 2, namespace(1", ", 1", 4094, ")) }}"),

        repeated("{{ range(*range(5000)) }}", "", 0, ""),

        // Widths, powers, repetitions.
        repeated("{{ '%1000000000s' % 'x' }}", "", 0, ""),
        repeated("{{ '%*d' % (9223372036854775807, 1) }}", "", 0, ""),
        repeated("{{ '%-*d' % (-9223372036854775807 - 1, 1) }}", "", 0, ""),
        repeated("{{ '%.999999999f' % 1.5 }}", "", 0, ""),
        repeated("{{ '%.5000d' % 1 }}", "", 0, ""),
        repeated("{{ '{:1000000000}'.format('x') }}", "", 0, ""),
        repeated("{{ '{:.99999f}'.format(1.5) }}", "", 0, ""),
        repeated("{{ '{:{}}'.format('x', 99999999999) }}", "", 0, ""),
        repeated("{% for i in range(100000) %}{{ '{:1000000}'.format(1)|length }}{% endfor %}", "",
                 0, ""),
        repeated("{{ '", "{:1000000}", 9, "'.format(1,1,1,1,1,1,1,1,1) }}"),
        repeated("{{ 'x'.rjust(1000000000000) }}", "", 0, ""),
        repeated("{{ 'x'.zfill(1000000000000) }}", "", 0, ""),
        repeated("{{ 'x'|center(1000000000000) }}", "", 0, ""),
        repeated("{{ 'x'|indent(1000000000000, true) }}", "", 0, ""),
        repeated("{{ 2 ** 1000000000000000000 }}", "", 0, ""),
        repeated("{{ 10.5 ** 1000000 }}", "", 0, ""),
        repeated("{{ [1] * 1000000000000 }}", "", 0, ""),
        repeated("{{ [] * 1000000000000 }}", "", 0, ""),
        repeated("{{ [1]|batch(1000000000000, 'x')|list }}", "", 0, ""),
        repeated("{{ [1]|slice(1000000000000, 'x')|list }}", "", 0, ""),
        repeated("{{ range(100000)|unique|list }}", "", 0, ""),

        // Loops and calls that recurse.
        repeated("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "", 0, ""),
        repeated("{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}", "", 0, ""),
        repeated("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
                 "", 0, ""),
        repeated("{% macro f() %}{{ caller() }}{% endmacro %}{% macro g(n) %}{% call f() %}{{ "
                 "g(n - 1) if n }}{{ g(n - 1) if n }}{% endcall %}{% endmacro %}{{ g(40) }}",
                 "", 0, ""),

        // Values nested thousands of levels deep.
        repeated("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] "
                 "%}{% endfor %}{{ ns.x }}",
                 "", 0, ""),
        repeated("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] "
                 "%}{% endfor %}{{ ns.x "
                 "== [ns.x] }}",
                 "", 0, ""),

        // Loops of steps that each take long.
        repeated("{% for a in range(100000) %}{{ range(100000) | length }}{% endfor %}", "", 0, ""),
        repeated("{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{{ x.strip(x) }}{{ "
                 "x.split('ba' * 1000) "
                 "}}{% endfor %}",
                 "", 0, ""),
        repeated("{% set x = 'ab' * 1000000 %}{{ x.find(x[:1000000] ~ 'c') }}{{ x.find('ab' * 30 "
                 "~ 'c') }}"
                 "{% for i in range(100000) %}{{ x.replace('ab' * 30 ~ 'c', '') }}{% endfor %}",
                 "", 0, ""),
        repeated("{% set x = (' ' * 1000) * 8000 %}", "{% for i in range(9999) %}", 2,
                 "{{ x|trim }}{% endfor %}{% endfor %}"),
        repeated(
            "{% set x = ('a' * 1000) * 4000 %}{% set y = x ~ 'b' %}{% for i in range(99999) %}{{ x "
            "< y }}{{ x <= y }}{% endfor %}",
            "", 0, ""),
        repeated("{% set x = ('a' * 9999)|list %}{% for i in range(99999) %}{{ x|sort|length }}{{ "
                 "'ab'.startswith(('c', 'd')) }}{% endfor %}",
                 "", 0, ""),
        repeated("{% set x = range(100000)|list %}", "{% for i in range(9999) %}", 2,
                 "{{ x|select|list }}{% endfor %}{% endfor %}"),
        repeated(
            "{% set x = range(1000)|list %}{% set ns = namespace(x=x) %}{% for i in range(250) "
            "%}{% set ns.x = [ns.x] %}{% endfor %}{% for i in range(99999) %}{{ "
            "ns.x|tojson(indent='123456789012345678901234567890')|length }}{% endfor %}",
            "", 0, ""),
        repeated("{% set x = 'ab' * 1000000 %}{% for i in range(100000) %}{{ x.split('a')|length "
                 "}}{{ x|tojson|length "
                 "}}{% endfor %}",
                 "", 0, ""),
    };

    check_limits(bad, sizeof bad / sizeof *bad);
}

// Renders the template `arg` on a thread.
static void *render_on_thread(void *arg) {
    Buffer text = {0}, mask = {0};
    bool ok = render(arg, "{\"l\":[1,2]}", &text, &mask);
    CHECK(ok || strstr(text.data, "too deeply") || strstr(text.data, "deeper"), "%.60s: %.80s",
          (char *)arg, text.data);
    buffer_free(&text);
    buffer_free(&mask);
    return NULL;
}

// The limits of recursion hold on a small stack. A template that needs more ends the process.
static void small_stack(void) {
#ifdef __SANITIZE_ADDRESS__
    enum { STACK_BYTES = 8 << 20 }; // its frames are large
#else
    enum { STACK_BYTES = 320 << 10 };
#endif
    static const char growing[] = "{% set ns = namespace(x=[], y=[]) %}{% for i in range(280) %}";
    char *deep[] = {
        // Macros, calls and loops that recurse.
        repeated("{% macro f(x) %}{{ f(x + 1) }}{% endmacro %}{{ f(1) }}", "", 0, ""),
        repeated("{% macro f(x=f()) %}{% endmacro %}{{ f() }}", "", 0, ""),
        repeated("{% macro f() %}{{ 'x'|replace(f(), 'y') }}{% endmacro %}{{ f() }}", "", 0, ""),
        repeated("{% macro f() %}{{ [1]|map('default', f())|list }}{% endmacro %}{{ f() }}", "", 0,
                 ""),
        repeated("{% macro f() %}{% set y | upper %}{{ f() }}{% endset %}{% endmacro %}{{ f() }}",
                 "", 0, ""),
        repeated("{% macro f() %}{% set a = f() %}{% endmacro %}{{ f() }}", "", 0, ""),
        repeated("{% macro f() %}{% for x in [1] if f() %}{% endfor %}{% endmacro %}{{ f() }}", "",
                 0, ""),
        repeated("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "", 0, ""),
        repeated("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
                 "", 0, ""),
        repeated("{% macro f() %}{% with x = f() %}{% endwith %}{% endmacro %}{{ f() }}", "", 0,
                 ""),
        repeated("{% macro f() %}{{ '{:{}}'.format(1.5, 9) ~ '%s' % f() }}{% endmacro %}{{ f() }}",
                 "", 0, ""),
        repeated("{% macro f() %}{{ '{:.900f}'.format(1.5) }}{{ f() }}{% endmacro %}{{ f() }}", "",
                 0, ""),

        // Nested and chained expressions.
        nested(48, "(", ")"),
        repeated("{{ 1", " + 1", 290, " }}"),
        repeated("{{ 1", " ** 1", 290, " }}"),
        repeated("{{ 1", " <= 1", 2900, " }}"),
        repeated("{{ l", "|map('string')", 290, "|list }}"),
        repeated("{{ ", "- ", 97, "1 }}"),
        repeated("{{ ", "not ", 97, "1 }}"),
        repeated("", "{% if 1 %}", 200, ""),
        nested(48, "1|default(", ")"),
        nested(48, "{1: ", "}"),

        // Nested values.
        repeated(growing, "", 0, "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"),
        repeated(growing, "", 0, "{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x }}"),
        repeated(growing, "", 0,
                 "{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x|tojson(sort_keys=true, indent=1) "
                 "}}"),
        repeated(growing, "", 0, "{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1}|string }}"),
        repeated(growing, "", 0,
                 "{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}{{ "
                 "ns.x < ns.y }}"),
        repeated(growing, "", 0,
                 "{% set ns.x = {'a': ns.x} %}{% set ns.y = {'a': ns.y} %}{% endfor %}{{ ns.x == "
                 "ns.y }}{{ '%r' % ns.x }}"),
    };

    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        CHECK(!pthread_attr_setstacksize(&attributes, STACK_BYTES), "%d", STACK_BYTES);
        CHECK(!pthread_create(&thread, &attributes, render_on_thread, deep[i]), "%.60s", deep[i]);
        pthread_join(thread, NULL);

        pthread_attr_destroy(&attributes);
        free(deep[i]);
    }
}

// Truncated and corrupted templates are rendered or refused; the program does not crash.
static void mutations(void) {
    static const char source[] =
        "{%- macro m(a, b='x') -%}{{ a ~ b }}{%- endmacro -%}{% for k, v in d.items() if k %}{{ "
        "m(k, b=v|"
        "tojson(indent=2)) }}{% if loop.last and s[1:-1:2] is string %}\n{% break %}{% endif %}{% "
        "else %}{% set x %}q{% endset %}{% endfor %}{{ [1, {'a': (2.5, none)}]|map('first')|list "
        "}}";
    static const char bytes[] = "{}%#-'\"()[]|.,: \n1a~\\";

    uint64_t state = 1;

    // Up to three characters changed; every other template truncated.
    for (int i = 0; i < 3000; i++) {
        char copy[sizeof source];
        memcpy(copy, source, sizeof source);
        for (uint64_t k = test_random(&state) % 4; k < 4; k++)
            copy[test_random(&state) % (sizeof source - 1)] =
                bytes[test_random(&state) % (sizeof bytes - 1)];
        if (i % 2) copy[test_random(&state) % sizeof source] = 0;

        Buffer text = {0}, mask = {0};
        render(copy, variables, &text, &mask);
        buffer_free(&text);
        buffer_free(&mask);
    }
}

// Reads the lines of a file; NULL if there is no such file.
static char **lines_of(const char *name, int *n) {
    Buffer text = {0};
    Error err;
    const char *path = test_data(name);

    *n = 0;
    if (!path || !file_read(path, &text, &err)) return NULL;

    char **lines = NULL;
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) {
        lines = xrealloc(lines, (size_t)*n + 1, sizeof *lines);
        lines[(*n)++] = line;
    }
    return lines;
}

// Renders a dialogue and compares the result with a golden line: a JSON string is the expected
// text, an object means that rendering must fail. counts: the numbers of failures and texts so far.
static void compare(const char *name, const Jinja *t, const char *dialogue, const char *golden,
                    int counts[2]) {
    static const char defaults[] =
        "{\"add_generation_prompt\":true,\"tools\":null,\"documents\":null}";
    JsonDoc base = {0}, doc = {0}, expected = {0};
    Error err = {0};
    Buffer text = {0}, mask = {0};
    struct tm now = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26, .tm_wday = 5, .tm_yday = 207};

    json_parse(&base, defaults, sizeof defaults - 1, &err);
    json_parse(&doc, dialogue, strlen(dialogue), &err);
    json_parse(&expected, golden, strlen(golden), &err);

    // The dialogue overrides the defaults.
    const Json *objects[2] = {base.root, doc.root};
    bool ok = jinja_render(t, &(JinjaInput){objects, 2, NULL, is_template_text, &now}, &text, &mask,
                           &err);
    bool has_text = expected.root->kind == JSON_STRING;
    CHECK(ok == has_text, "%s: %s: %s", name, dialogue, ok ? "rendered" : err.text);
    if (ok && has_text)
        CHECK(str_eq(buffer_str(&text), expected.root->string), "%s: %s: %s", name, dialogue,
              text.data);
    counts[has_text]++;
    json_free(&base);
    json_free(&doc);
    json_free(&expected);
    buffer_free(&text);
    buffer_free(&mask);
}

static void real_templates(void) {
    static const char *const names[] = {"Apertus-8B-Instruct",
                                        "Apriel-1.6-15b-Thinker-fixed",
                                        "ByteDance-Seed-OSS",
                                        "Cohere2MoE",
                                        "GLM-4.6",
                                        "GLM-4.7-Flash",
                                        "GigaChat3.1-10B-A1.8B",
                                        "Kimi-K2-Thinking",
                                        "Kimi-K3",
                                        "LFM2-8B-A1B",
                                        "LFM2.5-Instruct",
                                        "MiMo-VL",
                                        "MiniMax-M2",
                                        "MiniMax-M3",
                                        "Mistral-Small-3.2-24B-Instruct-2506",
                                        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
                                        "NVIDIA-Nemotron-Nano-v2",
                                        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
                                        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
                                        "Qwen-QwQ-32B",
                                        "Qwen-Qwen2.5-7B-Instruct",
                                        "Qwen-Qwen3-0.6B",
                                        "Qwen3.5-4B",
                                        "Spark2.5",
                                        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
                                        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
                                        "deepseek-ai-DeepSeek-V3.2",
                                        "deepseek-ai-DeepSeek-V4",
                                        "fireworks-ai-llama-3-firefunction-v2",
                                        "google-gemma-4-31B-it-interleaved",
                                        "ibm-granite-granite-3.3-2B-Instruct",
                                        "ibm-granite-granite-4.0",
                                        "inclusionai-ling-3.0-flash",
                                        "llama-cpp-deepseek-r1",
                                        "llama-cpp-rwkv-world",
                                        "meetkai-functionary-medium-v3.1",
                                        "meta-llama-Llama-3.1-8B-Instruct",
                                        "microsoft-Phi-3.5-mini-instruct",
                                        "mistralai-Ministral-3-14B-Reasoning-2512",
                                        "moonshotai-Kimi-K2",
                                        "muse-glimmer",
                                        "unsloth-Apriel-1.5",
                                        "unsloth-mistral-Devstral-Small-2507"};
    int n_dialogues, n_golden, counts[2] = {0};
    char path[200];
    char **dialogues = lines_of("templates/dialogues.jsonl", &n_dialogues);
    if (!dialogues) {
        test_skip("no templates under LLAMA31_DATA");
        return;
    }

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Buffer source = {0};
        Error err = {0};
        snprintf(path, sizeof path, "templates/%s.jinja", names[i]);
        bool is_read = test_data(path) && file_read(test_data(path), &source, &err);
        Jinja *t = is_read ? jinja_open(buffer_str(&source), names[i], &err) : NULL;
        CHECK(t, "%s: %s", names[i], err.text);

        // Every template renders every dialogue.
        snprintf(path, sizeof path, "templates/%s.golden.jsonl", names[i]);
        char **golden = lines_of(path, &n_golden);
        CHECK(n_golden == n_dialogues, "%s: %d golden lines for %d dialogues", names[i], n_golden,
              n_dialogues);

        if (t)
            for (int k = 0; k < n_golden; k++)
                compare(names[i], t, dialogues[k], golden[k], counts);

        jinja_close(t);
        buffer_free(&source);
        if (golden) free(golden[0]);
        free(golden);
    }

    // Texts and errors of Jinja2 in all golden files.
    CHECK(counts[1] == 601 && counts[0] == 87, "%d texts, %d errors", counts[1], counts[0]);

    free(dialogues[0]);
    free(dialogues);
}

void test_jinja(void) {
    test_case("jinja: same text as Jinja2", language);
    test_case("jinja: same text as Jinja2, rows of a file", more_language);
    test_case("jinja: 60 chat templates, 3 dialogues", templates_in_the_manner);
    test_case("jinja: errors name the line and the cause", refusals);
    test_case("jinja: provenance mask", provenance);
    test_case("jinja: hostile templates hit a limit", hostile);
    test_case("jinja: recursion on a stack of 320 KiB", small_stack);
    test_case("jinja: corrupted templates", mutations);
    test_case("jinja: 43 published templates, 16 dialogues", real_templates);
}

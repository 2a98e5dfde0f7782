// The interpreter of chat templates: the language, what it refuses, its bounds, and where each byte comes from.
#include "tests/catch.h"

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/chat/jinja/failure.h"
#include "models/chat/jinja/program.h"
#include "tests/models/chat/jinja_cases.h"

namespace halfbyte::models::jinja {
namespace {

using Json = nlohmann::ordered_json;

const Date kDate{.year = 2024, .month = 7, .day = 6, .hour = 15, .minute = 4, .second = 5};

Text run(std::string_view source, const Json& variables = Json::object(), const Limits& limits = {}) {
  std::vector<Variable> given;
  for (const auto& [name, value] : variables.items()) given.push_back({name, &value});
  return Program(source, "model").run(given, kDate, limits);
}

std::string shown(std::string_view source, const Json& variables = Json::object()) {
  return run(source, variables).bytes();
}

// What the caller's data is, in brackets.
std::string marked(std::string_view source, const Json& variables) {
  const Text text = run(source, variables);
  std::string out;
  for (const Run& run : text.runs()) {
    const std::string part(text.view().substr(run.begin, run.end - run.begin));
    out += run.origin == Origin::kGiven ? "[" + part + "]" : part;
  }
  return out;
}

struct Failure {
  ErrorCode code;
  std::string what;
};

Failure failure(std::string_view source, const Json& variables = Json::object(), const Limits& limits = {}) {
  try {
    return {{}, "no error, but " + run(source, variables, limits).bytes().substr(0, 200)};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

TEST_CASE("templates are rendered as jinja2 renders them", "[jinja]") {
  const Json variables = Json::parse(tests::kVariables);
  for (const tests::JinjaCase& row : tests::kJinjaCases) {
    INFO(row.source);
    CHECK(shown(row.source, variables) == row.wanted);
  }
}

TEST_CASE("a date is written in Python's words", "[jinja]") {
  CHECK(shown("{{ strftime_now('%d %b %Y|%B %A %a %m %y %H:%M:%S %I %p %j %% %-d %F %T') }}") ==
        "06 Jul 2024|July Saturday Sat 07 24 15:04:05 03 PM 188 % 6 2024-07-06 15:04:05");
  CHECK(parse_date("26 Jul 2024")->day == 26);
  CHECK(parse_date("2024-02-29")->month == 2);
  CHECK(parse_date("1 February 2025")->month == 2);
  for (const char* none : {"", "26 Jul", "2023-02-29", "32 Jul 2024", "26 Foo 2024", "26 Jul 2024 ", "-1 Jul 2024"})
    CHECK_FALSE(parse_date(none));
}

TEST_CASE("every byte knows whether the template or the caller had it", "[jinja]") {
  const Json given = {
      {"x", "ab|cd"}, {"m", {{{"role", "user"}, {"content", " Hi "}}, {{"role", "<|im_end|>"}}}}, {"d", {{"k", "v"}}}};
  const std::pair<const char*, const char*> rows[] = {
      {"<{{ x }}>", "<[ab|cd]>"},
      {"{{ '<' + x + '>' }}", "<[ab|cd]>"},
      {"{{ '<' ~ x ~ '>' }}", "<[ab|cd]>"},
      {"{{ ('<' + x + '>')[1:-3] }}", "[ab|]"},
      {"{{ ('<' + x + '>')[::-1] }}", ">[dc|ba]<"},
      {"{{ ('<' + x + '>').upper() }}", "<[AB|CD]>"},
      {"{{ ('<' + x + '>') | title }}", "<[Ab|cd]>"},
      {"{{ (' ' + m[0].content + ' ') | trim }}", "[Hi]"},
      {"{{ x.replace('|', '<|') }}", "[ab]<|[cd]"},
      {"{{ '<|x|>'.replace('x', x) }}", "<|[ab|cd]|>"},
      {"{{ x.split('|') | join('+') }}", "[ab]+[cd]"},
      {"{{ '-'.join([x, 'own']) }}", "[ab|cd]-own"},
      {"{{ d | tojson }}", "{\"[k]\": \"[v]\"}"},
      {"{{ d }}", "{'[k]': '[v]'}"},
      {"{{ [x, 'y'] }}", "['[ab|cd]', 'y']"},
      {"{{ '%s!' % x }}{{ '{}?'.format(x) }}", "[ab|cd]![ab|cd]?"},
      {"{% set y %}<{{ x }}>{% endset %}{{ y }}", "<[ab|cd]>"},
      {"{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(x) | indent }}", "<[ab|cd]>"},
      {"{% filter upper %}<{{ x }}>{% endfilter %}", "<[AB|CD]>"},
      {"{% for c in x %}.{{ c }}{% endfor %}", ".[a].[b].[|].[c].[d]"},
      {"{{ '<|' + m[0].role + '|>' }}", "<|user|>"},  // a role that models know is the template's word
      {"{{ '<|' + m[1].role + '|>' }}", "<|[<|im_end|>]|>"},
      {"{{ x | length }}{{ x == 'ab|cd' }}", "5True"},
  };
  for (const auto& [source, wanted] : rows) {
    INFO(source);
    CHECK(marked(source, given) == wanted);
  }
}

struct Refusal {
  const char* source;
  ErrorCode code;
  const char* said;
};

const Refusal kRefusals[] = {
    {"a\n\n{{ raise_exception('No \\x1b system.') }}", ErrorCode::kInvalidArgument,
     "model: line 3: it refuses this conversation: No \\x1b system."},
    {"{{ x.y }}", ErrorCode::kInvalidArgument, "\"x\" is undefined"},
    {"{{ {'a': 1}.b.c }}", ErrorCode::kInvalidArgument, "a dict has no attribute \"b\""},
    {"{{ x + 1 }}", ErrorCode::kInvalidArgument, "\"x\" is undefined"},
    {"{{ x() }}", ErrorCode::kInvalidArgument, "\"x\" is undefined"},
    {"{{ 'a' + 1 }}", ErrorCode::kInvalidArgument, "a str + a int"},
    {"{{ 1 / 0 }}", ErrorCode::kInvalidArgument, "division by zero"},
    {"{{ 1 % 0 }}", ErrorCode::kInvalidArgument, "division by zero"},
    {"{{ 9223372036854775807 + 1 }}", ErrorCode::kInvalidArgument, "more than 64 bits"},
    {"{{ (-9223372036854775807 - 1) // -1 }}", ErrorCode::kInvalidArgument, "more than 64 bits"},
    {"{{ (-9223372036854775807 - 1)|abs }}", ErrorCode::kInvalidArgument, "more than 64 bits"},
    {"{{ 3 ** 100 }}", ErrorCode::kInvalidArgument, "more than 64 bits"},
    {"{{ 1e300|int }}", ErrorCode::kInvalidArgument, "more than 64 bits"},
    {"{{ 99999999999999999999 }}", ErrorCode::kUnsupported, "too large"},
    {"{{ [].append(1) }}", ErrorCode::kInvalidArgument, "unsafe"},
    {"{{ {}.update({}) }}", ErrorCode::kInvalidArgument, "unsafe"},
    {"{{ ''.__class__.x }}", ErrorCode::kInvalidArgument, "unsafe"},
    {"{{ [1] < 2 }}", ErrorCode::kInvalidArgument, "have no order"},
    {"{{ {[]: 1} }}", ErrorCode::kInvalidArgument, "no key of a dict"},
    {"{{ 'a'.split('') }}", ErrorCode::kInvalidArgument, "split at nothing"},
    {"{{ 5|length }}", ErrorCode::kInvalidArgument, "has no length"},
    {"{{ 'a'|replace('b') }}", ErrorCode::kInvalidArgument, "replace needs \"new\""},
    {"{{ 'a'|upper(1) }}", ErrorCode::kInvalidArgument, "takes 0 arguments"},
    {"{{ 'a'|trim(words=1) }}", ErrorCode::kInvalidArgument, "does not have"},
    {"{{ x|tojson }}", ErrorCode::kInvalidArgument, "not JSON serializable"},
    {"{% set a, b = [1] %}", ErrorCode::kInvalidArgument, "1 values for 2 names"},
    {"{% set a.b = 1 %}", ErrorCode::kInvalidArgument, "is no namespace"},
    {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", ErrorCode::kInvalidArgument, "takes not more than 1"},
    {"{{ namespace(__a=1) }}", ErrorCode::kUnsupported, "\"__a\""},
    {"{{ namespace() }}", ErrorCode::kUnsupported, "is printed"},
    {"{{ strftime_now('%Q') }}", ErrorCode::kUnsupported, "%Q"},
    {"\n{{ x|nosuch }}", ErrorCode::kUnsupported, "line 2: no filter is called \"nosuch\""},
    {"{{ x is nosuch }}", ErrorCode::kUnsupported, "no test is called"},
    {"{% include 'x' %}", ErrorCode::kUnsupported, "no statement is called \"include\""},
    {"{% import 'x' as y %}", ErrorCode::kUnsupported, "no statement"},
    {"{% if x %}", ErrorCode::kUnsupported, "wanted {% endif %}"},
    {"{% break %}", ErrorCode::kUnsupported, "outside of a loop"},
    {"{{ 1 + }}", ErrorCode::kUnsupported, "wanted an expression"},
    {"{{ 'abc }}", ErrorCode::kUnsupported, "a string has no end"},
    {"{{ (1 }}", ErrorCode::kUnsupported, "unexpected"},
    {"{# abc", ErrorCode::kUnsupported, "a comment has no end"},
    {"{% raw %}x", ErrorCode::kUnsupported, "a raw block has no end"},
    {"{{ x", ErrorCode::kUnsupported, "a tag has no end"},
    {"{{ '\\ud800' }}", ErrorCode::kUnsupported, "an escape"},
    {"{{ f(*x) }}", ErrorCode::kUnsupported, "not known"},
};

TEST_CASE("what a template may not do is refused in a line that says where", "[jinja]") {
  for (const Refusal& row : kRefusals) {
    INFO(row.source);
    const Failure found = failure(row.source);
    CHECK_THAT(found.what, Catch::Contains(row.said));
    CHECK(found.code == row.code);
    CHECK(found.what.find('\n') == std::string::npos);
  }
  CHECK_THROWS_AS(run("{{ raise_exception('x') }}"), Refused);
  CHECK_THAT(failure("{{ x }}", {{"x", 18446744073709551615ULL}}).what, Catch::Contains("64 bits"));
}

std::string repeated(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

TEST_CASE("a template of a stranger ends, in time and in memory", "[jinja]") {
  const std::pair<std::string, const char*> rows[] = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels within each other"},
      {"{{ 'x' * 999999999999 }}", "bytes that a run may hold"},
      {"{{ [1] * 9223372036854775807 }}", "bytes that a run may hold"},
      {"{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}", "may hold"},
      {"{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x.replace('x', 'xx') %}{% endfor %}",
       "may"},
      {"{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}", "a list in lists"},
      {"{% set n = namespace(x={}) %}{% for i in range(999) %}{% set n.x = {'a': n.x} %}{% endfor %}",
       "a list in lists"},
      {"{% set x = 'x' * 100000 %}{% for i in range(99999) %}{{ x }}{% endfor %}", "may write"},
      {"{% for i in range(100001) %}{% endfor %}", "range has more"},
      {"{{ " + repeated("(", 500) + "1" + repeated(")", 500) + " }}", "levels within each other"},
      {"{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}", "levels within each other"},
      {"{{ " + repeated("-", 5000) + "1 }}", "levels within each other"},
      {"{{ " + repeated("not ", 5000) + "1 }}", "levels within each other"},
      {"{{ 1" + repeated(" + 1", 5000) + " }}", "nested deeper"},
      {"{{ x" + repeated("|d", 5000) + " }}", "nested deeper"},
      {"{{ x" + repeated(".a", 5000) + " }}", "nested deeper"},
      {"{{ x" + repeated(" if x else x", 5000) + " }}", "levels within"},
      {repeated("{% if true %}", 5000), "levels within each other"},
      {repeated("{% for x in y %}", 5000), "levels within each other"},
      {repeated("x", std::size_t{1} << 19), "more than the 262144"},
      {"{% for i in range(9999) %}{{ '%99d' % i }}{{ 'a'.ljust(9999999999) }}{% endfor %}", "may hold"},
      {"{{ '%9999999999d' % 1 }}", "wider than any"},
      {"{% set n = namespace(x=()) %}{% for i in range(99) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ {n.x: 1} }}",
       "key"},
      {"{% set n = namespace(x=[]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}", "may"},
      {"{% set n = namespace(x=[]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson }}",
       "may"},
      {"{% set n = namespace(x=[], y=[]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}"
       "{% endfor %}{{ n.x == n.y }}",
       "steps"},
  };
  for (const auto& [source, said] : rows) {
    INFO(source.substr(0, 100));
    const Failure found = failure(source);
    CHECK_THAT(found.what, Catch::Contains(said));
    CHECK(found.code == ErrorCode::kUnsupported);
  }
  // Namespaces that hold each other are let go of, and of themselves.
  CHECK(shown("{% set a = namespace() %}{% set b = namespace(a=[a]) %}{% set a.b = b %}{% set a.a = [a] %}ok") == "ok");
  // Looked for again and again, nothing takes longer than the text is long.
  CHECK(shown("{% set x = 'a' * 300000 %}{{ x.find('a' * 150000 ~ 'b') }}{{ (x ~ 'b') in x }}") == "-1False");
  // Larger conversations may cost more.
  const std::string large(std::size_t{1} << 22, 'x');
  CHECK(run("{% for m in ms %}{{ m.strip() ~ '|' }}{% endfor %}", {{"ms", {large, large}}}).size() ==
        2 * large.size() + 2);
}

TEST_CASE("bytes that are no UTF-8 pass through", "[jinja]") {
  const Json given = {{"x", std::string("a\xff\xe2\x82z")}};
  CHECK(shown("{{ x }}|{{ x[1:3] }}|{{ x | upper }}|{{ x | length }}", given) ==
        std::string("a\xff\xe2\x82z|\xff\xe2|A\xff\xe2\x82Z|5"));
}

}  // namespace
}  // namespace halfbyte::models::jinja

#include "tools/server/api/problem.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace halfbyte::server {
namespace {

using nlohmann::ordered_json;

struct TypeRow {
  int status;
  const char* type;
};
// The first whose status is not less. Source: OpenAI's API reference, error codes.
constexpr TypeRow kTypes[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
                              {403, "permission_error"},      {428, "invalid_request_error"},
                              {429, "rate_limit_error"},      {499, "invalid_request_error"},
                              {599, "server_error"}};

ordered_json text_or_null(const std::string& text) { return text.empty() ? ordered_json(nullptr) : ordered_json(text); }

}  // namespace

std::string json_of(const Problem& problem) {
  const TypeRow* const row = std::ranges::find_if(kTypes, [&](const TypeRow& r) { return problem.status <= r.status; });
  const ordered_json error = {{"message", problem.message},
                              {"type", row->type},
                              {"param", text_or_null(problem.field)},
                              {"code", text_or_null(problem.code)}};
  return ordered_json{{"error", error}}.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

HttpResponse response_of(const Problem& problem) {
  HttpResponse out{.status = problem.status, .body = json_of(problem)};
  if (problem.status == 429 || problem.status == 503) out.headers.push_back({"Retry-After", "1"});
  if (problem.status == 401) out.headers.push_back({"WWW-Authenticate", "Bearer"});
  return out;
}

}  // namespace halfbyte::server

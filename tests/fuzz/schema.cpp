// A JSON schema, and bytes that say which of the allowed ones come next: what comes of it is JSON, and ends.
#include <nlohmann/json.hpp>

#include "models/serving/constraints/machine.h"
#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {
namespace {

using serving::SchemaMachine;

constexpr std::int64_t kLongest = 4096;  // of texts that are written to their end

// Of the bytes that may come next, those that bring the end nearest, or all.
std::string allowed_bytes(const SchemaMachine& machine, bool are_nearest) {
  std::string out;
  for (int byte = 0; byte < 256; ++byte) {
    SchemaMachine next = machine;
    if (!next.push(static_cast<unsigned char>(byte))) continue;
    require(next.rest() >= machine.rest() - 1, "a byte brings the end nearer by itself at most");
    if (!are_nearest || next.rest() < machine.rest()) out += static_cast<char>(byte);
  }
  return out;
}

}  // namespace

void fuzz_schema(std::string_view input) {
  const std::size_t line = std::min(input.find('\n'), input.size());
  const auto json = nlohmann::ordered_json::parse(input.substr(0, line), nullptr, false);
  if (json.is_discarded()) return;
  SchemaMachine machine(std::make_shared<const serving::Schema>(json));
  if (machine.rest() > kLongest) return;
  std::string text;
  const auto push = [&](char byte) {
    require(machine.push(static_cast<unsigned char>(byte)), "what is allowed is taken");
    text += byte;
  };
  for (const char choice : input.substr(line).substr(0, 64)) {
    if (machine.must_end()) break;
    const std::string bytes = allowed_bytes(machine, false);
    require(!bytes.empty() || machine.may_end(), "a text goes on or ends");
    if (bytes.empty()) break;
    push(bytes[static_cast<unsigned char>(choice) % bytes.size()]);
  }
  while (!machine.may_end() && static_cast<std::int64_t>(text.size()) < 2 * kLongest) {
    const std::string bytes = allowed_bytes(machine, true);
    require(!bytes.empty(), "an end is in reach");
    push(bytes.front());
  }
  if (machine.may_end()) require(nlohmann::json::accept(text), "what fits a schema is JSON");
}

}  // namespace halfbyte::fuzz

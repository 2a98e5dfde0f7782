#include "tools/verbs/token_text.h"

#include <algorithm>
#include <charconv>

#include "tools/cli/errors.h"

namespace halfbyte::cli {
namespace {

bool is_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r') || c == ',' || c == '[' || c == ']'; }

}  // namespace

void for_each_line(std::string_view text, char separator, const std::function<void(std::string_view)>& act) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    act(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

models::TokenIds parse_ids(std::string_view list) {
  models::TokenIds ids;
  const char* at = list.data();
  const char* const end = at + list.size();
  while ((at = std::find_if_not(at, end, is_space)) != end) {
    const char* const stop = std::find_if(at, end, is_space);
    std::int64_t id = 0;
    const auto [after, error] = std::from_chars(at, stop, id);
    if (error != std::errc() || after != stop || id < 0) {
      const std::string word(at, std::min<std::size_t>(32, static_cast<std::size_t>(stop - at)));
      throw UsageError("'" + printable(word) + "' is not a token id; ids are like 1,306,4658 or 1 306 4658");
    }
    ids.push_back(id);
    at = stop;
  }
  return ids;
}

}  // namespace halfbyte::cli

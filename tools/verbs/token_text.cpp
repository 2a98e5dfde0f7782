#include "tools/verbs/token_text.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include <halfbyte/error.h>

#include "tools/cli/errors.h"

namespace halfbyte::cli {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

struct CloseFile {
  void operator()(std::FILE* file) const noexcept {
    if (file != stdin) std::fclose(file);
  }
};
using OpenFile = std::unique_ptr<std::FILE, CloseFile>;

OpenFile open_input(const std::string& name) {
  if (name == "-") return OpenFile(stdin);
  std::error_code error;
  if (std::filesystem::is_directory(name, error))
    throw Error(ErrorCode::kNotFound, printable(name) + ": is a directory");
  OpenFile file(std::fopen(name.c_str(), "rb"));
  if (!file) throw Error(ErrorCode::kNotFound, printable(name) + ": " + std::generic_category().message(errno));
  return file;
}

bool is_space(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r') || c == ',' || c == '[' || c == ']'; }

}  // namespace

std::string read_input(const std::string& name) {
  const OpenFile file = open_input(name);
  std::error_code unknown;
  const auto bytes = name == "-" ? 0 : std::filesystem::file_size(name, unknown);
  std::string text;
  if (!unknown && bytes < text.max_size()) text.reserve(bytes);
  std::string buffer(kReadBytes, '\0');
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) text.append(buffer, 0, got);
  if (std::ferror(file.get())) throw Error(ErrorCode::kIo, printable(name) + ": cannot be read");
  return text;
}

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

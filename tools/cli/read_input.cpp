#include "tools/cli/read_input.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include <halfbyte/error.h>

#include "tools/cli/errors.h"
#include "tools/cli/format.h"

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

}  // namespace

std::string read_input(const std::string& name, std::uint64_t max_bytes) {
  const OpenFile file = open_input(name);
  std::error_code unknown;
  const auto bytes = name == "-" ? 0 : std::filesystem::file_size(name, unknown);
  std::string text;
  if (!unknown && bytes <= max_bytes && bytes < text.max_size()) text.reserve(bytes);
  std::string buffer(kReadBytes, '\0');
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    text.append(buffer, 0, got);
    if (text.size() > max_bytes) {
      throw Error(ErrorCode::kInvalidArgument, printable(name) + ": is longer than " + human_bytes(max_bytes) +
                                                   ", far more than is needed; take a part of it");
    }
  }
  if (std::ferror(file.get())) throw Error(ErrorCode::kIo, printable(name) + ": cannot be read");
  return text;
}

}  // namespace halfbyte::cli

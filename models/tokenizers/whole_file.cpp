#include "models/tokenizers/whole_file.h"

#include <fstream>

#include <halfbyte/error.h>

#include "models/json/printable.h"

namespace halfbyte::models {

std::string read_whole_file(const std::filesystem::path& path, std::uintmax_t max_bytes) {
  std::error_code problem;
  const std::string name = printable_whole(path.string());
  if (!std::filesystem::is_regular_file(path, problem))
    throw Error(ErrorCode::kCorrupt, name + ": is not a regular file");
  const std::uintmax_t size = std::filesystem::file_size(path, problem);
  if (problem) throw Error(ErrorCode::kIo, name + ": cannot be read: " + problem.message());
  if (size > max_bytes)
    throw Error(ErrorCode::kCorrupt,
                name + ": " + std::to_string(size) + " bytes; no such file has more than " + std::to_string(max_bytes));
  std::ifstream in(path, std::ios::binary);
  std::string out(size, '\0');
  if (!in || (size > 0 && !in.read(out.data(), static_cast<std::streamsize>(size))))
    throw Error(ErrorCode::kIo, name + ": cannot be read");
  return out;
}

}  // namespace halfbyte::models

// Where tests find their data: what is in the repository, and what lies beside it on a developer's machine.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace halfbyte::tests {

inline std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(HALFBYTE_TEST_DATA_DIR) / name;
}

// A file or folder of the shared collection, or nothing where it is absent: the test then skips, saying so.
inline std::optional<std::filesystem::path> shared(const std::string& name) {
  const char* variable = std::getenv("HALFBYTE_SHARED_DIR");
  const std::filesystem::path path = std::filesystem::path(variable ? variable : HALFBYTE_SHARED_DIR) / name;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

// A folder of its own for one test, removed when it goes.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "halfbyte-test-XXXXXX").string();
    if (!mkdtemp(pattern.data())) std::abort();
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace halfbyte::tests

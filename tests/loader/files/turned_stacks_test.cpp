// Stacks that hold columns, seen as rows: their values, from any byte on, and back.
#include "loader/files/turned_stacks.h"

#include "tests/loader/files/scratch.h"
#include "tests/places.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::Checkpoint;
using files::StoredTensor;

namespace {

std::vector<std::byte> bytes_of(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor& tensor = *checkpoint.find(name);
  std::vector<std::byte> out(tensor.size_bytes);
  files::read_stored(checkpoint, tensor, 0, out);
  return out;
}

// (matrices, rows, columns) -> (matrices, columns, rows), value by value.
std::vector<std::byte> turned(const std::vector<std::byte>& bytes, const std::vector<std::int64_t>& shape,
                              std::size_t width) {
  const auto matrices = static_cast<std::size_t>(shape[0]), rows = static_cast<std::size_t>(shape[1]),
             columns = static_cast<std::size_t>(shape[2]);
  std::vector<std::byte> out(bytes.size());
  for (std::size_t matrix = 0; matrix < matrices; ++matrix)
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t column = 0; column < columns; ++column)
        for (std::size_t i = 0; i < width; ++i)
          out[((matrix * columns + column) * rows + row) * width + i] =
              bytes[((matrix * rows + row) * columns + column) * width + i];
  return out;
}

}  // namespace

TEST_CASE("turned_stacks: experts stored column by column are read row by row", "[turned_stacks]") {
  for (const char* family : {"gpt-oss", "llama4"}) {
    INFO(family);
    const Checkpoint source = files::open_checkpoint(tests::data("families") / family);
    std::set<std::string> names;
    for (const StoredTensor& tensor : source.tensors)
      if (files::holds_columns(source, tensor)) names.insert(tensor.name);
    REQUIRE(names.size() >= 2);
    Checkpoint seen = source;
    files::turn_stacks(seen, names);
    CHECK(seen.row_stacks == names);
    CHECK(seen.tensors.size() == source.tensors.size());
    CHECK(seen.size_bytes == source.size_bytes);
    for (const std::string& name : names) {
      INFO(name);
      const StoredTensor& stored = *source.find(name);
      const StoredTensor& rows = *seen.find(name);
      CHECK(rows.shape == std::vector<std::int64_t>{stored.shape[0], stored.shape[2], stored.shape[1]});
      CHECK(seen.manifest.find(name)->shape == rows.shape);
      CHECK_FALSE(files::holds_columns(seen, rows));
      const auto wanted =
          turned(bytes_of(source, name), stored.shape, static_cast<std::size_t>(size_bytes(stored.dtype)));
      CHECK(bytes_of(seen, name) == wanted);
      for (const auto& [begin, size] : {std::pair<std::size_t, std::size_t>{1, 1}, {7, 4099}, {wanted.size() - 3, 3}}) {
        std::vector<std::byte> some(std::min(size, wanted.size() - begin));
        files::read_stored(seen, rows, begin, some);
        CHECK(std::equal(some.begin(), some.end(), wanted.begin() + static_cast<std::ptrdiff_t>(begin)));
      }
    }
    files::turn_stacks(seen, names);  // and back
    CHECK(seen.row_stacks.empty());
    for (const std::string& name : names) {
      CHECK(seen.find(name)->shape == source.find(name)->shape);
      CHECK(bytes_of(seen, name) == bytes_of(source, name));
    }
  }
}

TEST_CASE("turned_stacks: what holds rows already is no stack to turn", "[turned_stacks]") {
  for (const char* family : {"qwen3.5-moe", "granitemoe", "mixtral"}) {
    const Checkpoint source = files::open_checkpoint(tests::data("families") / family);
    for (const StoredTensor& tensor : source.tensors) CHECK_FALSE(files::holds_columns(source, tensor));
  }
}

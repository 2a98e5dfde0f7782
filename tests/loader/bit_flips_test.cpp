// A damaged checkpoint loads, or is refused in words: never a crash, never another exception.
#include "tests/catch.h"

#include <fstream>
#include <random>
#include <sstream>

#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "tests/places.h"

namespace halfbyte {
namespace {

constexpr int kFlips = 240;

// A file of the checkpoint, of which the first `end` bytes are flipped: a data file's header and no more, since the
// values of weights decide nothing about loading.
struct Target {
  std::filesystem::path path;
  std::string bytes;
  std::size_t end;
};

std::vector<Target> targets_in(const std::filesystem::path& directory) {
  std::vector<Target> out;
  for (const char* name : {"config.json", "halfbyte.json", "model.safetensors"}) {
    Target target{directory / name, {}, 0};
    std::ostringstream text;
    text << std::ifstream(target.path, std::ios::binary).rdbuf();
    target.bytes = text.str();
    const std::size_t header = target.bytes.find("}  ");
    target.end = header == std::string::npos ? target.bytes.size() : header + 1;
    out.push_back(std::move(target));
  }
  return out;
}

// In place: the file keeps its length, and what is mapped of it elsewhere stays mapped.
void write_byte(const Target& target, std::size_t at, char byte) {
  std::fstream file(target.path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

TEST_CASE("a flipped bit gives a model or an Error", "[loader]") {
  tests::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "m");
  const std::vector<Target> targets = targets_in(scratch / "m");
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  int refused = 0;
  for (int i = 0; i < kFlips; ++i) {
    const Target& target = targets[static_cast<std::size_t>(i) % targets.size()];
    const std::size_t at = std::uniform_int_distribution<std::size_t>(0, target.end - 1)(random);
    const int bit = std::uniform_int_distribution<int>(0, 7)(random);
    INFO(target.path.filename() << ", byte " << at << ", bit " << bit);
    write_byte(target, at, static_cast<char>(target.bytes[at] ^ (1 << bit)));
    try {
      load_low_bit(scratch / "m");
    } catch (const Error& error) {
      ++refused;
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    } catch (const std::exception& error) {
      FAIL("another exception: " << error.what());
    }
    write_byte(target, at, target.bytes[at]);
  }
  CHECK(refused > kFlips / 2);  // most of these bytes are names, numbers and punctuation that something checks
  CHECK_NOTHROW(load_low_bit(scratch / "m"));
}

}  // namespace
}  // namespace halfbyte

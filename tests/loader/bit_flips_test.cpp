// A damaged checkpoint loads, or is refused in words: never a crash, never another exception.
#include "tests/catch.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "tests/places.h"

namespace halfbyte {
namespace {

constexpr int kFlips = 240;  // of one scheme's checkpoint
constexpr int kSeed = 1;

int number(const char* variable, int usual) {
  const char* wanted = std::getenv(variable);
  return wanted ? std::atoi(wanted) : usual;
}

// For longer runs than everybody's: other bits each time.
int flips() { return number("HALFBYTE_BIT_FLIPS", kFlips); }
unsigned seed() { return static_cast<unsigned>(number("HALFBYTE_SEED", kSeed)); }

// A file of the checkpoint, of which bytes [0, head) and [tail, end) are flipped: of a data file the header, and the
// end, where the small tensors lie that describe others. The values of weights decide nothing about loading.
struct Target {
  std::filesystem::path path;
  std::string bytes;
  std::size_t head, tail;

  std::size_t place(std::size_t choice) const {
    choice %= head + bytes.size() - tail;
    return choice < head ? choice : tail + choice - head;
  }
};

std::vector<Target> targets_in(const std::filesystem::path& directory) {
  constexpr std::size_t kTail = 4096;
  std::vector<Target> out;
  for (const char* name : {"config.json", "halfbyte.json", "model.safetensors"}) {
    std::ostringstream text;
    text << std::ifstream(directory / name, std::ios::binary).rdbuf();
    Target target{directory / name, text.str(), text.str().size(), text.str().size()};
    if (name == std::string("model.safetensors")) {
      std::uint64_t header = 0;
      std::memcpy(&header, target.bytes.data(), sizeof header);
      target.head = sizeof header + header;
      target.tail = target.bytes.size() - kTail;
    }
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

// Whether loading was refused.
bool is_refused(const std::filesystem::path& path) {
  try {
    load_low_bit(path);
    return false;
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return true;
  }
}

int count_refused(const std::filesystem::path& path, std::mt19937& random) {
  const std::vector<Target> targets = targets_in(path);
  int refused = 0;
  for (int i = 0; i < flips(); ++i) {
    const Target& target = targets[static_cast<std::size_t>(i) % targets.size()];
    const std::size_t at = target.place(random());
    const auto bit = static_cast<int>(random() % 8);
    INFO(target.path.filename() << ", byte " << at << ", bit " << bit);
    write_byte(target, at, static_cast<char>(target.bytes[at] ^ (1 << bit)));
    CHECK_NOTHROW(refused += is_refused(path) ? 1 : 0);
    write_byte(target, at, target.bytes[at]);
  }
  return refused;
}

TEST_CASE("a flipped bit gives a model or an Error", "[loader]") {
  std::mt19937 random(seed());
  for (const char* scheme : {"sym_int4", "asym_int4", "nf4"}) {
    INFO(scheme << ", seed " << seed());
    tests::Scratch scratch;
    convert::quantize(tests::data("tiny-llama"), scratch / "m", {.scheme = scheme});
    // Most of these bytes are names, numbers and punctuation that something checks.
    CHECK(count_refused(scratch / "m", random) > flips() / 3);
    CHECK_FALSE(is_refused(scratch / "m"));
  }
}

}  // namespace
}  // namespace halfbyte

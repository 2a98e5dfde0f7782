// A damaged checkpoint is found by verify, and loads or is refused in words: never a crash, never another exception.
#include "tests/catch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "loader/files/verify.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

constexpr int kFlips = 240;         // of one scheme's checkpoint
constexpr int kFlipsAnywhere = 40;  // each both verified and loaded
constexpr int kSeed = 1;

int number(const char* variable, int usual) {
  const char* wanted = std::getenv(variable);
  return wanted ? std::atoi(wanted) : usual;
}

// For longer runs than everybody's: other bits each time.
int flips() { return number("HALFBYTE_BIT_FLIPS", kFlips); }
int flips_anywhere() { return number("HALFBYTE_BIT_FLIPS", kFlipsAnywhere); }
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

// All of a file.
Target target_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return {path, text.str(), text.str().size(), text.str().size()};
}

std::vector<Target> targets_in(const std::filesystem::path& directory) {
  constexpr std::size_t kTail = 4096;
  std::vector<Target> out;
  for (const char* name : {"config.json", "halfbyte.json", "model.safetensors"}) {
    Target target = target_of(directory / name);
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

bool is_found_by_verify(const std::filesystem::path& path) {
  try {
    return !files::verify(files::open_checkpoint(path)).findings.empty();
  } catch (const Error&) {
    return true;
  }
}

// Of a checkpoint in each layout: what its tensors consist of differs.
struct Layout {
  const char* scheme;
  bool nested_scales = false;
  bool halfbyte_only = false;
};
constexpr Layout kLayouts[] = {{.scheme = "sym_int4"},
                               {.scheme = "asym_int4"},
                               {.scheme = "nf4", .nested_scales = true},
                               {.scheme = "fp4_e2m1", .halfbyte_only = true}};

// Flips bits anywhere in any file, each file as often as the next. Returns how many verify did not find.
int count_missed(const std::filesystem::path& path, std::mt19937& random) {
  std::vector<Target> targets;
  for (const auto& entry : std::filesystem::directory_iterator(path)) targets.push_back(target_of(entry.path()));
  std::ranges::sort(targets, {}, &Target::path);
  int missed = 0;
  for (int i = 0; i < flips_anywhere(); ++i) {
    const Target& target = targets[static_cast<std::size_t>(i) % targets.size()];
    const std::size_t at = random() % target.bytes.size();
    const auto bit = static_cast<int>(random() % 8);
    INFO(target.path.filename() << ", byte " << at << ", bit " << bit);
    write_byte(target, at, static_cast<char>(target.bytes[at] ^ (1 << bit)));
    CHECK_NOTHROW(missed += is_found_by_verify(path) ? 0 : 1);
    CHECK(missed == 0);
    CHECK_NOTHROW(is_refused(path));
    write_byte(target, at, target.bytes[at]);
  }
  return missed;
}

TEST_CASE("a bit flipped anywhere is found by verify and ends no load badly", "[loader]") {
  std::mt19937 random(seed());
  for (const Layout& layout : kLayouts) {
    INFO(layout.scheme << ", seed " << seed());
    tests::Scratch scratch;
    convert::quantize(
        tests::data("tiny-llama"), scratch / "m",
        {.scheme = layout.scheme, .nested_scales = layout.nested_scales, .halfbyte_only = layout.halfbyte_only});
    CHECK(count_missed(scratch / "m", random) == 0);
    CHECK_FALSE(is_found_by_verify(scratch / "m"));
    CHECK_FALSE(is_refused(scratch / "m"));
  }
}

}  // namespace
}  // namespace halfbyte

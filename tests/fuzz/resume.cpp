// The journal of a conversion, and a conversion that goes on from one.
#include <algorithm>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

#include "convert/output/journal.h"
#include "loader/files/hash.h"
#include "tests/fuzz/bundle.h"
#include "tests/fuzz/results.h"
#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {
namespace {

constexpr std::size_t kHashDigits = 32;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

const fs::path& small_source() {
  static const Folder folder;
  static const bool is_written = [] {
    folder.write(
        unpack("@@ model.safetensors.tensors\n"
               R"({"a.weight": ["F32", [32, 64]], "b.weight": ["F16", [16, 64]], "n.bias": ["F32", [7]]})"
               "\n13572468"));
    return true;
  }();
  static_cast<void>(is_written);
  return folder.path();
}

// Converts the source until `blocks` of it are done, and leaves what is there.
void convert_a_part(const fs::path& destination, int blocks) {
  std::stop_source stop;
  convert::QuantizeOptions options{.threads = 1, .resume = true, .stop = stop.get_token()};
  options.progress = [&](std::uint64_t, std::uint64_t) {
    if (--blocks < 0) stop.request_stop();
  };
  is_done([&] { convert::quantize(small_source(), destination, options); });
}

// Three bytes of the input each: a line, a place in it, a byte. Lines keep hashes that are right.
void change_journal(const fs::path& path, std::string_view edits) {
  std::vector<std::string> lines = lines_of(read(path));
  for (; edits.size() >= 3 && !lines.empty(); edits.remove_prefix(3)) {
    std::string& line = lines[static_cast<unsigned char>(edits[0]) % lines.size()];
    if (line.size() <= kHashDigits + 1) continue;
    line[kHashDigits + 1 + static_cast<unsigned char>(edits[1]) % (line.size() - kHashDigits - 1)] = edits[2];
    line.replace(0, kHashDigits, files::hash_hex(std::string_view(line).substr(kHashDigits + 1)));
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write(path, text);
}

// Two bytes of the input each: a place, and what is changed there.
void change_data(const fs::path& path, std::string_view edits) {
  std::string bytes = read(path);
  for (; edits.size() >= 2 && !bytes.empty(); edits.remove_prefix(2)) {
    char& byte = bytes[static_cast<unsigned char>(edits[0]) * 37u % bytes.size()];
    byte = static_cast<char>(byte ^ edits[1]);
  }
  write(path, bytes);
}

}  // namespace

// Lines of a journal, whose hashes are put right.
void fuzz_journal(std::string_view input) {
  static const Folder folder;
  std::string text;
  for (const std::string& line : lines_of(input))
    text += line.starts_with('{') ? files::hash_hex(line) + " " + line + "\n" : line + "\n";
  folder.write("journal", text);
  const auto contents = convert::read_journal(folder.path());
  if (!contents) return;
  require(contents->identity->is_object(), "the first line is an object");
  require(contents->size_bytes <= text.size(), "sound lines are part of the journal");
}

// A conversion that goes on from what an earlier one left, with its journal or its data changed. The first byte says
// how far that one came and which of the two; the result is good, and where only data changed it is the same.
void fuzz_resume(std::string_view input) {
  static const std::string wanted = [] {
    const Results results;
    convert::quantize(small_source(), results / "wanted", {.threads = 1});
    return read(results / "wanted" / "model.safetensors");
  }();
  if (input.empty()) return;
  const Results results;
  const auto how = static_cast<unsigned char>(input[0]);
  convert_a_part(results / "result", how / 2 % 6);
  const fs::path work = results / "result.partial";
  const bool is_journal = how % 2 == 0;
  if (fs::exists(work / "journal")) {
    is_journal ? change_journal(work / "journal", input.substr(1))
               : change_data(work / "checkpoint" / "model.safetensors", input.substr(1));
  }
  const auto go_on = [&] { convert::quantize(small_source(), results / "result", {.threads = 1, .resume = true}); };
  if (!is_done(go_on)) {
    require(is_journal, "changed data stop no conversion");
    return;
  }
  require_good(results / "result");
  require(read(results / "result" / "model.safetensors") == wanted, "the result is the same");
}

}  // namespace halfbyte::fuzz

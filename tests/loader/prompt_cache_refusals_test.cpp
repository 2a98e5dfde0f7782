// Files of prompt caches that are another model's, broken, or made to do harm: one line, and the file stays.
#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>
#include <halfbyte/error.h>
#include <halfbyte/prompt_cache_file.h>

#include "loader/files/data_file_layout.h"
#include "loader/files/hash.h"
#include "tests/catch.h"
#include "tests/loader/prompt_cache.h"
#include "tests/loader/quantized.h"

namespace halfbyte {
namespace {

using tests::read_text;
using tests::run_with;
using tests::token_run;
using tests::write_text;

Model load(const LoadOptions& options) { return load_low_bit(tests::quantized_tiny_llama(), options); }

// The line with which the file is refused; empty: it is not.
std::string refusal(const Model& model, const std::filesystem::path& path, ErrorCode code) {
  const std::string before = read_text(path);
  std::string line;
  try {
    PromptCacheFile(model, path);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    line = error.what();
    CHECK(line.find("cache") != std::string::npos);
    CHECK(line.find('\n') == std::string::npos);
  }
  CHECK(read_text(path) == before);
  return line;
}

TEST_CASE("a prompt cache of another model, policy or arithmetic is refused and stays", "[prompt_cache]") {
  const tests::Scratch scratch;
  const LoadOptions made{.compute = ComputeMode::kFloat};
  run_with(scratch / "cache", load(made), token_run(5, 20));
  const auto said = [&](const Model& model) { return refusal(model, scratch / "cache", ErrorCode::kAlreadyExists); };
  CHECK(said(load(made)).empty());
  CHECK_THAT(said(load_low_bit(tests::data("tiny-llama"), made)), Catch::Contains("with another model, other weights"));
  LoadOptions other = made;
  other.dtype = DtypePolicy::half();
  CHECK_THAT(said(load(other)), Catch::Contains(R"(another dtype policy ("amp:bfloat16", now "half"))"));
  other = made;
  other.compute = ComputeMode::kInt8;
  CHECK_THAT(said(load(other)), Catch::Contains(R"(packed codes ("float", now "int8"))"));
  other = made;
  other.keep_float32 = {"*down_proj*"};
  CHECK_THAT(said(load(other)), Catch::Contains("some tensors in other dtypes"));
}

TEST_CASE("a prompt cache knows weights of which no hash is on record by their values", "[prompt_cache]") {
  const tests::Scratch scratch;
  std::filesystem::copy(tests::data("tiny-llama"), scratch / "model");
  const auto file = scratch / "model" / "model.safetensors";
  const auto time = std::filesystem::last_write_time(file);
  run_with(scratch / "cache", load_low_bit(scratch / "model"), token_run(5, 20));
  const auto said = [&] {
    std::filesystem::last_write_time(file, time);
    return refusal(load_low_bit(scratch / "model"), scratch / "cache", ErrorCode::kAlreadyExists);
  };
  CHECK(said().empty());
  std::string bytes = read_text(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text(file, bytes);
  CHECK_THAT(said(), Catch::Contains("other weights"));
}

TEST_CASE("a prompt cache with any byte changed, or cut anywhere, is refused", "[prompt_cache]") {
  const tests::Scratch scratch;
  const Model model = load({});
  run_with(scratch / "cache", model, token_run(5, 3));
  const std::string sound = read_text(scratch / "cache");
  const auto is_refused = [&](const std::string& bytes) {
    write_text(scratch / "cache", bytes);
    try {
      PromptCacheFile(model, scratch / "cache");
    } catch (const Error& error) {
      return std::string(error.what()).find('\n') == std::string::npos;
    }
    return false;
  };
  CHECK_FALSE(is_refused(sound));
  std::uint64_t length = 0;
  std::memcpy(&length, sound.data(), sizeof length);
  const std::size_t header = sound.find_last_not_of(' ', sizeof length + length - 1) + 1;  // padding is nobody's
  for (std::size_t at = 0; at < sound.size(); at += at < header ? 1 : 61) {
    std::string changed = sound;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    INFO("byte " << at);
    if (at < header || at >= sizeof length + length) CHECK(is_refused(changed));
  }
  for (std::size_t size = 0; size < sound.size(); size += 97) {
    INFO(size << " bytes");
    CHECK(is_refused(sound.substr(0, size)));
  }
}

// The same file with another header, whose hash fits.
class Forger {
 public:
  explicit Forger(const std::string& file) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    header_ = nlohmann::ordered_json::parse(file.substr(sizeof length, length));
    data_ = file.substr(sizeof length + length);
  }
  nlohmann::ordered_json& header() { return header_; }
  // Puts whole numbers in the place of a tensor's.
  void put(const char* tensor, std::size_t at, std::int64_t value) {
    const auto begin = header_[tensor]["data_offsets"][0].get<std::size_t>() + 8 * at;
    std::memcpy(data_.data() + begin, &value, sizeof value);
  }
  std::string file() {
    files::Hash128 hash;
    const std::map<std::string, std::string> metadata = header_["__metadata__"];
    for (const auto& [key, value] : metadata) {
      if (key != "xxh3_128") hash.update(key + '\0' + value + '\0');
    }
    hash.update(data_);
    header_["__metadata__"]["xxh3_128"] = hash.hex();
    const std::string text = header_.dump();
    const std::uint64_t length = text.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data_;
  }

 private:
  nlohmann::ordered_json header_;
  std::string data_;
};

TEST_CASE("a prompt cache that says what cannot be is refused, whatever its hash", "[prompt_cache]") {
  struct Row {
    const char* message;
    std::function<void(Forger&)> forge;
  };
  const std::string keys = "0.layers.0.keys";
  const Row rows[] = {
      {"token ids beyond this model's vocabulary", [](Forger& f) { f.put("tokens", 1, 1 << 30); }},
      {"token ids beyond this model's vocabulary", [](Forger& f) { f.put("tokens", 1, -1); }},
      {"a length that this sequence cannot have", [](Forger& f) { f.put("sessions", 0, 4); }},
      {"a length that this sequence cannot have", [](Forger& f) { f.put("sessions", 1, -1); }},
      {"a length that this sequence cannot have",
       [](Forger& f) { f.put("sessions", 1, std::numeric_limits<std::int64_t>::max()); }},
      {"\"sessions\" is not of the shape",
       [](Forger& f) {
         f.header()["sessions"]["shape"] = {2, 1};
       }},
      {"\"tokens\" is not of the shape",
       [](Forger& f) {
         f.header()["tokens"]["shape"] = {3, 1};
       }},
      {"\"tokens\" is not of the shape", [](Forger& f) { f.header()["tokens"]["dtype"] = "F64"; }},
      {"\"0.layers.0.keys\" is missing",
       [&](Forger& f) {
         f.header()["other"] = f.header()[keys];
         f.header().erase(keys);
       }},
      {"this model keeps BFloat16", [&](Forger& f) { f.header()[keys]["dtype"] = "F16"; }},
      {"has tensors too many",
       [](Forger& f) {
         f.header()["more"] = {{"dtype", "U8"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
       }},
      {"of format \"2\", this version reads 1",
       [](Forger& f) { f.header()["__metadata__"]["halfbyte_prompt_cache"] = "2"; }},
      {"is no prompt cache", [](Forger& f) { f.header()["__metadata__"].erase("halfbyte_prompt_cache"); }},
  };
  const tests::Scratch scratch;
  const Model model = load({});
  run_with(scratch / "cache", model, token_run(5, 3));
  const std::string sound = read_text(scratch / "cache");
  for (const Row& row : rows) {
    INFO(row.message);
    Forger forger(sound);
    row.forge(forger);
    write_text(scratch / "cache", forger.file());
    CHECK_THROWS_WITH(PromptCacheFile(model, scratch / "cache"), Catch::Contains(row.message));
  }
  write_text(scratch / "cache", Forger(sound).file());
  CHECK(PromptCacheFile(model, scratch / "cache").cache().tokens() == 3);
}

TEST_CASE("what is no prompt cache is neither read as one nor written over", "[prompt_cache]") {
  const tests::Scratch scratch;
  const Model model = load({});
  std::filesystem::copy(tests::data("tiny-llama") / "model.safetensors", scratch / "model.safetensors");
  write_text(scratch / "empty", "");
  write_text(scratch / "text", "The ship was late, and it came to pass that nobody waited.");
  for (const char* name : {"model.safetensors", "empty", "text"}) {
    INFO(name);
    CHECK_THAT(refusal(model, scratch / name, ErrorCode::kCorrupt),
               Catch::Contains("no prompt cache") && Catch::Contains("it was left as it is"));
  }
  CHECK_THROWS_WITH(PromptCacheFile(model, scratch / "."), Catch::Contains("not a regular file"));
}

}  // namespace
}  // namespace halfbyte

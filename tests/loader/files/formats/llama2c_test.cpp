// llama2.c's checkpoints, written here as its export.py does, open as the Hugging Face model that they are.
#include <map>

#include "loader/files/checkpoint.h"
#include "loader/files/formats/llama2c_tokenizer.h"
#include "loader/files/tensor_reader.h"
#include "loader/files/tokenizer_directory.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/loader/files/read_values.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

constexpr int kDim = 16, kHidden = 24, kLayers = 2, kHeads = 4, kKvHeads = 2, kVocab = 10, kContext = 8;
constexpr int kKvDim = kDim / kHeads * kKvHeads;
constexpr int kGroup = 8;

// Values of a kind that int8 codes hold exactly with the scale 1/8, so that every version says the same.
float value(int tensor, int index) { return static_cast<float>((tensor * 37 + index * 11) % 255 - 127) / 8; }

struct Written {
  std::string bytes;
  int tensors = 0;

  template <typename T>
  void add(T number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void header() {
    for (const int field : {kDim, kHidden, kLayers, kHeads, kKvHeads, kVocab, kContext}) add(field);
  }
  void floats(int count) {
    for (int i = 0; i < count; ++i) add(value(tensors, i));
    ++tensors;
  }
  // One scale a group.
  void packed(int count) {
    for (int i = 0; i < count; ++i) add(static_cast<std::int8_t>(value(tensors, i) * 8));
    for (int i = 0; i < count / kGroup; ++i) add(0.125F);
    ++tensors;
  }
};

// Tensors of one version, in the order of its file.
class Tensors {
 public:
  Tensors(Written& out, int version) : out_(out), version_(version) {}

  void embedding() { weight(kVocab, kDim); }
  void norm() { out_.floats(kDim); }
  void norms() {
    for (int i = 0; i < kLayers; ++i) norm();
  }
  void attention() {
    for (const int rows : {kDim, kKvDim, kKvDim, kDim}) weights(rows, kDim);
  }
  void mlp() {
    weights(kHidden, kDim);
    weights(kDim, kHidden);
    weights(kHidden, kDim);
  }

 private:
  void weight(int rows, int columns) { version_ == 2 ? out_.packed(rows * columns) : out_.floats(rows * columns); }
  void weights(int rows, int columns) {
    for (int i = 0; i < kLayers; ++i) weight(rows, columns);
  }

  Written& out_;
  int version_;
};

void write_header(Written& out, int version) {
  if (version > 0) {
    out.add(std::uint32_t{0x616b3432});
    out.add(version);
  }
  out.header();
  if (version == 0) return;
  out.add(std::uint8_t{1});  // the classifier is the embedding
  out.add(version == 2 ? kGroup : 0);
  out.bytes.resize(256);
}

std::string file_of(int version) {
  Written out;
  write_header(out, version);
  Tensors tensors(out, version);
  if (version == 0) {
    tensors.embedding();
    tensors.norms();
    tensors.attention();
    tensors.norms();
    tensors.mlp();
    tensors.norm();
    out.floats(kContext * kDim / kHeads);
  } else {
    tensors.norms();
    tensors.norms();
    tensors.norm();
    tensors.embedding();
    tensors.attention();
    tensors.mlp();
  }
  return out.bytes;
}

// Number of a tensor in the order of its file.
const std::map<std::string, std::pair<int, int>> kNumbers = {
    // name: version 0, versions 1 and 2
    {"model.embed_tokens.weight", {0, 5}},
    {"model.layers.1.input_layernorm.weight", {2, 1}},
    {"model.layers.1.self_attn.q_proj.weight", {4, 7}},
    {"model.layers.0.self_attn.k_proj.weight", {5, 8}},
    {"model.layers.1.self_attn.v_proj.weight", {8, 11}},
    {"model.layers.0.mlp.down_proj.weight", {15, 16}},
    {"model.norm.weight", {19, 4}},
};

// Meta's row for Hugging Face's: a head's even rows are its first half.
int source_row(const std::string& tensor, int row) {
  constexpr int kHead = kDim / kHeads;
  if (tensor.find("q_proj") == std::string::npos && tensor.find("k_proj") == std::string::npos) return row;
  const int within = row % kHead;
  return row - within + (within < kHead / 2 ? within * 2 : (within - kHead / 2) * 2 + 1);
}

std::string bad(const std::string& bytes) {
  const Scratch scratch;
  write_text(scratch / "x.bin", bytes);
  try {
    files::open_checkpoint(scratch / "x.bin");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("llama2.c: all versions hold the same model", "[formats]") {
  const Scratch scratch;
  for (const int version : {0, 1, 2}) {
    INFO("version " << version);
    const fs::path path = scratch / ("model" + std::to_string(version) + ".bin");
    write_text(path, file_of(version));
    const files::Checkpoint opened = files::open_checkpoint(path);
    CHECK(opened.kind == "llama2.c");
    REQUIRE(opened.architecture != nullptr);
    CHECK((*opened.config)["num_key_value_heads"] == kKvHeads);
    CHECK(opened.is_quantized() == (version == 2));
    CHECK(opened.manifest.tensors.size() == 3 + 9 * kLayers - 1);
    for (const auto& [name, numbers] : kNumbers) {
      INFO(name);
      const std::vector<float> values = values_of(opened, name);
      const int number = version == 0 ? numbers.first : numbers.second;
      const int columns =
          opened.manifest.find(name)->shape.size() == 1 ? 1 : static_cast<int>(opened.manifest.find(name)->shape[1]);
      for (int i = 0; i < static_cast<int>(values.size()); ++i) {
        const int from = source_row(name, i / columns) * columns + i % columns;
        REQUIRE(values[static_cast<std::size_t>(i)] == value(number, from));
      }
    }
  }
}

namespace {

// As llama2.c's tokenizer.py writes it: bytes, letters, then pieces by falling score.
std::string tokenizer_of(int tokens) {
  Written out;
  out.add(std::int32_t{7});
  const auto token = [&](const std::string& text, float score) {
    out.add(score);
    out.add(static_cast<std::int32_t>(text.size()));
    out.bytes += text;
  };
  const std::vector<std::string> pieces = {"<unk>", "\n<s>\n", "\n</s>\n", " ", "a", "b", " a", "ab", " ab", "c"};
  for (int i = 0; i < tokens; ++i)
    token(i < 10 ? pieces[static_cast<std::size_t>(i)] : "z" + std::to_string(i), static_cast<float>(-i));
  return out.bytes;
}

std::unique_ptr<models::Tokenizer> tokenizer_in(const fs::path& checkpoint) {
  return models::load_tokenizer(files::TokenizerDirectory(checkpoint).path());
}

}  // namespace

TEST_CASE("llama2.c: the tokenizer beside a checkpoint is its own", "[formats]") {
  for (const std::string name : {"tokenizer.bin", "tok10.bin"}) {
    const Scratch scratch;
    write_text(scratch / "model.bin", file_of(1));
    write_text(scratch / name, tokenizer_of(kVocab));
    for (const fs::path& checkpoint : {scratch / "", scratch / "model.bin"}) {
      INFO(checkpoint);
      const auto tokenizer = tokenizer_in(checkpoint);
      REQUIRE(tokenizer);
      CHECK(tokenizer->vocab_size() == kVocab);
      CHECK(tokenizer->prefix() == models::TokenIds{1});
      CHECK(tokenizer->encode("ab a") == models::TokenIds{8, 6});  // the space before the text, as run.c has it
      CHECK(tokenizer->encode("c  b") == models::TokenIds{3, 9, 3, 3, 5});
      CHECK(tokenizer->decode({1, 8, 6, 2}) == "ab a");
      CHECK(tokenizer->encode("</s>") == models::TokenIds{2});
      CHECK(files::open_checkpoint(checkpoint).other_weights.empty());
    }
  }
}

TEST_CASE("llama2.c: without a begin and an end of a text there is no tokenizer", "[formats]") {
  const Scratch scratch;
  for (const int size : {0, 1, 2}) {
    write_text(scratch / "tokenizer.bin", tokenizer_of(size));
    files::Checkpoint checkpoint;
    files::add_llama2c_tokenizer(scratch / "", static_cast<std::size_t>(size), checkpoint);
    CHECK(checkpoint.generated_files.empty());
    CHECK(checkpoint.notes.size() == 1);
  }
}

TEST_CASE("llama2.c: a tokenizer that is broken, or another model's, is told", "[formats]") {
  const Scratch scratch;
  write_text(scratch / "model.bin", file_of(1));
  const std::string sound = tokenizer_of(kVocab);
  for (const int other : {kVocab - 1, kVocab + 1, 500}) {
    write_text(scratch / "tokenizer.bin", tokenizer_of(other));
    const auto checkpoint = files::open_checkpoint(scratch / "model.bin");
    CHECK(checkpoint.generated_files.empty());
    REQUIRE_FALSE(checkpoint.notes.empty());
    CHECK(checkpoint.notes.front().find("tokenizer.bin") != std::string::npos);
    CHECK_FALSE(tokenizer_in(scratch / "model.bin"));
  }
  const auto problem = [&](const std::string& bytes) -> std::string {
    write_text(scratch / "tokenizer.bin", bytes);
    try {
      tokenizer_in(scratch / "model.bin");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{9}, sound.size() - 1})
    CHECK(problem(sound.substr(0, size)).find("tokenizer.bin: ends in the middle of a token") != std::string::npos);
  std::string longer = sound;
  longer[11] = '\x7f';
  CHECK(problem(longer).find("token 0 has a score or a length that none has") != std::string::npos);
}

TEST_CASE("llama2.c: what contradicts itself is refused", "[formats]") {
  const std::string sound = file_of(1);
  CHECK(bad(sound.substr(0, sound.size() - 1)).find("its header speaks of") != std::string::npos);
  CHECK(bad(sound + "x").find("its header speaks of") != std::string::npos);
  std::string version = sound;
  version[4] = 7;
  CHECK(bad(version).find("version 7") != std::string::npos);
  std::string groups = file_of(2);
  for (const char size : {char{0}, char{5}}) {
    groups[37] = size;
    CHECK(bad(groups).find("groups of " + std::to_string(size)) != std::string::npos);
  }
  for (std::size_t size = 0; size < 300; ++size) CHECK_FALSE(bad(sound.substr(0, size)).empty());
  std::string huge = sound;
  for (std::size_t i = 8; i < 36; ++i) huge[i] = '\x7f';
  CHECK_FALSE(bad(huge).empty());
}

// A checkpoint of any format and method, from a bundle or from one file: opened, every value read, verified.
#include "loader/files/checkpoint.h"

#include <cmath>
#include <cstring>

#include <nlohmann/json.hpp>

#include "loader/files/formats/llama2c_tokenizer.h"
#include "loader/files/formats/pytorch/file.h"
#include "loader/files/formats/pytorch/meta_params.h"
#include "loader/files/formats/pytorch/zip.h"
#include "loader/files/tensor_reader.h"
#include "loader/files/verify.h"
#include "models/chat/chat_template.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/fuzz/bundle.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/tokenizing.h"

namespace halfbyte::fuzz {
namespace {

constexpr std::int64_t kMostValues = 1 << 16;  // of a tensor that is read
constexpr std::size_t kLlama2cValues = 1 << 16;

void read_values(const files::Checkpoint& checkpoint, const files::TensorRecord& record) {
  if (!files::TensorReader::can_read(record)) return;
  files::TensorReader reader(checkpoint, record);
  const std::int64_t rows = reader.row_size() > 0 ? reader.size() / reader.row_size() : 0;
  if (reader.size() > kMostValues || rows < 1) return;
  std::vector<float> values(static_cast<std::size_t>(reader.size()));
  reader.read(0, values);
  std::vector<float> last(static_cast<std::size_t>(reader.row_size()));
  reader.read((rows - 1) * reader.row_size(), last);
  const auto* tail = values.data() + values.size() - last.size();
  require(std::memcmp(tail, last.data(), last.size() * sizeof(float)) == 0, "a row is the same alone and among others");
}

void read_all(const files::Checkpoint& checkpoint) {
  for (const auto& record : checkpoint.manifest.tensors) {
    const std::string& codes = record.parts[files::Part::kCodes];
    require(checkpoint.find(codes) != nullptr, "a tensor on record is there");
    read_values(checkpoint, record);
  }
  files::verify(checkpoint);
}

// What a source says in another form is read as the file that it would be.
void read_generated(const files::Checkpoint& checkpoint) {
  if (checkpoint.generated_files.empty()) return;
  static const Folder folder;
  for (const auto& entry : fs::directory_iterator(folder.path())) fs::remove_all(entry.path());
  for (const auto& [name, text] : checkpoint.generated_files) folder.write(name, text());
  models::generation_stop_tokens(folder.path());
  const auto tokenizer = models::load_tokenizer(folder.path());
  if (tokenizer) check_tokenizer(*tokenizer);
}

void open_and_read(const fs::path& path) {
  const auto checkpoint = files::open_checkpoint(path);
  read_all(checkpoint);
  read_generated(checkpoint);
}

}  // namespace

void fuzz_checkpoint(std::string_view input) { open_and_read(folder_of(input).path()); }

// Behind the file lie zeros, which tensors may be made of.
void fuzz_gguf(std::string_view input) {
  static const Folder folder;
  static const std::string zeros(1 << 16, '\0');
  folder.write("m.gguf", input, zeros);
  open_and_read(folder / "m.gguf");
}

void fuzz_zip(std::string_view input) {
  static const Folder folder;
  folder.write("m.bin", input);
  const files::InputFile file(folder / "m.bin");
  for (const auto& member : files::read_zip(file))
    require(member.offset <= input.size() && member.size_bytes <= input.size() - member.offset, "a member is inside");
  files::read_pytorch(file);
}

// The file is as long as version 0, 1 or 2 of such a header says, where that is short: what follows the header is
// repeated.
void fuzz_llama2c(std::string_view input) {
  static const Folder folder;
  if (input.size() < 2) return;
  const std::size_t length = static_cast<unsigned char>(input[0]) + 256u * static_cast<unsigned char>(input[1]);
  std::string bytes(input.substr(2));
  while (bytes.size() < length && input.size() > 2)
    bytes += input.substr(2, std::min(input.size() - 2, length - bytes.size()));
  bytes.resize(std::min(length, kLlama2cValues));
  folder.write("m.bin", bytes);
  open_and_read(folder / "m.bin");
}

// Of so many tokens as the first byte says; the rest is the file.
void fuzz_llama2c_tokenizer(std::string_view input) {
  static const Folder folder;
  if (input.empty()) return;
  folder.write("tokenizer.bin", std::string(input.substr(1)));
  files::Checkpoint checkpoint;
  files::add_llama2c_tokenizer(folder / "", static_cast<unsigned char>(input[0]), checkpoint);
  require(checkpoint.generated_files.size() == (checkpoint.notes.empty() ? 2 : 0), "a tokenizer, or a note");
  if (checkpoint.generated_files.empty()) return;
  folder.write("tokenizer.model", checkpoint.generated_files.at("tokenizer.model")());
  folder.write("tokenizer_config.json", checkpoint.generated_files.at("tokenizer_config.json")());
  const auto tokenizer = models::load_tokenizer(folder / "");
  require(tokenizer != nullptr, "what was made of it is a tokenizer");
  check_tokenizer(*tokenizer);
}

void fuzz_meta_params(std::string_view input) {
  static const Folder folder;
  folder.write("params.json", input);
  const auto params = files::read_meta_params(folder / "params.json");
  require(params.heads > 0 && params.dim % params.heads == 0, "heads share the width");
  files::config_of(params, params.dim, 32, true, "bfloat16");
}

}  // namespace halfbyte::fuzz

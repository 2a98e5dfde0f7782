// GGUF files that mean harm, or were damaged. Each known overflow of other parsers is a row.
#include <functional>

#include "loader/files/checkpoint.h"
#include "tests/loader/files/formats/gguf/bytes.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

GgufBytes sound() {
  GgufBytes out;
  out.text("general.architecture", "llama");
  const std::vector<std::pair<std::string, std::uint32_t>> numbers = {
      {"embedding_length", 32}, {"block_count", 1},          {"feed_forward_length", 32},
      {"context_length", 64},   {"attention.head_count", 2}, {"attention.head_count_kv", 1}};
  for (const auto& [key, value] : numbers) out.number("llama." + key, value);
  out.real("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  out.text("tokenizer.ggml.model", "llama");
  out.texts("tokenizer.ggml.tokens", {"<unk>", "a"});
  out.list("tokenizer.ggml.scores", kGgufF32, 2, raw(0.0F) + raw(-1.0F));
  out.list("tokenizer.ggml.token_type", kGgufI32, 2, raw(2) + raw(1));
  out.tensors.push_back({"token_embd.weight", {32, 2}, 0, std::string(256, '\1')});
  out.tensors.push_back({"blk.0.attn_q.weight", {32, 32}, 2, std::string(576, '\2')});
  out.tensors.push_back({"blk.0.ffn_up.weight", {32, 1}, 3, std::string(20, '\3')});
  return out;
}

// Opens the file and reads all that it promises.
void read_everything(const fs::path& path) {
  const files::Checkpoint checkpoint = files::open_checkpoint(path);
  for (const files::StoredTensor& tensor : checkpoint.tensors) {
    std::vector<std::byte> bytes(tensor.size_bytes);
    files::read_stored(checkpoint, tensor, 0, bytes);
  }
  for (const auto& [name, text] : checkpoint.generated_files) text();
}

void check_refused(const Scratch& scratch, const std::string& bytes, ErrorCode code,
                   const std::vector<std::string>& parts) {
  write_text(scratch / "m.gguf", bytes);
  check_error(code, parts, [&] { read_everything(scratch / "m.gguf"); });
}

struct Attack {
  const char* what;
  ErrorCode code;
  const char* message;  // a part of it
  std::function<void(GgufBytes&)> damage;
};

GgufBytes::Tensor tensor(std::vector<std::uint64_t> lengths, std::uint32_t type = 0, std::string bytes = "") {
  return {"t", std::move(lengths), type, std::move(bytes)};
}

const std::vector<Attack>& attacks() {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  static const std::vector<Attack> rows = {
      {"CVE-2024-23605: entries whose size wraps", ErrorCode::kCorrupt, "metadata entries is",
       [](GgufBytes& b) { b.entry_count = (kHuge / 48) + 2; }},
      {"tensors whose table's size wraps", ErrorCode::kCorrupt, "number of tensors is",
       [](GgufBytes& b) { b.tensor_count = kHuge / 528 + 2; }},
      {"CVE-2024-21802: more dimensions than there is room for", ErrorCode::kCorrupt, "5 dimensions",
       [](GgufBytes& b) { b.tensors.push_back(tensor({1, 1, 1, 1, 1})); }},
      {"CVE-2025-53630: sizes whose sum wraps", ErrorCode::kCorrupt, "larger than the file",
       [](GgufBytes& b) { b.tensors.push_back(tensor({std::uint64_t{1} << 59})); }},
      {"CVE-2026-27940: sizes whose padding wraps", ErrorCode::kCorrupt, "no file can hold",
       [](GgufBytes& b) { b.tensors.push_back(tensor({kHuge - 7})); }},
      {"CVE-2026-33298: a product of dimensions that wraps", ErrorCode::kCorrupt, "no file can hold",
       [](GgufBytes& b) { b.tensors.push_back(tensor({std::uint64_t{1} << 32, std::uint64_t{1} << 32})); }},
      {"a row's size that wraps", ErrorCode::kCorrupt, "no file can hold",
       [](GgufBytes& b) { b.tensors.push_back(tensor({std::uint64_t{1} << 61, 8}, 2)); }},
      {"CVE-2026-7482: more values than the file has", ErrorCode::kCorrupt, "larger than the file",
       [](GgufBytes& b) { b.tensors.push_back(tensor({1 << 20}, 0, "data")); }},
      {"more values than the file has left", ErrorCode::kCorrupt, "cut short",
       [](GgufBytes& b) { b.tensors.push_back(tensor({200}, 0, "data")); }},
      {"an offset that wraps when it is padded", ErrorCode::kCorrupt, "begins at",
       [](GgufBytes& b) { b.tensors[1].offset = kHuge - 30; }},
      {"a tensor over another", ErrorCode::kCorrupt, "begins at", [](GgufBytes& b) { b.tensors[1].offset = 0; }},
      {"an offset off the alignment", ErrorCode::kCorrupt, "begins at",
       [](GgufBytes& b) { b.tensors[1].offset = 257; }},
      {"an alignment of 2^31", ErrorCode::kCorrupt, "general.alignment",
       [](GgufBytes& b) { b.number("general.alignment", 0x80000000U); }},
      {"an alignment of 0", ErrorCode::kCorrupt, "general.alignment",
       [](GgufBytes& b) { b.number("general.alignment", 0); }},
      {"an alignment of 24", ErrorCode::kCorrupt, "general.alignment",
       [](GgufBytes& b) { b.number("general.alignment", 24); }},
      {"an alignment that is a text", ErrorCode::kCorrupt, "general.alignment",
       [](GgufBytes& b) { b.text("general.alignment", "32"); }},
      {"a type confused: scores of bytes", ErrorCode::kCorrupt, "tokenizer.ggml.scores",
       [](GgufBytes& b) {
         b.entries[b.entries.size() - 2] = gguf_text("tokenizer.ggml.scores") + raw(kGgufList) + raw(kGgufU8) +
                                           raw<std::uint64_t>(2) + std::string(2, '\0');
       }},
      {"fewer kinds than tokens", ErrorCode::kCorrupt, "1 items for 2 tokens",
       [](GgufBytes& b) {
         b.entries.back() =
             gguf_text("tokenizer.ggml.token_type") + raw(kGgufList) + raw(kGgufI32) + raw<std::uint64_t>(1) + raw(1);
       }},
      {"a text of 2^64 - 1 bytes", ErrorCode::kCorrupt, "has 18446744073709551615 bytes",
       [](GgufBytes& b) { b.entry("k", kGgufText, raw(kHuge)); }},
      {"a key of 2^63 bytes", ErrorCode::kCorrupt, "metadata key has",
       [](GgufBytes& b) { b.entries.push_back(raw(std::uint64_t{1} << 63)); }},
      {"a text longer than the file", ErrorCode::kCorrupt, "the rest of the file",
       [](GgufBytes& b) { b.entry("k", kGgufText, raw<std::uint64_t>(1 << 20)); }},
      {"a list whose size wraps", ErrorCode::kCorrupt, "length is",
       [](GgufBytes& b) { b.list("k", 10, (std::uint64_t{1} << 61) + 1, ""); }},
      {"a list of lists", ErrorCode::kCorrupt, "one of lists", [](GgufBytes& b) { b.list("k", kGgufList, 1, raw(4)); }},
      {"a type that there is not", ErrorCode::kCorrupt, "type 13", [](GgufBytes& b) { b.entry("k", 13, ""); }},
      {"neither true nor false", ErrorCode::kCorrupt, "neither true nor false",
       [](GgufBytes& b) { b.entry("k", kGgufBool, "\2"); }},
      {"a key twice", ErrorCode::kCorrupt, "there twice", [](GgufBytes& b) { b.text("general.architecture", "x"); }},
      {"a tensor twice", ErrorCode::kCorrupt, "there twice",
       [](GgufBytes& b) { b.tensors[1].name = "token_embd.weight"; }},
      {"a tensor without a name", ErrorCode::kCorrupt, "no name", [](GgufBytes& b) { b.tensors[1].name = ""; }},
      {"a name that would colour a terminal", ErrorCode::kCorrupt, "plain characters",
       [](GgufBytes& b) { b.tensors[1].name = "\x1b[31m"; }},
      {"a dimension of 0", ErrorCode::kCorrupt, "dimension of 0",
       [](GgufBytes& b) { b.tensors.push_back(tensor({0})); }},
      {"rows that blocks do not divide", ErrorCode::kCorrupt, "do not divide",
       [](GgufBytes& b) { b.tensors.push_back(tensor({33}, 2)); }},
      {"a type that is not read", ErrorCode::kUnsupported, "IQ2_XS (17)",
       [](GgufBytes& b) { b.tensors.push_back(tensor({256}, 17)); }},
      {"a type that nobody knows", ErrorCode::kUnsupported, "type 1000",
       [](GgufBytes& b) { b.tensors.push_back(tensor({256}, 1000)); }},
      {"an older version", ErrorCode::kUnsupported, "version 1", [](GgufBytes& b) { b.version = 1; }},
      {"a newer version", ErrorCode::kUnsupported, "version 4", [](GgufBytes& b) { b.version = 4; }},
      {"big-endian numbers", ErrorCode::kUnsupported, "big-endian", [](GgufBytes& b) { b.version = 3U << 24; }},
      {"heads that do not share the rows", ErrorCode::kCorrupt, "5 rows, which are no heads of 16",
       [](GgufBytes& b) { b.tensors[1] = {"blk.0.attn_q.weight", {32, 5}, 0, std::string(640, '\0')}; }},
      {"no embedding", ErrorCode::kCorrupt, "token_embd.weight", [](GgufBytes& b) { b.tensors[0].name = "x"; }},
      {"a size missing", ErrorCode::kCorrupt, "llama.embedding_length",
       [](GgufBytes& b) { b.entries.erase(b.entries.begin() + 1); }},
  };
  return rows;
}

}  // namespace

TEST_CASE("known attacks on GGUF parsers are refused in one line", "[gguf]") {
  Scratch scratch;
  write_text(scratch / "m.gguf", sound().all());
  REQUIRE_NOTHROW(read_everything(scratch / "m.gguf"));
  for (const Attack& attack : attacks()) {
    INFO("attack: " << attack.what);
    GgufBytes bytes = sound();
    attack.damage(bytes);
    check_refused(scratch, bytes.all(), attack.code, {"m.gguf", attack.message});
  }
}

TEST_CASE("a GGUF file cut anywhere is refused", "[gguf]") {
  Scratch scratch;
  const std::string whole = sound().all();
  for (std::size_t size = 4; size < whole.size(); ++size) {
    INFO("bytes: " << size);
    check_refused(scratch, whole.substr(0, size), ErrorCode::kCorrupt, {"m.gguf"});
  }
}

TEST_CASE("a GGUF file with flipped bits is read or refused", "[gguf]") {
  Scratch scratch;
  const std::string whole = sound().all();
  const std::size_t header = sound().header().size();
  std::size_t refused = 0;
  for (std::size_t bit = 32; bit < header * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    write_text(scratch / "m.gguf", bytes);
    try {
      read_everything(scratch / "m.gguf");
    } catch (const Error& error) {
      ++refused;
      CHECK((error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kUnsupported));
    }
  }
  CHECK(refused > header * 2);  // most of what counts and measures
}

TEST_CASE("a sparse GGUF file of 20 GB is opened without being read", "[gguf]") {
  Scratch scratch;
  GgufBytes bytes;
  constexpr std::uint64_t kColumns = 65536, kRows = 65536;  // 17 GB of float32
  bytes.tensors.push_back({"big", {kColumns, kRows}, 0, ""});
  bytes.tensors.push_back({"packed", {kColumns, kRows}, 2, "", kColumns * kRows * 4});
  const std::uint64_t data = (bytes.header().size() + 31) / 32 * 32;
  write_text(scratch / "m.gguf", bytes.header());
  fs::resize_file(scratch / "m.gguf", data + kColumns * kRows * 4 + kColumns * kRows / 32 * 18);
  const auto checkpoint = files::open_checkpoint(scratch / "m.gguf");
  CHECK(checkpoint.find("big")->size_bytes == kColumns * kRows * 4);
  CHECK(checkpoint.find("packed_packed")->size_bytes == kColumns * kRows / 2);
}

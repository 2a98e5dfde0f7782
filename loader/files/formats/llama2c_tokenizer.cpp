// Source: karpathy/llama2.c, tokenizer.py (export) and run.c (build_tokenizer): the length of the longest token, then
// for each its score, its length and its bytes, with spaces where SentencePiece has U+2581.
#include "loader/files/formats/llama2c_tokenizer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/sentencepiece_model.h"
#include "loader/files/json_text.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

using Kind = PieceVocabulary::Kind;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 26;
constexpr std::int32_t kMaxTokenBytes = 7999;  // as SentencePiece has it
constexpr const char* kUsualName = "tokenizer.bin";
constexpr std::size_t kUnknown = 0, kBos = 1, kEos = 2;  // run.c's

// Bytes that stand for one: "<0x0A>".
bool is_byte(std::string_view text) {
  const auto is_digit = [&](std::size_t at) { return std::isxdigit(static_cast<unsigned char>(text[at])) != 0; };
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>') && is_digit(3) && is_digit(4);
}

std::string with_space_symbols(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == ' ' ? std::string("\u2581") : std::string(1, c);
  return out;
}

class TokenFile {
 public:
  TokenFile(const fs::path& path) : name_(printable_path(path)), text_(read_text(path, kMaxFileBytes)) {
    take<std::int32_t>();  // the longest token's length
  }

  // Nothing: it has another number of tokens.
  std::optional<PieceVocabulary> read(std::size_t vocab_size) {
    PieceVocabulary out;
    while (at_ < text_.size() && out.tokens.size() < vocab_size) read_token(out);
    if (at_ < text_.size() || out.tokens.size() < vocab_size) return std::nullopt;
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, name_ + ": " + problem + "; copy llama2.c's tokenizer again");
  }

  std::string_view take_bytes(std::size_t size) {
    if (size > text_.size() - at_) fail("ends in the middle of a token");
    at_ += size;
    return std::string_view(text_).substr(at_ - size, size);
  }

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }

  void read_token(PieceVocabulary& out) {
    const std::size_t id = out.tokens.size();
    const auto score = take<float>();
    const auto size = take<std::int32_t>();
    if (!std::isfinite(score) || size < 0 || size > kMaxTokenBytes)
      fail("token " + std::to_string(id) + " has a score or a length that none has");
    const std::string_view text = take_bytes(static_cast<std::size_t>(size));
    out.scores.push_back(score);
    if (id == kBos || id == kEos) {  // line breaks are put around these two
      out.tokens.push_back(id == kBos ? "<s>" : "</s>");
      out.kinds.push_back(Kind::kControl);
    } else {
      out.tokens.push_back(with_space_symbols(text));
      out.kinds.push_back(id == kUnknown ? Kind::kUnknown : is_byte(text) ? Kind::kByte : Kind::kNormal);
    }
  }

  std::string name_;
  std::string text_;
  std::size_t at_ = 0;
};

std::string tokenizer_config(const std::string& unknown) {
  const nlohmann::ordered_json out = {{"tokenizer_class", "LlamaTokenizer"},
                                      {"add_bos_token", true},
                                      {"add_eos_token", false},
                                      {"clean_up_tokenization_spaces", false},
                                      {"bos_token", "<s>"},
                                      {"eos_token", "</s>"},
                                      {"unk_token", unknown}};
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::optional<fs::path> tokenizer_beside(const fs::path& directory, std::size_t vocab_size) {
  std::error_code ignored;
  for (const std::string& name : {"tok" + std::to_string(vocab_size) + ".bin", std::string(kUsualName)})
    if (fs::is_regular_file(directory / name, ignored)) return directory / name;
  return std::nullopt;
}

}  // namespace

bool is_llama2c_tokenizer_name(std::string_view name) noexcept {
  if (name == kUsualName) return true;
  if (!name.starts_with("tok") || !name.ends_with(".bin") || name.size() == 7) return false;
  name.remove_prefix(3);
  name.remove_suffix(4);
  return std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

void add_llama2c_tokenizer(const fs::path& directory, std::size_t vocab_size, Checkpoint& checkpoint) {
  const auto path = tokenizer_beside(directory, vocab_size);
  if (!path) return;
  // Fewer have no begin and no end of a text.
  const auto vocabulary = vocab_size > kEos ? TokenFile(*path).read(vocab_size) : std::nullopt;
  if (!vocabulary) {
    checkpoint.notes.push_back(printable_path(path->filename()) + " has another number of tokens than the model's " +
                               std::to_string(vocab_size) + ", so it is not its tokenizer");
    return;
  }
  checkpoint.generated_files["tokenizer.model"] = [vocabulary] {
    return sentencepiece_model(*vocabulary, {.unknown = kUnknown, .bos = kBos, .eos = kEos, .padding = std::nullopt});
  };
  checkpoint.generated_files["tokenizer_config.json"] = [unknown = vocabulary->tokens.front()] {
    return tokenizer_config(unknown);
  };
}

}  // namespace halfbyte::files

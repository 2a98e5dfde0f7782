#include "models/tokenizers/sentencepiece/tokenizer.h"

#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>
#include <halfbyte/isolated_library.h>

#include "models/tokenizers/sentencepiece/shim.h"

namespace halfbyte::models {
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 28;

std::string read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    throw Error(ErrorCode::kCorrupt, path.string() + ": is not a regular file");
  if (std::filesystem::file_size(path, ignored) > kMaxFileBytes)
    throw Error(ErrorCode::kCorrupt, path.string() + ": has more bytes than any tokenizer");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, path.string() + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool adds_bos(const std::filesystem::path& config) {
  if (!std::filesystem::exists(config)) return true;
  const auto json = nlohmann::json::parse(read_file(config), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw Error(ErrorCode::kCorrupt, config.string() + ": is not a JSON object");
  const auto flag = json.find("add_bos_token");
  return flag == json.end() || !flag->is_boolean() || flag->get<bool>();
}

const HalfbyteSentencePiece& library() {
  static const IsolatedLibrary opened = open_isolated("libhalfbyte_sentencepiece.so", "HALFBYTE_SENTENCEPIECE");
  const auto function = reinterpret_cast<HalfbyteSentencePieceFunction*>(opened.symbol(HALFBYTE_SENTENCEPIECE));
  if (!function) throw Error(ErrorCode::kNotFound, "tokenizer.model cannot be read: " + opened.why_not);
  if (function()->abi == HALFBYTE_SENTENCEPIECE_ABI) return *function();
  throw Error(ErrorCode::kUnsupported, opened.path + " belongs to another version of halfbyte; install both again");
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::filesystem::path& path, bool add_bos)
      : library_(library()), model_(nullptr, library_.close) {
    const std::string bytes = read_file(path);
    model_.reset(library_.open(bytes.data(), bytes.size()));
    if (!model_)
      throw Error(ErrorCode::kCorrupt, path.string() + ": is not a SentencePiece model; copy tokenizer.model again");
    const std::int64_t bos = library_.bos(model_.get());
    if (add_bos && bos >= 0) prefix_ = {bos};
  }

  std::vector<TokenSpan> encode_spans(std::string_view text, SpecialTokens) const override {
    std::vector<TokenSpan> tokens;
    const auto emit = [](void* out, std::int64_t id, size_t begin, size_t end) {
      static_cast<std::vector<TokenSpan>*>(out)->push_back({id, begin, end});
    };
    if (library_.encode(model_.get(), text.data(), text.size(), emit, &tokens) == 0) return tokens;
    throw Error(ErrorCode::kInvalidArgument, "SentencePiece cannot split the text into tokens");
  }

  std::string decode(const TokenIds& ids, bool skip_special) const override {
    if (skip_special) return decode_text(ids);
    std::string text;
    TokenIds run;
    for (const std::int64_t id : ids) {
      check(id);
      if (!library_.is_control(model_.get(), id)) {
        run.push_back(id);
        continue;
      }
      text += decode_text(run) + piece(id);
      run.clear();
    }
    return text + decode_text(run);
  }

  std::string piece(std::int64_t id) const override {
    check(id);
    std::string text;
    library_.piece(model_.get(), id, append_text, &text);
    return text;
  }

  std::optional<std::int64_t> id_of(std::string_view piece) const override {
    const std::int64_t id = library_.id_of(model_.get(), piece.data(), piece.size());
    return id >= 0 ? std::optional(id) : std::nullopt;
  }

  const TokenIds& prefix() const override { return prefix_; }
  const TokenIds& suffix() const override { return suffix_; }
  std::int64_t vocab_size() const override { return library_.vocab_size(model_.get()); }

 private:
  static void append_text(void* out, const char* data, size_t size) {
    static_cast<std::string*>(out)->append(data, size);
  }

  void check(std::int64_t id) const {
    if (id >= 0 && id < vocab_size()) return;
    throw Error(ErrorCode::kInvalidArgument, "token id " + std::to_string(id) + " is beyond the tokenizer's " +
                                                 std::to_string(vocab_size()) + " pieces");
  }

  std::string decode_text(const TokenIds& ids) const {
    for (const std::int64_t id : ids) check(id);
    std::string text;
    if (library_.decode(model_.get(), ids.data(), ids.size(), append_text, &text) == 0) return text;
    throw Error(ErrorCode::kInvalidArgument, "SentencePiece cannot make text of the tokens");
  }

  const HalfbyteSentencePiece& library_;
  TokenIds prefix_;
  TokenIds suffix_;
  std::unique_ptr<HalfbyteSentencePieceModel, void (*)(HalfbyteSentencePieceModel*)> model_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model, const std::filesystem::path& config) {
  return std::make_unique<SentencePieceTokenizer>(model, adds_bos(config));
}

}  // namespace halfbyte::models

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
      : library_(library()), add_bos_(add_bos), model_(nullptr, library_.close) {
    const std::string bytes = read_file(path);
    model_.reset(library_.open(bytes.data(), bytes.size()));
    if (model_) return;
    throw Error(ErrorCode::kCorrupt, path.string() + ": is not a SentencePiece model; copy tokenizer.model again");
  }

  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<std::int64_t> ids;
    const auto emit = [](void* out, std::int64_t id) { static_cast<std::vector<std::int64_t>*>(out)->push_back(id); };
    if (library_.encode(model_.get(), text.data(), text.size(), emit, &ids) == 0) return ids;
    throw Error(ErrorCode::kInvalidArgument, "SentencePiece cannot split the text into tokens");
  }

  std::string decode(const std::vector<std::int64_t>& ids) const override {
    for (const std::int64_t id : ids) {
      if (id >= 0 && id < vocab_size()) continue;
      throw Error(ErrorCode::kInvalidArgument, "token id " + std::to_string(id) + " is beyond the tokenizer's " +
                                                   std::to_string(vocab_size()) + " pieces");
    }
    std::string text;
    const auto emit = [](void* out, const char* data, size_t size) {
      static_cast<std::string*>(out)->append(data, size);
    };
    if (library_.decode(model_.get(), ids.data(), ids.size(), emit, &text) == 0) return text;
    throw Error(ErrorCode::kInvalidArgument, "SentencePiece cannot make text of the tokens");
  }

  std::optional<std::int64_t> bos() const override {
    const std::int64_t id = library_.bos(model_.get());
    return add_bos_ && id >= 0 ? std::optional(id) : std::nullopt;
  }

  std::int64_t vocab_size() const override { return library_.vocab_size(model_.get()); }

 private:
  const HalfbyteSentencePiece& library_;
  bool add_bos_;
  std::unique_ptr<HalfbyteSentencePieceModel, void (*)(HalfbyteSentencePieceModel*)> model_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model, const std::filesystem::path& config) {
  return std::make_unique<SentencePieceTokenizer>(model, adds_bos(config));
}

}  // namespace halfbyte::models

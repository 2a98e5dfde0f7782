#include "models/tokenizers/sentencepiece_tokenizer.h"

#include <fstream>
#include <iterator>

#include <sentencepiece_processor.h>
#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

std::string read_file(const std::filesystem::path& path) {
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

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::filesystem::path& model, bool add_bos) : add_bos_(add_bos) {
    const auto status = processor_.LoadFromSerializedProto(read_file(model));
    if (!status.ok()) {
      throw Error(ErrorCode::kCorrupt, model.string() + ": is not a SentencePiece model; copy tokenizer.model again");
    }
  }

  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok()) throw Error(ErrorCode::kInvalidArgument, "the text cannot be tokenized: " + status.ToString());
    return {ids.begin(), ids.end()};
  }

  std::string decode(const std::vector<std::int64_t>& ids) const override {
    std::vector<int> narrow;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= vocab_size()) {
        throw Error(ErrorCode::kInvalidArgument, "token id " + std::to_string(id) + " is beyond the tokenizer's " +
                                                     std::to_string(vocab_size()) + " pieces");
      }
      narrow.push_back(static_cast<int>(id));
    }
    std::string text;
    const auto status = processor_.Decode(narrow, &text);
    if (!status.ok()) throw Error(ErrorCode::kInvalidArgument, "tokens cannot be decoded: " + status.ToString());
    return text;
  }

  std::optional<std::int64_t> bos() const override {
    if (!add_bos_ || processor_.bos_id() < 0) return std::nullopt;
    return processor_.bos_id();
  }

  std::int64_t vocab_size() const override { return processor_.GetPieceSize(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  bool add_bos_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model, const std::filesystem::path& config) {
  return std::make_unique<SentencePieceTokenizer>(model, adds_bos(config));
}

}  // namespace halfbyte::models

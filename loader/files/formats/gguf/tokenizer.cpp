#include "loader/files/formats/gguf/tokenizer.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/config.h"
#include "loader/files/formats/gguf/pre_tokenizers.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kKinds = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";

std::string dumped(const ordered_json& json) {
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void check_length(const GgufFile& file, const char* key, std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  file.fail(ErrorCode::kCorrupt,
            in_quotes(key) + " has " + std::to_string(found) + " items for " + std::to_string(wanted) + " tokens");
}

bool is_sentencepiece(const GgufFile& file) { return file.text("tokenizer.ggml.model") == "llama"; }

std::string tokenizer_config(const GgufFile& file) {
  const std::vector<std::string> tokens = file.texts(kTokens).value_or(std::vector<std::string>());
  const auto* pre = find_pre_tokenizer(file.text("tokenizer.ggml.pre").value_or(""));
  const bool adds_bos = is_sentencepiece(file) || (pre && pre->adds_bos);
  ordered_json out = {{"tokenizer_class", is_sentencepiece(file) ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                      {"add_bos_token", file.boolean("tokenizer.ggml.add_bos_token").value_or(adds_bos)},
                      {"add_eos_token", file.boolean("tokenizer.ggml.add_eos_token").value_or(false)},
                      {"clean_up_tokenization_spaces", false}};
  for (const auto& [gguf, key] : {std::pair("bos", "bos_token"), std::pair("eos", "eos_token"),
                                  std::pair("unknown", "unk_token"), std::pair("padding", "pad_token")}) {
    const auto id = special_token(file, gguf);
    if (id && *id < tokens.size()) out[key] = tokens[*id];
  }
  if (const auto length = file.integer(file.text("general.architecture").value_or("") + ".context_length"))
    out["model_max_length"] = *length;
  if (const auto chat = file.text("tokenizer.chat_template")) out["chat_template"] = *chat;
  return dumped(out);
}

std::string generation_config(const GgufFile& file) {
  ordered_json out = ordered_json::object();
  if (const auto id = special_token(file, "bos")) out["bos_token_id"] = *id;
  if (const auto ends = gguf_end_tokens(file); !ends.empty())
    out["eos_token_id"] = ends.size() == 1 ? ordered_json(ends.front()) : ordered_json(ends);
  if (const auto id = special_token(file, "padding")) out["pad_token_id"] = *id;
  return dumped(out);
}

void add_note_on_pre_tokenizer(const GgufFile& file, Checkpoint& checkpoint) {
  const std::string name = file.text("tokenizer.ggml.pre").value_or("");
  if (find_pre_tokenizer(name)) return;
  checkpoint.notes.push_back("the tokenizer's way of splitting (" +
                             (name.empty() ? "not named" : "tokenizer.ggml.pre " + in_quotes(name)) +
                             ") is not known; GPT-2's is used, and some texts may become other tokens");
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const GgufFile& file) {
  GgufVocabulary out;
  out.tokens = file.texts(kTokens).value_or(std::vector<std::string>());
  out.scores = file.floats(kScores).value_or(std::vector<float>());
  if (!out.scores.empty()) check_length(file, kScores, out.scores.size(), out.tokens.size());
  out.kinds.assign(out.tokens.size(), GgufVocabulary::Kind::kNormal);
  const auto kinds = file.integers(kKinds);
  if (!kinds) return out;
  check_length(file, kKinds, kinds->size(), out.tokens.size());
  for (std::size_t i = 0; i < kinds->size(); ++i) {
    const std::int64_t kind = (*kinds)[i];
    if (kind >= 1 && kind <= 6) out.kinds[i] = static_cast<GgufVocabulary::Kind>(kind);
  }
  return out;
}

std::optional<std::size_t> special_token(const GgufFile& file, const std::string& name) {
  const auto id = file.integer("tokenizer.ggml." + name + "_token_id");
  if (!id || *id < 0 || static_cast<std::uint64_t>(*id) >= file.list_size(kTokens)) return std::nullopt;
  return static_cast<std::size_t>(*id);
}

void add_gguf_tokenizer(const std::shared_ptr<const GgufFile>& file, Checkpoint& checkpoint) {
  const std::string model = file->text("tokenizer.ggml.model").value_or("");
  const bool has_merges = file->has("tokenizer.ggml.merges");
  auto& out = checkpoint.generated_files;
  if (is_sentencepiece(*file) && file->has(kTokens)) {
    out["tokenizer.model"] = [file] { return gguf_sentencepiece_model(*file); };
  } else if (model == "gpt2" && has_merges && file->has(kTokens)) {
    out["tokenizer.json"] = [file] { return gguf_tokenizer_json(*file); };
    add_note_on_pre_tokenizer(*file, checkpoint);
  } else {
    checkpoint.notes.push_back(model.empty() ? "the file has no tokenizer"
                                             : "its tokenizer " + in_quotes(model) + " is not one that is read here");
  }
  if (!out.empty()) out["tokenizer_config.json"] = [file] { return tokenizer_config(*file); };
  out["generation_config.json"] = [file] { return generation_config(*file); };
}

}  // namespace halfbyte::files

// tokenizer.json of a byte-level BPE vocabulary. Written piece by piece: a tree of 300 000 strings costs more than the
// text. Source: huggingface/tokenizers, tokenizers/src (the layout of a serialised Tokenizer).
#include <unordered_set>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/pre_tokenizers.h"
#include "loader/files/formats/gguf/tokenizer.h"

namespace halfbyte::files {
namespace {

using nlohmann::ordered_json;
using Kind = GgufVocabulary::Kind;

std::string as_json(std::string_view text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

bool is_added(Kind kind) noexcept {
  return kind == Kind::kControl || kind == Kind::kUserDefined || kind == Kind::kUnknown;
}

// Sizes of vocabularies are padded with "[PAD123]", which no text becomes.
bool is_in_vocabulary(Kind kind) noexcept { return kind == Kind::kNormal || kind == Kind::kByte; }

class TokenizerJson {
 public:
  explicit TokenizerJson(const GgufFile& file)
      : file_(file), vocabulary_(read_gguf_vocabulary(file)), merges_(*file.texts("tokenizer.ggml.merges")) {
    if (const auto* row = find_pre_tokenizer(file.text("tokenizer.ggml.pre").value_or(""))) pre_ = *row;
  }

  std::string text() {
    out_ = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)";
    add_added_tokens();
    out_ += R"(],"normalizer":)";
    out_ += pre_.normalizes_nfc ? R"({"type":"NFC"})" : "null";
    out_ += R"(,"pre_tokenizer":)" + pre_tokenizer().dump();
    out_ += R"(,"post_processor":)" + post_processor().dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    out_ += R"(,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
    out_ += R"(,"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)";
    out_ += R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":)";
    out_ += pre_.ignores_merges ? "true" : "false";
    out_ += R"(,"vocab":{)";
    add_vocabulary();
    out_ += R"(},"merges":[)";
    add_merges();
    out_ += "]}}\n";
    return std::move(out_);
  }

 private:
  void add_added_tokens() {
    bool is_first = true;
    for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      const Kind kind = vocabulary_.kinds[id];
      if (!is_added(kind) || vocabulary_.tokens[id].empty()) continue;
      out_ += std::string(is_first ? "" : ",") + "{\"id\":" + std::to_string(id) +
              ",\"content\":" + as_json(vocabulary_.tokens[id]) +
              R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)" +
              (kind == Kind::kUserDefined ? "false}" : "true}");
      is_first = false;
    }
  }

  static ordered_json split(std::string_view pattern) {
    return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  }

  ordered_json pre_tokenizer() const {
    const bool has_own_pattern = !pre_.pattern.empty();
    const ordered_json bytes = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", !has_own_pattern}};
    if (!has_own_pattern && !pre_.splits_digits) return bytes;
    ordered_json steps = ordered_json::array();
    for (const std::string_view pattern : pre_.before) steps.push_back(split(pattern));
    steps.push_back(split(has_own_pattern ? pre_.pattern : R"(\p{N})"));
    steps.push_back(bytes);
    return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  }

  // What is put before and after a text.
  ordered_json post_processor() const {
    const auto bos = special_token(file_, "bos"), eos = special_token(file_, "eos");
    const bool adds_bos = bos && file_.boolean("tokenizer.ggml.add_bos_token").value_or(pre_.adds_bos);
    const bool adds_eos = eos && file_.boolean("tokenizer.ggml.add_eos_token").value_or(false);
    if (!adds_bos && !adds_eos)
      return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
    ordered_json single = ordered_json::array(), pair = ordered_json::array(), tokens = ordered_json::object();
    const auto put = [&](bool is_put, const std::optional<std::size_t>& id, int type) {
      if (!is_put) return;
      const std::string& token = vocabulary_.tokens[*id];
      const ordered_json special = {{"SpecialToken", {{"id", token}, {"type_id", type}}}};
      if (type == 0) single.push_back(special);
      pair.push_back(special);
      tokens[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
    };
    put(adds_bos, bos, 0);
    const ordered_json a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    single.push_back(a);
    pair.push_back(a);
    put(adds_eos, eos, 0);
    put(adds_bos, bos, 1);
    pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
    put(adds_eos, eos, 1);
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
  }

  // Of a token that is there twice the first id counts.
  void add_vocabulary() {
    std::unordered_set<std::string_view> seen;
    for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      const std::string& token = vocabulary_.tokens[id];
      if (!is_in_vocabulary(vocabulary_.kinds[id]) || !seen.insert(token).second) continue;
      if (seen.size() > 1) out_ += ',';
      out_ += as_json(token) + ":" + std::to_string(id);
    }
  }

  void add_merges() {
    bool is_first = true;
    for (const std::string& merge : merges_) {
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string::npos)
        file_.fail(ErrorCode::kCorrupt, "\"tokenizer.ggml.merges\" has an entry that is no pair");
      if (!is_first) out_ += ',';
      is_first = false;
      out_ += '[';
      out_ += as_json(std::string_view(merge).substr(0, space)) + "," +
              as_json(std::string_view(merge).substr(space + 1)) + "]";
    }
  }

  const GgufFile& file_;
  GgufVocabulary vocabulary_;
  std::vector<std::string> merges_;
  GgufPreTokenizer pre_{};
  std::string out_;
};

}  // namespace

std::string gguf_tokenizer_json(const GgufFile& file) { return TokenizerJson(file).text(); }

}  // namespace halfbyte::files

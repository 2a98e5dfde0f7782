#include "models/tokenizers/huggingface/post_processor.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

namespace halfbyte::models::huggingface {
namespace {

void read(const JsonField& json, PostProcessing& result);

void read_sequence(const JsonField& json, PostProcessing& result) {
  for (const JsonField& item : json.at("processors").items()) read(item, result);
}

void read_byte_level(const JsonField& json, PostProcessing& result) {
  if (!json.boolean_or("trim_offsets", true)) return;
  result.trims_spans = true;
  result.keeps_added_space = json.boolean_or("add_prefix_space", true);
}

std::int64_t id_of_pair(const JsonField& json) {
  const auto items = json.items();
  if (items.size() != 2) json.fail("is no pair of a token and its id");
  return token_id(items[1]);
}

constexpr std::size_t kMaxAround = 1024;  // tokens; models have up to four

// Puts tokens before the text, or after it. Errors: kCorrupt when there are more than any model's.
void surround(const JsonField& json, PostProcessing& result, const TokenIds& before, const TokenIds& after) {
  if (result.prefix.size() + before.size() + result.suffix.size() + after.size() > kMaxAround)
    json.fail("puts more than " + std::to_string(kMaxAround) + " tokens around a text, and no model does");
  result.prefix.insert(result.prefix.begin(), before.begin(), before.end());
  result.suffix.insert(result.suffix.end(), after.begin(), after.end());
}

void read_cls_and_sep(const JsonField& json, PostProcessing& result) {
  surround(json, result, {id_of_pair(json.at("cls"))}, {id_of_pair(json.at("sep"))});
}

void read_roberta(const JsonField& json, PostProcessing& result) {
  read_byte_level(json, result);
  read_cls_and_sep(json, result);
}

TokenIds special_ids(const JsonField& tokens, const std::string& name) {
  const auto token = tokens.find(name.c_str());
  if (!token) tokens.fail("has no " + in_quotes(name) + ", which the template names");
  const JsonField list = token->at("ids");
  if (list.json().size() > kMaxAround) list.fail("has more ids than any model puts around a text");
  TokenIds ids;
  for (const JsonField& id : list.items()) ids.push_back(token_id(id));
  return ids;
}

void read_template(const JsonField& json, PostProcessing& result) {
  TokenIds before, after;
  bool has_text = false;
  for (const JsonField& item : json.at("single").items()) {
    if (const auto sequence = item.find("Sequence")) {
      if (has_text || sequence->at("id").string() != "A")
        throw Error(ErrorCode::kUnsupported, item.path() + ": only templates with the text once, as A, are known");
      has_text = true;
      continue;
    }
    const TokenIds ids = special_ids(json.at("special_tokens"), item.at("SpecialToken").at("id").string());
    TokenIds& side = has_text ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
    if (side.size() > kMaxAround) break;  // refused below
  }
  surround(json, result, before, after);
  if (!has_text) throw Error(ErrorCode::kUnsupported, json.path() + ": the template does not contain the text");
}

struct Row {
  std::string_view type;
  void (*read)(const JsonField&, PostProcessing&);
};

constexpr Row kRows[] = {{"Sequence", read_sequence},
                         {"ByteLevel", read_byte_level},
                         {"TemplateProcessing", read_template},
                         {"BertProcessing", read_cls_and_sep},
                         {"RobertaProcessing", read_roberta}};

void read(const JsonField& json, PostProcessing& result) {
  row_of_type(json, json.at("type").string(), kRows, "post-processors").read(json, result);
}

}  // namespace

PostProcessing read_post_processor(const JsonField& json) {
  PostProcessing result;
  read(json, result);
  return result;
}

std::vector<std::string_view> post_processor_types() { return types_of(kRows); }

}  // namespace halfbyte::models::huggingface

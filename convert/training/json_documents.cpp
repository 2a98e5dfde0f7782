#include "convert/training/json_documents.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/calibrate/text_values.h"
#include "convert/calibrate/tokenizer_of.h"
#include "convert/training/answers.h"
#include "convert/training/end_of_text.h"
#include "loader/files/printable.h"
#include "models/chat/chat_template.h"
#include "models/chat/messages.h"

namespace halfbyte::convert {
namespace {

using calibrate::member;
using models::SpecialTokens;
using models::TokenIds;
using Json = nlohmann::ordered_json;

constexpr const char* kShapes =
    "{\"text\": ..}, {\"prompt\": .., \"completion\": ..}, {\"messages\": [{\"role\": .., \"content\": ..}]}, "
    "{\"input_ids\": [..]} or [ids]";
// What templates tell the model as today: another date each day would make another text of the same file.
constexpr const char* kDate = "26 Jul 2024";
// Of a plain text, where special tokens' names are looked for.
constexpr std::size_t kLookedThrough = std::size_t{1} << 20;

[[noreturn]] void refuse_document(const std::string& problem) { throw Error(ErrorCode::kCorrupt, problem); }

const std::string& text_in(const Json& value) {
  if (!value.is_string()) refuse_document("a text is none: " + files::printable(value.dump(-1, ' ', true), 40));
  return value.get_ref<const std::string&>();
}

// Source: transformers' labels, which are those of the tokens themselves.
std::vector<std::int64_t> labels_of(const Json& labels, const TokenIds& ids, std::int64_t vocab_size) {
  const auto is_label = [&](const Json& each) {
    if (each.is_number_unsigned()) return each.get<std::uint64_t>() < static_cast<std::uint64_t>(vocab_size);
    return each.is_number_integer() && (each == 0 || each == training::kUnscored);
  };
  if (!labels.is_array() || labels.size() != ids.size() || !std::ranges::all_of(labels, is_label))
    refuse_document("\"labels\" is no list of a token id, or -100, for each of \"input_ids\"");
  return labels.get<std::vector<std::int64_t>>();
}

Document document_of_ids(const Json& list, const Json* labels, std::int64_t vocab_size, const std::string& where) {
  Document out{.ids = calibrate::token_ids_of(list, vocab_size, where)};
  out.labels = labels ? labels_of(*labels, out.ids, vocab_size) : out.ids;
  return out;
}

}  // namespace

// What reads texts.
class DocumentReader::Texts {
 public:
  explicit Texts(const DocumentOptions& options)
      : options_(options),
        tokenizer_(calibrate::tokenizer_of(options.tokenizer)),
        directory_(options.tokenizer),
        end_(end_of_text(directory_.path(), *tokenizer_)) {}

  Document plain(std::string_view text) {
    look_for_names(text.substr(0, kLookedThrough));
    Document out{.prefix = tokenizer_->prefix()};
    if (text.empty()) return out;
    out.add(tokenizer_->prefix(), false);
    out.add(checked(tokenizer_->encode(text, SpecialTokens::kAsText)), true);
    return out;
  }

  Document completed(const std::string& prompt, const std::string& completion) {
    const std::string text = prompt + completion;
    look_for_names(text);
    Document out{.prefix = tokenizer_->prefix()};
    if (text.empty()) return out;
    out.add(tokenizer_->prefix(), false);
    // One token of both is the completion's.
    for (const models::TokenSpan& span : tokenizer_->encode_spans(text, SpecialTokens::kAsText))
      out.add(span.id, span.begin >= prompt.size() || span.end > prompt.size());
    end(out);
    checked(out.ids);
    return out;
  }

  std::vector<Document> conversation(const models::ChatInput& input) {
    if (!chat_) load_chat();
    std::vector<Document> out =
        documents_of(input, {.tokenizer = *tokenizer_, .chat = *chat_, .stops = stops_, .end = end_});
    for (const Document& document : out) checked(document.ids);
    split_ += out.size() > 1;
    return out;
  }

  std::vector<Text> notes() const {
    std::vector<Text> out;
    if (split_ > 0)
      out.push_back("conversations: " + std::to_string(split_) +
                    " are written otherwise by the chat template once they go on, so that each answer in them is a "
                    "document of its own");
    if (lacks_end_) out.push_back("the tokenizer has no token that ends a text, so that none ends with one");
    if (!spelt_.empty())
      out.push_back("texts spell special tokens (" + files::printable(spelt_, 40) + "), which are read as text");
    return out;
  }

 private:
  void load_chat() {
    chat_ = models::load_chat_template(directory_.path(), *tokenizer_, {.name = options_.chat_template, .date = kDate});
    stops_ = chat_->stop_tokens(*tokenizer_);
    const TokenIds others = models::generation_stop_tokens(directory_.path());
    stops_.insert(stops_.end(), others.begin(), others.end());
    if (end_) stops_.push_back(*end_);
  }

  void end(Document& document) {
    if (end_) document.add(*end_, true);
    lacks_end_ = !end_;
  }

  void look_for_names(std::string_view text) {
    if (!spelt_.empty()) return;
    spelt_ = models::special_names(*tokenizer_, tokenizer_->encode(text, SpecialTokens::kParse),
                                   tokenizer_->encode(text, SpecialTokens::kAsText))
                 .example;
  }

  const TokenIds& checked(const TokenIds& ids) const {
    const auto beyond = std::ranges::find_if(ids, [&](std::int64_t id) { return id >= options_.vocab_size; });
    if (beyond == ids.end()) return ids;
    throw Error(ErrorCode::kInvalidArgument, "the tokenizer makes token " + std::to_string(*beyond) +
                                                 "; those of this model are 0 to " +
                                                 std::to_string(options_.vocab_size - 1));
  }

  const DocumentOptions& options_;
  std::unique_ptr<models::Tokenizer> tokenizer_;
  files::TokenizerDirectory directory_;
  std::optional<std::int64_t> end_;
  std::optional<models::ChatTemplate> chat_;
  TokenIds stops_;
  std::int64_t split_ = 0;
  bool lacks_end_ = false;
  std::string spelt_;
};

DocumentReader::DocumentReader(DocumentOptions options) : options_(std::move(options)) {}
DocumentReader::~DocumentReader() = default;

DocumentReader::Texts& DocumentReader::texts() {
  if (!texts_) texts_ = std::make_unique<Texts>(options_);
  return *texts_;
}

Document DocumentReader::read_plain(std::string_view text) { return texts().plain(text); }

std::vector<Document> DocumentReader::read(const Json& value, const std::string& where) try {
  return read_value(value, where);
} catch (const Error& error) {
  if (error.text().str().starts_with(where)) throw;
  throw Error(error.code(), Text(where + ": ") + error.text());
}

std::vector<Document> DocumentReader::read_value(const Json& value, const std::string& where) {
  if (const Json* ids = value.is_array() ? &value : member(value, "input_ids"))
    return {document_of_ids(*ids, member(value, "labels"), options_.vocab_size, where)};
  if (const Json* messages = member(value, "messages")) {
    if (!messages->is_array() || messages->empty()) refuse_document("\"messages\" is no list of messages");
    const auto input = models::chat_input_of(value);
    if (!input)
      refuse_document("a message is {\"role\": \"system\", \"user\", \"assistant\" or \"tool\", \"content\": text}");
    return texts().conversation(*input);
  }
  if (const Json* text = member(value, "text")) return {texts().completed("", text_in(*text))};
  const Json* prompt = member(value, "prompt");
  const Json* completion = member(value, "completion");
  if (!prompt || !completion) refuse_document("none of " + std::string(kShapes));
  return {texts().completed(text_in(*prompt), text_in(*completion))};
}

std::vector<Text> DocumentReader::notes() const { return texts_ ? texts_->notes() : std::vector<Text>(); }

}  // namespace halfbyte::convert

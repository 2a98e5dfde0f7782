#include "convert/calibrate/json_texts.h"

#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/calibrate/tokenizer_of.h"
#include "models/chat/chat_template.h"
#include "models/chat/messages.h"

namespace halfbyte::convert::calibrate {
namespace {

using models::TokenIds;
using Json = nlohmann::ordered_json;

constexpr const char* kShapes =
    "{\"input_ids\": [..]}, [ids], {\"messages\": [{\"role\": .., \"content\": ..}]}, {\"text\": ..} or {\"prompt\": "
    "..}";

// One file: what its values come to.
class Reader {
 public:
  explicit Reader(const JsonTextOptions& options) : options_(options), ids_(options.windows) {}

  // Errors: kCorrupt, beginning with `where`.
  void add(const Json& value, const std::string& where) {
    where_ = where;
    const Json* ids = value.is_array() ? &value : member(value, "input_ids");
    const bool is_ids = ids != nullptr;
    if (has_ids_.value_or(is_ids) != is_ids) fail("token ids and texts in one file: give them in two");
    if (!has_ids_) begin(is_ids);
    ids_.add(is_ids ? token_ids_of(*ids, options_.vocab_size, where) : read(value));
  }
  bool is_full() const noexcept { return ids_.is_full(); }
  Windows take() && { return std::move(ids_); }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, where_ + ": " + problem);
  }

  // Ids are what the model reads; texts get what the tokenizer puts before one.
  void begin(bool is_ids) {
    has_ids_ = is_ids;
    WindowOptions windows = options_.windows;
    if (!is_ids) {
      tokenizer_ = tokenizer_of(options_.checkpoint);
      windows.prefix = tokenizer_->prefix();
    }
    ids_ = Windows(windows);
  }

  TokenIds read(const Json& value) {
    if (const Json* messages = member(value, "messages")) return read_messages(*messages);
    const Json* text = member(value, "text");
    if (!text) text = member(value, "prompt");
    if (!text || !text->is_string()) fail("none of " + std::string(kShapes));
    TokenIds out = tokenizer_->prefix();
    const TokenIds ids = tokenizer_->encode(text->get_ref<const std::string&>(), models::SpecialTokens::kAsText);
    out.insert(out.end(), ids.begin(), ids.end());
    return out;
  }

  TokenIds read_messages(const Json& messages) {
    if (!messages.is_array() || messages.empty()) fail("\"messages\" is no list of messages");
    const auto conversation = models::messages_of(nlohmann::json(messages));
    if (!conversation)
      fail("a message is {\"role\": \"system\" (the first alone), \"user\" or \"assistant\", \"content\": text}");
    return rendered(*conversation);
  }

  // A conversation that ends with an answer is not asked for another one.
  TokenIds rendered(const models::Conversation& conversation) {
    if (!template_) {
      const files::TokenizerDirectory directory(options_.checkpoint);
      template_ = models::load_chat_template(directory.path(), *tokenizer_);
    }
    const bool asks_for_answer = conversation.back().role != models::Speaker::kAssistant;
    return template_->encode(conversation, *tokenizer_, asks_for_answer);
  }

  const JsonTextOptions& options_;
  std::string where_;
  std::optional<bool> has_ids_;
  std::unique_ptr<models::Tokenizer> tokenizer_;
  std::optional<models::ChatTemplate> template_;
  Windows ids_;
};

}  // namespace

Windows read_json_texts(std::string_view text, const std::filesystem::path& path, const JsonTextOptions& options) {
  Reader reader(options);
  each_json_value(text, path, shape_of(path), [&](const Json& value, const std::string& where) {
    reader.add(value, where);
    return !reader.is_full();
  });
  return std::move(reader).take();
}

}  // namespace halfbyte::convert::calibrate

#include "convert/calibrate/json_texts.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/calibrate/tokenizer_of.h"
#include "loader/files/json_text.h"
#include "loader/files/printable.h"
#include "models/chat/chat_template.h"
#include "models/chat/messages.h"

namespace halfbyte::convert::calibrate {
namespace {

using models::TokenIds;
using nlohmann::json;

constexpr files::JsonLimits kLineLimits{.max_bytes = 64'000'000};
constexpr files::JsonLimits kListLimits{.max_bytes = std::uint64_t{1} << 30};
constexpr const char* kShapes =
    "{\"input_ids\": [..]}, [ids], {\"messages\": [{\"role\": .., \"content\": ..}]}, {\"text\": ..} or {\"prompt\": "
    "..}";

// One file: what its values come to.
class Reader {
 public:
  explicit Reader(const JsonTextOptions& options) : options_(options), ids_(options.windows) {}

  // Errors: kCorrupt, beginning with `where`.
  void add(const json& value, const std::string& where) {
    where_ = where;
    const json* ids = value.is_array() ? &value : member(value, "input_ids");
    const bool is_ids = ids != nullptr;
    if (has_ids_.value_or(is_ids) != is_ids) fail("token ids and texts in one file: give them in two");
    if (!has_ids_) begin(is_ids);
    ids_.add(is_ids ? checked_ids(*ids) : read(value));
  }
  bool is_full() const noexcept { return ids_.is_full(); }
  Windows take() && { return std::move(ids_); }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, where_ + ": " + problem);
  }

  static const json* member(const json& value, const char* name) {
    const auto found = value.is_object() ? value.find(name) : value.end();
    return value.is_object() && found != value.end() ? &*found : nullptr;
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

  TokenIds checked_ids(const json& values) const {
    if (!values.is_array() || values.empty()) fail("no list of token ids");
    TokenIds out;
    for (const json& each : values) {
      const bool is_id = each.is_number_integer() && each >= 0 && each < options_.vocab_size;
      if (!is_id)
        fail(files::printable(each.dump(), 40) + " is no token id: those of this model are 0 to " +
             std::to_string(options_.vocab_size - 1));
      out.push_back(each.get<std::int64_t>());
    }
    return out;
  }

  TokenIds read(const json& value) {
    if (const json* messages = member(value, "messages")) return read_messages(*messages);
    const json* text = member(value, "text");
    if (!text) text = member(value, "prompt");
    if (!text || !text->is_string()) fail("none of " + std::string(kShapes));
    TokenIds out = tokenizer_->prefix();
    const TokenIds ids = tokenizer_->encode(text->get_ref<const std::string&>(), models::SpecialTokens::kAsText);
    out.insert(out.end(), ids.begin(), ids.end());
    return out;
  }

  TokenIds read_messages(const json& messages) {
    if (!messages.is_array() || messages.empty()) fail("\"messages\" is no list of messages");
    const auto conversation = models::messages_of(messages);
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

std::string at_line(const std::string& name, std::int64_t line) { return name + ": line " + std::to_string(line); }

void read_lines(std::string_view text, const std::string& name, Reader& reader) {
  for (std::int64_t line = 1; !text.empty() && !reader.is_full(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = at_line(name, line);
    if (one.size() > kLineLimits.max_bytes) throw Error(ErrorCode::kCorrupt, where + ": more than 64 MB");
    reader.add(files::parse_json<json>(one, where, kLineLimits), where);
  }
}

void read_list(std::string_view text, const std::string& name, Reader& reader) {
  const json list = files::parse_json<json>(text, name, kListLimits);
  if (!list.is_array()) throw Error(ErrorCode::kCorrupt, name + ": is no list; a file of lines is called .jsonl");
  for (std::size_t i = 0; i < list.size() && !reader.is_full(); ++i)
    reader.add(list[i], name + ": item " + std::to_string(i + 1));
}

}  // namespace

bool is_json(const std::filesystem::path& path) { return path.extension() == ".jsonl" || path.extension() == ".json"; }

Windows read_json_texts(std::string_view text, const std::filesystem::path& path, const JsonTextOptions& options) {
  Reader reader(options);
  const std::string name = files::printable_path(path);
  path.extension() == ".json" ? read_list(text, name, reader) : read_lines(text, name, reader);
  return std::move(reader).take();
}

}  // namespace halfbyte::convert::calibrate

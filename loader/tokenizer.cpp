#include <halfbyte/tokenizer.h>

#include <optional>

#include "loader/files/tokenizer_directory.h"
#include "models/chat/chat_template.h"
#include "models/chat/messages.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte {
namespace {

models::Conversation conversation_of(const std::vector<ChatTurn>& turns) {
  models::Conversation out;
  for (const auto& [role, text] : turns) {
    const auto speaker = models::speaker_of(role);
    if (!speaker || (*speaker == models::Speaker::kSystem && !out.empty()))
      throw Error(ErrorCode::kInvalidArgument, "turn " + std::to_string(out.size()) + " is of '" + role.substr(0, 40) +
                                                   "'; expected user or assistant, or system in the first");
    out.push_back({*speaker, text});
  }
  if (out.empty()) throw Error(ErrorCode::kInvalidArgument, "the conversation is empty");
  return out;
}

}  // namespace

struct Tokenizer::State {
  std::unique_ptr<models::Tokenizer> tokenizer;
  std::optional<models::ChatTemplate> chat;
  std::string no_chat;  // why there is none
};

Tokenizer::Tokenizer(const std::filesystem::path& checkpoint) {
  const auto state = std::make_shared<State>();
  if (!std::filesystem::exists(checkpoint)) throw Error(ErrorCode::kNotFound, checkpoint.string() + " does not exist");
  const files::TokenizerDirectory directory(checkpoint);
  state->tokenizer = models::load_tokenizer(directory.path());
  if (!state->tokenizer) throw Error(ErrorCode::kNotFound, checkpoint.string() + " has no tokenizer");
  try {
    state->chat = models::load_chat_template(directory.path(), *state->tokenizer);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    state->no_chat = error.what();
  }
  state_ = state;
}

TokenIds Tokenizer::encode(std::string_view text, SpecialSpelling special) const {
  const models::Tokenizer& own = *state_->tokenizer;
  TokenIds out = own.prefix();
  const auto as = special == SpecialSpelling::kToken ? models::SpecialTokens::kParse : models::SpecialTokens::kAsText;
  const TokenIds ids = own.encode(text, as);
  out.insert(out.end(), ids.begin(), ids.end());
  out.insert(out.end(), own.suffix().begin(), own.suffix().end());
  return out;
}

std::string Tokenizer::decode(const TokenIds& ids, bool skip_special) const {
  return state_->tokenizer->decode(ids, skip_special);
}

std::string Tokenizer::piece(std::int64_t id) const { return state_->tokenizer->piece(id); }

std::int64_t Tokenizer::vocab_size() const noexcept { return state_->tokenizer->vocab_size(); }

TokenIds Tokenizer::encode_chat(const std::vector<ChatTurn>& turns) const {
  if (!state_->chat) throw Error(ErrorCode::kUnsupported, state_->no_chat);
  return state_->chat->encode(conversation_of(turns), *state_->tokenizer);
}

TokenIds Tokenizer::chat_stop_tokens() const {
  return state_->chat ? state_->chat->stop_tokens(*state_->tokenizer) : TokenIds{};
}

}  // namespace halfbyte

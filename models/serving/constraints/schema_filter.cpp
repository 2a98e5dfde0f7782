#include "models/serving/constraints/schema_filter.h"

namespace halfbyte::serving {

SchemaFilter::SchemaFilter(std::shared_ptr<const Schema> schema, std::shared_ptr<const TokenTrie> tokens,
                           const models::TokenIds& stop_tokens)
    : tokens_(std::move(tokens)),
      stop_tokens_(stop_tokens.begin(), stop_tokens.end()),
      machine_(std::move(schema)),
      rest_(machine_.rest()) {}

// Whether it can still end in time; of what could not before, nothing is asked.
bool SchemaFilter::fits(const SchemaMachine& next, std::int64_t room) const {
  return next.rest() < room || rest_ > room;
}

bool SchemaFilter::allows(std::int64_t token, std::int64_t room) const {
  if (stop_tokens_.contains(token)) return may_end();
  std::string_view bytes = tokens_->bytes(token);
  if (bytes.empty()) return false;
  if (has_nothing_ && !has_blank_ && bytes.front() == ' ') bytes.remove_prefix(1);
  SchemaMachine next = machine_;
  for (const char byte : bytes) {
    if (!next.push(static_cast<unsigned char>(byte))) return false;
  }
  return fits(next, room);
}

void SchemaFilter::allowed(std::int64_t room, std::vector<bool>& out) const {
  out.assign(static_cast<std::size_t>(tokens_->vocab_size()), false);
  add_allowed(machine_, 0, static_cast<std::int32_t>(tokens_->nodes().size()), room, out);
  if (has_nothing_ && !has_blank_) {
    for (std::int32_t at = 0; at < static_cast<std::int32_t>(tokens_->nodes().size());) {
      const TokenTrie::Node& node = tokens_->nodes()[static_cast<std::size_t>(at)];
      if (node.byte == ' ') {
        add_allowed(machine_, at + 1, node.end, room, out);
        for (std::int32_t i = node.first; i < node.last && fits(machine_, room); ++i)
          out[static_cast<std::size_t>(tokens_->tokens()[static_cast<std::size_t>(i)])] = true;
      }
      at = node.end;
    }
  }
  for (const std::int64_t token : stop_tokens_) {
    if (token < tokens_->vocab_size()) out[static_cast<std::size_t>(token)] = may_end();
  }
}

// Of the nodes in [begin, end), which are whole families.
void SchemaFilter::add_allowed(SchemaMachine machine, std::int32_t begin, std::int32_t end, std::int64_t room,
                               std::vector<bool>& out) const {
  for (std::int32_t at = begin; at < end;) {
    const TokenTrie::Node& node = tokens_->nodes()[static_cast<std::size_t>(at)];
    SchemaMachine next = machine;
    if (next.push(node.byte)) {
      const bool is_allowed = node.first < node.last && fits(next, room);
      for (std::int32_t i = node.first; i < node.last && is_allowed; ++i)
        out[static_cast<std::size_t>(tokens_->tokens()[static_cast<std::size_t>(i)])] = true;
      if (at + 1 < node.end) add_allowed(std::move(next), at + 1, node.end, room, out);
    }
    at = node.end;
  }
}

void SchemaFilter::choose(std::int64_t token) {
  if (stop_tokens_.contains(token)) return;
  std::string_view bytes = tokens_->bytes(token);
  if (has_nothing_ && !has_blank_ && !bytes.empty() && bytes.front() == ' ') {
    has_blank_ = true;
    bytes.remove_prefix(1);
  }
  for (const char byte : bytes) machine_.push(static_cast<unsigned char>(byte));
  rest_ = machine_.rest();
  if (!bytes.empty()) has_nothing_ = false;
}

}  // namespace halfbyte::serving

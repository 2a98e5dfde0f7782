// Answers that fulfil a JSON schema. Needs no LibTorch.
#pragma once

#include <memory>
#include <set>

#include "models/serving/constraints/machine.h"
#include "models/serving/constraints/token_trie.h"
#include "models/serving/token_filter.h"

namespace halfbyte::serving {

class SchemaFilter final : public TokenFilter {
 public:
  // `stop_tokens`: allowed where the text may end. One blank may stand in front of the value.
  SchemaFilter(std::shared_ptr<const Schema> schema, std::shared_ptr<const TokenTrie> tokens,
               const models::TokenIds& stop_tokens);

  bool allows(std::int64_t token, std::int64_t room) const override;
  bool is_loose() const override { return machine_.is_in_string(); }
  void allowed(std::int64_t room, std::vector<bool>& out) const override;
  void choose(std::int64_t token) override;
  bool may_end() const override { return machine_.may_end(); }
  bool must_end() const override { return machine_.must_end(); }
  std::int64_t rest() const { return rest_; }  // bytes that are needed at least to its end

 private:
  bool fits(const SchemaMachine& next, std::int64_t room) const;
  void add_allowed(SchemaMachine machine, std::int32_t begin, std::int32_t end, std::int64_t room,
                   std::vector<bool>& out) const;

  std::shared_ptr<const TokenTrie> tokens_;
  std::set<std::int64_t> stop_tokens_;
  SchemaMachine machine_;
  std::int64_t rest_;        // of it
  bool has_nothing_ = true;  // so far, but a blank
  bool has_blank_ = false;
};

}  // namespace halfbyte::serving

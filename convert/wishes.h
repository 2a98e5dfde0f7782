// What the options say about each tensor, and whether they said it in vain. For the plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <halfbyte/convert.h>

#include "loader/files/checkpoint.h"
#include "models/architectures/role.h"

namespace halfbyte::convert {

// Alias, and the tensor that it is tied to.
using Ties = std::vector<std::pair<std::string, std::string>>;

// One thing that was asked for: by a pattern of scheme_for, or by `embedding` or `head`, which name tensors by role.
struct Ask {
  Text what;                       // "scheme_for *mlp*", "embedding sym_int8"
  const Scheme* scheme = nullptr;  // null: keep
  std::string pattern = {};        // empty: by role
  std::optional<models::Role> role = {};
  std::string tied = {};  // of `head`: the embedding, where it is the head too
  bool is_granted = false;
  Text refusal = {};  // of the first tensor that it names in vain

  bool names(const std::string& tensor, models::Role its_role) const;
};

// What is wanted of one tensor.
struct Wish {
  const Scheme* scheme = nullptr;
  Text keep_reason = {};  // not empty: keep it
  Ask* asked = nullptr;   // null: nobody asked for this tensor by itself
  std::int64_t group_size = 0;
  bool nested_scales = false;
  bool is_chosen = false;  // by name: its role does not matter
};

class Wishes {
 public:
  // All must outlive it. Errors: kInvalidArgument for a scheme or a group size that is not known, a pattern that
  // matches nothing, an embedding or a head where there is none, two schemes for one tensor.
  Wishes(const files::Checkpoint& source, const QuantizeOptions& options, const Ties& ties);

  Wish of(const std::string& name, models::Role role);
  // The wish cannot be granted. Nothing happens where nobody asked.
  static void refuse(const Wish& wish, const std::string& name, const Text& reason);
  // An ask may name some tensors in vain ("*=sym_int8"), but not all of them. Errors: kUnsupported.
  void check_granted() const;
  // What was asked for one name and holds for two.
  std::vector<Text> notes() const;

 private:
  void add_pattern(const std::string& pattern, const std::string& scheme);
  void add_role(Option option, models::Role role, const std::optional<std::string>& scheme);
  void check_tied() const;
  void check_pattern(Option option, const std::string& pattern) const;
  void check_role(const Ask& ask, Option option) const;
  void refuse_packed();
  // The embedding that a stored or missing head is tied to; empty: none.
  std::string tied_embedding() const;

  const files::Checkpoint& source_;
  const QuantizeOptions& options_;
  const Ties& ties_;
  const Scheme& scheme_;
  std::int64_t group_size_;
  std::vector<Ask> asks_;  // the last that names a tensor wins
};

}  // namespace halfbyte::convert

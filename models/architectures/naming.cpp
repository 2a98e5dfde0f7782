#include "models/architectures/naming.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace halfbyte::models {
namespace {

constexpr auto kRoleNames =
    std::to_array<std::string_view>({"linear", "embedding", "head", "norm", "bias", "buffer", "router", "unknown"});

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

class Patterns {
 public:
  explicit Patterns(const Naming& naming) : naming_(naming) {}

  // Of a module below `path`, none if its name is empty.
  void module(const std::string& path, std::string_view name, Role role) {
    if (name.empty()) return;
    out.push_back({path + std::string(name) + ".weight", role});
    if (role == Role::kLinear) out.push_back({path + std::string(name) + ".bias", Role::kBias});
  }

  void modules(const std::string& path, std::initializer_list<std::string_view> names, Role role) {
    for (const std::string_view name : names) module(path, name, role);
  }

  void tensor(std::string name, Role role) { out.push_back({std::move(name), role}); }

  void layer() {
    const std::string path = std::string(naming_.layers) + ".{}.";
    modules(path, {naming_.input_norm, naming_.attention_output_norm, naming_.mlp_norm, naming_.mlp_output_norm},
            Role::kNorm);
    const std::string attention = path + std::string(naming_.attention) + ".";
    modules(attention, {naming_.query, naming_.key, naming_.value, naming_.fused_qkv, naming_.attention_output},
            Role::kLinear);
    modules(attention, {naming_.query_norm, naming_.key_norm}, Role::kNorm);
    // Written by old versions of transformers; the model derives it.
    tensor(attention + "rotary_emb.inv_freq", Role::kBuffer);
    modules(path + std::string(naming_.mlp) + ".", {naming_.gate, naming_.up, naming_.fused_gate_up, naming_.down},
            Role::kLinear);
    if (!naming_.moe.empty()) experts(path + std::string(naming_.moe) + ".");
  }

  std::vector<TensorPattern> out;

 private:
  void experts(const std::string& path) {
    module(path, naming_.router, Role::kRouter);
    const std::string each = path + std::string(naming_.experts) + ".";
    modules(each + "{}.", {naming_.expert_gate, naming_.expert_up, naming_.expert_down}, Role::kLinear);
    for (const std::string_view name : {naming_.stacked_gate_up, naming_.stacked_down}) {
      if (!name.empty()) tensor(each + std::string(name), Role::kLinear);
    }
  }

  const Naming& naming_;
};

}  // namespace

std::string_view name(Role role) noexcept { return kRoleNames[static_cast<std::size_t>(role)]; }

bool matches(std::string_view pattern, std::string_view name) noexcept {
  while (!pattern.empty()) {
    if (pattern.starts_with("{}")) {
      const auto digits = static_cast<std::size_t>(std::ranges::find_if_not(name, is_digit) - name.begin());
      if (digits == 0) return false;
      pattern.remove_prefix(2);
      name.remove_prefix(digits);
    } else {
      if (name.empty() || name.front() != pattern.front()) return false;
      pattern.remove_prefix(1);
      name.remove_prefix(1);
    }
  }
  return name.empty();
}

std::string Naming::layer(std::int64_t index) const { return std::string(layers) + "." + std::to_string(index) + "."; }

std::vector<TensorPattern> patterns_of(const Naming& naming) {
  Patterns patterns(naming);
  patterns.module("", naming.embedding, Role::kEmbedding);
  patterns.module("", naming.final_norm, Role::kNorm);
  patterns.module("", naming.head, Role::kHead);
  patterns.tensor(std::string(naming.rotary) + ".inv_freq", Role::kBuffer);
  patterns.layer();
  return std::move(patterns.out);
}

}  // namespace halfbyte::models

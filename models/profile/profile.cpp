// The kinds of work, and the profile that hosts make.
#include <halfbyte/profile.h>

#include <array>

#include "models/profile/recorder.h"

namespace halfbyte {
namespace {

struct Row {
  WorkKind kind;
  std::string_view name, title;
  bool is_product = false;
};

constexpr std::array<Row, kWorkKinds> kRows = {{
    {WorkKind::kEmbedding, "embedding", "embedding"},
    {WorkKind::kNorms, "norms", "norms, residual sums"},
    {WorkKind::kQkv, "qkv", "queries, keys, values", true},
    {WorkKind::kPlaceHeads, "place_heads", "placing heads, rotary"},
    {WorkKind::kAttention, "attention", "attention"},
    {WorkKind::kAttentionOutput, "attention_output", "attention output", true},
    {WorkKind::kGateUp, "gate_up", "gate, up", true},
    {WorkKind::kGates, "gates", "gates"},
    {WorkKind::kDown, "down", "down", true},
    {WorkKind::kRouter, "router", "router", true},
    {WorkKind::kExpertRows, "expert_rows", "choosing experts, rows"},
    {WorkKind::kExperts, "experts", "experts", true},
    {WorkKind::kModules, "modules", "LibTorch modules"},
    {WorkKind::kModuleProducts, "module_products", "products in modules", true},
    {WorkKind::kRankSums, "rank_sums", "sums of ranks"},
    {WorkKind::kHead, "head", "head", true},
    {WorkKind::kSampling, "sampling", "sampling"},
    {WorkKind::kOther, "other", "other"},
}};

constexpr bool are_in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].kind) != i) return false;
  }
  return true;
}
static_assert(are_in_order());

const Row& row_of(WorkKind kind) noexcept { return kRows[static_cast<std::size_t>(kind)]; }

}  // namespace

std::string_view name(WorkKind kind) noexcept { return row_of(kind).name; }
std::string_view title(WorkKind kind) noexcept { return row_of(kind).title; }
bool is_product(WorkKind kind) noexcept { return row_of(kind).is_product; }

struct Profile::State {
  models::Recorder recorder;
};

Profile::Profile(const ProfileOptions& options) : state_(new State{models::Recorder(options)}) {}
Profile::~Profile() = default;
ProfileRecord Profile::record() const { return state_->recorder.record(); }

}  // namespace halfbyte

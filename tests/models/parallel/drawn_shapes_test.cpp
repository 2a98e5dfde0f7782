// Shapes that nobody chose, whose heads, groups and rows do not divide by the ranks: what these give is what one
// process gives.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include <halfbyte/memory_source.h>
#include <halfbyte/scheme.h>

#include "models/architectures/architecture.h"
#include "tests/models/parallel/given.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using tests::given_by;
using tests::given_by_ranks;

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  std::int64_t from(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_() % static_cast<unsigned>(most - least + 1));
  }
  template <class T>
  T one_of(const std::vector<T>& all) {
    return all[random_() % all.size()];
  }

 private:
  std::mt19937 random_;
};

nlohmann::json drawn_config(Draw& draw, const std::string& family) {
  std::ifstream in(tests::data("families/" + family) / "config.json");
  auto out = nlohmann::json::parse(in);
  const std::int64_t kv = draw.from(1, 5);
  out["num_key_value_heads"] = kv;
  out["num_attention_heads"] = kv * draw.from(1, 3);
  out["head_dim"] = out["query_pre_attn_scalar"] = draw.one_of<std::int64_t>({16, 24, 32, 40, 48});
  out["hidden_size"] = 32 * draw.from(2, 7);
  out["intermediate_size"] = 32 * draw.from(2, 13);
  out["vocab_size"] = draw.from(50, 300);
  if (out.contains("num_local_experts")) out["num_local_experts"] = draw.from(2, 7);
  return out;
}

struct Recipe {
  std::string scheme;
  std::int64_t group_size;
};

Recipe drawn_recipe(Draw& draw) {
  const Scheme& scheme = schemes()[static_cast<std::size_t>(draw.from(0, std::ssize(schemes()) - 1))];
  if (has_row_scales(scheme)) return {std::string(scheme.name), scheme.default_group};
  std::vector<std::int64_t> groups{32, 64, 128};
  if (scheme.bits == 8) groups.push_back(kPerChannel);
  return {std::string(scheme.name), draw.one_of(groups)};
}

// Random weights, so small that no token is sure.
void write(const nlohmann::json& config, const Recipe& recipe, unsigned seed, const std::filesystem::path& path) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<at::Tensor> values;
  convert::MemorySource source{.tensors = {}, .config = config.dump()};
  const models::ModelConfig model = models::find_architecture(config)->parse(config);
  const auto ties = models::Architecture::ties(model);
  for (const auto& each : models::Architecture::expected(model)) {
    if (std::ranges::any_of(ties, [&](const auto& tie) { return tie.first == each.name; })) continue;
    const bool is_norm = each.role == models::Role::kNorm;
    const double size = is_norm ? 0.1 : 1.0 / std::sqrt(static_cast<double>(each.shape.back()));
    values.push_back(at::randn(each.shape, generator, at::kFloat).mul(size).add(is_norm ? 1.0 : 0.0).contiguous());
    source.tensors.push_back(
        {.name = each.name,
         .shape = each.shape,
         .bytes = {static_cast<const std::byte*>(values.back().const_data_ptr()), values.back().nbytes()}});
  }
  convert::quantize(source, path, {.scheme = recipe.scheme, .group_size = recipe.group_size, .halfbyte_only = true});
}

}  // namespace

TEST_CASE("ranks: drawn shapes, schemes and policies", "[ranks]") {
  for (unsigned seed = 1; seed <= 16; ++seed) {
    Draw draw(seed);
    const auto family = draw.one_of<std::string>({"llama2", "qwen2", "qwen3", "gemma2", "mixtral"});
    const nlohmann::json config = drawn_config(draw, family);
    const Recipe recipe = drawn_recipe(draw);
    const int ranks = static_cast<int>(draw.from(2, 4));
    INFO("seed " << seed << ", " << ranks << " ranks, " << recipe.scheme << " in groups of " << recipe.group_size
                 << ": " << config.dump());
    const tests::Scratch scratch;
    const auto path = scratch / "model";
    write(config, recipe, seed, path);
    const LoadOptions exactly{.dtype = DtypePolicy::float32()};
    const at::Tensor exact = tests::check_ranks(path, ranks, exactly, 2e-4)[0].logits;
    if (config.contains("num_local_experts")) continue;  // rounding may choose other ones
    const auto policy = DtypePolicy::parse(draw.one_of<std::string>({"amp:bfloat16", "amp:float16", "bfloat16"}));
    INFO(policy.name());
    const auto error = [&](const at::Tensor& logits) { return (logits - exact).norm().item<double>(); };
    const double of_one = error(given_by(load_low_bit(path, {.dtype = policy})).logits);
    const auto found = given_by_ranks(path, ranks, {.dtype = policy});
    CHECK(error(found[0].logits) < 1.5 * of_one);  // another rounding, and no more of it
    for (const auto& each : found) CHECK(each.logits.equal(found[0].logits));
  }
}

}  // namespace halfbyte

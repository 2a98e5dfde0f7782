// docs/families.md says what the table of families says, and what models of published shapes keep of a text.
// HALFBYTE_WRITE_DOCS=1 writes it anew.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "convert/synth_shapes.h"
#include "models/architectures/architecture.h"
#include "models/architectures/family.h"
#include "models/architectures/state_size.h"
#include "tests/loader/files/scratch.h"
#include "tests/models/parse_config.h"
#include "tests/places.h"

using namespace halfbyte;
using namespace halfbyte::models;

namespace {

// "keys and values of some layers, a state in the others".
std::string kept_text(const ModelConfig& config) {
  bool has_latent = false, has_own = false, has_shared = false, has_state = false, has_convolution = false;
  for (const LayerConfig& layer : config.layers) {
    has_latent = has_latent || layer.mixer == MixerKind::kLatent;
    has_own = has_own || (layer.mixer == MixerKind::kAttention && layer.keys_of < 0);
    has_shared = has_shared || layer.keys_of >= 0;
    has_state = has_state || layer.mixer == MixerKind::kDelta;
    has_convolution = has_convolution || layer.mixer == MixerKind::kConvolution;
  }
  const bool are_some = has_shared || has_state || has_convolution;
  std::string out = has_latent ? "a latent vector and a key of each token" : "";
  if (has_own) out += are_some ? "keys and values in some layers" : "keys and values";
  if (has_state) out += "; in the others a state of a fixed size";
  if (has_convolution) out += "; in the others the last inputs of a convolution";
  return out;
}

// The last two of four layers share what the first two keep.
const nlohmann::json kSharing = {
    {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
    {"num_kv_shared_layers", 2}};

ModelConfig example_of(const Architecture& row) {
  nlohmann::json config = full_config_of(std::string(row.model_type));
  if (row.model_type == "lfm2") config["layer_types"] = {"conv", "full_attention", "conv", "full_attention"};
  if (row.model_type == "gemma4_text") config.update(kSharing);
  return row.parse(config);
}

std::string families_table() {
  std::string out = "| `model_type` | models | what is particular | kept of a text |\n|---|---|---|---|\n";
  for (const Architecture& row : architectures()) {
    CHECK_FALSE(row.family->models.empty());
    CHECK_FALSE(row.family->particular.empty());
    out += "| `" + std::string(row.model_type) + "` | " + std::string(row.family->models) + " | " +
           std::string(row.family->particular) + " | " + kept_text(example_of(row)) + " |\n";
  }
  return out;
}

std::string in_bytes(double bytes) {
  char text[32];
  const char* units[] = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  std::snprintf(text, sizeof text, "%.4g %s", bytes, units[unit]);
  return text;
}

std::string sizes_table() {
  constexpr double kTokens = 8192;
  std::string out = "| shape | weights | of each token | beside | of 8,192 tokens |\n|---|---|---|---|---|\n";
  for (const std::string_view shape : convert::synth_shapes()) {
    const nlohmann::json config = convert::synth_config(std::string(shape), 0);
    const ModelConfig model = find_architecture(config)->parse(config);
    double weights = 0;
    for (const ExpectedTensor& tensor : Architecture::expected(model)) {
      double values = 1;
      for (const std::int64_t size : tensor.shape) values *= static_cast<double>(size);
      const bool is_tied = model.tie_word_embeddings && tensor.role == Role::kHead;
      weights += is_tied ? 0 : values;
    }
    const StateSize size = state_size(model);
    const double a_token = 2.0 * static_cast<double>(size.a_token), fixed = 4.0 * static_cast<double>(size.fixed);
    char billions[32];
    std::snprintf(billions, sizeof billions, "%.3g", weights / 1e9);
    out += "| " + std::string(shape) + " | " + billions + " billion | " + in_bytes(a_token) + " | " +
           (fixed > 0 ? in_bytes(fixed) : "") + " | " + in_bytes(a_token * kTokens + fixed) + " |\n";
  }
  return out;
}

void check_section(const std::string& name, const std::string& wanted) {
  const auto path = tests::data("../../docs/families.md");
  std::string text = testing::read_text(path);
  const std::string begin = "<!-- " + name + ": made from the table of families, see CONTRIBUTING.md -->\n",
                    end = "<!-- end of " + name + " -->";
  const std::size_t from = text.find(begin), to = text.find(end);
  REQUIRE(from != std::string::npos);
  REQUIRE(to != std::string::npos);
  const std::size_t at = from + begin.size();
  if (std::getenv("HALFBYTE_WRITE_DOCS")) testing::write_text(path, text.replace(at, to - at, wanted));
  INFO("run with HALFBYTE_WRITE_DOCS=1 to write it anew");
  CHECK(testing::read_text(path).substr(at, wanted.size() + end.size()) == wanted + end);
}

}  // namespace

TEST_CASE("docs/families.md lists the families, and what they keep", "[documents]") {
  check_section("families", families_table());
  check_section("sizes", sizes_table());
}

TEST_CASE("what is kept of a text, by kind of layer", "[architectures]") {
  nlohmann::json config = config_of("llama");
  CHECK(state_size(parse(config)) == StateSize{.a_token = 4 * 2 * 2 * 16});
  config = full_config_of("deepseek_v3");
  config.update({{"kv_lora_rank", 48}, {"qk_rope_head_dim", 16}});
  CHECK(state_size(parse(config)) == StateSize{.a_token = 4 * (48 + 16)});
  config = full_config_of("qwen3_next");
  config.update({{"linear_num_key_heads", 2},
                 {"linear_num_value_heads", 4},
                 {"linear_key_head_dim", 8},
                 {"linear_value_head_dim", 16},
                 {"linear_conv_kernel_dim", 4},
                 {"full_attention_interval", 4}});
  const std::int64_t channels = 2 * 2 * 8 + 4 * 16;
  CHECK(state_size(parse(config)) == StateSize{.a_token = 2 * 2 * 16, .fixed = 3 * (4 * 8 * 16 + channels * 3)});
  config = config_of("lfm2");
  config.update({{"layer_types", {"conv", "full_attention", "conv", "conv"}}, {"conv_L_cache", 3}});
  CHECK(state_size(parse(config)) == StateSize{.a_token = 2 * 2 * 16, .fixed = 3 * 64 * 2});
  config = full_config_of("gemma4_text");
  config.update(kSharing);
  const std::int64_t shared = state_size(parse(config)).a_token;
  config["num_kv_shared_layers"] = 0;
  CHECK(state_size(parse(config)).a_token == 2 * shared);
}

// Another policy for some modules: their weights, their biases and their products, and what the report says of them.
#include "tests/catch.h"

#include <algorithm>
#include <map>
#include <set>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/load_state.h>
#include <halfbyte/low_bit_linear.h>

#include "models/architectures/architecture.h"
#include "models/modules/decoder.h"
#include "quant/operators/torch_dtype.h"
#include "tests/loader/files/scratch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

constexpr const char* kPolicies[] = {"amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"};
const std::string kDown = "model.layers.0.mlp.down_proj";

// One layer with biases, dense and in 4 bits, tied or not.
struct Checkpoints {
  explicit Checkpoints(bool is_tied = false) {
    auto tensors = testing::llama_tensors(!is_tied);
    for (const char* name : {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      const std::int64_t size = std::string(name) == "mlp.down_proj" ? 32 : 64;
      tensors.push_back(testing::float_tensor("model.layers.0." + std::string(name) + ".bias", {size}));
    }
    auto config = testing::llama_config(is_tied);
    config["mlp_bias"] = true;
    testing::write_checkpoint(scratch / "dense", tensors, config);
    convert::quantize(scratch / "dense", scratch / "packed", {.group_size = 32});
  }
  std::vector<std::filesystem::path> all() const { return {scratch / "dense", scratch / "packed"}; }
  testing::Scratch scratch;
};

std::map<std::string, LoadedTensor> lines_of(const LoadReport& report) {
  std::map<std::string, LoadedTensor> out;
  for (const LoadedTensor& line : report.tensors) out[line.name] = line;
  return out;
}

at::Tensor logits(const Model& model) {
  const c10::InferenceMode guard;
  return model.module().forward(at::tensor({1, 5, 9, 3, 7, 2, 8, 8}).view({1, 8}));
}

const models::Linear& linear(const Model& model, const std::string& name) {
  return dynamic_cast<const models::Linear&>(*model.module().named_modules()[name]);
}

// The report's name of a tensor: experts that are stacked in one share a line.
std::string reported(const models::Naming& names, const std::string& name) {
  const std::pair<std::string_view, std::string_view> stacks[] = {{names.stacked_gate_up, names.stacked_gate_up_bias},
                                                                  {names.stacked_down, names.stacked_down_bias}};
  for (const auto& [matrices, biases] : stacks) {
    for (const auto& [kind, stack] : {std::pair(".weight", matrices), std::pair(".bias", biases)}) {
      const std::string end = "." + std::string(matrices) + kind;
      if (stack.empty() || !name.ends_with(end)) continue;
      const std::string expert = name.substr(0, name.size() - end.size());
      const std::size_t last = expert.rfind('.') + 1;
      if (expert.find_first_not_of("0123456789", last) == expert.npos)
        return expert.substr(0, last) + std::string(stack);
    }
  }
  return name;
}

// Whether a product's operands are never rounded, so that the report has nothing to say of them.
bool is_exact(const Model& model, const std::string& weight) {
  const auto* family = models::find_architecture({{"model_type", model.module().config().model_type}});
  const models::Role role = models::role_of(family, weight, {});
  return role == models::Role::kRouter || role == models::Role::kDecay;
}

// Every parameter and buffer is in the report under its name with the dtype it has, and every packed weight as packed.
void check_report(const Model& model) {
  auto lines = lines_of(model.report());
  CHECK(lines.size() == model.report().tensors.size());
  std::set<std::string> found;
  const models::Naming& names = *model.module().config().naming;
  const auto check = [&](const std::string& own, const std::string& loaded, bool is_buffer) {
    const std::string name = reported(names, own);
    INFO(name);
    REQUIRE(lines.contains(name));
    CHECK(lines[name].loaded == loaded);
    CHECK(lines[name].is_buffer == is_buffer);
    CHECK(lines[name].recorded.has_value());
    found.insert(name);
  };
  const auto dtype = [](const at::Tensor& tensor) { return std::string(name(*from_torch(tensor.scalar_type()))); };
  for (const auto& item : model.module().named_parameters()) check(item.key(), dtype(item.value()), false);
  for (const auto& item : model.module().named_buffers()) check(item.key(), dtype(item.value()), true);
  for (const auto& item : model.module().named_modules()) {
    const auto* packed = dynamic_cast<const LowBitLinear*>(item.value().get());
    if (packed) check(item.key() + ".weight", packed->weight().description(), false);
    const auto* any = dynamic_cast<const models::Linear*>(item.value().get());
    if (!any) continue;
    const auto operand = any->operand_dtype();
    const std::string& said = lines[reported(names, item.key() + ".weight")].operand;
    if (said.empty() && is_exact(model, item.key() + ".weight")) continue;
    CHECK(said == (operand ? name(*from_torch(*operand)) : "the recorded dtypes, promoted where two meet"));
  }
  CHECK(found.size() == lines.size());
}

TEST_CASE("the report is what the module holds, under every policy, with and without overrides", "[overrides]") {
  for (const bool is_tied : {false, true}) {
    const Checkpoints checkpoints(is_tied);
    for (const auto& path : checkpoints.all()) {
      for (const char* policy : kPolicies) {
        const DtypePolicy dtype = DtypePolicy::parse(policy);
        INFO(path << " " << policy << (is_tied ? ", tied" : ""));
        check_report(load_low_bit(path, {.dtype = dtype}));
        check_report(load_low_bit(path, {.dtype = dtype, .keep_float32 = {"lm_head", "*norm", "*.mlp", "*inv_freq"}}));
        for (const char* other : kPolicies) {
          const DtypePolicy override_policy = DtypePolicy::parse(other);
          const Model model = load_low_bit(path, {.dtype = dtype,
                                                  .overrides = {{"model.layers.*.mlp", override_policy},
                                                                {"lm_head", override_policy},
                                                                {"*norm*", override_policy}}});
          INFO(other);
          check_report(model);
          CHECK_NOTHROW(model.module().check_contract());
          CHECK(logits(model).isfinite().all().item<bool>());
        }
      }
    }
  }
}

TEST_CASE("the report is what the module holds, for every family under every policy", "[overrides][families]") {
  testing::Scratch scratch;
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tests::data("families"))) {
    const auto packed = scratch / entry.path().filename().string();
    ++families;
    convert::quantize(entry.path(), packed, {.group_size = 32, .halfbyte_only = true});
    for (const auto& path : {entry.path(), packed}) {
      for (const char* policy : kPolicies) {
        INFO(path << " " << policy);
        const Model model = load_low_bit(path, {.dtype = DtypePolicy::parse(policy)});
        check_report(model);
        CHECK(logits(model).isfinite().all().item<bool>());
      }
    }
  }
  CHECK(families >= 25);
}

TEST_CASE("an override gives a module's weight, bias and product another dtype, and leaves the others", "[overrides]") {
  const Checkpoints checkpoints;
  for (const auto& path : checkpoints.all()) {
    INFO(path);
    const Model model = load_low_bit(path, {.overrides = {{"model.layers.*.mlp.down_proj", DtypePolicy::float32()}}});
    CHECK(linear(model, kDown).operand_dtype() == at::kFloat);
    CHECK(linear(model, "model.layers.0.mlp.up_proj").operand_dtype() == at::kBFloat16);
    CHECK(model.module().named_parameters()[kDown + ".bias"].scalar_type() == at::kFloat);
    CHECK(model.module().named_parameters()["model.layers.0.mlp.up_proj.bias"].scalar_type() == at::kBFloat16);
    const LoadedTensor line = lines_of(model.report())[kDown + ".weight"];
    CHECK(line.operand == "float32");
    CHECK(line.note == "override model.layers.*.mlp.down_proj=float32");
  }
  const Model dense = load_low_bit(checkpoints.scratch / "dense", {.overrides = {{kDown, DtypePolicy::half()}}});
  CHECK(dense.module().named_parameters()[kDown + ".weight"].scalar_type() == at::kHalf);
}

const models::Mlp& mlp(const Model& model) {
  return dynamic_cast<const models::Mlp&>(*model.module().named_modules()["model.layers.0.mlp"]);
}

TEST_CASE("nothing is rounded on the way to an overridden product", "[overrides]") {
  const Checkpoints checkpoints;
  const c10::InferenceMode guard;
  const at::Tensor x = at::linspace(-3, 3, 5 * 32).view({1, 5, 32});
  for (const auto& path : checkpoints.all()) {
    INFO(path);
    const at::Tensor wanted = mlp(load_low_bit(path, {.dtype = DtypePolicy::float32()})).forward(x);
    const auto answer = [&](const DtypePolicy& policy, const LoadOptions& options) {
      LoadOptions all = options;
      all.dtype = policy;
      return mlp(load_low_bit(path, all)).forward(x);
    };
    const LoadOptions whole{.overrides = {{"*.mlp", DtypePolicy::float32()}}};
    const LoadOptions kept{.keep_float32 = {"*.mlp"}};
    for (const DtypePolicy& policy : {DtypePolicy::amp(), DtypePolicy::amp(Dtype::kFloat16)}) {
      CHECK_FALSE(answer(policy, {}).equal(wanted));
      CHECK(answer(policy, whole).equal(wanted));
      CHECK(answer(policy, kept).equal(wanted));
    }
    // The stream stays the policy's: what comes out is rounded once.
    CHECK(answer(DtypePolicy::half(), whole).equal(wanted.to(at::kHalf)));
    CHECK(answer(DtypePolicy::bfloat16(), kept).equal(wanted.to(at::kBFloat16)));
    // One of three products: nearer than none.
    const auto error = [&](LoadOptions options) {
      options.compute = ComputeMode::kFloat;  // the rounding of dtypes alone
      return (answer(DtypePolicy::amp(), options) - wanted).square().mean().item<double>();
    };
    CHECK(error({.overrides = {{kDown, DtypePolicy::float32()}}}) < error({}));
    CHECK(error({.overrides = {{"*gate_proj", DtypePolicy::float32()}}}) < error({}));
  }
}

TEST_CASE("keep_float32 on a packed Linear: its product takes float32, its bias is float32", "[overrides]") {
  const Checkpoints checkpoints;
  const auto path = checkpoints.scratch / "packed";
  const Model model = load_low_bit(path, {.keep_float32 = {"model.layers.0.mlp"}});
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
    const std::string module = "model.layers.0.mlp." + std::string(name);
    CHECK(linear(model, module).operand_dtype() == at::kFloat);
    CHECK(model.module().named_parameters()[module + ".bias"].scalar_type() == at::kFloat);
    const LoadedTensor line = lines_of(model.report())[module + ".weight"];
    CHECK(line.note == "kept in float32");
    CHECK(line.operand == "float32");
  }
  CHECK_FALSE(logits(model).equal(logits(load_low_bit(path))));
}

TEST_CASE("the last override that matches wins, and keep_float32 over all", "[overrides]") {
  const Checkpoints checkpoints;
  const auto path = checkpoints.scratch / "packed";
  const LoadOptions options{.keep_float32 = {"*gate_proj"},
                            .overrides = {{"*_proj", DtypePolicy::half()},
                                          {"*.mlp", DtypePolicy::amp(Dtype::kFloat16)},
                                          {"*gate_proj", DtypePolicy::bfloat16()},
                                          {"*down_proj", DtypePolicy::bfloat16()}}};
  auto lines = lines_of(load_low_bit(path, options).report());
  CHECK(lines["model.layers.0.self_attn.q_proj.weight"].note == "override *_proj=half");
  CHECK(lines["model.layers.0.mlp.up_proj.weight"].note == "override *.mlp=amp:float16");
  CHECK(lines["model.layers.0.mlp.up_proj.bias"].loaded == "bfloat16");  // amp leaves biases as recorded
  CHECK(lines[kDown + ".weight"].operand == "bfloat16");
  CHECK(lines["model.layers.0.mlp.gate_proj.weight"].note == "kept in float32");
}

TEST_CASE("a pattern that names one of two tied tensors names both", "[overrides]") {
  const Checkpoints checkpoints(/*is_tied=*/true);
  for (const char* name : {"lm_head", "model.embed_tokens"}) {
    INFO(name);
    const Model model = load_low_bit(checkpoints.scratch / "packed", {.keep_float32 = {name}});
    CHECK(model.module().named_parameters()["lm_head.weight"].scalar_type() == at::kFloat);
    CHECK(linear(model, "lm_head").operand_dtype() == at::kFloat);
  }
}

TEST_CASE("a pattern of the caller that matches nothing is an error that names it", "[overrides]") {
  const Checkpoints checkpoints;
  const auto path = checkpoints.scratch / "packed";
  const auto refused = [](const std::string& pattern, const std::function<void()>& work) {
    testing::check_error(ErrorCode::kInvalidArgument, {"\"" + pattern + "\"", "matches no tensor or module"}, work);
  };
  refused("*dwon_proj", [&] {
    load_low_bit(path, {.overrides = {{"*down_proj", DtypePolicy::half()}, {"*dwon_proj", DtypePolicy::half()}}});
  });
  refused("lm_haed", [&] { load_low_bit(path, {.keep_float32 = {"lm_haed"}}); });
  refused("layers.1", [&] { load_low_bit(path, {.keep_float32 = {"layers.1"}}); });
  refused("lm_haed", [&] { load_state(path, {.keep_float32 = {"lm_haed"}}); });
}

}  // namespace
}  // namespace halfbyte

// Activations beyond float16, weights that are not finite, weights that do not fit: each is an error that names where.
#include "tests/catch.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/evaluate.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/load_state.h>
#include <halfbyte/restore_into.h>

#include "models/sessions/session.h"
#include "quant/operators/torch_dtype.h"
#include "tests/loader/files/scratch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

constexpr const char* kPolicies[] = {"amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"};
const std::string kUp = "model.layers.2.mlp.up_proj";
const std::string kDown = "model.layers.2.mlp.down_proj";

using Change = std::function<void(const std::string& name, at::Tensor& values)>;

// tiny-llama with some weights changed, in `dtype` or as they were.
void write_changed(const std::filesystem::path& path, const Change& change, std::optional<Dtype> dtype = std::nullopt) {
  std::vector<testing::TestTensor> tensors;
  for (const auto& [name, tensor] : load_state(tests::data("tiny-llama"))) {
    at::Tensor values = tensor.dense().to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    change(name, values);
    const Dtype type = dtype.value_or(*from_torch(tensor.dense().scalar_type()));
    const auto* data = values.const_data_ptr<float>();
    tensors.push_back({name, std::string(info(type).safetensors), values.sizes().vec(),
                       testing::floats({data, data + values.numel()}, type)});
  }
  std::filesystem::create_directories(path);
  std::filesystem::copy(tests::data("tiny-llama") / "config.json", path / "config.json");
  testing::write_text(path / "model.safetensors", testing::safetensors(tensors));
}

Change scaled(const std::string& wanted, double factor) {
  return [=](const std::string& name, at::Tensor& values) {
    if (name == wanted) values.mul_(factor);
  };
}

const TokenIds kPrompt = {1, 300, 301, 302, 303};

Model load(const std::filesystem::path& path, const std::string& policy, std::vector<DtypeOverride> overrides = {}) {
  return load_low_bit(path, {.dtype = DtypePolicy::parse(policy), .overrides = std::move(overrides)});
}

void generates(const Model& model) {
  CHECK(model.generate({kPrompt}, {.max_gen_len = 4, .temperature = 0, .ignore_eos = true}).at(0).tokens.size() == 4);
}

void refuses(const Model& model, ErrorCode code, const std::vector<std::string>& parts) {
  testing::check_error(code, parts, [&] { model.generate({kPrompt}, {.max_gen_len = 4, .temperature = 0}); });
}

// What up_proj gives grows to 130000.
struct Growing {
  Growing() {
    write_changed(scratch / "dense", scaled(kUp + ".weight", 50000));
    convert::quantize(scratch / "dense", scratch / "packed");
  }
  std::vector<std::filesystem::path> all() const { return {scratch / "dense", scratch / "packed"}; }
  testing::Scratch scratch;
};

TEST_CASE("an activation beyond float16 is an error that names its module and the cure", "[overflow]") {
  const Growing growing;
  for (const auto& path : growing.all()) {
    INFO(path);
    // Mixed precision: what lies between products is float32, the operand of the next one is not.
    refuses(load(path, "amp:float16"), ErrorCode::kContract,
            {kDown + ": an activation of ", "float16, which ends at 65504", "policy amp:float16",
             "load with dtype amp:bfloat16", "with overrides '" + kDown + "=float32'"});
    refuses(load(path, "half"), ErrorCode::kContract,
            {kUp + ": a result of ", "65504", "policy half", "load with dtype amp:bfloat16"});
    for (const char* policy : {"amp:bfloat16", "bfloat16", "float32", "original"}) {
      INFO(policy);
      generates(load(path, policy));
    }
    // The cures that the messages name.
    generates(load(path, "amp:float16", {{kDown, DtypePolicy::float32()}}));
    generates(load(path, "amp:float16", {{kDown, DtypePolicy::amp(Dtype::kBfloat16)}}));
  }
}

// LibTorch's attention gives 0 for NaN where there are few keys.
TEST_CASE("queries and keys that are not finite are found in short sequences too", "[overflow]") {
  testing::Scratch scratch;
  const std::string key = "model.layers.1.self_attn.k_proj";
  const std::string query = "model.layers.1.self_attn.q_proj";
  write_changed(scratch / "large", scaled(key + ".weight", 1 << 18), Dtype::kFloat32);
  refuses(load(scratch / "large", "half", {{key, DtypePolicy::bfloat16()}}), ErrorCode::kContract, {key, "65504"});
  refuses(load(scratch / "large", "amp:float16", {{key, DtypePolicy::bfloat16()}}), ErrorCode::kContract,
          {"a query or key does not fit", "amp:float16", "load with dtype amp:bfloat16"});
  generates(load(scratch / "large", "amp:bfloat16"));
  write_changed(scratch / "damaged", [&](const std::string& name, at::Tensor& values) {
    if (name == query + ".weight") values[0][0] = std::numeric_limits<float>::quiet_NaN();
  });
  for (const char* policy : kPolicies) {
    INFO(policy);
    refuses(load(scratch / "damaged", policy), ErrorCode::kCorrupt, {query + ".weight", "NaN or infinite"});
  }
}

TEST_CASE("an overflow between products is an error that names who reads it", "[overflow]") {
  testing::Scratch scratch;
  write_changed(scratch / "dense", [](const std::string& name, at::Tensor& values) {
    if (name == kUp + ".weight" || name == "model.layers.2.mlp.gate_proj.weight") values.mul_(300);
  });
  refuses(load(scratch / "dense", "half"), ErrorCode::kContract,
          {kDown + ": an activation it multiplies does not fit float16", "with overrides '" + kDown + "=float32'"});
  write_changed(scratch / "small", [](const std::string& name, at::Tensor& values) {
    if (name == kUp + ".weight" || name == "model.layers.2.mlp.gate_proj.weight") values.mul_(300);
    if (name == kDown + ".weight") values.mul_(1e-3);
  });
  refuses(load(scratch / "small", "half"), ErrorCode::kContract, {kDown + ": an activation it multiplies"});
  generates(load(scratch / "small", "half", {{kDown, DtypePolicy::float32()}}));
}

TEST_CASE("an overflow of the residual stream is placed between the products beside it", "[overflow]") {
  testing::Scratch scratch;
  // Two layers add what float16 holds, together they do not.
  write_changed(scratch / "dense", [](const std::string& name, at::Tensor& values) {
    if (name == "model.embed_tokens.weight") values.fill_(50000);
    if (name == "model.layers.0.self_attn.v_proj.weight") values.fill_(0.1);
    if (name == "model.layers.0.self_attn.o_proj.weight") values.fill_(10);
  });
  refuses(load(scratch / "dense", "half"), ErrorCode::kContract,
          {"after model.layers.0.self_attn.o_proj, before model.layers.0.mlp.", "an activation does not fit float16"});
  generates(load(scratch / "dense", "amp:float16"));
}

TEST_CASE("a pass that failed leaves its sessions as they were", "[overflow]") {
  const Growing growing;
  const Model model = load(growing.scratch / "dense", "half");
  const c10::InferenceMode guard;
  std::vector<models::Session> sessions = model.module().make_sessions(2);
  const at::Tensor prompt = at::tensor(kPrompt).unsqueeze(0);
  CHECK_THROWS_AS(model.module().hidden(at::cat({prompt, prompt}), sessions), Error);
  CHECK(sessions[0].length() == 0);
  CHECK(sessions[1].length() == 0);
}

TEST_CASE("perplexity and forward never answer NaN", "[overflow]") {
  const Growing growing;
  const Model model = load(growing.scratch / "dense", "half");
  CHECK_THROWS_WITH(model.module().forward(at::tensor(kPrompt).unsqueeze(0)), Catch::Contains(kUp));
  CHECK_THROWS_WITH(perplexity(model.module(), TokenIds(100, 300), {1}, {.context = 16}), Catch::Contains(kUp));
}

TEST_CASE("a weight that is not finite in the checkpoint is named under every policy", "[overflow]") {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  for (const char* tensor : {"model.layers.1.self_attn.o_proj.weight", "model.layers.1.input_layernorm.weight",
                             "model.norm.weight", "lm_head.weight"}) {
    testing::Scratch scratch;
    write_changed(scratch / "bad", [&](const std::string& name, at::Tensor& values) {
      if (name == tensor) values.view(-1).narrow(0, 7, 2).copy_(at::tensor({bad[0], bad[1]}));
    });
    for (const char* policy : kPolicies) {
      INFO(tensor << " " << policy);
      refuses(load(scratch / "bad", policy), ErrorCode::kCorrupt, {std::string(tensor) + " holds 2 of ", "verify"});
    }
  }
}

TEST_CASE("a finite weight that does not fit float16 is an error of loading, and other policies load it",
          "[overflow]") {
  testing::Scratch scratch;
  const std::string name = "model.layers.1.mlp.gate_proj.weight";
  write_changed(scratch / "wide", [&](const std::string& found, at::Tensor& values) {
    if (found == name) values.view(-1).narrow(0, 7, 2).fill_(1e5);
  });
  for (const char* policy : {"half", "amp:float16"}) {
    testing::check_error(ErrorCode::kContract,
                         {name + ": 2 of ", "float16, which ends at 65504", "the largest is 99",
                          "load with dtype amp:bfloat16", "with overrides '" + name + "=float32'"},
                         [&] { load(scratch / "wide", policy); });
    load(scratch / "wide", policy, {{name, DtypePolicy::float32()}});
  }
  testing::check_error(ErrorCode::kContract, {name},
                       [&] { load_state(scratch / "wide", {.dtype = DtypePolicy::half()}); });
  for (const char* policy : {"amp:bfloat16", "bfloat16", "float32", "original"})
    generates(load(scratch / "wide", policy));
}

TEST_CASE("a weight that is infinite already is no matter of the cast: loading notes it", "[overflow]") {
  testing::Scratch scratch;
  write_changed(scratch / "bad", [&](const std::string& name, at::Tensor& values) {
    if (name == "model.norm.weight") values.fill_(std::numeric_limits<float>::infinity());
  });
  const Model model = load(scratch / "bad", "half");
  const std::string note = "model.norm.weight holds NaN or infinite values in the checkpoint";
  CHECK(std::ranges::count(model.report().notes, note) == 1);
}

}  // namespace
}  // namespace halfbyte

// restore_into: a host's own module gets its values back, keeps its identity, and is not touched when something is
// amiss.
#include "tests/catch.h"

#include <algorithm>

#include <halfbyte/convert.h>
#include <halfbyte/load_state.h>
#include <halfbyte/low_bit_linear.h>
#include <halfbyte/restore_into.h>

#include "quant/operators/torch_dtype.h"
#include "tests/loader/files/scratch.h"
#include "tests/loader/module_tree.h"

namespace halfbyte {
namespace {

using std::filesystem::path;
using testing::check_error;
using testing::float_tensor;
using testing::Scratch;
using tests::Tree;

// A family that halfbyte does not know, quantised: mlp.* become sym_int4. "steps" is an integer buffer.
const path& checkpoint() {
  static const Scratch scratch;
  static const path made = [] {
    testing::write_checkpoint(scratch / "source",
                              {float_tensor("embed.weight", {16, 32}, Dtype::kBfloat16),
                               float_tensor("mlp.up.weight", {64, 32}, Dtype::kBfloat16),
                               float_tensor("mlp.up.bias", {64}, Dtype::kFloat32),
                               float_tensor("mlp.down.weight", {32, 64}, Dtype::kFloat16),
                               float_tensor("norm.weight", {32}, Dtype::kFloat32),
                               float_tensor("scale", {32}, Dtype::kFloat16),
                               {"steps", "I64", {}, std::string("\7\0\0\0\0\0\0\0", 8)}},
                              {{"model_type", "of-my-own"}});
    convert::quantize(scratch / "source", scratch / "4bit");
    return scratch / "4bit";
  }();
  return made;
}

constexpr const char* kParameters[] = {"embed.weight", "mlp.up.weight", "mlp.up.bias", "mlp.down.weight",
                                       "norm.weight"};

// The host: float32, a head tied to the embedding, buffers of both kinds.
struct Host : Tree {
  explicit Host(const at::TensorOptions& options = at::kFloat) {
    embedding = at::full({16, 32}, 9, options);
    parameter("embed.weight", embedding);
    parameter("head.weight", embedding);  // tied
    parameter("mlp.up.weight", at::full({64, 32}, 9, options));
    parameter("mlp.up.bias", at::full({64}, 9, options));
    parameter("mlp.down.weight", at::full({32, 64}, 9, options));
    parameter("norm.weight", at::full({32}, 9, options));
    buffer("scale", at::full({32}, 9, options));
    buffer("steps", at::full({}, 9, options.dtype(at::kLong)));
    buffer("mask", at::full({4, 4}, 9, options));  // the module computes it
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& item : named_parameters()) out.push_back(item.key());
    for (const auto& item : named_buffers()) out.push_back(item.key());
    return out;
  }
  at::Tensor embedding;  // a handle of its own, as members of modules are
};

// The checkpoint's values in `type`, dequantised straight into it.
at::Tensor wanted(const std::string& name, at::ScalarType type) {
  static const State packed = load_state(checkpoint());
  return packed.at(name == "head.weight" ? "embed.weight" : name).dequantize(type);
}

TEST_CASE("restore_into: by default values arrive in place, in the module's own dtype", "[restore_into]") {
  Host host;
  std::vector<const void*> places;
  for (const std::string& name : host.names()) places.push_back(host[name].const_data_ptr());
  const RestoreReport report = restore_into(host, checkpoint(), {.non_persistent = {"mask"}});
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string name = host.names()[i];
    INFO(name);
    CHECK(host[name].const_data_ptr() == places[i]);
    CHECK(host[name].scalar_type() == (name == "steps" ? at::kLong : at::kFloat));
    if (name == "mask") continue;
    CHECK(host[name].equal(wanted(name, host[name].scalar_type())));
  }
  CHECK(host["steps"].item<std::int64_t>() == 7);
  CHECK(host["mask"].eq(9).all().item<bool>());
  CHECK(host["norm.weight"].requires_grad());
  CHECK(host["head.weight"].is_same(host["embed.weight"]));
  CHECK(report.restored.size() == 8);
  CHECK(report.derived == std::vector<std::string>{"mask"});
  CHECK(report.cast.empty());
  CHECK(report.missing.empty());
  CHECK(report.unused.empty());
}

TEST_CASE("restore_into: the report says what each tensor was, is stored as, and became", "[restore_into]") {
  Host host;
  const RestoreReport report =
      restore_into(host, checkpoint(), {.dtype = DtypePolicy::half(), .non_persistent = {"mask"}});
  const auto line = std::ranges::find(report.restored, "mlp.down.weight", &RestoredTensor::name);
  REQUIRE(line != report.restored.end());
  CHECK(line->checkpoint_name == "mlp.down.weight");
  CHECK(line->recorded == Dtype::kFloat16);
  CHECK(line->stored == "sym_int4 per channel");
  CHECK(line->before == "float32");
  CHECK(line->loaded == "float16");
  CHECK(std::ranges::find(report.restored, "scale", &RestoredTensor::name)->is_buffer);
  CHECK(std::ranges::find(report.restored, "head.weight", &RestoredTensor::name)->checkpoint_name == "embed.weight");
  // All but the integer; the buffer that was left included.
  CHECK(report.cast.size() == 8);
  CHECK(std::ranges::count(report.cast, "mask") == 1);
}

TEST_CASE("restore_into: under a policy every floating parameter and buffer takes its dtype", "[restore_into]") {
  for (const char* text : {"half", "bfloat16", "float32", "original", "amp:bfloat16", "amp:float16"}) {
    INFO(text);
    const DtypePolicy policy = DtypePolicy::parse(text);
    Host host;
    // A gradient of another dtype would be refused at the next backward pass.
    host["norm.weight"].mul(2).sum().backward();
    restore_into(host, checkpoint(), {.dtype = policy, .non_persistent = {"mask"}});
    for (const std::string& name : host.names()) {
      INFO(name);
      const at::ScalarType type = host[name].scalar_type();
      if (name == "steps") {
        CHECK(type == at::kLong);
      } else if (name == "mask") {
        CHECK(type == (policy.is_amp() || policy.is_original() ? at::kFloat : *to_torch(*policy.stream())));
      } else {
        const std::string stored = name == "head.weight" ? "embed.weight" : name;
        const State state = load_state(checkpoint(), {.dtype = policy, .dequantize = true});
        CHECK(host[name].equal(state.at(stored).dense()));
        CHECK(type == state.at(stored).dense().scalar_type());
      }
    }
    CHECK(host.embedding.equal(host["embed.weight"]));  // the member sees what the registry sees
    CHECK(host["head.weight"].const_data_ptr() == host["embed.weight"].const_data_ptr());
    CHECK_NOTHROW(host["norm.weight"].mul(2).sum().backward());
    CHECK(host["norm.weight"].grad().scalar_type() == host["norm.weight"].scalar_type());
  }
}

TEST_CASE("restore_into: keep_float32 wins, by the module's name or the checkpoint's", "[restore_into]") {
  Host host;
  restore_into(host, checkpoint(),
               {.dtype = DtypePolicy::half(), .keep_float32 = {"norm", "mask", "*up*"}, .non_persistent = {"mask"}});
  for (const char* name : {"norm.weight", "mask", "mlp.up.weight", "mlp.up.bias"}) {
    INFO(name);
    CHECK(host[name].scalar_type() == at::kFloat);
  }
  CHECK(host["scale"].scalar_type() == at::kHalf);
}

// The message, and that nothing of the module changed.
template <class Change>
void check_refused(Host& host, const RestoreOptions& options, const std::vector<std::string>& parts, Change change) {
  change(host);
  std::vector<at::Tensor> before;
  for (const std::string& name : host.names()) before.push_back(host[name].detach().clone());
  check_error(ErrorCode::kInvalidArgument, parts, [&] { restore_into(host, checkpoint(), options); });
  for (std::size_t i = 0; i < before.size(); ++i) {
    INFO(host.names()[i]);
    CHECK(host[host.names()[i]].equal(before[i]));
    CHECK(host[host.names()[i]].scalar_type() == before[i].scalar_type());
  }
}

TEST_CASE("restore_into: what does not fit is an error that names it, before anything changed", "[restore_into]") {
  const RestoreOptions half{.dtype = DtypePolicy::half(), .non_persistent = {"mask"}};
  const auto nothing = [](Host&) {};
  Host plain;
  check_refused(plain, {.dtype = DtypePolicy::half()}, {"missing in the checkpoint: mask", ".non_persistent", "strict"},
                nothing);
  Host more;
  check_refused(more, half, {"missing in the checkpoint: a.weight, b.weight, c.weight (and 1 more)", "rename"},
                [](Host& host) {
                  for (const char* name : {"a.weight", "b.weight", "c.weight", "d.weight"})
                    host.parameter(name, at::ones({2}));
                });
  Host renamed;
  RestoreOptions other = half;
  other.rename = [](const std::string& name) { return name == "norm.weight" ? "final.weight" : name; };
  check_refused(renamed, other, {"missing in the checkpoint: norm.weight", "not in the module: norm.weight"}, nothing);
  Host shaped;
  check_refused(shaped, half, {"mlp.up.weight: [64, 32] in the checkpoint, [32, 64] in the module"},
                [](Host& host) { host["mlp.up.weight"].set_data(at::ones({32, 64})); });
  Host kind;
  check_refused(kind, half, {"steps: int64 in the checkpoint, Float in the module"},
                [](Host& host) { host["steps"].set_data(at::ones({})); });
  Host twice;
  other.rename = [](const std::string& name) { return name == "scale" ? "norm.weight" : name; };
  check_refused(twice, other, {"rename gives", "norm.weight and scale one name"}, nothing);
}

TEST_CASE("restore_into: not strict, it reports what does not fit and restores the rest", "[restore_into]") {
  Host host;
  host.parameter("extra.weight", at::full({2}, 9));
  host["mlp.up.weight"].set_data(at::full({32, 64}, 9.0F));
  const RestoreReport report =
      restore_into(host, checkpoint(),
                   {.dtype = DtypePolicy::half(),
                    .rename = [](const std::string& name) { return name == "scale" ? "elsewhere" : name; },
                    .strict = false});
  CHECK(report.missing == std::vector<std::string>{"scale", "mask", "extra.weight"});
  CHECK(report.unused == std::vector<std::string>{"scale"});
  REQUIRE(report.mismatched.size() == 1);
  CHECK_THAT(report.mismatched[0], Catch::StartsWith("mlp.up.weight: [64, 32]"));
  CHECK(host["norm.weight"].equal(wanted("norm.weight", at::kHalf)));
  CHECK(host["scale"].equal(at::full({32}, 9, at::kHalf)));
  CHECK(host["mlp.up.weight"].equal(at::full({32, 64}, 9, at::kHalf)));
}

TEST_CASE("restore_into: rename maps names and leaves tensors out", "[restore_into]") {
  Tree host;
  host.parameter("model.norm.gain", at::ones({32}));
  const RestoreReport report =
      restore_into(host, checkpoint(),
                   {.rename = [](const std::string& name) { return name == "norm.weight" ? "model.norm.gain" : ""; }});
  CHECK(host["model.norm.gain"].equal(wanted("norm.weight", at::kFloat)));
  REQUIRE(report.restored.size() == 1);
  CHECK(report.restored[0].checkpoint_name == "norm.weight");
}

TEST_CASE("restore_into: tensors on Meta are made, and strides and expanded ones are kept or unfolded",
          "[restore_into]") {
  Host meta(at::TensorOptions().dtype(at::kBFloat16).device(at::kMeta));
  const RestoreReport report = restore_into(meta, checkpoint(), {.non_persistent = {"mask"}});
  for (const char* name : kParameters) {
    INFO(name);
    CHECK(meta[name].equal(wanted(name, at::kBFloat16)));
    CHECK(meta[name].requires_grad());
  }
  CHECK(meta.embedding.device() == at::kCPU);
  CHECK(meta["mask"].is_meta());
  REQUIRE(report.notes.size() == 1);
  CHECK_THAT(report.notes[0], Catch::StartsWith("mask is on Meta"));
  CHECK_NOTHROW(meta["norm.weight"].mul(2).sum().backward());

  for (const bool is_cast : {false, true}) {
    Host strided;
    strided["mlp.up.weight"].set_data(at::ones({32, 64}).t());
    strided["norm.weight"].set_data(at::ones({1}).expand({32}));
    strided["mlp.up.bias"].set_data(at::ones({64, 2}).select(1, 1));
    RestoreOptions options{.non_persistent = {"mask"}};
    if (is_cast) options.dtype = DtypePolicy::half();
    restore_into(strided, checkpoint(), options);
    CHECK(strided["mlp.up.weight"].strides() == at::IntArrayRef({1, 64}));
    for (const char* name : kParameters) {
      INFO(name);
      CHECK(strided[name].equal(wanted(name, is_cast ? at::kHalf : at::kFloat)));
    }
  }
}

TEST_CASE("restore_into: parameters tied by memory alone stay tied", "[restore_into]") {
  for (const bool is_cast : {false, true}) {
    Tree host;
    host.parameter("embed.weight", at::ones({16, 32}));
    host.parameter("head.weight", host["embed.weight"].detach());
    RestoreOptions options{.strict = false};
    if (is_cast) options.dtype = DtypePolicy::half();
    const RestoreReport report = restore_into(host, checkpoint(), options);
    CHECK(report.missing.empty());
    CHECK(host["head.weight"].const_data_ptr() == host["embed.weight"].const_data_ptr());
    CHECK(host["head.weight"].equal(wanted("embed.weight", is_cast ? at::kHalf : at::kFloat)));
  }
}

TEST_CASE("restore_into: what the module ties and the checkpoint holds twice must be equal", "[restore_into]") {
  Scratch scratch;
  auto tensors = std::vector{float_tensor("a.weight", {8}), float_tensor("b.weight", {8})};
  testing::write_checkpoint(scratch / "equal", tensors);
  tensors[1] = float_tensor("bb.weight", {8});
  tensors[1].name = "b.weight";
  testing::write_checkpoint(scratch / "other", tensors);
  Tree host;
  host.parameter("a.weight", at::ones({8}));
  host.parameter("b.weight", host["a.weight"]);
  CHECK_NOTHROW(restore_into(host, scratch / "equal"));
  check_error(ErrorCode::kInvalidArgument, {"b.weight: has other values than a.weight", "one tensor"},
              [&] { restore_into(host, scratch / "other"); });
}

TEST_CASE("restore_into: ties of the checkpoint fill untied parameters, and either name will do", "[restore_into]") {
  Scratch scratch;
  testing::write_checkpoint(scratch / "tied", testing::llama_tensors(false), testing::llama_config(true));
  const State state = load_state(scratch / "tied");
  for (const char* absent : {"", "lm_head.weight", "model.embed_tokens.weight"}) {
    INFO("without " << absent);
    Tree host;
    for (const auto& [name, tensor] : state) {
      if (name != absent) host.parameter(name, at::zeros(tensor.dense().sizes()));
    }
    host.buffer("model.rotary_emb.inv_freq", at::ones({8}));
    const RestoreReport report = restore_into(host, scratch / "tied", {.dtype = DtypePolicy::bfloat16()});
    for (const auto& [name, tensor] : state) {
      if (name != absent) CHECK(host[name].equal(tensor.dense()));
    }
    CHECK(report.derived == std::vector<std::string>{"model.rotary_emb.inv_freq"});
    CHECK(host["model.rotary_emb.inv_freq"].equal(at::ones({8}, at::kBFloat16)));
  }
}

TEST_CASE("restore_into: a LowBitLinear of the host takes the packed weight", "[restore_into]") {
  const State state = load_state(checkpoint());
  LowBitTensor blank = state.at("mlp.down.weight").low_bit();
  blank.codes = at::zeros_like(blank.codes);
  const auto linear = std::make_shared<LowBitLinear>(blank);
  Tree tree;
  tree.module("mlp.down", linear);
  tree.parameter("norm.weight", at::ones({32}));
  const RestoreReport report = restore_into(tree, checkpoint(), {.dtype = DtypePolicy::half(), .strict = false});
  CHECK(linear->weight().codes.equal(state.at("mlp.down.weight").low_bit().codes));
  const auto line = std::ranges::find(report.restored, "mlp.down.weight", &RestoredTensor::name);
  REQUIRE(line != report.restored.end());
  CHECK(line->loaded == "sym_int4 per channel");
  Tree dense;
  dense.module("embed", linear);
  check_error(ErrorCode::kInvalidArgument, {"embed.weight: [16, 32] in the checkpoint, [32, 64] in the module"},
              [&] { restore_into(dense, checkpoint()); });
}

TEST_CASE("restore_into: works under the caller's guards, and its results do not depend on them", "[restore_into]") {
  Host host;
  {
    const c10::InferenceMode guard;
    restore_into(host, checkpoint(), {.dtype = DtypePolicy::half(), .non_persistent = {"mask"}});
  }
  CHECK_FALSE(host["norm.weight"].is_inference());
  CHECK_NOTHROW(host["norm.weight"].mul(2).sum().backward());
  std::optional<Host> frozen;
  {
    const c10::InferenceMode guard;
    frozen.emplace();
  }
  restore_into(*frozen, checkpoint(), {.non_persistent = {"mask"}});
  CHECK((*frozen)["norm.weight"].equal(wanted("norm.weight", at::kFloat)));
}

TEST_CASE("restore_into: verification comes before the first change", "[restore_into][verification]") {
  Scratch scratch;
  std::filesystem::copy(checkpoint(), scratch / "bad");
  {
    std::fstream file(scratch / "bad" / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
  Host host;
  check_error(ErrorCode::kCorrupt, {"not those that were written"}, [&] {
    restore_into(host, scratch / "bad", {.verify = Verification::kHashes, .non_persistent = {"mask"}});
  });
  for (const char* name : kParameters) CHECK(host[name].eq(9).all().item<bool>());
}

TEST_CASE("restore_into: what was finite in float16 comes back finite, and what never was is refused",
          "[restore_into]") {
  const Scratch scratch;
  const std::vector<float> values(8 * 64, 65504.0F);  // of which asym_int4 makes 65520
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kFloat32}) {
    const path source = scratch / name(dtype), result = scratch / (std::string(name(dtype)) + "-4bit");
    testing::write_checkpoint(
        source, {{"a.weight", std::string(info(dtype).safetensors), {8, 64}, testing::floats(values, dtype)}},
        {{"model_type", "of-my-own"}});
    convert::quantize(source, result, {.scheme = "asym_int4"});
    REQUIRE_FALSE(load_state(result).at("a.weight").dequantize(at::kHalf).isfinite().all().item<bool>());
    Tree host;
    host.parameter("a.weight", at::zeros({8, 64}, at::kHalf));
    const at::Tensor weight = host.named_parameters()["a.weight"];
    if (dtype == Dtype::kFloat32) {
      check_error(ErrorCode::kContract, {"a.weight: ", "do not fit float16"}, [&] { restore_into(host, result); });
      continue;
    }
    restore_into(host, result);
    CHECK(weight.isfinite().all().item<bool>());
    CHECK(weight.max().item<float>() == 65504.0F);
  }
}

}  // namespace
}  // namespace halfbyte

// Loading onto a device. Meta shows, on a machine without a GPU, that every tensor goes where it was asked to: an
// operation between a tensor there and one that stayed on the CPU is an error.
#include "tests/catch.h"

#include <set>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/load_state.h>
#include <halfbyte/lora.h>
#include <halfbyte/low_bit_linear.h>
#include <halfbyte/restore_into.h>

#include <torch/library.h>
#include <torch/nn/modules/linear.h>

#include "models/sessions/session.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

const Device kMeta = Device::parse("meta");

// Packed codes are neither parameters nor buffers.
std::set<std::string> devices_of(const torch::nn::Module& module) {
  std::set<std::string> out;
  for (const at::Tensor& tensor : module.parameters()) out.insert(tensor.device().str());
  for (const at::Tensor& tensor : module.buffers()) out.insert(tensor.device().str());
  for (const auto& part : module.modules()) {
    const auto* packed = dynamic_cast<const LowBitLinear*>(part.get());
    if (!packed) continue;
    out.insert(packed->weight().codes.device().str());
    out.insert(packed->weight().scales.device().str());
  }
  return out;
}

std::string error_of(ErrorCode wanted, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.code() == wanted);
    return error.what();
  }
  return "no error";
}

TEST_CASE("every tensor of a loaded model is on the device that was asked for", "[device]") {
  tests::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "asym", {.scheme = "asym_int4"});
  for (const auto& path : {tests::data("tiny-llama"), scratch / "asym"}) {
    for (const char* policy : {"amp:bfloat16", "half", "original"}) {
      INFO(path.string() << " " << policy);
      const Model model = load_low_bit(path, {.dtype = DtypePolicy::parse(policy), .device = kMeta});
      CHECK(devices_of(model.module()) == std::set<std::string>{"meta"});
      CHECK(model.report().device == "meta");
      for (const LoadedTensor& line : model.report().tensors) {
        INFO(line.name);
        CHECK(line.placement == (line.name.ends_with("inv_freq") ? Placement::kDerived : Placement::kMoved));
      }
      CHECK(model.report().bytes_with(Placement::kMoved) > 0);
      CHECK(model.report().bytes_with(Placement::kMapped) + model.report().bytes_with(Placement::kCast) == 0);
    }
  }
}

// Operators of a pass whose kernels for Meta LibTorch has in Python only.
at::Tensor select_on_meta(const at::Tensor& values, std::int64_t dimension, const at::Tensor& index) {
  TORCH_CHECK(index.is_meta(), "index_select: the index is on ", index.device(), ", the values are on meta");
  std::vector<std::int64_t> shape = values.sizes().vec();
  shape.at(static_cast<std::size_t>(dimension)) = index.numel();
  return at::empty(shape, values.options());
}

at::Tensor where_on_meta(const at::Tensor& condition, const at::Tensor& yes, const at::Tensor& no) {
  for (const at::Tensor& operand : {condition, yes, no})
    TORCH_CHECK(operand.is_meta() || operand.dim() == 0, "where: an operand is on ", operand.device(), ", not on meta");
  const auto shape = at::infer_size(condition.sizes(), at::infer_size(yes.sizes(), no.sizes()));
  return at::empty(shape, at::TensorOptions().dtype(at::result_type(yes, no)).device(at::kMeta));
}

at::Tensor& where_out_on_meta(const at::Tensor& condition, const at::Tensor& yes, const at::Tensor& no,
                              at::Tensor& out) {
  where_on_meta(condition, yes, no);
  TORCH_CHECK(out.is_meta(), "where: the result is on ", out.device(), ", not on meta");
  return out;
}

at::Tensor& logical_not_on_meta(const at::Tensor& values, at::Tensor& out) {
  TORCH_CHECK(values.is_meta() && out.is_meta(), "logical_not: ", values.device(), " and ", out.device());
  out.resize_(values.sizes());
  return out;
}

at::Tensor solve_triangular_on_meta(const at::Tensor&, const at::Tensor& wanted, bool, bool, bool) {
  return at::empty_like(wanted);
}

// They go when the library does.
void add_kernels(torch::Library& library) {
  library.impl("index_select", TORCH_FN(select_on_meta));
  library.impl("where.self", TORCH_FN(where_on_meta));
  library.impl("logical_not.out", TORCH_FN(logical_not_on_meta));
  library.impl("where.self_out", TORCH_FN(where_out_on_meta));
  library.impl("linalg_solve_triangular", TORCH_FN(solve_triangular_on_meta));
}

at::Tensor meta_tokens(const std::vector<std::int64_t>& shape) {
  return at::zeros(shape, at::TensorOptions().dtype(at::kLong).device(at::kMeta));
}

TEST_CASE("a pass makes every tensor of its own on the model's device", "[device]") {
  torch::Library kernels(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  add_kernels(kernels);
  for (const char* policy : {"amp:bfloat16", "amp:float16", "half", "float32", "original"}) {
    INFO(policy);
    const Model model = load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::parse(policy), .device = kMeta});
    const at::Tensor logits = model.module().forward(meta_tokens({2, 5}));
    CHECK(logits.is_meta());
    CHECK(logits.sizes() == at::IntArrayRef({2, 5, model.module().config().vocab_size}));
    // Prompts of two lengths, then one token for both: masks and positions differ by row.
    std::vector<models::Session> sessions = model.module().make_sessions(2);
    model.module().hidden(meta_tokens({1, 3}), sessions[0]);
    model.module().hidden(meta_tokens({1, 5}), sessions[1]);
    CHECK(model.module().hidden(meta_tokens({2, 1}), sessions).is_meta());
    CHECK(model.module().hidden(meta_tokens({2, 4}), sessions).is_meta());
  }
}

TEST_CASE("every family's tensors and passes are on the model's device", "[device]") {
  torch::Library kernels(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  add_kernels(kernels);
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tests::data("families"))) {
    INFO(entry.path().string());
    const Model model = load_low_bit(entry.path(), {.device = kMeta});
    CHECK(devices_of(model.module()) == std::set<std::string>{"meta"});
    ++families;
    // Which experts a token chose is looked up on the CPU, and Meta has no values.
    if (model.module().config().moe.num_experts > 0) continue;
    CHECK(model.module().forward(meta_tokens({2, 5})).is_meta());
    std::vector<models::Session> sessions = model.module().make_sessions(2);
    model.module().hidden(meta_tokens({1, 3}), sessions[0]);
    model.module().hidden(meta_tokens({1, 40}), sessions[1]);
    CHECK(model.module().hidden(meta_tokens({2, 4}), sessions).is_meta());
  }
  CHECK(families >= 25);
}

TEST_CASE("adapters go where the weights are that they stand beside", "[device]") {
  torch::Library kernels(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  add_kernels(kernels);
  const Model model = load_low_bit(tests::data("tiny-llama"), {.device = kMeta});
  const Model host = load_low_bit(tests::data("tiny-llama"));
  const Lora drawn(model.module(), {.rank = 2, .is_weight_decomposed = true});
  const Lora given(model.module(), {.rank = 2}, Lora(host.module(), {.rank = 2}).adapters());
  for (const Lora* adapters : {&drawn, &given}) {
    for (const auto& [name, tensor] : adapters->named_parameters()) {
      INFO(name);
      CHECK((tensor.is_meta() && tensor.requires_grad() && tensor.is_leaf()));
    }
  }
  const Lora::Scope scope(given);
  CHECK(model.module().forward(meta_tokens({2, 5})).is_meta());
}

TEST_CASE("on the CPU nothing is moved, and the report says what is running", "[device]") {
  const Model model = load_low_bit(tests::data("tiny-llama"));
  CHECK(model.report().device == "cpu");
  CHECK(model.report().device_reason == "asked for");
  CHECK(model.report().bytes_with(Placement::kMoved) == 0);
  REQUIRE(!model.report().versions.empty());
  CHECK(model.report().versions[0].name == "LibTorch");
  CHECK(model.report().versions[0].running == model.report().versions[0].built_against);
}

TEST_CASE("auto finds the CPU where there is no other device", "[device]") {
  if (at::hasCUDA() || at::hasXPU() || at::hasMPS()) HALFBYTE_SKIP("this machine has another device");
  const Model model = load_low_bit(tests::data("tiny-llama"), {.device = Device::parse("auto")});
  CHECK(model.report().device == "cpu");
  CHECK_THAT(model.report().device_reason, Catch::StartsWith("auto: ") && Catch::Contains("CUDA"));
}

TEST_CASE("a device that is not there is refused before anything is loaded", "[device]") {
  if (at::hasCUDA()) HALFBYTE_SKIP("this machine has a CUDA device");
  const Device cuda = Device::parse("cuda:1");
  torch::nn::Linear host(2, 2);
  const std::function<void()> loads[] = {
      [&] { load_low_bit(tests::data("tiny-llama"), {.device = cuda}); },
      [&] { load_state(tests::data("tiny-llama"), {.device = cuda}); },
      [&] { restore_into(*host, tests::data("tiny-llama"), {.device = at::Device(at::kCUDA, 1)}); }};
  for (const auto& load : loads) {
    CHECK_THAT(error_of(ErrorCode::kNotFound, load), Catch::StartsWith("device cuda:1: ") &&
                                                         Catch::EndsWith("or choose device cpu") &&
                                                         !Catch::Contains("PYTORCH"));
  }
}

TEST_CASE("load_state puts tensors and packed weights on the device, ties once", "[device]") {
  tests::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "sym", {.scheme = "sym_int4"});
  const State state = load_state(scratch / "sym", {.device = kMeta});
  for (const auto& [name, tensor] : state) {
    INFO(name);
    CHECK((tensor.is_low_bit() ? tensor.low_bit().device() : tensor.dense().device()).is_meta());
  }
  CHECK(state.report.bytes_with(Placement::kMapped) == 0);
}

TEST_CASE("a model without values says so instead of generating", "[device]") {
  const Model model = load_low_bit(tests::data("tiny-llama"), {.device = kMeta});
  CHECK_THAT(error_of(ErrorCode::kContract, [&] { model.generate({{1, 2}}); }), Catch::Contains("no values"));
}

TEST_CASE("tensors on two devices are named before an operator meets them", "[device]") {
  tests::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "sym", {.scheme = "sym_int4"});
  struct Case {
    const char* part;
    const char* tensor;
  };
  for (const auto& [part, tensor] :
       {Case{"model.layers.1.mlp.up_proj", "weight is on meta"}, Case{"model.norm", "weight is on meta"},
        Case{"model.rotary_emb", "inv_freq is on meta"}}) {
    INFO(part);
    const Model model = load_low_bit(scratch / "sym");
    for (const auto& item : model.module().named_modules()) {
      if (item.key() != part) continue;
      if (auto* packed = dynamic_cast<LowBitLinear*>(item.value().get())) {
        packed->to(at::Device(at::kMeta));
      } else {
        for (at::Tensor& value : item.value()->parameters())
          value.unsafeGetTensorImpl()->shallow_copy_from(value.to(at::kMeta).getIntrusivePtr());
        for (at::Tensor& value : item.value()->buffers())
          value.unsafeGetTensorImpl()->shallow_copy_from(value.to(at::kMeta).getIntrusivePtr());
      }
    }
    CHECK_THAT(error_of(ErrorCode::kContract, [&] { model.module().check_contract(); }),
               Catch::StartsWith(part) && Catch::Contains(tensor) && Catch::Contains("the head is on cpu"));
  }
}

TEST_CASE("token ids on another device than the model are an error that names both", "[device]") {
  const Model model = load_low_bit(tests::data("tiny-llama"), {.device = kMeta});
  CHECK_THAT(error_of(ErrorCode::kContract,
                      [&] {
                        model.module().forward(at::zeros({1, 2}, at::kLong));
                      }),
             Catch::Contains("token ids are on cpu") && Catch::Contains("model is on meta"));
}

}  // namespace
}  // namespace halfbyte

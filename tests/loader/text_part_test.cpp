// The text part of a model that sees or hears too: found below both prefixes, quantised and run, while what is beside
// it stays as it was.
#include "tests/catch.h"

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/load_state.h>

#include "tests/models/reference.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

constexpr const char* kTower = "vision_tower.blocks.0.mlp.weight";  // a matrix that would be a Linear

struct Form {
  const char* model;  // instead of "model."
  const char* head;   // before "lm_head"
};
constexpr Form kForms[] = {{"model.language_model.", ""}, {"language_model.model.", "language_model."}};

struct Case {
  const char* fixture;
  const char* whole;  // model_type
};
constexpr Case kCases[] = {{"gemma3", "gemma3"}, {"qwen3.5", "qwen3_5"}, {"ministral3", "mistral3"}};

testing::ordered_json json_of(const std::filesystem::path& file) {
  return testing::ordered_json::parse(testing::read_text(file));
}

std::string renamed(const std::string& name, const Form& form) {
  constexpr std::string_view kModel = "model.", kHead = "lm_head";
  if (name.starts_with(kModel)) return form.model + name.substr(kModel.size());
  return name.starts_with(kHead) ? form.head + name : name;
}

// The fixture's tensors under other names, with a matrix of ones beside them.
void write_whole(const Case& each, const Form& form, const std::filesystem::path& target) {
  const auto source = tests::data("families") / each.fixture, file = source / "model.safetensors";
  std::vector<testing::TestTensor> tensors;
  for (const files::StoredTensor& stored : files::open_checkpoint(file).tensors)
    tensors.push_back(tests::to_stored(renamed(stored.name, form), tests::read_tensor(file, stored.name)));
  tensors.push_back(tests::to_stored(kTower, at::ones({64, 64}, at::kBFloat16)));
  testing::write_checkpoint(target, tensors,
                            {{"model_type", each.whole},
                             {"architectures", {"MadeUpForConditionalGeneration"}},
                             {"vision_config", {{"hidden_size", 64}}},
                             {"text_config", json_of(source / "config.json")}});
}

at::Tensor logits(const std::filesystem::path& directory, const at::Tensor& ids) {
  const c10::InferenceMode guard;
  return load_low_bit(directory, {.dtype = DtypePolicy::float32()}).module().forward(ids);
}

TEST_CASE("the text part of a model that sees too computes as the same model by itself", "[families][text]") {
  for (const Case& each : kCases) {
    const auto alone = tests::data("families") / each.fixture;
    const at::Tensor ids = tests::read_tensor(alone / "reference.safetensors", "input_ids");
    const at::Tensor wanted = logits(alone, ids);
    for (const Form& form : kForms) {
      INFO(each.fixture << " below " << form.model);
      tests::Scratch scratch;
      write_whole(each, form, scratch / "whole");
      CHECK(at::equal(logits(scratch / "whole", ids), wanted));
    }
  }
}

TEST_CASE("what is beside a text part is kept when the text is quantised, and comes back", "[families][text]") {
  for (const Form& form : kForms) {
    INFO(form.model);
    tests::Scratch scratch;
    write_whole(kCases[1], form, scratch / "whole");
    convert::quantize(scratch / "whole", scratch / "packed", {.group_size = 32});
    convert::quantize(tests::data("families") / kCases[1].fixture, scratch / "alone", {.group_size = 32});
    const State packed = load_state(scratch / "packed");
    CHECK(at::equal(packed.at(kTower).dense(), at::ones({64, 64}, at::kBFloat16)));
    CHECK(packed.at(std::string(form.model) + "layers.0.mlp.gate_proj.weight").is_low_bit());
    const at::Tensor ids = at::arange(40, at::kLong).view({1, 40});
    CHECK(at::equal(logits(scratch / "packed", ids), logits(scratch / "alone", ids)));
    convert::dequantize(scratch / "packed", scratch / "back", {});
    CHECK(at::equal(load_state(scratch / "back").at(kTower).dense(), at::ones({64, 64}, at::kBFloat16)));
    CHECK(json_of(scratch / "back" / "config.json").contains("vision_config"));
  }
}

}  // namespace
}  // namespace halfbyte

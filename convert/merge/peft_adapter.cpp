#include "convert/merge/peft_adapter.h"

#include <algorithm>
#include <array>
#include <map>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/hash.h"
#include "loader/files/printable.h"
#include "loader/files/tensor_reader.h"

namespace halfbyte::convert {
namespace {

using files::TensorRecord;
using files::fs::path;

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

struct Ending {
  std::string_view text;
  const TensorRecord* PeftModule::*member;
};
constexpr auto kEndings = std::to_array<Ending>({{kPeftA, &PeftModule::a},
                                                 {kPeftB, &PeftModule::b},
                                                 {kPeftMagnitude, &PeftModule::magnitude},
                                                 {".lora_magnitude_vector.weight", &PeftModule::magnitude}});

[[noreturn]] void fail(const path& directory, ErrorCode code, const std::string& problem) {
  throw Error(code, files::printable_path(directory / kAdapterWeightsFile) + ": " + problem);
}

void put(const path& directory, const TensorRecord& tensor, std::map<std::string, PeftModule>& out) {
  const auto ending =
      std::ranges::find_if(kEndings, [&](const Ending& row) { return tensor.name.ends_with(row.text); });
  if (ending == kEndings.end() || !tensor.name.starts_with(kPeftPrefix))
    fail(directory, ErrorCode::kUnsupported, "tensor " + files::in_quotes(tensor.name) + " is no part of a LoRA");
  if (!files::TensorReader::can_read(tensor))
    fail(directory, ErrorCode::kUnsupported,
         "tensor " + files::in_quotes(tensor.name) + " is " + std::string(name(tensor.stored_dtype)) +
             "; float32, float16 and bfloat16 are read");
  const std::size_t begin = kPeftPrefix.size(), end = tensor.name.size() - ending->text.size();
  const std::string module = tensor.name.substr(begin, end - std::min(begin, end));
  out[module].name = module;
  out[module].*(ending->member) = &tensor;
}

// Whole, and of shapes that fit each other and the settings.
void check(const PeftAdapter& adapter, const PeftModule& module) {
  const auto damaged = [&](const std::string& problem) {
    fail(adapter.directory, ErrorCode::kCorrupt, files::in_quotes(module.name) + ": " + problem);
  };
  if (!module.a || !module.b) damaged("there is one matrix of two");
  const bool has_magnitude = module.magnitude != nullptr, wants_magnitude = adapter.config.is_weight_decomposed;
  if (has_magnitude != wants_magnitude)
    damaged(has_magnitude ? "a magnitude, but use_dora is not set" : "use_dora is set, and there is no magnitude");
  const bool fits =
      module.a->shape.size() == 2 && module.b->shape.size() == 2 && module.a->shape[0] == module.b->shape[1];
  if (!fits) damaged("its two matrices do not fit each other");
  if (module.magnitude && module.magnitude->shape != std::vector{module.out_features()})
    damaged("its magnitude does not fit its matrices");
  if (module.rank() != adapter.config.rank_of(module.name))
    damaged("rank " + std::to_string(module.rank()) + " where " + kAdapterConfigFile + " says " +
            std::to_string(adapter.config.rank_of(module.name)));
}

}  // namespace

void PeftAdapter::read(const TensorRecord& tensor, std::int64_t first, std::span<float> out) const {
  files::TensorReader(file, tensor).read(first, out);
}

std::string PeftAdapter::hash() const {
  files::Hash128 hash;
  std::vector<std::byte> block;
  for (const char* name : {kAdapterConfigFile, kAdapterWeightsFile}) {
    const files::InputFile input(directory / name);
    for (std::uint64_t at = 0; at < input.size_bytes(); at += block.size()) {
      block.resize(std::min(kBlockBytes, input.size_bytes() - at));
      input.read(at, block);
      hash.update(block);
    }
  }
  return hash.hex();
}

PeftAdapter open_peft_adapter(const path& directory) {
  PeftAdapter out{directory, read_peft_config(directory), {}, {}};
  out.file = files::open_checkpoint(directory / kAdapterWeightsFile);
  std::map<std::string, PeftModule> modules;
  for (const TensorRecord& tensor : out.file.manifest.tensors) put(directory, tensor, modules);
  if (modules.empty()) fail(directory, ErrorCode::kCorrupt, "there is no adapter in it");
  for (auto& [name, module] : modules) {
    check(out, module);
    module.scaling = out.config.scaling_of(name);
    out.modules.push_back(module);
  }
  return out;
}

}  // namespace halfbyte::convert

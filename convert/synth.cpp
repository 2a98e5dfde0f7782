#include "convert/synth.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/output/destination.h"
#include "convert/output/image.h"
#include "convert/synth_values.h"
#include "loader/files/directory.h"
#include "loader/files/file_tree.h"
#include "loader/files/json_text.h"
#include "loader/files/links.h"
#include "loader/files/printable.h"
#include "models/architectures/architecture.h"

namespace halfbyte::convert {
namespace {

constexpr float kDeviation = 0.02F;  // initializer_range of Llama
constexpr std::uint64_t kBlockBytes = std::uint64_t{8} << 20;

// How a tensor's values are chosen: ones for norms and other factors, and what decides how fast a state decays.
bool are_ones(models::Role role, const OutputTensor& tensor) {
  using models::Role;
  return role == Role::kNorm || role == Role::kScale || role == Role::kBuffer ||
         (role == Role::kDecay && tensor.shape.size() == 1);
}

// What speaks of weights, and of how they were made, is not the tokenizer's.
bool is_of_weights(const std::string& name) {
  return name == files::kConfigFile || name == files::kManifestFile || name.ends_with(".index.json");
}

std::vector<std::string> tokenizer_files(const fs::path& directory) {
  std::vector<std::string> out = files::tokenizer_files(directory);
  std::erase_if(out, is_of_weights);
  return out;
}

class SynthTensor final : public ImageSource {
 public:
  SynthTensor(const OutputTensor& tensor, models::Role role, std::uint64_t seed)
      : dtype_(tensor.dtype),
        size_bytes_(tensor.size_bytes),
        is_ones_(are_ones(role, tensor)),
        key_(value_key(seed, tensor.name)) {}

  std::size_t pieces() const override { return (size_bytes_ + kBlockBytes - 1) / kBlockBytes; }

  void write(std::size_t piece, const WritePart& write) const override {
    const std::uint64_t at = piece * kBlockBytes;
    std::vector<std::byte> bytes(std::min(kBlockBytes, size_bytes_ - at));
    const std::uint64_t first = at / static_cast<std::uint64_t>(size_bytes(dtype_));
    is_ones_ ? fill_ones(dtype_, bytes) : fill_normal(key_, first, kDeviation, dtype_, bytes);
    write(0, at, bytes);
  }

 private:
  Dtype dtype_;
  std::uint64_t size_bytes_;
  bool is_ones_;
  std::uint64_t key_;
};

struct Wanted {
  nlohmann::ordered_json config;
  fs::path beside;   // where more files lie; empty: nowhere
  std::string name;  // for people
};

Wanted wanted_of(const SynthOptions& options) {
  if (options.config.empty()) return {synth_config(options.like, options.layers), {}, options.like};
  const bool is_directory = files::is_directory(options.config);
  const fs::path file = is_directory ? options.config / files::kConfigFile : options.config;
  Wanted out{{}, file.has_parent_path() ? file.parent_path() : fs::path("."), files::printable_path(file)};
  if (is_directory) files::check_link(options.config, files::kConfigFile);
  out.config = files::parse_json<nlohmann::ordered_json>(files::read_text(file, files::kConfigLimits.max_bytes),
                                                         out.name, files::kConfigLimits);
  if (options.layers > 0) {
    if (!out.config.contains("num_hidden_layers"))
      throw Error(ErrorCode::kInvalidArgument, out.name + ": has no \"num_hidden_layers\", so " +
                                                   std::to_string(options.layers) + " of them cannot be asked for");
    out.config["num_hidden_layers"] = options.layers;
  }
  out.config.erase("quantization_config");  // what is drawn is plain
  return out;
}

Dtype dtype_of(const SynthOptions& options, const nlohmann::ordered_json& config) {
  return options.dtype ? *options.dtype : models::declared_dtype(nlohmann::json(config)).value_or(Dtype::kBfloat16);
}

Image image_of(const Wanted& wanted, Dtype dtype, const SynthOptions& options) {
  const nlohmann::json plain(wanted.config);
  const models::Architecture* found = models::find_architecture(plain);
  if (!found)
    throw Error(ErrorCode::kUnsupported, wanted.name + ": a model of no family that is known (docs/families.md)");
  const models::Architecture& family = *found;
  models::ModelConfig model = family.parse(plain);
  choose_naming(family, wanted.name, options.experts, model);
  const auto ties = models::Architecture::ties(model);
  std::vector<ImageRecord> records;
  for (const auto& tensor : models::Architecture::expected(model)) {
    if (std::ranges::count(ties, tensor.name, &std::pair<std::string, std::string>::first) > 0) continue;
    ImageRecord& record = records.emplace_back();
    const auto& shape = tensor.dense_shape.empty() ? tensor.shape : tensor.dense_shape;
    record.parts = {output_tensor(tensor.name, dtype, shape)};
    record.source = std::make_shared<SynthTensor>(record.parts[0], tensor.role, options.seed);
  }
  return lay_out_image(std::move(records), std::max<std::uint64_t>(1, options.shard_bytes));
}

}  // namespace

SynthSummary synth(const fs::path& path, const SynthOptions& options) {
  Wanted wanted = wanted_of(options);
  const Dtype dtype = dtype_of(options, wanted.config);
  if (!is_weight_dtype(dtype))
    throw Error(ErrorCode::kInvalidArgument, std::string(name(dtype)) + " is not float32, float16 or bfloat16");
  wanted.config["torch_dtype"] = name(dtype);
  const Image image = image_of(wanted, dtype, options);
  Destination destination(path, {.overwrite = options.overwrite});
  destination.check_space(image.file_bytes());
  destination.fill([&] {
    write_image(image, destination.partial_path(), {.progress = options.progress, .stop = options.stop});
    destination.write_file(files::kConfigFile, wanted.config.dump(2) + "\n");
    if (image.files.size() > 1) destination.write_file(files::kIndexFile, index_text(image.files));
    for (const std::string& name : wanted.beside.empty() ? std::vector<std::string>() : tokenizer_files(wanted.beside))
      destination.copy_file(wanted.beside / name);
  });
  return {dtype, image.size_bytes, destination.warnings()};
}

}  // namespace halfbyte::convert

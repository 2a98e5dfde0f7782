#include "convert/synth.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/output/destination.h"
#include "convert/output/image.h"
#include "convert/synth_values.h"
#include "loader/files/directory.h"
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

Image image_of(const nlohmann::ordered_json& config, const SynthOptions& options) {
  const nlohmann::json plain(config);
  const models::Architecture& family = *models::find_architecture(plain);
  models::ModelConfig model = family.parse(plain);
  choose_naming(family, options.like, options.experts, model);
  const auto ties = models::Architecture::ties(model);
  std::vector<ImageRecord> records;
  for (const auto& tensor : models::Architecture::expected(model)) {
    if (std::ranges::count(ties, tensor.name, &std::pair<std::string, std::string>::first) > 0) continue;
    ImageRecord& record = records.emplace_back();
    const auto& shape = tensor.dense_shape.empty() ? tensor.shape : tensor.dense_shape;
    record.parts = {output_tensor(tensor.name, options.dtype, shape)};
    record.source = std::make_shared<SynthTensor>(record.parts[0], tensor.role, options.seed);
  }
  return lay_out_image(std::move(records), std::max<std::uint64_t>(1, options.shard_bytes));
}

}  // namespace

SynthSummary synth(const fs::path& path, const SynthOptions& options) {
  nlohmann::ordered_json config = synth_config(options.like, options.layers);
  if (!is_weight_dtype(options.dtype)) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name(options.dtype)) + " is not float32, float16 or bfloat16");
  }
  config["torch_dtype"] = name(options.dtype);
  const Image image = image_of(config, options);
  Destination destination(path, {.overwrite = options.overwrite});
  destination.check_space(image.file_bytes());
  destination.fill([&] {
    write_image(image, destination.partial_path(), {.progress = options.progress, .stop = options.stop});
    destination.write_file(files::kConfigFile, config.dump(2) + "\n");
    if (image.files.size() > 1) destination.write_file(files::kIndexFile, index_text(image.files));
  });
  return {image.size_bytes, destination.warnings()};
}

}  // namespace halfbyte::convert

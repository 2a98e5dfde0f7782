#include "convert/training/written_weights.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/conversion.h"
#include "convert/export/dense_values.h"
#include "convert/export/dequantized_view.h"
#include "convert/merge/merge_record.h"
#include "convert/training/weight_places.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/printable.h"
#include "loader/files/turned_stacks.h"

namespace halfbyte::convert {
namespace {

using files::Checkpoint;
using files::TensorRecord;

// A tensor's values: one matrix, or one an expert, as the file has them.
using Matrices = std::vector<at::Tensor>;

files::MatrixShape matrix_of(const TensorRecord& record) {
  if (record.shape.empty()) return {1, 1};
  return files::matrix_shape(record.shape);
}

// Units are rows, of all matrices one after another.
class TrainedRows final : public files::UnitBytes {
 public:
  TrainedRows(const TensorRecord& record, Dtype dtype, Matrices matrices)
      : UnitBytes(static_cast<std::uint64_t>(matrix_of(record).columns * halfbyte::size_bytes(dtype)),
                  static_cast<std::uint64_t>(matrix_of(record).rows)),
        record_(record),
        target_{.record = &record_, .dtype = dtype, .must_be_finite = true},
        matrices_(std::move(matrices)) {
    record_.original_dtype.reset();  // else what is a little too large for it is cut
  }

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override {
    const std::int64_t rows = matrices_.front().size(0), columns = matrices_.front().size(1);
    auto at = static_cast<std::int64_t>(first);
    const std::int64_t end = at + static_cast<std::int64_t>(count);
    while (at < end) {
      const std::int64_t within = at % rows, some = std::min(rows - within, end - at);
      const at::Tensor& matrix = matrices_[static_cast<std::size_t>(at / rows)];
      // A copy: rounding may change it.
      const at::Tensor values =
          matrix.narrow(0, within, some)
              .to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
      round_values(target_, at * columns, {values.mutable_data_ptr<float>(), static_cast<std::size_t>(values.numel())},
                   out);
      out += some * columns * halfbyte::size_bytes(target_.dtype);
      at += some;
    }
  }

 private:
  TensorRecord record_;
  DenseTarget target_;
  Matrices matrices_;
};

class Values {
 public:
  Values(const Checkpoint& source, const std::vector<training::NamedTensor>& weights) : source_(source) {
    const WeightPlaces places(source);
    for (const training::NamedTensor& one : weights) put(one, places.of(one.name));
    for (const auto& [name, matrices] : by_tensor_) check(name, matrices);
  }

  const Matrices* of(const std::string& tensor) const {
    const auto found = by_tensor_.find(tensor);
    return found == by_tensor_.end() ? nullptr : &found->second;
  }

 private:
  void put(const training::NamedTensor& one, const WeightPlace& place) {
    const TensorRecord& record = *source_.manifest.find(place.tensor);
    const bool is_part = place.expert >= 0;
    Matrices& matrices = by_tensor_[place.tensor];
    matrices.resize(is_part ? static_cast<std::size_t>(record.shape.at(0)) : 1);
    at::Tensor value = one.tensor.detach();
    if (is_part && files::stores_columns(source_, record.name, record.shape)) value = value.t();
    const std::vector<std::int64_t> shape(record.shape.begin() + (is_part ? 1 : 0), record.shape.end());
    if (value.sizes() != at::IntArrayRef(shape)) fail(one.name, "has another shape than in the checkpoint");
    const std::int64_t columns = shape.empty() ? 1 : shape.back();
    matrices.at(is_part ? static_cast<std::size_t>(place.expert) : 0) =
        value.dim() == 2 ? value : value.reshape({-1, columns});
  }

  void check(const std::string& name, const Matrices& matrices) const {
    if (std::ranges::all_of(matrices, [](const at::Tensor& one) { return one.defined(); })) return;
    fail(name, "is a stack of experts, of which some are missing");
  }

  [[noreturn]] static void fail(const std::string& name, const std::string& problem) {
    throw Error(ErrorCode::kInvalidArgument, "the weight " + files::in_quotes(name) + " " + problem);
  }

  const Checkpoint& source_;
  std::map<std::string, Matrices> by_tensor_;
};

Checkpoint with_values(Checkpoint source, const std::vector<training::NamedTensor>& weights) {
  const auto original = std::make_shared<const Checkpoint>(std::move(source));
  const Values values(*original, weights);
  return with_dense(original, [&](const TensorRecord& record, Dtype dtype) {
    const Matrices* matrices = values.of(record.name);
    return matrices ? std::make_unique<TrainedRows>(record, dtype, *matrices) : nullptr;
  });
}

models::HeldJson record_of(const fs::path& path, const Checkpoint& base, const models::HeldJson& more) {
  nlohmann::json out{{"base", base_record(path, base)}};
  if (more->is_object()) out.update(*more);
  return models::HeldJson(std::move(out));
}

}  // namespace

void check_writable(const fs::path& checkpoint, std::span<const std::string> names) {
  const Checkpoint opened = files::open_checkpoint(checkpoint);
  const WeightPlaces places(opened);
  for (const std::string& name : names) places.of(name);
}

void write_weights(const fs::path& checkpoint, const std::vector<training::NamedTensor>& weights,
                   const Destination& destination, const models::HeldJson& record) {
  Checkpoint source = files::open_checkpoint(checkpoint);
  QuantizeOptions how;
  how.only_choices = true;
  how.merge = std::make_shared<const Merge>(Merge{.key = "training", .record = record_of(checkpoint, source, record)});
  const Conversion conversion = prepare(with_values(std::move(source), weights), how);
  write_quantization(conversion, std::get<Quantization>(conversion.work), destination);
}

}  // namespace halfbyte::convert

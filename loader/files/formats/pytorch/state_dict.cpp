#include "loader/files/formats/pytorch/state_dict.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

using pickle::Kind;
using pickle::Pickle;
using pickle::Value;

// Where training programs put the model among other things, the likeliest first.
constexpr auto kModelKeys =
    std::to_array<std::string_view>({"state_dict", "model_state_dict", "model", "module", "params"});
// Views may repeat values (an expanded tensor, two names for one storage); what they add up to stays in proportion.
constexpr std::uint64_t kMaxRepetition = 8, kMaxRepeatedBytes = std::uint64_t{16} << 20;
// Of one tensor, so that the sum of all that a pickle can have does not overflow.
constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 40;
constexpr std::size_t kMaxListed = 5;  // names in a note

bool is_utf8(std::string_view text) try {
  static_cast<void>(nlohmann::json(text).dump());
  return true;
} catch (const nlohmann::json::type_error&) {
  return false;
}

// The dictionary that holds the tensors, and how it was found.
struct Choice {
  Value dict;
  std::string note;
};

// Tensors of a pickle whose storages have been found.
class Reader {
 public:
  Reader(const InputFile& file, const Pickle& pickle, const std::vector<Place>& places)
      : file_(file), pickle_(pickle), places_(places), where_(printable_path(file.path()) + ": ") {}

  PytorchFile run() {
    PytorchFile out;
    const Choice choice = choose();
    if (!choice.note.empty()) out.notes.push_back(choice.note);
    add_tensors(choice.dict, out);
    std::uint64_t total = 0;
    for (const TensorView& tensor : out.tensors) total += tensor.size_bytes;
    if (total / kMaxRepetition > file_.size_bytes() + kMaxRepeatedBytes)
      throw Error(ErrorCode::kUnsupported, where_ + "its tensors have " + printable_bytes(total) +
                                               ", many times the file's own bytes; give the model as safetensors");
    return out;
  }

 private:
  [[noreturn]] void fail(std::string_view name, const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, where_ + "tensor " + in_quotes(name) + " " + problem + "; download it again");
  }

  std::int64_t tensors_in(Value value) const {
    if (value.kind != Kind::kDict) return 0;
    const auto items = pickle_.items(value);
    std::int64_t count = 0;
    for (std::size_t i = 1; i < items.size(); i += 2) count += items[i].kind == Kind::kTensor;
    return count;
  }

  Choice choose() const {
    if (pickle_.root.kind != Kind::kDict)
      throw Error(ErrorCode::kUnsupported, where_ +
                                               "holds no dictionary of tensors (a state dict); save "
                                               "model.state_dict(), or give the model as safetensors");
    if (tensors_in(pickle_.root) > 0) return {pickle_.root, {}};
    std::vector<std::pair<std::string_view, Value>> found;
    const auto items = pickle_.items(pickle_.root);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (items[i].kind == Kind::kText && tensors_in(items[i + 1]) > 0)
        found.emplace_back(pickle_.text(items[i]), items[i + 1]);
    }
    return choose_nested(found);
  }

  Choice choose_nested(const std::vector<std::pair<std::string_view, Value>>& found) const {
    const auto take = [](const auto& row) {
      return Choice{row.second, "the tensors of its entry " + in_quotes(row.first) + " are the model"};
    };
    if (found.size() == 1) return take(found[0]);
    for (const std::string_view key : kModelKeys) {
      for (const auto& row : found) {
        if (row.first == key) return take(row);
      }
    }
    std::string names;
    for (const auto& row : found) names += (names.empty() ? "" : ", ") + in_quotes(row.first);
    throw Error(ErrorCode::kUnsupported,
                where_ +
                    (names.empty() ? "holds no tensors"
                                   : "several of its entries hold tensors (" + printable(names) +
                                         "), and none has the name of a model") +
                    "; save model.state_dict()");
  }

  void add_tensors(Value dict, PytorchFile& out) const {
    const auto items = pickle_.items(dict);
    std::set<std::string_view> names;
    std::vector<std::string> others;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const bool is_named = items[i].kind == Kind::kText;
      const std::string_view name = is_named ? pickle_.text(items[i]) : "a key that is no text";
      if (items[i + 1].kind != Kind::kTensor || !is_named) {
        others.push_back(in_quotes(name));
        continue;
      }
      if (!is_utf8(name)) fail(name, "has a name that is not UTF-8");
      if (!names.insert(name).second) fail(name, "is there twice");
      out.tensors.push_back(view_of(std::string(name), pickle_.tensor(items[i + 1])));
    }
    if (!others.empty()) out.notes.push_back(left_out(others));
  }

  static std::string left_out(const std::vector<std::string>& names) {
    std::string out;
    for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) out += (i > 0 ? ", " : "") + names[i];
    if (names.size() > kMaxListed) out += " and " + std::to_string(names.size() - kMaxListed) + " more";
    return "entries that are no tensors are left out: " + out;
  }

  // Number of values from the first to behind the last one that the view reaches; nothing: it overflows.
  static std::optional<std::int64_t> extent(const pickle::Tensor& tensor, std::int64_t& values) {
    values = 1;
    std::int64_t last = 0;
    bool overflows = false;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      const std::int64_t length = tensor.shape[i], stride = tensor.strides[i];
      if (length < 0 || stride < 0) return std::nullopt;
      overflows |= __builtin_mul_overflow(values, length, &values);
      std::int64_t step = 0;
      if (length > 0) overflows |= __builtin_mul_overflow(length - 1, stride, &step);
      overflows |= __builtin_add_overflow(last, step, &last);
    }
    if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) {
      values = 0;
      return 0;
    }
    if (overflows || last == std::numeric_limits<std::int64_t>::max()) return std::nullopt;
    return last + 1;
  }

  TensorView view_of(std::string name, const pickle::Tensor& tensor) const {
    const Place& place = places_[static_cast<std::size_t>(tensor.storage)];
    const auto width = static_cast<std::uint64_t>(size_bytes(tensor.dtype));
    std::int64_t values = 0, end = 0;
    const auto reach = extent(tensor, values);
    if (!reach || tensor.offset < 0 || __builtin_add_overflow(tensor.offset, *reach, &end) ||
        static_cast<std::uint64_t>(end) > place.size_bytes / width ||
        static_cast<std::uint64_t>(values) > kMaxTensorBytes / width)
      fail(name, "of shape " + printable(tensor.shape) + " and strides " + printable(tensor.strides) +
                     " reaches beyond its storage of " + std::to_string(place.size_bytes) + " bytes");
    return {std::move(name),
            tensor.dtype,
            tensor.shape,
            tensor.strides,
            place.offset + static_cast<std::uint64_t>(tensor.offset) * width,
            static_cast<std::uint64_t>(values) * width};
  }

  const InputFile& file_;
  const Pickle& pickle_;
  const std::vector<Place>& places_;
  std::string where_;
};

}  // namespace

bool TensorView::is_contiguous() const noexcept {
  std::int64_t wanted = 1;
  if (size_bytes == 0) return true;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != wanted) return false;
    wanted *= shape[i];
  }
  return true;
}

PytorchFile read_state_dict(const InputFile& file, const Pickle& pickle, const std::vector<Place>& places) {
  return Reader(file, pickle, places).run();
}

}  // namespace halfbyte::files

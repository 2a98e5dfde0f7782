// Keys and values of a cache of transformers' that grow where they lie: a token costs its own bytes, not a copy of all
// that came before it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include "quant/operators/plain_memory.h"
#include "tools/python/parts.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;
using Pair = std::pair<at::Tensor, at::Tensor>;  // keys and values

// What grows is a view of a tensor with room behind each head's tokens. Its owner may put other tensors in its place,
// or older ones: then it has not been left as it was, and nothing is written. Copies of the owner share this object, so
// that only one of them goes on where both were. All calls need the interpreter's lock.
class Growing {
 public:
  // Keys and values as the next token will find them, if it is to grow them.
  void leave(const at::Tensor& keys, const at::Tensor& values) {
    left_ = Left{weak(keys), weak(values), keys.dim() == 4 ? keys.size(2) : 0};
  }

  // Nothing, and nothing changed, where they are not those that were left, or the token is not of their kind. Shapes:
  // (batch, heads, tokens, head_dim), of the token with one.
  std::optional<Pair> append(const at::Tensor& keys, const at::Tensor& values, const at::Tensor& key,
                             const at::Tensor& value) {
    if (!left_ || !is(left_->keys, keys) || !is(left_->values, values)) return std::nullopt;
    if (!fits(keys, key) || !fits(values, value) || keys.size(2) != values.size(2)) return std::nullopt;
    const at::AutoDispatchBelowADInplaceOrView below;  // nobody wants a gradient; these are no views to autograd
    const std::int64_t tokens = keys.size(2);
    std::int64_t room = left_->room;
    Pair grown{keys, values};
    if (tokens == room) {
      room = tokens + std::max(kLeastRoom, tokens / 4);
      grown = {with_room(keys, room), with_room(values, room)};
    }
    grown = {appended(grown.first, key), appended(grown.second, value)};
    left_ = Left{weak(grown.first), weak(grown.second), room};
    return grown;
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Left {
    Weak keys, values;
    std::int64_t room;  // tokens for which there is some, theirs included
  };
  static constexpr std::int64_t kLeastRoom = 64;

  static Weak weak(const at::Tensor& tensor) { return Weak(tensor.getIntrusivePtr()); }
  static bool is(const Weak& left, const at::Tensor& tensor) {
    const auto there = left.lock();
    return there && there.get() == tensor.unsafeGetTensorImpl();
  }

  static bool is_plain(const at::Tensor& x) {
    return x.dim() == 4 && operators::is_in_plain_memory(x) && !x.requires_grad() && !x.is_conj();
  }
  static bool fits(const at::Tensor& all, const at::Tensor& token) {
    const auto is_alike = [&](std::int64_t dimension) { return all.size(dimension) == token.size(dimension); };
    return is_plain(all) && is_plain(token) && all.scalar_type() == token.scalar_type() && all.numel() > 0 &&
           token.size(2) == 1 && is_alike(0) && is_alike(1) && is_alike(3) &&
           all.is_inference() == c10::InferenceMode::is_enabled();
  }

  // The tensor's values, and zeros behind each head's. Shape: as the tensor's.
  static at::Tensor with_room(const at::Tensor& tensor, std::int64_t room) {
    const std::int64_t tokens = tensor.size(2);
    const at::Tensor all = at::empty({tensor.size(0), tensor.size(1), room, tensor.size(3)}, tensor.options());
    all.narrow(2, 0, tokens).copy_(tensor);
    all.narrow(2, tokens, room - tokens).zero_();
    return all.narrow(2, 0, tokens);
  }

  static at::Tensor appended(const at::Tensor& tensor, const at::Tensor& token) {
    const at::Tensor row = token.contiguous();
    const std::int64_t heads = tensor.size(1), tokens = tensor.size(2), size = tensor.size(3);
    at::Tensor all = tensor.as_strided({tensor.size(0), heads, tokens + 1, size}, tensor.strides());
    const auto value_bytes = static_cast<std::int64_t>(tensor.element_size());
    auto* const to = static_cast<std::byte*>(all.data_ptr());
    const auto* from = static_cast<const std::byte*>(row.const_data_ptr());
    for (std::int64_t head = 0; head < tensor.size(0) * heads; ++head, from += size * value_bytes) {
      const std::int64_t at = head / heads * all.stride(0) + head % heads * all.stride(1) + tokens * size;
      std::memcpy(to + at * value_bytes, from, static_cast<std::size_t>(size * value_bytes));
    }
    return all;
  }

  std::optional<Left> left_;
};

}  // namespace

void add_growing(py::module_& module) {
  py::class_<Growing>(module, "Growing")
      .def(py::init<>())
      .def("leave", &Growing::leave, py::arg("keys"), py::arg("values"))
      .def("append", &Growing::append, py::arg("keys"), py::arg("values"), py::arg("key"), py::arg("value"));
}

}  // namespace halfbyte::python

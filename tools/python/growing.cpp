// Keys and values of a cache of transformers' that grow where they lie: a token costs its own bytes, not a copy of all
// that came before it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "quant/operators/plain_memory.h"
#include "tools/python/parts.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;
using Pair = std::pair<at::Tensor, at::Tensor>;  // keys and values

// What grows is a view of memory with room behind each head's tokens. It is grown where its owner still has the tensors
// that were left, and they the memory that was: whatever else was put in their place, nothing is written. All calls
// need the interpreter's lock.
class Growing {
 public:
  // Keys and values as the next token will find them, if it is to grow them.
  void leave(const at::Tensor& keys, const at::Tensor& values) {
    room_ = keys.dim() == 4 ? keys.size(2) : 0;
    keys_ = Left(keys), values_ = Left(values);
  }

  // Nothing, and nothing changed, where they are not those that were left, or the token is not of their kind, or
  // somebody follows each operator. Shapes: (batch, heads, tokens, head_dim), of the token with one. What it gives has
  // the memory of what it was given where that has room: is_alone says whether anybody can see that.
  std::optional<Pair> append(const at::Tensor& keys, const at::Tensor& values, const at::Tensor& key,
                             const at::Tensor& value) {
    if (!keys_.is(keys) || !values_.is(values) || c10::impl::TorchDispatchModeTLS::any_modes_set()) return std::nullopt;
    if (!fits(keys, key) || !fits(values, value) || keys.size(2) != values.size(2)) return std::nullopt;
    const at::AutoDispatchBelowADInplaceOrView below;  // nobody wants a gradient; these are no views to autograd
    const std::int64_t tokens = keys.size(2);
    std::int64_t room = room_;
    Pair grown{keys, values};
    if (tokens == room) {
      room = tokens + std::max(kLeastRoom, tokens / 4);
      grown = {with_room(keys, room), with_room(values, room)};
    }
    grown = {appended(grown.first, key), appended(grown.second, value)};
    leave(grown.first, grown.second);
    room_ = room;
    return grown;
  }

  // Whether no other tensor has their memory: an older one, which does not expect to change with them.
  static bool is_alone(const at::Tensor& keys, const at::Tensor& values) {
    return keys.storage().use_count() == 1 && values.storage().use_count() == 1;
  }

 private:
  static constexpr std::int64_t kLeastRoom = 16;

  // A tensor, which is not kept alive, and where it was.
  struct Left {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    const void* storage = nullptr;
    std::size_t bytes = 0;
    std::int64_t offset = 0;
    std::vector<std::int64_t> sizes, strides;

    Left() : tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()) {}
    explicit Left(const at::Tensor& given) : tensor(given.getIntrusivePtr()) {
      if (!given.has_storage() || given.layout() != at::kStrided) return;
      storage = given.storage().unsafeGetStorageImpl();
      bytes = given.storage().nbytes();
      offset = given.storage_offset();
      sizes = given.sizes().vec(), strides = given.strides().vec();
    }
    bool is(const at::Tensor& given) const {
      const auto there = tensor.lock();
      return storage && there && there.get() == given.unsafeGetTensorImpl() && given.has_storage() &&
             storage == given.storage().unsafeGetStorageImpl() && bytes == given.storage().nbytes() &&
             offset == given.storage_offset() && given.sizes() == sizes && given.strides() == strides;
    }
  };

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
    const py::gil_scoped_release released;
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

  Left keys_, values_;
  std::int64_t room_ = 0;  // tokens for which there is some, theirs included
};

}  // namespace

void add_growing(py::module_& module) {
  py::class_<Growing>(module, "Growing")
      .def(py::init<>())
      .def("leave", &Growing::leave, py::arg("keys"), py::arg("values"))
      .def_static("is_alone", &Growing::is_alone, py::arg("keys"), py::arg("values"))
      .def("append", &Growing::append, py::arg("keys"), py::arg("values"), py::arg("key"), py::arg("value"));
}

}  // namespace halfbyte::python

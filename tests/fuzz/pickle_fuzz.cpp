// libFuzzer target (preset "fuzz"): whatever a pickle says, it is read or refused with an Error, and every handle in
// what is read points at something.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <halfbyte/error.h>

#include "loader/files/formats/pytorch/pickle.h"

namespace {

using namespace halfbyte::files::pickle;

bool is_sound(const Pickle& pickle, const Value& value) {
  const auto index = static_cast<std::size_t>(value.number);
  switch (value.kind) {
    case Kind::kText:
    case Kind::kBytes:
      return index < pickle.texts.size();
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kDict:
      return index < pickle.containers.size();
    case Kind::kStorage:
      return index < pickle.storages.size();
    case Kind::kTensor:
      return index < pickle.tensors.size();
    default:
      return true;
  }
}

void check(std::string_view input) {
  const Pickle pickle = read_pickle(input, "fuzz: ");
  bool all = is_sound(pickle, pickle.root) && pickle.size_bytes <= input.size();
  for (const auto& container : pickle.containers) {
    for (const Value& value : container) all = all && is_sound(pickle, value);
  }
  for (const Tensor& tensor : pickle.tensors) {
    all = all && static_cast<std::size_t>(tensor.storage) < pickle.storages.size() &&
          tensor.shape.size() == tensor.strides.size();
  }
  if (!all) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check({reinterpret_cast<const char*>(data), size});
  } catch (const halfbyte::Error&) {
  }
  return 0;
}

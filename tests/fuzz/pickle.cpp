// A pickle: every handle in what is read points at something.
#include "loader/files/formats/pytorch/pickle.h"
#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {
namespace {

using namespace files::pickle;

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

}  // namespace

void fuzz_pickle(std::string_view input) {
  const Pickle pickle = read_pickle(input, "fuzz: ");
  require(is_sound(pickle, pickle.root) && pickle.size_bytes <= input.size(), "the root is there");
  for (const auto& container : pickle.containers) {
    for (const Value& value : container) require(is_sound(pickle, value), "what a container holds is there");
  }
  for (const Tensor& tensor : pickle.tensors) {
    require(static_cast<std::size_t>(tensor.storage) < pickle.storages.size(), "a tensor's storage is there");
    require(tensor.shape.size() == tensor.strides.size(), "a tensor has as many strides as lengths");
  }
}

}  // namespace halfbyte::fuzz

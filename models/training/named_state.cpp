#include "models/training/named_state.h"

#include <sstream>
#include <unordered_map>

#include <c10/core/GradMode.h>

#include <halfbyte/error.h>

namespace halfbyte::training {
namespace {

std::string described(const at::Tensor& tensor) {
  std::ostringstream out;
  out << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
  return out.str();
}

}  // namespace

void copy_state(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& into) {
  std::unordered_map<std::string_view, const at::Tensor*> by_name;
  for (const NamedTensor& one : from) by_name.emplace(one.name, &one.tensor);
  for (const NamedTensor& one : into) {
    const auto found = by_name.find(one.name);
    if (found == by_name.end() || !found->second->defined())
      throw Error(ErrorCode::kCorrupt, "the state of training has no '" + one.name + "'");
    const at::Tensor& stored = *found->second;
    if (stored.scalar_type() != one.tensor.scalar_type() || stored.sizes() != one.tensor.sizes())
      throw Error(ErrorCode::kCorrupt, "the state of training has '" + one.name + "' as " + described(stored) +
                                           ", not " + described(one.tensor));
  }
  const at::NoGradGuard no_gradients;
  for (const NamedTensor& one : into) one.tensor.copy_(*by_name.at(one.name));
}

}  // namespace halfbyte::training

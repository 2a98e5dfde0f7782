// Products of modules between two looks at who watches (models/sessions/pass_watch.h).
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

// product(x), where a watch is there and x is large some rows at a time. Shapes: (.., in_features) -> (..,
// out_features).
at::Tensor between_looks(const at::Tensor& x, std::int64_t out_features,
                         const std::function<at::Tensor(const at::Tensor&)>& product);

}  // namespace halfbyte::models

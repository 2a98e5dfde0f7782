#include "models/modules/between_looks.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/cat.h>

#include "models/sessions/pass_watch.h"

namespace halfbyte::models {

at::Tensor between_looks(const at::Tensor& x, std::int64_t out_features,
                         const std::function<at::Tensor(const at::Tensor&)>& product) {
  PassWatch::check();
  if (!PassWatch::is_there() || !x.is_cpu() || x.dim() < 2 || x.size(-1) == 0) return product(x);
  const std::int64_t rows = x.numel() / x.size(-1), step = rows_between_looks(rows, x.size(-1) * out_features);
  if (step >= rows) return product(x);
  const at::Tensor flat = x.reshape({rows, x.size(-1)});
  std::vector<at::Tensor> parts;
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    PassWatch::check();
    parts.push_back(product(flat.narrow(0, begin, std::min(step, rows - begin))));
  }
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = out_features;
  return at::cat(parts).view(shape);
}

}  // namespace halfbyte::models

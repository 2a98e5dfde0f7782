// Factors and inverses of large matrices in the memory that they lie in, which can be stopped: LibTorch's own take
// copies and seconds.
#pragma once

#include <ATen/core/Tensor.h>

namespace halfbyte::convert::calibrate {

// Of a symmetric matrix H, of which the upper half is read: upper R with H = R R^T, in its place, zeros below. False
// when H is not positive definite; then it holds anything. Shape: (n, n), float32, contiguous. Errors: kInterrupted.
bool factor_from_the_end(at::Tensor& matrix);

// Of an upper triangular matrix with zeros below: its inverse, in its place. Shape and errors as above.
void invert_upper(const at::Tensor& matrix);

}  // namespace halfbyte::convert::calibrate

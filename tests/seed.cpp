// Tests that draw numbers draw the same ones in every run: LibTorch's own generator begins with another seed each time.
#include <ATen/Context.h>

namespace halfbyte {
namespace {

[[maybe_unused]] const bool kSeeded = (at::manual_seed(1), true);

}  // namespace
}  // namespace halfbyte

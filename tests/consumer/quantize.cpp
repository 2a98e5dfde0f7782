// quantize SRC DST: what a host writes that makes 4-bit checkpoints.
#include <cstdio>

#include <halfbyte/convert.h>
#include <halfbyte/verify.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const auto summary =
        halfbyte::convert::quantize(argv[1], argv[2], {.scheme = "sym_int4", .group_size = 64, .overwrite = true});
    std::printf("%llu -> %llu bytes\n", static_cast<unsigned long long>(summary.source_bytes),
                static_cast<unsigned long long>(summary.result_bytes));
    const halfbyte::Verified verified = halfbyte::verify(argv[2]);
    halfbyte::verify(argv[2], {.expect = verified.hash});  // throws when it is another checkpoint
    const bool is_smaller = summary.quantized_tensors > 0 && summary.result_bytes < summary.source_bytes;
    return is_smaller && verified.problems.empty() ? 0 : 1;
  } catch (const halfbyte::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

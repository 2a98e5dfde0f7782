// pack DST: a host whose weights lie in memory, packed one by one, and written as a checkpoint.
#include <cstddef>
#include <cstdio>
#include <span>

#include <torch/types.h>

#include <halfbyte/load_state.h>
#include <halfbyte/memory_source.h>
#include <halfbyte/quantize_tensor.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const at::Tensor weight = torch::randn({64, 256});
    const halfbyte::LowBitTensor packed = halfbyte::convert::quantize_tensor(weight, {.scheme = "nf4"});
    halfbyte::convert::MemorySource source;
    source.tensors = {{.name = "up.weight",
                       .dtype = halfbyte::Dtype::kFloat32,
                       .shape = weight.sizes().vec(),
                       .bytes = std::as_bytes(std::span(weight.const_data_ptr<float>(), 64 * 256))}};
    source.files = {{"README.md", "of one matrix"}};
    halfbyte::convert::quantize(source, argv[1], {.scheme = "nf4", .overwrite = true});
    const halfbyte::State state = halfbyte::load_state(argv[1]);
    const halfbyte::LowBitTensor& written = state.at("up.weight").low_bit();
    std::printf("%s: %s\n", argv[1], written.description().c_str());
    return written.codes.equal(packed.codes) && written.scales.equal(packed.scales) ? 0 : 1;
  } catch (const halfbyte::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

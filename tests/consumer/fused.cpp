// fused CKPT: what a host writes that generates without LibTorch.
#include <cstdio>

#include <halfbyte/fused_model.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const halfbyte::FusedLoad load = halfbyte::load_fused(argv[1]);
    if (!load.model) {
      std::fprintf(stderr, "for load_low_bit(): %s\n", load.why_not.c_str());
      return 1;
    }
    const auto out = load.model->generate({{1, 300, 400}}, {.max_gen_len = 8, .temperature = 0, .ignore_eos = true});
    return out.size() == 1 && out[0].tokens.size() == 8 ? 0 : 1;
  } catch (const halfbyte::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

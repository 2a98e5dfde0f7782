// generate CKPT: what a host writes that runs one.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <halfbyte/load_low_bit.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    auto model = halfbyte::load_low_bit(argv[1]);
    const std::vector<std::vector<std::int64_t>> prompts = {{1, 300, 400}, {1, 500}};
    const auto out = model.generate(prompts, {.max_gen_len = 8, .temperature = 0});
    for (const auto& generation : out) {
      for (const std::int64_t token : generation.tokens) std::printf("%lld ", static_cast<long long>(token));
      std::printf("\n");
    }
    return out.size() == 2 && !out[0].tokens.empty() ? 0 : 1;
  } catch (const halfbyte::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// generate CKPT: what a host writes that runs one.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <halfbyte/load_low_bit.h>
#include <halfbyte/profile.h>
#include <halfbyte/prompt_cache_file.h>

// Whether another process would not read the prompt again.
static bool keeps_prompt(const halfbyte::Model& model, const std::vector<std::int64_t>& prompt,
                         const std::string& path) {
  halfbyte::PromptCacheFile written(model, path);
  model.generate({prompt}, {.max_gen_len = 1, .cache = &written.cache()});
  written.save();
  halfbyte::PromptCacheFile read(model, path, {.is_read_only = true});
  return model.generate({prompt}, {.max_gen_len = 1, .cache = &read.cache()})[0].cached_tokens > 0;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    auto model = halfbyte::load_low_bit(argv[1]);
    const std::vector<std::vector<std::int64_t>> prompts = {{1, 300, 400}, {1, 500}};
    const halfbyte::Profile profile({.traced_passes = 8});
    const auto out = model.generate(prompts, {.max_gen_len = 8, .temperature = 0});
    for (const auto& generation : out) {
      for (const std::int64_t token : generation.tokens) std::printf("%lld ", static_cast<long long>(token));
      std::printf("\n");
    }
    const halfbyte::ProfileRecord record = profile.record();
    if (record.passes == 0 || halfbyte::chrome_trace({&record, 1}).empty()) return 1;
    const bool is_kept = keeps_prompt(model, prompts[0], std::string(argv[1]) + ".cache");
    return out.size() == 2 && !out[0].tokens.empty() && is_kept ? 0 : 1;
  } catch (const halfbyte::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// The list of families. Each stands in a file of families/, beside those that it is like.
#include <array>

#include "models/architectures/family.h"

namespace halfbyte::models {

namespace family_rows {
extern const Family kLlama, kMistral, kQwen2, kQwen3, kPhi3, kGemma, kGemma2, kGlm, kGlm4, kChatglm, kMixtral,
    kQwen3Moe, kOlmo2, kSeedOss, kErnie45, kHunyuanDense, kGranite, kSmollm3, kExaone4, kOlmo3, kCohere2, kMinimaxM2,
    kPhimoe, kGlm4Moe, kMinistral3, kGemma3, kGraniteMoe, kLfm2, kQwen3Next, kQwen35, kQwen35Moe, kDeepseekV2,
    kDeepseekV3, kGptOss, kLlama4, kGemma4;
}  // namespace family_rows

std::span<const Family* const> families() noexcept {
  using namespace family_rows;
  static constexpr std::array kFamilies = {
      &kLlama,      &kMistral, &kQwen2,      &kQwen3,    &kPhi3,      &kGemma,     &kGemma2,    &kGlm,
      &kGlm4,       &kChatglm, &kMixtral,    &kQwen3Moe, &kOlmo2,     &kSeedOss,   &kErnie45,   &kHunyuanDense,
      &kGranite,    &kSmollm3, &kExaone4,    &kOlmo3,    &kCohere2,   &kMinimaxM2, &kPhimoe,    &kGlm4Moe,
      &kMinistral3, &kGemma3,  &kGraniteMoe, &kLfm2,     &kQwen3Next, &kQwen35,    &kQwen35Moe, &kDeepseekV2,
      &kDeepseekV3, &kGptOss,  &kLlama4,     &kGemma4};
  return kFamilies;
}

}  // namespace halfbyte::models

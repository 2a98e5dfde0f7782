// Unicode's normal forms, with the origins that Hugging Face's tokenizers give each character.
#pragma once

#include "models/tokenizers/huggingface/piece.h"

namespace halfbyte::models::huggingface {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

void to_normal_form(ChangingText& text, NormalForm form);

}  // namespace halfbyte::models::huggingface

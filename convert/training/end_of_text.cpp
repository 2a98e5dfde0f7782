#include "convert/training/end_of_text.h"

#include <nlohmann/json.hpp>

#include "models/chat/template_files.h"

namespace halfbyte::convert {

std::optional<std::int64_t> end_of_text(const std::filesystem::path& directory, const models::Tokenizer& tokenizer) {
  for (const models::NamedToken& token :
       models::named_tokens(directory, models::read_object(directory / "tokenizer_config.json"))) {
    const auto id =
        token.name == "eos_token" && !token.spelling.empty() ? tokenizer.id_of(token.spelling) : std::nullopt;
    if (id) return id;
  }
  for (const char* file : {"generation_config.json", "config.json"}) {
    const nlohmann::json object = models::read_object(directory / file);
    const nlohmann::json* ids = models::find_member(object, "eos_token_id");
    const nlohmann::json* first = ids && ids->is_array() && !ids->empty() ? &ids->front() : ids;
    if (first && first->is_number_integer()) return first->get<std::int64_t>();
  }
  return std::nullopt;
}

}  // namespace halfbyte::convert

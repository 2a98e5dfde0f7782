#include "loader/files/family.h"

#include <nlohmann/json.hpp>

#include "loader/files/printable.h"

namespace halfbyte::files {

std::string family_in_quotes(const Checkpoint& checkpoint) {
  if (!checkpoint.has_config()) return "";
  const auto type = checkpoint.config->find("model_type");
  if (type != checkpoint.config->end() && type->is_string()) return in_quotes(type->get_ref<const std::string&>());
  const auto classes = checkpoint.config->find("architectures");
  const bool has_class =
      classes != checkpoint.config->end() && classes->is_array() && !classes->empty() && classes->front().is_string();
  return has_class ? in_quotes(classes->front().get_ref<const std::string&>()) : "";
}

std::string family_subject(const Checkpoint& checkpoint) {
  const std::string name = family_in_quotes(checkpoint);
  return name.empty() ? "the family of this model" : "the family " + name;
}

bool names_remote_code(const Checkpoint& checkpoint) {
  return checkpoint.has_config() && checkpoint.config->contains("auto_map");
}

}  // namespace halfbyte::files

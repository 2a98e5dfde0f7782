#include "tools/verbs/inspect_output.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "loader/files/family.h"
#include "tools/cli/fields.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"

namespace halfbyte::cli {
namespace {

std::string family_of(const files::Checkpoint& checkpoint) {
  if (checkpoint.architecture != nullptr) {
    return std::string(checkpoint.architecture->model_type) + " (" + std::string(checkpoint.architecture->class_name) +
           ")";
  }
  if (!checkpoint.has_config()) return "not known: there is no config.json";
  const std::string name = files::family_in_quotes(checkpoint);
  return "not known: " + (name.empty() ? "config.json has neither a model_type nor architectures" : name);
}

std::string source_of(const files::Manifest& manifest) {
  if (manifest.is_derived) return "";
  std::string text =
      manifest.source_kind + ", " + counted(static_cast<std::int64_t>(manifest.source_files.size()), "file");
  std::uint64_t bytes = 0;
  for (const files::SourceFile& file : manifest.source_files) bytes += file.size_bytes;
  if (bytes > 0) text += ", " + human_bytes(bytes);
  return text + (manifest.declared_dtype ? ", declared " + std::string(name(*manifest.declared_dtype)) : "");
}

std::int64_t files_on_disk(const files::Checkpoint& checkpoint) {
  return std::ranges::count_if(checkpoint.data_files, [](const auto& file) { return file->is_on_disk(); });
}

// What a target of bits or bytes came to, as far as the record says it.
std::string budget_of(const files::Manifest& manifest) {
  const nlohmann::json& conversion = *manifest.conversion;
  const auto budget = conversion.is_object() ? conversion.find("budget") : conversion.end();
  if (budget == conversion.end() || !budget->is_object()) return "";
  const auto number = [&](const char* key) {
    const auto found = budget->find(key);
    return found != budget->end() && found->is_number() ? found->get<double>() : 0.0;
  };
  std::string wanted = human_bytes(static_cast<std::uint64_t>(std::max(number("target_size"), 0.0)));
  if (number("target_bpw") > 0) wanted = fixed(number("target_bpw"), 2) + " bits a weight";
  return wanted + " wanted, " + fixed(number("bits_per_weight"), 2) + " bits a weight taken, predicted KL divergence " +
         fixed(number("predicted_kl"), 5);
}

void print_head(const std::string& path, const files::Checkpoint& checkpoint, const Inspection& inspection) {
  const files::Manifest& manifest = checkpoint.manifest;
  print_text(path);
  print_field("size", human_bytes(checkpoint.size_bytes) + " in " + counted(files_on_disk(checkpoint), "file") + ", " +
                          fixed(inspection.bits_per_weight(), 2) + " bits per weight, " +
                          human_count(inspection.parameters) + " parameters");
  print_field("family", family_of(checkpoint));
  if (manifest.is_derived) {
    print_field("format", checkpoint.kind);
    print_field("manifest", "derived from config.json and the tensors: there is no halfbyte.json");
  } else {
    print_field("manifest", "halfbyte.json" + (manifest.created_by.empty() ? "" : ", by " + manifest.created_by));
    print_field("source", source_of(manifest));
  }
  if (const std::string budget = budget_of(manifest); !budget.empty()) print_field("budget", budget);
  print_field("load as", manifest.recommended_dtype);
  for (const std::string& pattern : manifest.keep_float32) print_field("float32", pattern);
  for (const std::string& note : checkpoint.notes) print_field("note", note);
}

void print_tallies(const std::string& title, const std::string& bytes_title,
                   const std::map<std::string, Tally>& tallies) {
  Table table({{title}, {"tensors", Align::kRight}, {"values", Align::kRight}, {bytes_title, Align::kRight}});
  for (const auto& [label, tally] : tallies) {
    table.add({label, std::to_string(tally.tensors), human_count(tally.values), human_bytes(tally.size_bytes)});
  }
  print_line("");
  table.print("  ");
}

void print_kept(const Inspection& inspection) {
  if (inspection.kept.empty()) return;
  Table table({{"kept", Align::kRight}, {"why"}, {"for example"}});
  for (const auto& [reason, names] : inspection.kept) table.add({std::to_string(names.size()), reason, names.front()});
  print_line("");
  table.print("  ");
}

void print_error(const Inspection& inspection) {
  if (inspection.worst == nullptr) return;
  print_line("");
  print_field("error", "relative " + fixed(inspection.rel_rmse, 3) + " over " +
                           counted(inspection.with_error, "tensor") + "; largest " +
                           fixed(inspection.worst->error->rel_rmse, 3) + " in " + inspection.worst->name);
}

void print_relations(const files::Manifest& manifest) {
  for (const auto& [alias, owner] : manifest.ties) print_field("tied", alias + " is " + owner);
  for (const models::DerivedBuffer& buffer : manifest.buffers) {
    print_field("derived",
                buffer.name + " (" + std::string(name(buffer.original_dtype)) + ", computed: " + buffer.how + ")");
  }
}

void print_tensors(const files::Manifest& manifest) {
  Table table({{"tensor"}, {"shape"}, {"original"}, {"stored"}, {"bytes", Align::kRight}, {"error", Align::kRight}});
  for (const files::TensorRecord& tensor : manifest.tensors) {
    table.add({tensor.name + (tensor.is_buffer ? " (buffer)" : ""), human_shape(tensor.shape),
               original_dtype_name(tensor), stored_as(tensor), human_bytes(tensor.size_bytes),
               tensor.error ? fixed(tensor.error->rel_rmse, 4) : ""});
  }
  print_line("");
  table.print("  ");
}

}  // namespace

void print_inspection(const std::string& path, const files::Checkpoint& checkpoint, const Inspection& inspection,
                      bool list_tensors) {
  print_head(path, checkpoint, inspection);
  print_tallies("stored as", "bytes", inspection.stored);
  print_tallies("original dtype", "bytes then", inspection.original);
  print_kept(inspection);
  print_error(inspection);
  print_relations(checkpoint.manifest);
  if (list_tensors) print_tensors(checkpoint.manifest);
}

}  // namespace halfbyte::cli

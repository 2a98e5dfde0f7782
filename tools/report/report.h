// A report: what a checkpoint is and what it lost, as a page and as the same data in JSON.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::cli {

// What was lost, in a sentence or two; without an evaluation: what became of how much.
std::string summary_of(const nlohmann::ordered_json& report);

// `report`: {checkpoint: checkpoint_facts(), original: facts or null, evaluation: what evaluate prints as JSON or null,
// compared: [{checkpoint, evaluation}], provenance: {what: text}}.
std::string report_page(const nlohmann::ordered_json& report);

// Writes a page as DIR/report.html and its data as DIR/report.json, each whole or not at all; the folder is made where
// it is not there. Errors: kIo, kNoResources.
void write_page(const std::filesystem::path& folder, const std::string& page, const nlohmann::ordered_json& data);

// The same of a report.
void write_report(const std::filesystem::path& folder, const nlohmann::ordered_json& report);

}  // namespace halfbyte::cli

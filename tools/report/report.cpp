#include "tools/report/report.h"

#include <nlohmann/json.hpp>

#include "loader/files/system_error.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/cli/whole_file.h"
#include "tools/report/charts.h"
#include "tools/report/html.h"
#include "tools/report/page.h"
#include "tools/report/sections.h"

namespace halfbyte::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string size_sentence(const ordered_json& report) {
  const ordered_json& checkpoint = report["checkpoint"];
  std::string out = human_bytes(checkpoint["bytes"].get<std::uint64_t>());
  if (!report["original"].is_null())
    out += " instead of " + human_bytes(report["original"]["bytes"].get<std::uint64_t>());
  out += ", " + fixed(checkpoint["bits_per_weight"], 2) + " bits a weight";
  if (!checkpoint["linear_bits"].is_null())
    out += " (" + fixed(checkpoint["linear_bits"], 2) + " of what was quantised)";
  return out + ".";
}

}  // namespace

std::string summary_of(const ordered_json& report) {
  const ordered_json& evaluation = report["evaluation"];
  const std::string size = size_sentence(report);
  if (evaluation.is_null() || !evaluation.contains("kl_mean")) return size;
  const double kl = evaluation["kl_mean"]["value"], ratio = evaluation["perplexity_ratio"]["value"].get<double>() - 1;
  const double top1 = evaluation["top1_agreement"]["value"];
  return size + " Its predictions are " + short_number(kl) +
         " nats a token from the original's (KL divergence); both choose the same next token " + fixed(100 * top1, 1) +
         " % of the time, and perplexity is " + fixed(100 * std::abs(ratio), 2) + " % " +
         (ratio < 0 ? "lower." : "higher.");
}

std::string report_page(const ordered_json& report) {
  const std::string name = report["checkpoint"]["name"];
  const bool is_evaluated = !report["evaluation"].is_null();
  return page(is_evaluated ? "What " + name + " lost" : "What " + name + " is", summary_of(report),
              sections_of(report));
}

void write_page(const fs::path& folder, const std::string& page, const ordered_json& data) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) files::fail_on(folder, "making the folder", error.value());
  write_whole(folder / "report.json", json_text(data, 2) + "\n");
  write_whole(folder / "report.html", page);
}

void write_report(const fs::path& folder, const ordered_json& report) {
  write_page(folder, report_page(report), report);
}

}  // namespace halfbyte::cli

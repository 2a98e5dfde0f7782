// halfbyte verify CKPT [--against SRC]
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "loader/files/verify.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kWorstShown = 10;

struct Words {
  std::string checkpoint;
  std::string against;
};

void declare(CLI::App& app, Words& words) {
  app.add_option("CKPT", words.checkpoint, "model to read")->required();
  app.add_option("--against", words.against, "the original: also say how far each tensor is from it")->type_name("SRC");
}

files::VerifyReport verify_with_progress(const Words& words, const CommonOptions& common) {
  const InterruptWatch interrupt;
  const files::Checkpoint checkpoint = files::open_checkpoint(words.checkpoint);
  std::optional<files::Checkpoint> original;
  if (!words.against.empty()) original = files::open_checkpoint(words.against);
  Progress progress("verify", !common.is_quiet);
  return files::verify(checkpoint, original ? &*original : nullptr, [&](std::uint64_t done, std::uint64_t total) {
    if (interrupt.token().stop_requested()) throw Error(ErrorCode::kInterrupted, "verify was stopped");
    progress.update(done, total);
  });
}

ordered_json json_of(const files::VerifyReport& report) {
  ordered_json findings = ordered_json::array();
  for (const auto& finding : report.findings)
    findings.push_back({{"tensor", finding.tensor}, {"problem", finding.problem}});
  ordered_json differences = ordered_json::array();
  for (const auto& row : report.differences) {
    differences.push_back({{"tensor", row.tensor}, {"rel_rmse", row.rel_rmse}, {"max_abs", row.max_abs}});
  }
  return {{"good", report.findings.empty()},         {"bytes_read", report.bytes_read},
          {"tensors_hashed", report.tensors_hashed}, {"tensors_unhashed", report.tensors_unhashed},
          {"findings", std::move(findings)},         {"differences", std::move(differences)}};
}

void print_differences(std::vector<files::TensorDifference> rows) {
  if (rows.empty()) return;
  const auto changed = std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.max_abs > 0; });
  print_line(counted(static_cast<std::int64_t>(rows.size()), "tensor") +
             " compared with the original: " + std::to_string(rows.size() - static_cast<std::size_t>(changed)) +
             " equal, " + std::to_string(changed) + " differ");
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.rel_rmse > b.rel_rmse; });
  rows.resize(std::min({rows.size(), static_cast<std::size_t>(changed), kWorstShown}));
  if (rows.empty()) return;
  Table table({{"farthest from the original"}, {"relative error", Align::kRight}, {"largest", Align::kRight}});
  for (const auto& row : rows) table.add({row.tensor, fixed(row.rel_rmse, 4), fixed(row.max_abs, 5)});
  table.print("  ");
}

void print_report(const files::VerifyReport& report) {
  for (const auto& finding : report.findings) print_line(printable(finding.tensor + ": " + finding.problem));
  print_differences(report.differences);
  const std::string unhashed =
      report.tensors_unhashed == 0 ? "" : ", " + std::to_string(report.tensors_unhashed) + " have no hash on record";
  print_line(
      human_bytes(report.bytes_read) + " read; of " +
      counted(report.tensors_hashed + report.tensors_unhashed, "tensor") + ", " +
      std::to_string(report.tensors_hashed) + " were compared with their hash" + unhashed + "; " +
      (report.findings.empty() ? "all good" : counted(static_cast<std::int64_t>(report.findings.size()), "problem")));
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  const files::VerifyReport report = verify_with_progress(words, common);
  if (common.is_json) {
    print_json(json_of(report));
  } else {
    print_report(report);
  }
  if (report.findings.empty()) return ExitStatus::kDone;
  const auto& first = report.findings.front();
  throw Error(ErrorCode::kCorrupt, words.checkpoint + " is not sound: " +
                                       counted(static_cast<std::int64_t>(report.findings.size()), "problem") +
                                       ", first " + first.tensor + ": " + first.problem);
}

}  // namespace

Action prepare_verify(CLI::App& app, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(app, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

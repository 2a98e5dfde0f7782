// halfbyte verify CKPT [--against SRC] [--expect HASH]
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
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

constexpr std::ptrdiff_t kWorstShown = 10;
constexpr std::ptrdiff_t kNotesShown = 5;

struct Words {
  std::string checkpoint;
  std::string against;
  std::string expect;
};

void declare(OptionParser& parser, Words& words) {
  parser.add_checkpoint("CKPT", words.checkpoint, "model to read").required();
  parser.add_checkpoint("--against", words.against, "the original: also say how far each tensor is from it")
      .type_name("SRC");
  parser.add_option("--expect", words.expect, "the hash that the checkpoint must have, as verify printed it before")
      .type_name("HASH");
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

bool is_as_expected(const Words& words, const files::VerifyReport& report) {
  return words.expect.empty() || words.expect == report.hash;
}

ordered_json json_of(const Words& words, const files::VerifyReport& report) {
  ordered_json findings = ordered_json::array();
  for (const auto& finding : report.findings)
    findings.push_back({{"tensor", finding.tensor}, {"problem", finding.problem}});
  ordered_json notes = ordered_json::array();
  for (const auto& note : report.notes) notes.push_back({{"tensor", note.tensor}, {"note", note.problem}});
  ordered_json differences = ordered_json::array();
  for (const auto& row : report.differences) {
    differences.push_back({{"tensor", row.tensor}, {"rel_rmse", row.rel_rmse}, {"max_abs", row.max_abs}});
  }
  return {{"good", report.findings.empty() && is_as_expected(words, report)},
          {"hash", report.hash},
          {"expected", words.expect.empty() ? ordered_json(nullptr) : ordered_json(words.expect)},
          {"bytes_read", report.bytes_read},
          {"tensors_hashed", report.tensors_hashed},
          {"tensors_unhashed", report.tensors_unhashed},
          {"findings", std::move(findings)},
          {"notes", std::move(notes)},
          {"differences", std::move(differences)}};
}

// NaN is farthest of all.
void sort_worst_first(std::vector<files::TensorDifference>& rows) {
  const auto rank = [](const files::TensorDifference& row) {
    return std::isnan(row.rel_rmse) ? std::numeric_limits<double>::infinity() : row.rel_rmse;
  };
  std::ranges::stable_sort(rows, std::greater(), rank);
}

void print_differences(const std::vector<files::TensorDifference>& rows) {
  if (rows.empty()) return;
  const auto equal = std::ranges::count_if(rows, [](const auto& row) { return row.max_abs == 0; });
  const auto changed = static_cast<std::ptrdiff_t>(rows.size()) - equal;
  print_line(counted(static_cast<std::int64_t>(rows.size()), "tensor") + " compared with the original: " +
             std::to_string(equal) + " equal, " + std::to_string(changed) + " differ");
  if (changed == 0) return;
  Table table({{"farthest from the original"}, {"relative error", Align::kRight}, {"largest", Align::kRight}});
  for (const auto& row : rows | std::views::take(std::min<std::ptrdiff_t>(changed, kWorstShown)))
    table.add({row.tensor, fixed(row.rel_rmse, 4), fixed(row.max_abs, 5)});
  table.print("  ");
}

void print_notes(const std::vector<files::VerifyFinding>& notes) {
  for (const auto& note : notes | std::views::take(kNotesShown))
    print_line(printable("note: " + note.tensor + ": " + note.problem));
  const auto left_out = static_cast<std::ptrdiff_t>(notes.size()) - kNotesShown;
  if (left_out > 0) print_line("note: " + std::to_string(left_out) + " more like these; --json lists all");
}

// Of what has no hash nobody can say that it is what was written.
std::string verdict(const files::VerifyReport& report) {
  if (!report.findings.empty()) return counted(static_cast<std::int64_t>(report.findings.size()), "problem");
  if (report.tensors_unhashed == 0) return "all good";
  return "names, shapes and sizes fit and every weight is finite; without hashes nothing says whether a value was "
         "changed";
}

void print_report(const files::VerifyReport& report) {
  for (const auto& finding : report.findings) print_line(printable(finding.tensor + ": " + finding.problem));
  print_notes(report.notes);
  print_differences(report.differences);
  const std::string unhashed =
      report.tensors_unhashed == 0 ? "" : ", " + std::to_string(report.tensors_unhashed) + " have no hash on record";
  print_line(human_bytes(report.bytes_read) + " read; of " +
             counted(report.tensors_hashed + report.tensors_unhashed, "tensor") + ", " +
             std::to_string(report.tensors_hashed) + " were compared with their hash" + unhashed + "; " +
             verdict(report));
  print_line("hash of the checkpoint: " + report.hash);
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  if (!words.expect.empty()) files::check_hash_text(words.expect);
  files::VerifyReport report = verify_with_progress(words, common);
  sort_worst_first(report.differences);
  if (common.is_json) {
    print_json(json_of(words, report));
  } else {
    print_report(report);
  }
  if (!words.expect.empty() && report.findings.empty()) files::check_expected(words.checkpoint, report, words.expect);
  if (report.findings.empty()) return ExitStatus::kDone;
  const auto& first = report.findings.front();
  throw Error(ErrorCode::kCorrupt, words.checkpoint + " is not sound: " +
                                       counted(static_cast<std::int64_t>(report.findings.size()), "problem") +
                                       ", first " + first.tensor + ": " + first.problem);
}

}  // namespace

Action prepare_verify(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

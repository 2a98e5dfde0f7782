#include "convert/unfinished.h"

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/output/work_parts.h"
#include "convert/provenance.h"
#include "convert/shares.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

constexpr const char* kDeleteIt = "delete it to begin anew";

[[noreturn]] void refuse_other(const Destination& destination, const std::string& difference, const Text& cure) {
  throw Error(ErrorCode::kInvalidArgument, files::printable_path(destination.work_path()) +
                                               " is the beginning of another conversion (" + difference +
                                               "); give the same source and options, or " + cure);
}

// What could be gone on with is never deleted by whoever forgot to say so.
[[noreturn]] void refuse_to_forget(const Destination& destination, const JournalContents& journal, std::size_t all) {
  const std::size_t finished = journal.finished.size();
  const std::string found =
      finished == 0 ? journal.progress() : std::to_string(finished) + " of " + std::to_string(all) + " tensors";
  throw Error(ErrorCode::kAlreadyExists, files::printable_path(destination.work_path()) + ": " + found +
                                             " of this conversion, left by a run that was stopped; " + Option::kResume +
                                             " goes on, " + Option::kRestart + " deletes them and begins anew");
}

// "31 of 290 tensors are not done: parts 2 and 4 of 4"
std::string left_text(const fs::path& work, const Plan& plan, const JournalContents& journal) {
  std::size_t all = 0, done = 0;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (!plan.tensors[i].tied_to.empty()) continue;
    ++all;
    done += journal.finished.count(i);
  }
  std::string out = std::to_string(all - done) + " of " + std::to_string(all) + " tensors are not done";
  const std::vector<WorkPart> begun = parts_begun(work);
  if (begun.empty() || begun.front().count != begun.back().count) return out;
  return out + ": " + parts_text(parts_left(plan, begun.front().count, journal), begun.front().count);
}

// What parts have done. Errors: kInvalidArgument unless that is all of this conversion.
void check_finished(const Destination& destination, const Plan& plan, const std::optional<JournalContents>& journal,
                    const nlohmann::json& identity) {
  const std::string work = files::printable_path(destination.work_path());
  if (!journal) throw Error(ErrorCode::kInvalidArgument, work + ": no part of this conversion is there");
  if (const auto found = difference(*journal->identity, identity)) refuse_other(destination, *found, kDeleteIt);
  if (parts_left(plan, 1, *journal).empty()) return;
  throw Error(ErrorCode::kInvalidArgument, work + ": " + left_text(destination.work_path(), plan, *journal) +
                                               "; run what is left, or " + Option::kResume + " does it here");
}

void keep_data_files(Destination& destination, const Quantization& work) {
  std::vector<fs::path> wanted;
  for (const DataFileLayout& file : work.layout.files) wanted.emplace_back(file.name);
  destination.remove_all_but(wanted);
}

}  // namespace

std::optional<JournalContents> find_unfinished(Destination& destination, const Quantization& work,
                                               const QuantizeOptions& options, const nlohmann::json& identity) {
  auto journal = read_journals(destination.work_path(), &identity);
  if (options.finish) check_finished(destination, work.plan, journal, identity);
  if (!journal || options.restart) {
    destination.start_over();
    return std::nullopt;
  }
  if (const auto found = difference(*journal->identity, identity)) {
    if (goes_on(options))
      refuse_other(destination, *found,
                   options.resume ? Option::kRestart + " to delete it and begin anew" : Text(kDeleteIt));
    destination.start_over_instead_of(*found);
    return std::nullopt;
  }
  if (!goes_on(options)) {
    if (!journal->progress().empty()) refuse_to_forget(destination, *journal, work.plan.tensors.size());
    destination.start_over();
    return std::nullopt;
  }
  keep_data_files(destination, work);
  return journal;
}

std::optional<JournalContents> find_shared(Destination& destination, const Quantization& work,
                                           const nlohmann::json& identity) {
  auto journal = read_journals(destination.work_path(), &identity);
  if (journal) {
    if (const auto found = difference(*journal->identity, identity)) refuse_other(destination, *found, kDeleteIt);
  }
  keep_data_files(destination, work);
  return journal;
}

}  // namespace halfbyte::convert

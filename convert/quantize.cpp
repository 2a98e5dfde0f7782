// Quantises the tensors of a prepared conversion into a new checkpoint.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

#include "convert/calibrator.h"
#include "convert/conversion.h"
#include "convert/convert_tensors.h"
#include "convert/embedding_advice.h"
#include "convert/kept_packed.h"
#include "convert/merge/merge_record.h"
#include "convert/output/destination.h"
#include "convert/output/journal.h"
#include "convert/output/life_sign.h"
#include "convert/output/small_files.h"
#include "convert/output/work_parts.h"
#include "convert/output/write_progress.h"
#include "convert/provenance.h"
#include "convert/quantization_config.h"
#include "convert/result_manifest.h"
#include "convert/shares.h"
#include "convert/tied_duplicates.h"
#include "convert/unfinished.h"
#include "loader/files/directory.h"
#include "loader/files/file_tree.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

constexpr std::chrono::milliseconds kPause{20};  // from one look whether another part is done to the next
constexpr int kTries = 250;
constexpr const char* kSign = "sign";  // in a part's folder, while it converts what was calibrated

void write_config(const files::Checkpoint& source, const Plan& plan, SmallFiles& out) {
  if (!source.has_config()) return;
  nlohmann::ordered_json quantization = quantization_config(source, plan);
  if (quantization.is_null() && source.has_config_file) return out.copy(files::kConfigFile);
  nlohmann::ordered_json config = *source.config;
  if (!quantization.is_null()) config["quantization_config"] = std::move(quantization);
  out.write(files::kConfigFile, config.dump(2) + "\n");
}

void write_small_files(const files::Checkpoint& source, const Plan& plan, const ResultLayout& layout,
                       const ConversionResult& result, const QuantizeOptions& options, const Destination& destination) {
  files::Manifest manifest = result_manifest(source, plan, result, options.spelling);
  manifest.conversion = conversion_record(options);
  if (options.merge) (*manifest.conversion)[options.merge->key] = *options.merge->report();
  manifest.files = data_file_records(layout);
  SmallFiles out(source, destination);
  out.write_index(layout.files);
  write_config(source, plan, out);
  for (const fs::path& name : source.side_files) out.copy(name);
  out.write_generated();
  manifest.files.insert(manifest.files.end(), out.records().begin(), out.records().end());
  destination.write_file(files::kManifestFile, files::manifest_to_json(manifest));
}

QuantizeSummary summary_of(const files::Checkpoint& source, const Plan& plan, const ConversionResult& result) {
  QuantizeSummary out;
  out.source_bytes = source.size_bytes;
  out.result_bytes = plan.bytes_after;
  out.resumed_bytes = result.resumed_bytes;
  out.notes = plan.notes;
  quant::ErrorStats total;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].part_of.empty()) ++(plan.tensors[i].scheme ? out.quantized_tensors : out.kept_tensors);
    if (i < result.tensors.size() && result.tensors[i].error) total.add(*result.tensors[i].error);
  }
  out.rel_rmse = total.rel_rmse();
  return out;
}

// Of a part that leaves the rest to others.
QuantizeSummary summary_of(const files::Checkpoint& source, const std::vector<bool>& share, const Plan& plan,
                           const JournalContents& journal) {
  QuantizeSummary out;
  out.notes = plan.notes;
  quant::ErrorStats total;
  for (std::size_t i = 0; i < share.size(); ++i) {
    if (!share[i]) continue;
    const PlannedTensor& planned = plan.tensors[i];
    out.source_bytes += source.tensors[planned.source].size_bytes;
    out.result_bytes += planned.bytes_after;
    if (planned.part_of.empty()) ++(planned.scheme ? out.quantized_tensors : out.kept_tensors);
    if (const auto& error = journal.finished.at(i).result.error) total.add(*error);
  }
  out.rel_rmse = total.rel_rmse();
  return out;
}

// Whether somebody else has it.
bool is_claimed(const fs::path& file) try {
  return files::is_regular_file(file) && !files::DirectoryLock::of_file(file, files::DirectoryLock::Sharing::kShared);
} catch (const Error& error) {
  return error.code() == ErrorCode::kAlreadyExists;
}

// One run of a conversion that was prepared: goes on, finds it complete, or begins.
class Run {
 public:
  Run(const Conversion& conversion, const Quantization& work, const fs::path& path)
      : source_(*conversion.source),
        work_(work),
        plan_(work.plan),
        layout_(work.layout),
        options_(conversion.options),
        path_(path) {}

  QuantizeSummary run() const {
    check_tied_duplicates(source_, plan_);
    check_kept_packed(source_);
    if (goes_on(options_) && is_complete()) {
      files::sync_directory(path_.parent_path());  // which the run that was killed may not have come to
      QuantizeSummary summary = summary_of(source_, plan_, {});
      summary.was_complete = true;
      if (const Text left = clear_away(); !left.empty()) summary.warnings.push_back(left);
      return summary;
    }
    Destination destination(
        path_, {.overwrite = options_.overwrite, .keep_leftovers = true, .is_shared = options_.part.has_value()});
    if (!options_.part) return whole(destination);
    const DonePart done = convert_part(destination);
    const std::vector<int> left = parts_left(plan_, options_.part->count, done.journal);
    if (left.empty() && !done.is_for_first && take_over(destination)) return whole(destination);
    QuantizeSummary summary = summary_of(source_, share_of(plan_, *options_.part), plan_, done.journal);
    summary.is_whole = false;
    summary.parts_left = left;
    return summary;
  }

 private:
  nlohmann::json identity() const { return identity_of(source_, layout_, options_); }

  QuantizeSummary whole(Destination& destination) const {
    QuantizeSummary summary = summary_of(source_, plan_, convert_into(destination));
    summary.warnings = destination.warnings();
    summary.advice = embedding_advice(source_, plan_, options_);
    if (options_.calibrator) {
      const std::vector<Text> notes = options_.calibrator->notes();
      summary.notes.insert(summary.notes.end(), notes.begin(), notes.end());
    }
    return summary;
  }

  // Whether an earlier run finished all and was killed then, or was never disturbed. Errors: kAlreadyExists when
  // something else is there that may not be replaced.
  bool is_complete() const {
    if (files::type_of(path_) != fs::file_type::directory) return false;
    const auto found = difference_from_complete(path_, source_, layout_, options_);
    if (!found || options_.overwrite) return !found;
    throw Error(ErrorCode::kAlreadyExists, files::printable_path(path_) +
                                               ": exists already and is not what this run would write (" + *found +
                                               "); " + Option::kOverwrite + " replaces it");
  }

  // What is left when a run was killed after the rename; the beginning of another conversion stays.
  Text clear_away() const {
    const nlohmann::json identity = this->identity();
    const auto journal = read_journals(work_path(path_), &identity);
    return !journal || *journal->identity == identity ? remove_leftovers(path_) : Text();
  }

  struct DonePart {
    JournalContents journal;    // of this part and others
    bool is_for_first = false;  // the first one is at work, and completes the result
  };

  DonePart convert_part(Destination& destination) const {
    const nlohmann::json identity = this->identity();
    const fs::path folder = part_folder(destination.work_path(), *options_.part);
    refuse_other_counts(destination);
    make_part_folder(folder);
    const files::DirectoryLock lock(folder);
    const auto lock_elsewhere =
        files::DirectoryLock::of_file(folder / kPartsLock, files::DirectoryLock::Sharing::kSole);
    refuse_other_counts(destination);  // of two that begin at the same moment one sees the other
    find_shared(destination, work_, identity);
    destination.write([&] {
      destination.check_space(layout_.size_bytes + small_file_bytes(source_) + calibration_bytes());
      const auto own = read_journal(folder);
      if (!own) empty_part_folder(folder);
      Journal journal = own ? Journal(folder, *own) : Journal(folder, identity);
      const auto done = find_shared_beside(destination, identity, own ? fs::path() : folder);
      const Workplace workplace{destination.partial_path(), journal,
                                done ? done->finished : std::map<std::size_t, FinishedTensor>(),
                                share_of(plan_, *options_.part)};
      calibrate_part(destination, journal, own, done);
      convert_tensors(source_, plan_, layout_, work_.memory, with_signs(folder), workplace);
      wait_for_others(destination);
    });
    // Asked while the first part still waits for this one.
    const bool is_for_first = options_.calibrator && options_.part->index > 1 && is_at_work(destination, 1);
    return {*find_shared(destination, work_, identity), is_for_first};
  }

  std::chrono::seconds timeout() const { return std::chrono::seconds(options_.part_timeout); }

  // The others of a calibration see that this part goes on.
  QuantizeOptions with_signs(const fs::path& folder) const {
    QuantizeOptions out = options_;
    if (!options_.calibrator) return out;
    out.progress = [listener = options_.progress, sign = std::make_shared<LifeSign>(folder / kSign, timeout())](
                       std::uint64_t done, std::uint64_t total) {
      sign->show();
      if (listener) listener(done, total);
    };
    return out;
  }

  // Parts that calibrate together write the codes of a layer into one file.
  void refuse_other_counts(const Destination& destination) const {
    if (!options_.calibrator) return;
    for (const WorkPart& other : parts_begun(destination.work_path())) {
      const bool is_of_these = other.count == options_.part->count;
      if (is_of_these || !is_claimed(part_folder(destination.work_path(), other) / kPartsLock)) continue;
      throw Error(ErrorCode::kAlreadyExists, files::printable_path(destination.work_path()) + ": " +
                                                 parts_text({other.index}, other.count) +
                                                 " is at work, and parts that calibrate at the same time are of one "
                                                 "number; wait for its end, or end it");
    }
  }

  bool is_at_work(const Destination& destination, int part) const {
    const fs::path folder = part_folder(destination.work_path(), {part, options_.part->count});
    return is_claimed(folder / kPartsLock);
  }

  // Parts that calibrate are done at about the same time, and a launcher shows what the first one says: it waits for
  // the others, which leave the rest to it.
  void wait_for_others(const Destination& destination) const {
    if (!options_.calibrator || options_.part->index > 1) return;
    for (int part = 2; part <= options_.part->count; ++part) {
      const fs::path folder = part_folder(destination.work_path(), {part, options_.part->count});
      LifeWatch watch({folder / kSign, folder / kPartCalibration / kSaid}, timeout());
      while (is_at_work(destination, part)) {
        check_stop(options_.stop);
        if (watch.is_overdue()) give_up(destination, part);
        std::this_thread::sleep_for(kPause);
      }
    }
  }

  [[noreturn]] void give_up(const Destination& destination, int part) const {
    throw Error(ErrorCode::kIo,
                files::printable_path(destination.work_path()) + ": " + parts_text({part}, options_.part->count) +
                    " is at work and gave no sign for " + std::to_string(options_.part_timeout) +
                    " s; this part is done: see to that one, then " + Option::kFinish + " completes the result");
  }

  bool take_over(Destination& destination) const {
    if (!options_.calibrator || options_.part->index > 1) return destination.take_over();
    for (int tries = 0; tries < kTries; ++tries) {  // the others are on their way out
      if (destination.take_over()) return true;
      std::this_thread::sleep_for(kPause);
    }
    return false;
  }

  // Again, once others see this part's identity too: of those that begin at the same moment by other options, all are
  // refused, or all but the first. `begun`: this part's folder, if it is new.
  std::optional<JournalContents> find_shared_beside(Destination& destination, const nlohmann::json& identity,
                                                    const fs::path& begun) const try {
    return find_shared(destination, work_, identity);
  } catch (const Error&) {
    if (!begun.empty()) empty_part_folder(begun);
    throw;
  }

  ConversionResult convert_into(Destination& destination) const {
    const nlohmann::json identity = this->identity();
    const auto unfinished = find_unfinished(destination, work_, options_, identity);
    ConversionResult result;
    destination.fill([&] {
      destination.check_space(layout_.size_bytes + small_file_bytes(source_) + calibration_bytes());
      Journal journal =
          unfinished ? Journal(destination.work_path(), *unfinished) : Journal(destination.work_path(), identity);
      if (goes_on(options_)) destination.keep();
      const Workplace workplace{destination.partial_path(), journal,
                                unfinished ? unfinished->finished : std::map<std::size_t, FinishedTensor>()};
      calibrate(destination, journal, unfinished);
      result = convert_tensors(source_, plan_, layout_, work_.memory, options_, workplace);
      result.kept_hashes = hash_kept_packed(source_, plan_, layout_, workplace.directory, options_.stop);
      write_small_files(source_, plan_, layout_, result, options_, destination);
    });
    return result;
  }

  std::uint64_t calibration_bytes() const {
    return options_.calibrator ? options_.calibrator->disk_bytes(source_, plan_, options_.part.has_value()) : 0;
  }

  void calibrate(const Destination& destination, Journal& journal,
                 const std::optional<JournalContents>& unfinished) const {
    if (!options_.calibrator) return;
    const fs::path directory = destination.calibration_path();
    make_part_folder(directory);
    const std::map<std::int64_t, models::HeldJson> none;
    options_.calibrator->run(source_, plan_, options_, {directory, journal, unfinished ? unfinished->layers : none});
  }

  // Beside the other parts. What this one has recorded says of its own states too.
  void calibrate_part(const Destination& destination, Journal& journal, const std::optional<JournalContents>& own,
                      const std::optional<JournalContents>& all) const {
    if (!options_.calibrator) return;
    std::map<std::int64_t, models::HeldJson> earlier;
    if (own) earlier = own->layers;
    if (all) earlier.insert(all->layers.begin(), all->layers.end());
    const fs::path directory = destination.calibration_path();
    make_part_folder(directory);
    options_.calibrator->run(source_, plan_, options_,
                             {directory, journal, earlier, CalibrationPart{*options_.part, destination.work_path()}});
  }

  const files::Checkpoint& source_;
  const Quantization& work_;
  const Plan& plan_;
  const ResultLayout& layout_;
  const QuantizeOptions& options_;
  const fs::path& path_;
};

}  // namespace

QuantizeSummary run_quantization(const Conversion& conversion, const Quantization& work, const fs::path& destination) {
  return Run(conversion, work, destination).run();
}

void write_quantization(const Conversion& conversion, const Quantization& work, const Destination& destination) {
  const files::Checkpoint& source = *conversion.source;
  destination.check_space(work.layout.size_bytes + small_file_bytes(source));
  Journal journal(destination.work_path(), identity_of(source, work.layout, conversion.options));
  const Workplace workplace{destination.partial_path(), journal, {}};
  const ConversionResult result =
      convert_tensors(source, work.plan, work.layout, work.memory, conversion.options, workplace);
  write_small_files(source, work.plan, work.layout, result, conversion.options, destination);
}

}  // namespace halfbyte::convert

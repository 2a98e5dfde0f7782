// A conversion, decided before a byte is written: what is read, what becomes of every tensor, where it goes, how much
// is in memory at once. Made once, shown to whoever asks, and run.
#pragma once

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "convert/memory.h"
#include "convert/output/destination.h"
#include "convert/output/image.h"
#include "convert/output/result_layout.h"

namespace halfbyte::convert {

// Every tensor that the plan says is quantised from its values.
struct Quantization {
  Plan plan;
  ResultLayout layout;
  MemoryPlan memory;
};

// Codes stay as they are, in halfbyte's layout.
struct Repacking {
  Image image;
  std::vector<Text> notes;
};

struct Conversion {
  files::fs::path source_path;
  QuantizeOptions options;
  // What is quantised again is seen here as the plain checkpoint of the values that its codes stand for.
  std::shared_ptr<const files::Checkpoint> source;
  std::variant<Quantization, Repacking> work;
  Text warning = {};   // what a user should hear before it runs; empty: nothing
  double seconds = 0;  // that preparing took
};

// Opens the source, and decides: one that is quantised already is repacked or quantised again as the options say.
// Writes nothing. Errors: as quantize(), but for what a destination alone can cause.
Conversion prepare(const files::fs::path& source, const QuantizeOptions& options);
// The same of one that was opened, or is in memory; the conversion has no source_path then.
Conversion prepare(files::Checkpoint source, const QuantizeOptions& options);
// The same of a source that must be quantised already, and keeps its codes. Errors: kInvalidArgument when it is not.
Conversion prepare_repacking(const files::fs::path& source, const QuantizeOptions& options);

// Writes the result. Options that decide nothing (progress, stop, overwrite, resume) may have been set since it was
// prepared. The source is not opened again. Errors: as quantize().
QuantizeSummary run(const Conversion& conversion, const files::fs::path& destination);

// "the source is quantised already and keeps its codes; ...": why such a conversion is neither resumed nor shown.
Text keeps_codes_text();

// What run() does, by kind. Without the seconds.
QuantizeSummary run_quantization(const Conversion& conversion, const Quantization& work,
                                 const files::fs::path& destination);
// All files of one whose source is not packed, into a destination that is claimed: nothing of an earlier run is gone on
// with, and it is not committed.
void write_quantization(const Conversion& conversion, const Quantization& work, const Destination& destination);
QuantizeSummary run_repacking(const Conversion& conversion, const Repacking& work, const files::fs::path& destination);
// Lays the result out as the source's codes have it.
Repacking repacking_of(const files::Checkpoint& source, std::uint64_t shard_size);

}  // namespace halfbyte::convert

// Makes a 4-bit checkpoint from a float one, and a float one from that. For the command line and for host programs;
// needs no LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <halfbyte/error.h>
#include <halfbyte/quantize.h>
#include <halfbyte/text.h>

namespace halfbyte::convert {

inline constexpr const char* kDefaultScheme = "sym_int4";
inline constexpr std::int64_t kDefaultGroupSize = 64;
inline constexpr quant::Search kDefaultSearch = quant::GroupOptions{}.search;

// What chooses codes by what a model's layers are given: <halfbyte/calibrate.h> makes one.
class Calibrator;
// What measures the loss of each way to store each tensor: <halfbyte/budget.h> makes one.
class Sensitivity;
// What a target made of it.
struct Mix;
// What adapters were merged: <halfbyte/merge.h> makes it.
class Merge;

// How one tensor is stored.
struct TensorChoice {
  std::string scheme;           // "keep" leaves it as it is
  std::int64_t group_size = 0;  // as QuantizeOptions'
  bool nested_scales = false;   // with or without QuantizeOptions' own
  bool operator==(const TensorChoice&) const = default;
};

// One of `count` runs that share the work of a conversion; from 1.
struct WorkPart {
  int index = 1;
  int count = 1;
};

struct QuantizeOptions {
  std::optional<std::string> scheme = {};  // nothing: kDefaultScheme
  // 128, 64, 32, 16, or quant's kPerChannel (0); nothing: the scheme's default_group, kDefaultGroupSize for most
  std::optional<std::int64_t> group_size = {};
  std::optional<quant::Search> search = {};  // nothing: kDefaultSearch
  bool nested_scales = false;  // nf4, fp4: scales in 8 bits with scales of their own (bitsandbytes's double quant)
  bool halfbyte_only = false;  // allow what no other program reads: schemes, or two families of them in one checkpoint
  std::vector<std::string> keep = {};  // patterns of tensors to leave as they are; win over scheme_for
  // pattern -> scheme; the last match wins; "keep" leaves as is
  std::vector<std::pair<std::string, std::string>> scheme_for = {};
  // A scheme for the embedding (of every layer too, where a model has those), and one for the output head; "keep"
  // leaves it; nothing: as it is. `keep` wins over them, they over scheme_for. Where head and embedding are tied, one
  // of them speaks for both. A packed embedding is read by halfbyte alone, and wants `halfbyte_only`.
  std::optional<std::string> embedding = {};
  std::optional<std::string> head = {};
  // By whole name, for Linears that nothing above names; win over scheme and group_size.
  std::map<std::string, TensorChoice> choices = {};
  bool only_choices = false;  // what they do not name stays as it is
  // Bits a weight of what is quantised, or bytes of the whole result's tensors: choices are then made, such that the
  // model loses least within that. One of the two, with `sensitivity`. 0: none.
  double target_bpw = 0;
  std::uint64_t target_size = 0;
  std::shared_ptr<Sensitivity> sensitivity = {};
  std::shared_ptr<const Mix> mix = {};      // what came of the target: set by what made the choices
  std::shared_ptr<const Merge> merge = {};  // set by merge()
  // Recorded as the original dtype of tensors of which the source does not say it.
  std::optional<Dtype> assume_original = {};
  int threads = 0;  // 0: one a core
  // The process's peak, about, however large the model. Units: bytes.
  std::uint64_t memory_limit = std::uint64_t{512} << 20;
  std::uint64_t shard_size = 0;  // bytes of tensors in a file of the result, at most; 0: sharded as the source is
  // A source that is quantised already is quantised again, from the values that its codes stand for.
  bool requantize = false;
  // What of it is packed keeps its codes, and the rest is quantised: gpt-oss, whose experts are published in MXFP4. Not
  // with `requantize`.
  bool keep_packed = false;
  // It keeps its codes, as with repack(), unless something above says how to quantise (scheme, group_size, search,
  // nested_scales, keep, scheme_for, embedding, head): then it is quantised again. With neither it is refused.
  bool keep_codes = false;
  bool overwrite = false;
  // How the result's record, which people read, spells options (`kept` in halfbyte.json).
  Spelling spelling = cpp_spelling();
  // Go on where a killed or interrupted run with the same source and options stopped, in DST.partial. An error or a
  // stop leaves what was written there for the next time. Without it such a DST.partial is in the way.
  bool resume = false;
  bool restart = false;  // delete a DST.partial that could be gone on with; not with `resume`
  // One of several runs of the same conversion, at the same time or one after another, on any machines that see SRC and
  // DST: it converts its share of the tensors, all shares of about as many bytes, and goes on by itself where an
  // earlier run of the same part was stopped. Whichever is done last reads all again, checks it, and gives DST its
  // name; the bytes are those of a single run. With a calibrator all parts run at the same time: each reads its share
  // of the text and chooses codes for its share of every layer. Not with `restart`, a target, or codes that are kept.
  std::optional<WorkPart> part = {};
  // How long a part of a calibration waits for another that gives no sign. Units: seconds, 1 at least.
  int part_timeout = 300;
  // What parts have written is checked and gets its name. Errors: kInvalidArgument naming the parts that are not done.
  bool finish = false;
  // Null: codes are chosen by the weights alone. It serves one conversion.
  std::shared_ptr<Calibrator> calibrator = {};
  // Called now and then with bytes of source done and in all; from one thread at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};  // a stop throws kInterrupted, and removes what was written unless `resume`
};

struct QuantizeSummary {
  std::uint64_t source_bytes = 0;  // tensor data; of a part, its own, as all that is counted here
  std::uint64_t result_bytes = 0;
  std::int64_t quantized_tensors = 0;
  std::int64_t kept_tensors = 0;
  std::uint64_t resumed_bytes = 0;   // of the source: an earlier run had done them
  bool was_complete = false;         // DST held this result already; nothing was done
  bool is_whole = true;              // false: a part that is done, and leaves it to others to complete DST
  std::vector<int> parts_left = {};  // that DST waits for
  double rel_rmse = 0;               // over all quantised weights together
  double seconds = 0;
  std::vector<Text> notes;  // for the user: files that were not copied, an unknown family ...
  Text advice;              // what would make the result smaller still at little loss; empty: nothing
  // What a user must hear, whatever else they asked to be spared: work of an earlier run that was deleted because this
  // one is another conversion; what is left over and could not be deleted.
  std::vector<Text> warnings;
};

// Streams SRC into DST, which appears under its name only when it is complete and synced. The bytes depend on the
// source and the options alone, not on threads, memory, machine or how often it was resumed (with a calibrator: on
// what calibrate.h says). Errors: kInvalidArgument
// (also DST.partial of another source or other options, with `resume`), kNotFound, kAlreadyExists
// (also a DST.partial that could be gone on with, without `resume` and `restart`), kCorrupt (also NaN or infinity in a
// weight, with tensor, row and column), kUnsupported, kNoResources (also a memory limit that is too low), kIo,
// kInterrupted. After an error nothing is left under DST.
QuantizeSummary quantize(const std::filesystem::path& source, const std::filesystem::path& destination,
                         const QuantizeOptions& options = {});

struct RepackOptions {
  // Recorded as the original dtype of tensors of which the source does not say it.
  std::optional<Dtype> assume_original = {};
  int threads = 0;               // 0: one a core
  std::uint64_t shard_size = 0;  // as QuantizeOptions'
  bool overwrite = false;
  // Called now and then with bytes of the result written and in all; from one thread at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};  // a stop removes what was written and throws kInterrupted
};

// Writes SRC, which is quantised already (in any format that is read), as a checkpoint of halfbyte's: the same codes
// and scales, put into halfbyte's layout, with a record of all tensors. Nothing is rounded. Errors: as quantize().
QuantizeSummary repack(const std::filesystem::path& source, const std::filesystem::path& destination,
                       const RepackOptions& options = {});

struct DequantizeOptions {
  std::optional<Dtype> dtype = {};  // float32, float16 or bfloat16 for all floating tensors; nothing: as recorded
  // What tensors were of which the checkpoint does not say it; nothing: they become float32.
  std::optional<Dtype> assume_original = {};
  int threads = 0;  // 0: one a core
  bool overwrite = false;
  // Called now and then with bytes of the result written and in all; from one thread at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};  // a stop removes what was written and throws kInterrupted
};

struct DequantizeSummary {
  std::uint64_t source_bytes = 0;  // tensor data
  std::uint64_t result_bytes = 0;
  std::int64_t dequantized_tensors = 0;
  std::int64_t cast_tensors = 0;    // dense before, in another dtype
  std::int64_t copied_tensors = 0;  // the same bytes
  double seconds = 0;
  std::vector<Text> notes;
  std::vector<Text> warnings;  // as QuantizeSummary's
};

// Writes the plain Hugging Face checkpoint that SRC was: names, shapes and, unless `dtype` asks for another, the dtypes
// on record; each value rounded once, to nearest even. No quantization_config and no manifest: every reader takes it.
// A tensor whose original dtype is not known becomes float32, with a note. Of an original it is a copy, or a cast.
// Errors: as quantize(); also kUnsupported naming the tensor and the place of a finite value that the dtype would make
// infinite.
DequantizeSummary dequantize(const std::filesystem::path& source, const std::filesystem::path& destination,
                             const DequantizeOptions& options = {});

}  // namespace halfbyte::convert

#include "convert/plan.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

#include "convert/file_notes.h"
#include "convert/group_sizes.h"
#include "convert/quantization_config.h"
#include "convert/unknown_family.h"
#include "convert/wishes.h"
#include "loader/files/derive.h"
#include "loader/files/family.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "loader/files/turned_stacks.h"

namespace halfbyte::convert {
namespace {

using files::in_quotes;
using files::StoredTensor;
using models::Role;

struct RoleReason {
  Role role;
  Text reason;
};

// Why a tensor of a role stays when nobody asked for it.
const auto kRoleReasons = std::to_array<RoleReason>({
    {Role::kEmbedding, "an embedding; packed when " + Option::kEmbedding + " asks for it"},
    {Role::kHead, "the output head; quantised when " + Option::kHead + " asks for it"},
    {Role::kNorm, "a norm"},
    {Role::kBias, "a bias"},
    {Role::kBuffer, "a buffer"},
    {Role::kRouter, "a router: small, and it decides which experts run"},
    {Role::kCorrection, "a router's correction: it decides which experts run"},
    {Role::kConvolution, "a convolution over few tokens: small"},
    {Role::kDecay, "it decides how fast a state decays: small, and every later token feels it"},
    {Role::kSink, "an attention sink: small, and every token sees it"},
    {Role::kScale, "a scale: small"},
    {Role::kTransposed, "experts stored column by column, and no stack of float32, float16 or bfloat16 matrices"},
    {Role::kUnknown, "not known to be a Linear"},
});

const Text& role_reason(Role role) { return std::ranges::find(kRoleReasons, role, &RoleReason::role)->reason; }

[[noreturn]] void invalid(const Text& message) { throw Error(ErrorCode::kInvalidArgument, message); }

class Planner {
 public:
  Planner(const files::Checkpoint& source, const QuantizeOptions& options)
      : source_(source),
        options_(options),
        ties_(files::declared_ties(source)),
        unknown_(source),
        wishes_(source, options, ties_) {
    look_at_packed();
  }

  Plan run() {
    Plan out;
    for (std::size_t i = 0; i < source_.tensors.size(); ++i) {
      out.tensors.push_back(decide(i));
      out.bytes_before += out.tensors.back().bytes_before;
      out.bytes_after += out.tensors.back().bytes_after;
    }
    wishes_.check_granted();
    add_notes(out);
    decide_readers(out);
    return out;
  }

 private:
  void look_at_packed() {
    for (const files::TensorRecord& record : source_.manifest.tensors) {
      if (!record.scheme) continue;
      for (const std::string& part : record.parts.names) {
        if (!part.empty()) packed_parts_.emplace(part, &record);
      }
      if (options_.keep_packed) continue;
      throw Error(ErrorCode::kUnsupported, files::printable_path(source_.directory) + ": tensor " +
                                               in_quotes(record.name) + " is quantised already (" +
                                               std::string(record.scheme->name) +
                                               "); quantise the original checkpoint, or " + Option::kRequantize +
                                               ", or " + Option::kKeepPacked + " to quantise what is not");
    }
  }

  // Empty: the tensor can be packed so that readers of compressed-tensors find it.
  static Text obstacle(const StoredTensor& tensor, Role role, const Wish& wanted) {
    if (role == Role::kEmbedding && wanted.asked && !wanted.asked->role)
      return "an embedding, which " + Option::kEmbedding + " packs";
    const bool is_stack = tensor.shape.size() == 3 && role == Role::kLinear;
    if (tensor.shape.size() != 2 && !is_stack)
      return "rank " + std::to_string(tensor.shape.size()) + "; only matrices are quantised";
    if (tensor.size_bytes == 0) return "empty";
    if (!is_floating(tensor.dtype)) return std::string(name(tensor.dtype)) + " is not a floating-point dtype";
    if (!is_weight_dtype(tensor.dtype)) return std::string(name(tensor.dtype)) + " is not float32, float16 or bfloat16";
    if (!tensor.name.ends_with(".weight") && !is_stack)
      return "its name does not end in .weight, so no reader would find its parts";
    return {};
  }

  // Empty: the names of the parts are free.
  std::string taken_part_name(const StoredTensor& tensor, const PlannedTensor& planned) const {
    for (const std::string& part : packed_record(tensor, planned).parts.names) {
      if (part != tensor.name && source_.find(part)) return part;
    }
    return {};
  }

  const std::string* tied_owner(const std::string& name) const {
    const auto tie = std::ranges::find(ties_, name, [](const auto& pair) { return pair.first; });
    return tie != ties_.end() && source_.find(tie->second) ? &tie->second : nullptr;
  }

  void check_tied(const StoredTensor& alias, const StoredTensor& owner) const {
    if (alias.shape == owner.shape && alias.dtype == owner.dtype) return;
    throw Error(ErrorCode::kCorrupt,
                files::printable_path(source_.directory) + ": config.json ties " + in_quotes(alias.name) + " to " +
                    in_quotes(owner.name) +
                    ", but they are stored with different shapes or dtypes; set tie_word_embeddings to false");
  }

  // Sets group_size, or gives the reason why there is none.
  static bool choose_group_size(std::int64_t wanted, std::int64_t in_features, PlannedTensor& out) {
    const std::string in = "in_features " + std::to_string(in_features) + ": ";
    const auto fits = fitting_group_size(*out.scheme, wanted, in_features);
    if (!fits) {
      out.reason = in + "no group size of " + listed(group_sizes(*out.scheme)) + " divides it";
      return false;
    }
    const std::int64_t asked = wanted == kPerChannel ? in_features : wanted;
    if (*fits != asked || !has_group_size(*out.scheme, wanted)) {
      out.reason =
          has_group_size(*out.scheme, wanted)
              ? in + "group size " + std::to_string(asked) + " does not divide it, " + std::to_string(*fits) + " does"
              : std::string(out.scheme->name) + " has no " + group_size_text(wanted) + "; groups of " +
                    std::to_string(*fits) + " instead";
    }
    out.group_size = *fits;
    return true;
  }

  PlannedTensor keep(PlannedTensor out, Text reason) const {
    out.reason = std::move(reason);
    out.scheme = nullptr;
    out.group_size = 0;
    out.bytes_after = out.bytes_before;
    return out;
  }

  // As it would be read for packing: experts row by row.
  StoredTensor in_rows(StoredTensor tensor) const {
    if (files::holds_columns(source_, tensor)) std::swap(tensor.shape[1], tensor.shape[2]);
    return tensor;
  }

  Role role_of(const StoredTensor& tensor) const {
    const bool is_in_rows = source_.row_stacks.contains(tensor.name) || files::holds_columns(source_, tensor);
    return is_in_rows ? Role::kLinear : models::role_of(source_.architecture, tensor.name, tensor.shape);
  }

  PlannedTensor decide(std::size_t index) {
    const StoredTensor tensor = in_rows(source_.tensors[index]);
    PlannedTensor out;
    out.source = index;
    out.role = role_of(source_.tensors[index]);
    out.bytes_before = tensor.size_bytes;
    if (const auto part = packed_parts_.find(tensor.name); part != packed_parts_.end()) {
      const files::TensorRecord& packed = *part->second;
      out.part_of = packed.name;
      return keep(std::move(out), "a part of " + packed.name + ", which is " + std::string(packed.scheme->name) +
                                      " already and keeps its codes");
    }
    if (const std::string* owner = tied_owner(tensor.name)) {
      check_tied(tensor, *source_.find(*owner));
      out.tied_to = *owner;
      out.reason = "tied to " + *owner + ", stored once";
      return out;
    }
    const Wish wanted = wishes_.of(tensor.name, out.role);
    if (!wanted.keep_reason.empty()) return keep(std::move(out), wanted.keep_reason);
    const bool is_named = wanted.asked || wanted.is_chosen;
    if (Text reason = is_named ? Text() : reason_to_keep(tensor, out.role); !reason.empty())
      return keep(std::move(out), std::move(reason));
    if (Text reason = obstacle(tensor, out.role, wanted); !reason.empty()) {
      Wishes::refuse(wanted, tensor.name, reason);
      return keep(std::move(out), std::move(reason));
    }
    return pack(tensor, wanted, std::move(out));
  }

  // Why a tensor stays that nobody asked for; empty: nothing speaks against it.
  Text reason_to_keep(const StoredTensor& tensor, Role role) {
    const bool may_be_linear = role == Role::kLinear || tensor.shape.size() == 3;
    const std::string assumed = may_be_linear ? unknown_.reason_to_keep(tensor) : "";
    if (!assumed.empty()) return assumed;
    return role == Role::kLinear ? Text() : role_reason(role);
  }

  PlannedTensor pack(const StoredTensor& tensor, const Wish& wanted, PlannedTensor out) {
    out.scheme = wanted.scheme;
    // Eight rows share a word of zero points, and an expert's must be words of its own.
    const std::int64_t unit = rows_a_unit(*out.scheme);
    if (tensor.shape.size() == 3 && tensor.shape[1] % unit != 0) {
      return keep(out,
                  "experts of " + std::to_string(tensor.shape[1]) + " rows, not a multiple of " + std::to_string(unit));
    }
    if (!choose_group_size(wanted.group_size, tensor.shape.back(), out)) return keep(out, out.reason);
    out.is_nested = (options_.nested_scales || wanted.nested_scales) && has_part(*out.scheme, Part::kNestedScale);
    out.scale_dtype = out.is_nested ? Dtype::kUint8 : scale_dtype_for(*out.scheme, tensor.dtype);
    if (auto taken = taken_part_name(tensor, out); !taken.empty())
      return keep(std::move(out), in_quotes(taken) + " is there already");
    if (wanted.asked) wanted.asked->is_granted = true;
    out.bytes_after = packed_bytes(tensor, out);
    return out;
  }

  static std::uint64_t packed_bytes(const StoredTensor& tensor, const PlannedTensor& planned) {
    std::int64_t total = 0;
    for (const files::PartSpec& part : files::packed_parts(packed_record(tensor, planned))) {
      std::int64_t size = size_bytes(part.dtype);
      for (const std::int64_t length : part.written_shape()) size *= length;
      total += size;
    }
    return static_cast<std::uint64_t>(total);
  }

  // transformers 5 dequantises every tensor as the first group of config.json says.
  void note_mixed_zero_points(Plan& out) const {
    std::set<std::pair<const Scheme*, std::int64_t>> groups;
    bool has_zero_points = false;
    for (const files::TensorRecord& record : planned_records(source_, out)) {
      if (!record.scheme) continue;
      groups.emplace(record.scheme, record.group_size);
      has_zero_points = has_zero_points || record.scheme->decode == Decode::kZeroPoint;
    }
    if (has_zero_points && groups.size() > 1)
      out.notes.emplace_back(
          "transformers 5 opens asym_int4 only where all quantised tensors have one scheme and group size; here they "
          "differ");
  }

  // config.json has one quant_method, so a checkpoint that others read is of one family.
  void decide_readers(Plan& out) const {
    const std::string why = foreign_reader_obstacle(source_, planned_records(source_, out));
    if (why.empty()) return note_mixed_zero_points(out);
    if (!options_.halfbyte_only) {
      invalid(why + ": no other program reads that; add " + Option::kHalfbyteOnly +
              " if halfbyte will be its only reader, choose another scheme, or " + Option::kKeep + " those tensors");
    }
    out.has_foreign_readers = false;
    out.notes.push_back("only halfbyte can read the result, transformers and vLLM cannot: " + why);
  }

  void add_notes(Plan& out) const {
    out.notes = file_notes(source_);
    std::ranges::copy(wishes_.notes(), std::back_inserter(out.notes));
    if (options_.only_choices) return;
    if (!source_.architecture && source_.has_config()) {
      out.notes.insert(
          out.notes.begin(),
          files::family_subject(source_) +
              " is not known: every matrix X.weight that is not an embedding, a norm or a head is taken for "
              "a Linear" +
              unknown_.assumed());
    }
    if (std::ranges::none_of(out.tensors, [](const PlannedTensor& planned) { return planned.scheme != nullptr; }))
      out.notes.emplace_back("no tensor is quantised; " + Option::kDryRun + " says why of each");
  }

  const files::Checkpoint& source_;
  const QuantizeOptions& options_;
  Ties ties_;
  UnknownFamily unknown_;
  Wishes wishes_;
  std::map<std::string, const files::TensorRecord*> packed_parts_;  // of what keeps its codes, by the part's name
};

}  // namespace

void set_packing(const PlannedTensor& planned, files::TensorRecord& out) {
  out.scheme = planned.scheme;
  out.scale_dtype = planned.scale_dtype;
  out.group_size = planned.group_size;
  if (planned.is_nested) out.nested_offset = 0.0f;
  out.parts = files::packed_part_names(out);
}

files::TensorRecord packed_record(const StoredTensor& tensor, const PlannedTensor& planned) {
  files::TensorRecord out;
  out.name = tensor.name;
  out.shape = tensor.shape;
  out.original_dtype = tensor.dtype;
  set_packing(planned, out);
  return out;
}

std::vector<files::TensorRecord> planned_records(const files::Checkpoint& source, const Plan& plan) {
  std::vector<files::TensorRecord> out;
  for (const PlannedTensor& planned : plan.tensors) {
    const StoredTensor& tensor = source.tensors[planned.source];
    if (!planned.tied_to.empty() || !planned.part_of.empty()) continue;
    out.push_back(planned.scheme ? packed_record(tensor, planned) : files::dense_record(source, tensor));
  }
  std::ranges::copy_if(source.manifest.tensors, std::back_inserter(out),
                       [](const files::TensorRecord& record) { return record.scheme != nullptr; });
  return out;
}

Plan plan(const files::Checkpoint& source, const QuantizeOptions& options) { return Planner(source, options).run(); }

}  // namespace halfbyte::convert

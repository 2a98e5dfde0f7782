// A checkpoint's tensors by name, for hosts that build their models themselves: any architecture, known or not.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <halfbyte/dtype.h>
#include <halfbyte/error.h>
#include <halfbyte/load_options.h>
#include <halfbyte/load_report.h>
#include <halfbyte/low_bit_tensor.h>

namespace halfbyte {

struct StateOptions {
  DtypePolicy dtype = DtypePolicy::original();
  std::vector<std::string> keep_float32 = {};  // as in LoadOptions
  Verification verify = Verification::kNone;
  bool dequantize = false;  // packed tensors become dense ones in the policy's dtype
  Device device = {};       // as in LoadOptions
};

// One tensor of a checkpoint: dense, or packed as it lies in the file.
struct StateTensor {
  std::variant<at::Tensor, LowBitTensor> value;
  bool is_buffer = false;
  std::optional<Dtype> recorded;  // before quantisation; nothing: the file does not say
  std::string tied_to;            // the name whose storage this is; empty: its own

  bool is_low_bit() const noexcept { return std::holds_alternative<LowBitTensor>(value); }
  // Errors: kInvalidArgument when it is the other.
  const at::Tensor& dense() const;
  const LowBitTensor& low_bit() const;
  // Dense either way. Nothing: a packed one's recorded dtype, a dense one's own.
  at::Tensor dequantize(std::optional<at::ScalarType> type = std::nullopt) const;
};

// Dense tensors are mapped where the policy leaves their dtype alone: they may be written to, and the file stays as it
// is. What was loaded lives as long as its tensors do, the State or not.
struct State {
  std::map<std::string, StateTensor, std::less<>> tensors;  // aliases of ties included
  LoadReport report;

  // Errors: kNotFound.
  const StateTensor& at(std::string_view name) const;
  bool contains(std::string_view name) const { return tensors.contains(name); }
  std::size_t size() const noexcept { return tensors.size(); }
  auto begin() const noexcept { return tensors.begin(); }
  auto end() const noexcept { return tensors.end(); }
};

// Opens a quantised checkpoint or an original one. Buffers that a model derives are not stored, so they are not in the
// state; report.notes names them. Threads: any number may load at once.
// Errors: kNotFound (a path, or a device), kCorrupt, kUnsupported (a dtype that LibTorch lacks), kNoResources.
State load_state(const std::filesystem::path& checkpoint, const StateOptions& options = {});

}  // namespace halfbyte

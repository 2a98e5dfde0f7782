#include "loader/prompt_cache_writer.h"

#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <halfbyte/error.h>

#include "loader/files/data_file_layout.h"
#include "loader/files/replaced_file.h"
#include "loader/prompt_cache_layout.h"
#include "models/modules/stored_state.h"
#include "quant/operators/torch_dtype.h"

namespace halfbyte {
namespace {

using models::Session;
using models::StateTensor;
using namespace prompt_cache_layout;

StateTensor numbers(const char* name, std::vector<std::int64_t> values, std::vector<std::int64_t> shape) {
  return {name, shape, at::kLong, [values = std::move(values)] { return at::tensor(values, at::kLong); }};
}

// The sequence and those that it cannot be cut to.
std::vector<const Session*> sessions_of(const PromptCache::State::Kept& kept) {
  std::vector<const Session*> out{&kept.session};
  for (const Session& one : kept.earlier) out.push_back(&one);
  return out;
}

std::vector<StateTensor> tensors_of(const PromptCache::State::Kept& kept) {
  const std::vector<const Session*> sessions = sessions_of(kept);
  std::vector<std::int64_t> lengths;
  for (const Session* one : sessions) lengths.insert(lengths.end(), {one->length(), one->expected()});
  std::vector<StateTensor> out;
  out.push_back(numbers(kTokens, kept.tokens, {static_cast<std::int64_t>(kept.tokens.size())}));
  out.push_back(numbers(kSessions, std::move(lengths), {static_cast<std::int64_t>(sessions.size()), kSessionNumbers}));
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    for (StateTensor& one : sessions[i]->tensors(i > 0 ? sessions[0] : nullptr)) {
      one.name = prefix_of(i) + one.name;
      out.push_back(std::move(one));
    }
  }
  return out;
}

files::DataFileLayout laid_out(const std::vector<StateTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::vector<files::OutputTensor> out;
  for (const StateTensor& one : tensors) {
    const auto dtype = from_torch(one.dtype);
    if (!dtype) {
      throw Error(ErrorCode::kUnsupported,
                  one.name + ": a prompt cache cannot be stored in " + std::string(c10::toString(one.dtype)));
    }
    out.push_back(files::output_tensor(one.name, *dtype, one.shape));
  }
  return files::lay_out({}, std::move(out), metadata);
}

}  // namespace

void write_prompt_cache(const files::fs::path& path, std::map<std::string, std::string> metadata,
                        const PromptCache::State::Kept& kept) {
  const std::vector<StateTensor> tensors = tensors_of(kept);
  std::map<std::string_view, const StateTensor*> by_name;
  for (const StateTensor& one : tensors) by_name[one.name] = &one;
  metadata[kVersionKey] = kVersion;
  metadata[kHashKey] = files::Hash128().hex();  // as long as the one that comes
  const files::DataFileLayout layout = laid_out(tensors, metadata);
  files::Hash128 hash = hash_of(metadata);
  files::ReplacedFile file(path, layout.size_bytes);
  for (const files::OutputTensor& place : layout.tensors) {
    const at::Tensor values = by_name.at(place.name)->values().cpu();
    const auto bytes = std::as_bytes(std::span(static_cast<const char*>(values.const_data_ptr()), values.nbytes()));
    hash.update(bytes);
    file.write(place.offset, bytes);
  }
  metadata[kHashKey] = hash.hex();
  const std::string header = laid_out(tensors, metadata).header;
  file.write(0, std::as_bytes(std::span(header)));
  file.commit();
}

}  // namespace halfbyte

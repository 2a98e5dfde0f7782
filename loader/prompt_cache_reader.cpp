#include "loader/prompt_cache_reader.h"

#include <algorithm>
#include <numeric>
#include <span>

#include <ATen/ops/empty.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>

#include "loader/files/printable.h"
#include "loader/prompt_cache_layout.h"
#include "models/architectures/model_config.h"
#include "quant/operators/torch_dtype.h"

namespace halfbyte {
namespace {

using models::Session;
using namespace prompt_cache_layout;

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr const char* kCure = "; it was left as it is: delete it, or name another file";

// Of how many tensors a session of the model consists, given the one that it is an earlier state of.
std::size_t tensors_of(const Session& session, const Session* whole) { return session.tensors(whole).size(); }

}  // namespace

PromptCacheReader::PromptCacheReader(const files::fs::path& path) : file_(path), name_(files::printable_path(path)) {
  try {
    header_ = files::read_safetensors_header(file_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kUnsupported) throw;
    throw Error(ErrorCode::kCorrupt, error.text() + "; this is no prompt cache, or a broken one" + kCure);
  }
  for (const files::SafetensorsEntry& one : header_.entries) by_name_[one.name] = &one;
  if (!header_.metadata.contains(kVersionKey)) throw Error(ErrorCode::kCorrupt, name_ + ": is no prompt cache" + kCure);
}

void PromptCacheReader::check(const std::vector<FingerprintPart>& fingerprint) const {
  const std::string& version = header_.metadata.at(kVersionKey);
  if (version != kVersion) {
    throw Error(ErrorCode::kAlreadyExists, name_ + ": is a prompt cache of format " + files::in_quotes(version) +
                                               ", this version reads " + kVersion + kCure);
  }
  for (const FingerprintPart& part : fingerprint) {
    const auto stored = header_.metadata.find(part.key);
    const std::string value = stored == header_.metadata.end() ? "" : stored->second;
    if (value == part.value) continue;
    const std::string both = part.is_for_people ? " (" + files::in_quotes(value) + ", now \"" + part.value + "\")" : "";
    throw Error(ErrorCode::kAlreadyExists, name_ + ": was made with " + part.difference + both + kCure);
  }
}

const files::SafetensorsEntry& PromptCacheReader::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) refuse(name, "is missing");
  return *found->second;
}

models::StoredEntry PromptCacheReader::entry(const std::string& name) const {
  const files::SafetensorsEntry& one = find(name);
  const auto dtype = to_torch(one.dtype);
  if (!dtype) refuse(name, "has a dtype that no model keeps");
  return {one.shape, *dtype};
}

at::Tensor PromptCacheReader::read(const std::string& name) const {
  const models::StoredEntry stored = entry(name);
  at::Tensor out = at::empty(stored.shape, stored.dtype);
  file_.read(find(name).offset,
             std::as_writable_bytes(std::span(static_cast<char*>(out.mutable_data_ptr()), out.nbytes())));
  return out;
}

void PromptCacheReader::refuse(const std::string& name, const std::string& problem) const {
  throw Error(ErrorCode::kCorrupt, name_ + ": tensor " + files::in_quotes(name) + " " + problem + kCure);
}

TokenIds PromptCacheReader::numbers(const std::string& name, std::size_t rank, std::int64_t most) const {
  const models::StoredEntry stored = entry(name);
  if (stored.dtype != at::kLong || stored.shape.size() != rank || stored.shape[0] < 1 || stored.shape[0] > most ||
      (rank > 1 && stored.shape[1] != kSessionNumbers)) {
    refuse(name, "is not of the shape and dtype that it has in a prompt cache of this model");
  }
  const at::Tensor values = read(name);
  const auto* first = values.const_data_ptr<std::int64_t>();
  return {first, first + values.numel()};
}

PromptCache::State::Kept PromptCacheReader::read(const Model& model) const {
  const models::ModelConfig& config = model.config();
  PromptCache::State::Kept out{numbers(kTokens, 1, config.max_position_embeddings), model.module().make_session(), {}};
  const bool are_known =
      std::ranges::all_of(out.tokens, [&](std::int64_t id) { return id >= 0 && id < config.vocab_size; });
  if (!are_known) refuse(kTokens, "has token ids beyond this model's vocabulary");
  const TokenIds lengths = numbers(kSessions, 2, kMostSessions);
  const auto count = static_cast<std::int64_t>(out.tokens.size());
  std::size_t taken = 2;
  for (std::size_t i = 0; i < lengths.size() / kSessionNumbers; ++i) {
    const std::int64_t length = lengths[2 * i], expected = lengths[2 * i + 1];
    const bool is_there = i == 0 ? length == count : length > 0 && length < count;
    if (!is_there || expected < 0 || expected > config.max_position_embeddings)
      refuse(kSessions, "has a length that this sequence cannot have");
    Session one = model.module().make_session();
    const Session* const whole = i > 0 ? &out.session : nullptr;
    one.restore(length, expected, *this, prefix_of(i), whole);
    taken += tensors_of(one, whole);
    if (i == 0) {
      out.session = std::move(one);
    } else {
      out.earlier.push_back(std::move(one));
    }
  }
  if (taken != header_.entries.size()) throw Error(ErrorCode::kCorrupt, name_ + ": has tensors too many" + kCure);
  check_hash();
  return out;
}

// Last: by now the file is known to be no longer than a prompt cache of this model may be.
void PromptCacheReader::check_hash() const {
  files::Hash128 hash = hash_of(header_.metadata);
  std::vector<std::byte> block;
  for (std::uint64_t at = header_.data_offset; at < file_.size_bytes(); at += block.size()) {
    block.resize(std::min<std::uint64_t>(kBlockBytes, file_.size_bytes() - at));
    file_.read(at, block);
    hash.update(block);
  }
  const auto stored = header_.metadata.find(kHashKey);
  if (stored == header_.metadata.end() || stored->second != hash.hex())
    throw Error(ErrorCode::kCorrupt, name_ + ": is damaged: its bytes have another hash than it says" + kCure);
}

}  // namespace halfbyte

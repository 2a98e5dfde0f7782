#include <halfbyte/prompt_cache_file.h>

#include <algorithm>

#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/printable.h"
#include "loader/prompt_cache_reader.h"
#include "loader/prompt_cache_writer.h"
#include "quant/operators/translate.h"

namespace halfbyte {

struct PromptCacheFile::State {
  std::filesystem::path path;
  PromptCacheFileOptions options;
  std::map<std::string, std::string> metadata;  // of the model
  PromptCache cache;
  // What the file gives: its tokens, and the lengths at which a prompt that begins alike can go on.
  TokenIds tokens = {};
  std::int64_t least = 0;
  TokenIds lengths = {};

  void note(const PromptCache::State::Kept& kept);
  bool gives(const PromptCache::State::Kept& kept) const;
};

void PromptCacheFile::State::note(const PromptCache::State::Kept& kept) {
  tokens = kept.tokens;
  least = kept.session.least();
  lengths.clear();
  for (const models::Session& one : kept.earlier) lengths.push_back(one.length());
}

bool PromptCacheFile::State::gives(const PromptCache::State::Kept& kept) const {
  const auto goes_to = [&](const models::Session& one) {
    const std::int64_t length = one.length();
    return length >= least || std::ranges::find(lengths, length) != lengths.end();
  };
  return kept.tokens.size() <= tokens.size() &&
         std::ranges::equal(kept.tokens, std::span(tokens).first(kept.tokens.size())) && goes_to(kept.session) &&
         std::ranges::all_of(kept.earlier, goes_to);
}

namespace {

template <class Work>
auto with_tensors(const std::string& attempt, const Work& work) {
  const c10::InferenceMode guard;
  return translated([&] { return attempt; }, work);
}

void take(PromptCache& cache, const Model& model, PromptCache::State::Kept kept) {
  PromptCache::State& state = cache.state();
  state.model = model.module().weak_from_this();
  state.session.emplace(std::move(kept.session));
  state.earlier = std::move(kept.earlier);
  state.tokens = std::move(kept.tokens);
  state.is_whole = true;
}

void check_absent(const files::fs::path& path, const PromptCacheFileOptions& options) {
  if (options.is_read_only) throw Error(ErrorCode::kNotFound, files::printable_path(path) + ": there is no such file");
  const files::fs::path folder = files::absolute(path).parent_path();
  if (!files::is_directory(folder)) {
    throw Error(ErrorCode::kNotFound,
                files::printable_path(folder) + ": there is no such folder for a prompt cache; create it first");
  }
}

}  // namespace

PromptCacheFile::PromptCacheFile(const Model& model, const std::filesystem::path& path,
                                 const PromptCacheFileOptions& options)
    : state_(std::make_unique<State>(State{path, options, {}, {}})) {
  with_tensors("reading the prompt cache " + files::printable_path(path), [&] {
    const std::vector<FingerprintPart> fingerprint = fingerprint_of(model);
    for (const FingerprintPart& part : fingerprint) state_->metadata[part.key] = part.value;
    if (files::type_of(files::resolved(files::absolute(path))) == files::fs::file_type::not_found)
      return check_absent(path, options);
    const PromptCacheReader reader(path);
    reader.check(fingerprint);
    PromptCache::State::Kept kept = reader.read(model);
    state_->note(kept);
    take(state_->cache, model, std::move(kept));
  });
}

PromptCacheFile::~PromptCacheFile() = default;
PromptCacheFile::PromptCacheFile(PromptCacheFile&&) noexcept = default;
PromptCacheFile& PromptCacheFile::operator=(PromptCacheFile&&) noexcept = default;

PromptCache& PromptCacheFile::cache() noexcept { return state_->cache; }

bool PromptCacheFile::save() {
  if (state_->options.is_read_only) return false;
  return with_tensors("writing the prompt cache " + files::printable_path(state_->path), [&] {
    const auto kept = state_->cache.state().kept(state_->options.kept == PromptCacheFileOptions::Kept::kPrompt);
    if (!kept || state_->gives(*kept)) return false;
    write_prompt_cache(state_->path, state_->metadata, *kept);
    state_->note(*kept);
    return true;
  });
}

}  // namespace halfbyte

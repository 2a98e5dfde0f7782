// How ranks that have stages of a model's layers hand on what layers give: stage by stage, and from the last to all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/group.h>

#include "models/parallel/stages.h"
#include "models/sessions/session.h"

namespace halfbyte::models {

class Pipeline {
 public:
  // `stream`: the dtype of what layers give; nothing: as the tensors have it.
  Pipeline(std::shared_ptr<Group> group, const Stage& stage, std::optional<at::ScalarType> stream,
           std::int64_t hidden_size);

  const Stage& stage() const noexcept { return stage_; }
  // Of a step that ends by an exception what others sent stays on its way, and sessions are as far as each stage came:
  // every later one is refused. Errors: kContract then; what `work` throws.
  template <class Work>
  void in_step(const Work& work) const {
    check_whole();
    is_broken_ = true;
    work();
    is_broken_ = false;
  }
  // What the stage before this one gave for so many tokens; undefined: this is the first. Shape: (tokens, hidden_size).
  at::Tensor received(std::int64_t tokens) const;
  void hand_on(const at::Tensor& stream) const;  // to the next stage, where there is one
  // What the last stage has there, in all ranks. Shape: kept, (.., hidden_size).
  at::Tensor of_last(const at::Tensor& hidden) const;

 private:
  void send(const at::Tensor& values, int to) const;
  at::Tensor receive(at::IntArrayRef shape, int from) const;

  void check_whole() const;

  std::shared_ptr<Group> group_;
  mutable bool is_broken_ = false;
  Stage stage_;
  std::optional<at::ScalarType> stream_;
  std::int64_t hidden_size_;
};

// Rows of a step, some tokens at a time, so that a stage works on the next while those after it work on these. Each
// part has tokens of different sessions, which follow each other.
struct MicroBatch {
  std::int64_t first = 0, tokens = 0;  // of the step's
  std::vector<StepRow> rows;
};
inline constexpr std::int64_t kMicroTokens = 128;
std::vector<MicroBatch> micro_batches(std::span<const StepRow> rows, std::int64_t most = kMicroTokens);

// While one lives, what sessions are given in several passes turns as if it came in one.
class ExpectedRows {
 public:
  explicit ExpectedRows(std::span<const StepRow> rows);
  ~ExpectedRows();
  ExpectedRows(const ExpectedRows&) = delete;
  ExpectedRows& operator=(const ExpectedRows&) = delete;

 private:
  std::span<const StepRow> rows_;
  std::vector<std::int64_t> before_;
};

}  // namespace halfbyte::models

// What stands between a leading rank's model and the ranks that follow it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/group.h>
#include <halfbyte/leading.h>

#include "models/parallel/lead_message.h"
#include "models/parallel/session_log.h"
#include "models/sessions/session.h"

namespace halfbyte::models {

// What a step of a model in stages gave can be used while a view of it lives, and until as many others came.
inline constexpr std::uint64_t kStepsKept = 4;

// A step, or a use of what one gave, is said to the others and done with them: one at a time, whichever thread asks.
// What is wrong before it is said is this rank's alone. What is wrong afterwards in all ranks alike (values that are
// not finite, by their common verdict) leaves all as they were. Anything else is the end of following.
class Leader {
 public:
  Leader(const CausalLM& model, LeadOptions options);
  ~Leader();

  const std::shared_ptr<SessionLog>& log() const noexcept { return log_; }
  // As CausalLM's.
  at::Tensor step(const at::Tensor& tokens, std::span<const StepRow> rows);
  at::Tensor head(const at::Tensor& hidden);
  at::Tensor states(const at::Tensor& hidden);

 private:
  template <class Prepare, class Work>
  at::Tensor together(const Prepare& prepare, const Work& work);
  void say(LeadMessage message);
  void beat(const std::stop_token& stop);
  LeadMessage message_of(const at::Tensor& tokens, std::span<const StepRow> rows) const;
  at::Tensor marks(std::int64_t count);
  std::vector<std::uint64_t> forgotten();
  std::vector<GivenRow> marked(const at::Tensor& hidden) const;
  static void check_count(const at::Tensor& rows);

  const CausalLM& model_;
  Group& group_;
  const LeadOptions options_;
  const bool has_stages_;
  const std::shared_ptr<SessionLog> log_;
  std::mutex mutex_;  // of all below, and of the group
  std::uint64_t steps_ = 0;
  struct Given {
    std::uint64_t step;
    std::int64_t count;  // of rows
    c10::weak_intrusive_ptr<c10::StorageImpl> marks;
  };
  std::vector<Given> given_;         // by steps of a model in stages, oldest first
  std::optional<std::string> lost_;  // why the others do not follow any more
  std::jthread beats_;               // last: it uses all of the above
};

}  // namespace halfbyte::models

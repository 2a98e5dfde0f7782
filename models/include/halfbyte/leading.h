// One of the ranks that run a model together decides what all do: rank 0 leads, the others follow.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

namespace halfbyte {

namespace models {
class CausalLM;
class Leader;
}  // namespace models

struct LeadOptions {
  // How often rank 0 says that it is there while it asks for nothing: a quarter of how long the group's ranks wait for
  // each other.
  std::chrono::milliseconds beat{75'000};
  // Called once, by any thread, with why the others do not follow any more: every later use of the model fails so.
  std::function<void(const std::string& problem)> on_lost = {};
  // Returns when it is time to say so, or false once it is to stop. Empty: by `beat`.
  std::function<bool(std::stop_token stop)> tick = {};
};

// While one lives, rank 0 uses the model as if it had all of it, by any number of threads, which wait for each other's
// steps: it generates, serves and converses, and only by that do the others know what to do. Sessions that the model
// made before are of no use. A step is not broken off: who asks for it to stop waits until it ends.
class Leading {
 public:
  // Waits until the others follow. `model`: one loaded with LoadOptions::group, of which this is rank 0; it outlives
  // this, and nothing else uses its group. Errors: kInvalidArgument otherwise, and where it is led already; the
  // group's.
  explicit Leading(const models::CausalLM& model, LeadOptions options = {});
  // Lets the others go. Nobody uses the model.
  ~Leading();
  Leading(const Leading&) = delete;
  Leading& operator=(const Leading&) = delete;

 private:
  const models::CausalLM& model_;
};

// The part of another rank in all that: returns when rank 0 leads no more. Errors: kInvalidArgument for a model of one
// process, and in rank 0; kIo where rank 0 or another is gone or gives no sign for longer than the group waits;
// kContract where rank 0 does not lead.
void follow(const models::CausalLM& model);

}  // namespace halfbyte

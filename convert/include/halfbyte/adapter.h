// Adapters in peft's files beside a loaded model. Needs no LibTorch to include.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include <halfbyte/load_low_bit.h>
#include <halfbyte/weighted_adapter.h>

namespace halfbyte::convert {

// Adapters of directories that peft or finetune() wrote, for passes of any thread. LoRA and DoRA; several beside one
// Linear add up, each times its weight. Passes with them run module by module, which takes longer than a model's own.
class Adapters {
 public:
  // Errors: kNotFound, kCorrupt; kUnsupported for other kinds of adapters; kInvalidArgument where one is for another
  // model, or there is none.
  Adapters(const Model& model, std::span<const WeightedAdapter> directories);
  ~Adapters();

  // While what it gives lives, passes of the thread that called this have them. It goes in that thread, the last one
  // first.
  std::shared_ptr<const void> enter() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// The same for the thread that made it, as long as it lives.
class Adapter {
 public:
  Adapter(const Model& model, std::span<const WeightedAdapter> directories);
  Adapter(const Model& model, const std::filesystem::path& directory);
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

 private:
  std::shared_ptr<const void> scope_;
};

}  // namespace halfbyte::convert

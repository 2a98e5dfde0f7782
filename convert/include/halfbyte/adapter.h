// Adapters in peft's files beside a loaded model. Needs no LibTorch to include.
#pragma once

#include <filesystem>
#include <memory>

#include <halfbyte/load_low_bit.h>

namespace halfbyte::convert {

// While one lives, passes of the thread that made it have the adapters of a directory that peft or finetune() wrote.
// They run module by module, which takes longer than a model's own passes do.
class Adapter {
 public:
  // Errors: kNotFound, kCorrupt; kUnsupported for another kind of adapter than plain LoRA; kInvalidArgument where it is
  // for another model.
  Adapter(const Model& model, const std::filesystem::path& directory);
  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace halfbyte::convert

#include <halfbyte/adapter.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/lora.h>

#include "convert/adapters/peft_files.h"

namespace halfbyte::convert {

struct Adapters::State {
  Model model;
  std::unique_ptr<const Lora> lora;
};

Adapters::Adapters(const Model& model, std::span<const WeightedAdapter> directories)
    : state_(new State{model, read_peft_adapters(model.module(), directories)}) {}

Adapters::~Adapters() = default;

std::shared_ptr<const void> Adapters::enter() const {
  struct Entered {
    explicit Entered(std::shared_ptr<const State> held) : state(std::move(held)), scope(*state->lora) {}
    std::shared_ptr<const State> state;
    Lora::Scope scope;
  };
  return std::make_shared<const Entered>(state_);
}

Adapter::Adapter(const Model& model, std::span<const WeightedAdapter> directories)
    : scope_(Adapters(model, directories).enter()) {}

Adapter::Adapter(const Model& model, const std::filesystem::path& directory) {
  const WeightedAdapter one{directory};
  scope_ = Adapters(model, std::span(&one, 1)).enter();
}

}  // namespace halfbyte::convert

#include <halfbyte/adapter.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/lora.h>

#include "convert/adapters/peft_files.h"

namespace halfbyte::convert {

struct Adapter::State {
  Model model;
  std::unique_ptr<Lora> lora;
  Lora::Scope scope;
};

Adapter::Adapter(const Model& model, const std::filesystem::path& directory) {
  auto lora = read_peft_adapter(model.module(), directory);
  const Lora& beside = *lora;
  state_.reset(new State{model, std::move(lora), Lora::Scope(beside)});
}

Adapter::~Adapter() = default;

}  // namespace halfbyte::convert

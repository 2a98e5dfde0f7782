// Low-rank adapters beside a model's Linears.
#include <utility>

#include <halfbyte/causal_lm.h>
#include <halfbyte/lora.h>

#include "convert/adapters/peft_files.h"
#include "convert/merge/peft_adapter.h"
#include "convert/training/learned.h"

namespace halfbyte::convert {
namespace {

class Adapters final : public Learned {
 public:
  // `beginning`: the hash of the adapters that it begins with; empty: new ones.
  Adapters(Model model, std::string base, std::unique_ptr<Lora> lora, std::string beginning)
      : model_(std::move(model)), base_(std::move(base)), lora_(std::move(lora)), beginning_(std::move(beginning)) {}

  std::vector<training::NamedTensor> parameters() const override {
    std::vector<training::NamedTensor> out;
    for (auto& [name, tensor] : lora_->named_parameters()) out.push_back({std::move(name), std::move(tensor)});
    return out;
  }

  nlohmann::json identity() const override {
    const LoraOptions& options = lora_->options();
    return {{"rank", options.rank},
            {"alpha", options.alpha},
            {"rslora", options.is_rank_stabilised},
            {"dropout", options.dropout},
            {"dora", options.is_weight_decomposed},
            {"targets", options.targets},
            {"adapter to begin with", beginning_}};
  }

  void begin_step() override { lora_->refresh(); }

  double see(std::int64_t pass, const std::function<double()>& run) const override {
    const Lora::Scope scope(*lora_, pass);
    return run();
  }

  bool draws() const override { return lora_->options().dropout > 0; }
  void write(const Destination& destination) const override { write_peft_adapter(*lora_, base_, destination); }

 private:
  Model model_;
  std::string base_;
  std::unique_ptr<Lora> lora_;
  std::string beginning_;
};

}  // namespace

std::unique_ptr<Learned> learned_adapters(const Model& model, const fs::path& checkpoint,
                                          const FinetuneOptions& options) {
  LoraOptions lora = options.lora;
  lora.seed = options.seed;
  const auto make = [&](std::unique_ptr<Lora> made, std::string beginning) {
    return std::make_unique<Adapters>(model, checkpoint.string(), std::move(made), std::move(beginning));
  };
  if (options.adapter.empty()) return make(std::make_unique<Lora>(model.module(), lora), "");
  return make(read_peft_adapter(model.module(), options.adapter, lora), open_peft_adapter(options.adapter).hash());
}

}  // namespace halfbyte::convert

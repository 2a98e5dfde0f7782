// Brings a checkpoint back as a model whose every parameter and buffer has a dtype its operators accept.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include <halfbyte/error.h>
#include <halfbyte/generate.h>
#include <halfbyte/load_options.h>
#include <halfbyte/load_report.h>

namespace halfbyte {

namespace models {
class CausalLM;
struct ModelConfig;
}  // namespace models

// A loaded model. Copies share it. Threads: any number may generate from one model at once.
class Model {
 public:
  Model(std::shared_ptr<models::CausalLM> module, LoadReport report);

  // Errors: see <halfbyte/causal_lm.h>.
  std::vector<Generation> generate(const std::vector<TokenIds>& prompts, const GenerateOptions& options = {}) const;
  const LoadReport& report() const noexcept { return *report_; }
  const models::ModelConfig& config() const noexcept;
  // The LibTorch module, for hosts that include <halfbyte/causal_lm.h>.
  models::CausalLM& module() const noexcept { return *module_; }

 private:
  std::shared_ptr<models::CausalLM> module_;
  std::shared_ptr<const LoadReport> report_;
};

// Opens a quantised checkpoint, or an original one, and builds its model on the device. On the CPU, weights are mapped,
// not copied, unless the policy asks for another dtype; to another device each is moved as soon as it is read. Leaves
// the model in eval mode with gradients off. The model holds the mappings; when its last copy goes, so do they.
// Threads: any number may load at once.
// Errors: kNotFound (a path, or a device), kCorrupt (a missing, extra, mis-shaped or mis-typed tensor; with
// Verification::kHashes one whose bytes are not those on record), kUnsupported (an unknown family, a LibTorch of
// another minor version than halfbyte was built against), kContract, kNoResources.
Model load_low_bit(const std::filesystem::path& checkpoint, const LoadOptions& options = {});

}  // namespace halfbyte

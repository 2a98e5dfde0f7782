// Where the logits of scored positions come from: a model that runs, or a file that one left.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/generate.h>

namespace halfbyte::models {

class CausalLM;

// Some windows of equal length, and how many of the tokens at each one's end are scored.
struct WindowBatch {
  at::Tensor tokens;  // int64 (windows, context)
  std::int64_t first_window;
  std::int64_t scored;

  std::int64_t rows() const { return tokens.size(0) * scored; }
  at::Tensor targets() const;  // the scored tokens: (rows)
};

class LogitSource {
 public:
  virtual ~LogitSource() = default;
  // The next windows, in their order.
  virtual void begin(const WindowBatch& batch) = 0;
  // What those scored tokens of the batch are predicted by, window after window. Rows are asked for in order, each
  // once. Shape: (count, vocab_size), float32, on the CPU.
  virtual at::Tensor rows(std::int64_t begin, std::int64_t count) = 0;
};

class ModelLogits final : public LogitSource {
 public:
  explicit ModelLogits(const CausalLM& model) : model_(model) {}
  void begin(const WindowBatch& batch) override;
  at::Tensor rows(std::int64_t begin, std::int64_t count) override;

 private:
  const CausalLM& model_;
  at::Tensor hidden_;  // (rows, hidden_size)
};

// Windows that run at once, and rows of logits that exist at once.
std::int64_t windows_at_once(std::int64_t context);
std::int64_t rows_at_once(std::int64_t vocab_size);

}  // namespace halfbyte::models

// The hidden states of all sequences, of which a batch is in memory at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "loader/files/hash.h"
#include "loader/files/platform.h"

namespace halfbyte::convert::calibrate {

struct StatesShape {
  std::int64_t sequences, tokens, hidden_size;

  std::uint64_t size_bytes() const noexcept {
    return static_cast<std::uint64_t>(sequences * tokens * hidden_size) * sizeof(float);
  }
};

// Shapes: (sequences, tokens, hidden_size), float32.
class States {
 public:
  virtual ~States() = default;
  virtual StatesShape shape() const noexcept = 0;
  // Sequences [begin, begin + count). Errors: kIo.
  virtual at::Tensor read(std::int64_t begin, std::int64_t count) const = 0;
};

// Batches of about so many tokens, one sequence at least: work(begin, count). Errors: kInterrupted.
void for_each_batch(const StatesShape& shape, std::int64_t tokens,
                    const std::function<void(std::int64_t begin, std::int64_t count)>& work);

// Takes sequences one batch after another, from the first one on. Errors: kIo, kNoResources.
class StatesSink {
 public:
  virtual ~StatesSink() = default;
  virtual void write(const at::Tensor& states) = 0;
};

class StatesInMemory final : public States {
 public:
  explicit StatesInMemory(at::Tensor states) : states_(std::move(states)) {}
  StatesShape shape() const noexcept override { return {states_.size(0), states_.size(1), states_.size(2)}; }
  at::Tensor read(std::int64_t begin, std::int64_t count) const override { return states_.narrow(0, begin, count); }

 private:
  at::Tensor states_;
};

class StatesFile final : public States {
 public:
  StatesFile(const files::fs::path& path, StatesShape shape) : file_(path), shape_(shape) {}
  StatesShape shape() const noexcept override { return shape_; }
  at::Tensor read(std::int64_t begin, std::int64_t count) const override;

 private:
  files::InputFile file_;
  StatesShape shape_;
};

// Hashes what passes, and writes it where there is a file to write.
class StatesWriter final : public StatesSink {
 public:
  StatesWriter() = default;
  StatesWriter(const files::fs::path& path, StatesShape shape);
  void write(const at::Tensor& states) override;
  // After the last one: their hash. Errors: also of what could not be written before.
  std::string close();

 private:
  std::unique_ptr<files::OutputFile> file_;
  std::uint64_t written_ = 0;
  files::Hash128 hash_;
};

}  // namespace halfbyte::convert::calibrate

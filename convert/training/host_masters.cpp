#include "convert/training/host_masters.h"

#include <utility>

#include <ATen/core/grad_mode.h>

namespace halfbyte::convert {
namespace {

class HostMasters final : public Learned {
 public:
  explicit HostMasters(std::unique_ptr<Learned> learned) : learned_(std::move(learned)), seen_(learned_->parameters()) {
    for (const auto& [name, tensor] : seen_)
      masters_.push_back({name, tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false,
                                                   /*copy=*/true, at::MemoryFormat::Contiguous)});
  }

  std::vector<training::NamedTensor> parameters() const override { return masters_; }
  nlohmann::json identity() const override { return learned_->identity(); }

  void begin_step() override {
    show();
    learned_->begin_step();
  }

  void end_backward() override {
    learned_->end_backward();
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      at::Tensor& gradient = at::Tensor(seen_[i].tensor).mutable_grad();
      at::Tensor(masters_[i].tensor).mutable_grad() = gradient.defined() ? gradient.to(at::kCPU) : gradient;
      gradient = at::Tensor();  // the device has room for other things meanwhile
    }
  }

  double see(std::int64_t pass, const std::function<double()>& run) const override { return learned_->see(pass, run); }

  bool draws() const override { return learned_->draws(); }

  void write(const Destination& destination) const override {
    show();
    learned_->write(destination);
  }

 private:
  void show() const {
    const at::NoGradGuard without;
    for (std::size_t i = 0; i < seen_.size(); ++i) at::Tensor(seen_[i].tensor).copy_(masters_[i].tensor);
  }

  std::unique_ptr<Learned> learned_;
  std::vector<training::NamedTensor> seen_, masters_;
};

}  // namespace

std::unique_ptr<Learned> with_host_masters(std::unique_ptr<Learned> learned) {
  return std::make_unique<HostMasters>(std::move(learned));
}

}  // namespace halfbyte::convert

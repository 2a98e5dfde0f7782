// What lies between an optimizer on the CPU and parameters on another device; here both are the CPU's.
#include "convert/training/host_masters.h"

#include "tests/catch.h"

#include <ATen/ATen.h>

#include "convert/output/destination.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte {
namespace {

using convert::Learned;
using training::NamedTensor;

// Whose loss is the sum of its parameters' squares; tells what it saw when it was written.
class Squares final : public Learned {
 public:
  explicit Squares(std::vector<double>& written) : written_(written) {
    for (at::Tensor& one : parameters_) one.requires_grad_(true);
  }
  std::vector<NamedTensor> parameters() const override {
    return {{"a", parameters_[0]}, {"b", parameters_[1]}, {"unused", parameters_[2]}};
  }
  nlohmann::json identity() const override { return "squares"; }
  void begin_step() override { ++begun_; }
  void end_backward() override { ++ended_; }
  double see(std::int64_t, const std::function<double()>& run) const override { return run(); }
  void write(const convert::Destination&) const override {
    written_ = {parameters_[0].sum().item<double>(), static_cast<double>(begun_), static_cast<double>(ended_)};
  }
  double learn() const {
    const at::Tensor loss = parameters_[0].square().sum() + parameters_[1].square().sum();
    loss.backward();
    return loss.item<double>();
  }

 private:
  std::vector<at::Tensor> parameters_{at::full({2}, 3.0), at::full({2, 2}, 1.0), at::full({1}, 5.0)};
  std::vector<double>& written_;
  int begun_ = 0, ended_ = 0;
};

}  // namespace

TEST_CASE("masters are copies, which each step shows and whose gradients come back", "[training]") {
  std::vector<double> written;
  auto made = std::make_unique<Squares>(written);
  const Squares& squares = *made;
  const std::unique_ptr<Learned> learned = convert::with_host_masters(std::move(made));
  const std::vector<NamedTensor> masters = learned->parameters();
  CHECK(learned->identity() == "squares");
  REQUIRE(masters.size() == 3);
  CHECK(masters[1].name == "b");
  CHECK_FALSE(masters[0].tensor.is_same(squares.parameters()[0].tensor));
  for (int step = 0; step < 2; ++step) {
    for (const NamedTensor& one : masters) at::Tensor(one.tensor).mutable_grad() = at::Tensor();
    learned->begin_step();
    CHECK(at::equal(squares.parameters()[0].tensor, masters[0].tensor));
    for (int pass = 0; pass < 2; ++pass)  // whose gradients are added up
      CHECK(learned->see(pass, [&] { return squares.learn(); }) == (step == 0 ? 22 : 6));
    learned->end_backward();
    CHECK(at::equal(masters[0].tensor.grad(), 4 * masters[0].tensor));
    CHECK_FALSE(masters[2].tensor.grad().defined());
    at::Tensor(masters[0].tensor).sub_(2);
  }
  const testing::Scratch scratch;
  learned->write(convert::Destination(scratch / "out", {}));
  CHECK(written == std::vector<double>{-2, 2, 2});
}

}  // namespace halfbyte

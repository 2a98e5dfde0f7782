#include <halfbyte/c10d_group.h>

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <halfbyte/error.h>

namespace halfbyte {
namespace {

constexpr std::int64_t kMostText = 16 << 20;  // bytes of what a rank says
constexpr std::int64_t kFirst = 256;          // bytes of the first message, with the text's length
constexpr std::int64_t kFirstText = kFirst - static_cast<std::int64_t>(sizeof(std::int64_t));
constexpr int kTag = 0;  // of what is sent: one rank receives in the order of sending

at::Tensor view_of(std::span<float> values) {
  return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kFloat);
}

class C10dGroup : public Group {
 public:
  explicit C10dGroup(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

  int rank() const noexcept override { return backend_->getRank(); }
  int size() const noexcept override { return backend_->getSize(); }

  void sum(std::span<float> values) override {
    std::vector<at::Tensor> tensors{view_of(values)};
    complete([&] { return backend_->allreduce(tensors); });
  }

  // Short texts by one message, longer ones by another.
  std::vector<std::string> gather(const std::string& text) override {
    const at::Tensor first = at::zeros({kFirst}, at::kByte);
    const auto length = static_cast<std::int64_t>(text.size());
    std::memcpy(first.mutable_data_ptr(), &length, sizeof length);
    std::memcpy(first.mutable_data_ptr<std::uint8_t>() + sizeof length, text.data(),
                std::min(text.size(), static_cast<std::size_t>(kFirstText)));
    std::vector<at::Tensor> texts = gathered(first);
    std::vector<std::int64_t> lengths;
    for (at::Tensor& each : texts) {
      std::memcpy(&lengths.emplace_back(), each.const_data_ptr(), sizeof length);
      each = each.narrow(0, sizeof length, kFirstText);
    }
    const std::int64_t longest = *std::ranges::max_element(lengths);
    if (longest > kMostText || std::ranges::min(lengths) < 0)
      throw Error(ErrorCode::kContract, "a rank of the group says more than any of ours does");
    if (longest > kFirstText) {
      const at::Tensor own = at::zeros({longest}, at::kByte);
      std::memcpy(own.mutable_data_ptr(), text.data(), text.size());
      texts = gathered(own);
    }
    std::vector<std::string> out;
    for (std::size_t i = 0; i < texts.size(); ++i)
      out.emplace_back(static_cast<const char*>(texts[i].const_data_ptr()), static_cast<std::size_t>(lengths[i]));
    return out;
  }

  void send(std::span<const float> values, int to) override {
    std::vector<at::Tensor> tensors{view_of({const_cast<float*>(values.data()), values.size()})};  // c10d reads it
    complete([&] { return backend_->send(tensors, to, kTag); });
  }

  void receive(std::span<float> values, int from) override {
    std::vector<at::Tensor> tensors{view_of(values)};
    complete([&] { return backend_->recv(tensors, from, kTag); });
  }

 private:
  std::vector<at::Tensor> gathered(const at::Tensor& own) {
    std::vector<std::vector<at::Tensor>> all(1);
    for (int i = 0; i < size(); ++i) all[0].push_back(at::empty_like(own));
    std::vector<at::Tensor> mine{own};
    complete([&] { return backend_->allgather(all, mine); });
    return all[0];
  }

  template <class Start>
  static void complete(const Start& start) {
    try {
      const c10::intrusive_ptr<c10d::Work> work = start();
      if (work) work->wait();
    } catch (const c10::Error& error) {
      throw Error(ErrorCode::kIo, std::string("ranks of a group: ") + error.what_without_backtrace());
    } catch (const std::exception& error) {
      throw Error(ErrorCode::kIo, std::string("ranks of a group: ") + error.what());
    }
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace

std::shared_ptr<Group> group_of(c10::intrusive_ptr<c10d::Backend> backend) {
  return std::make_shared<C10dGroup>(std::move(backend));
}

}  // namespace halfbyte

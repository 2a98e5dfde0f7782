#include "models/training/ranks.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/version.h>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "models/parallel/alike.h"

namespace halfbyte::training {
namespace {

constexpr std::int64_t kMessage = std::int64_t{1} << 20;  // floats that are added at once: 4 MiB
constexpr std::size_t kPiece = std::size_t{2} << 20;      // bytes that are given at once, as so many floats by two
constexpr const char* kStopped = "stopped";
constexpr const char* kDone = "done";
constexpr const char* kFailed = "failed ";  // the error's code, and what it says
// In which rank 0 says that it is at work.
constexpr std::chrono::milliseconds kBeat{200};
constexpr std::size_t kMostProblem = 4096;

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// Parts of tensors that are added together.
class Message {
 public:
  explicit Message(Group& group) : group_(group), values_(at::empty({kMessage}, at::kFloat)) {}

  // Contiguous. Holds its sums after the next send() at the latest.
  void add(const at::Tensor& tensor) {
    const at::Tensor all = tensor.view(-1);
    for (std::int64_t at = 0; at < all.numel();) {
      const std::int64_t count = std::min(all.numel() - at, kMessage - used_);
      parts_.push_back(all.narrow(0, at, count));
      values_.narrow(0, used_, count).copy_(parts_.back());
      used_ += count;
      at += count;
      if (used_ == kMessage) send();
    }
  }

  void send() {
    if (used_ == 0) return;
    group_.sum({values_.mutable_data_ptr<float>(), static_cast<std::size_t>(used_)});
    std::int64_t at = 0;
    for (const at::Tensor& part : parts_) {
      part.copy_(values_.narrow(0, at, part.numel()));
      at += part.numel();
    }
    used_ = 0;
    parts_.clear();
  }

 private:
  Group& group_;
  at::Tensor values_;
  std::int64_t used_ = 0;
  std::vector<at::Tensor> parts_;
};

// Of which parameters some rank has gradients.
std::vector<float> ranks_with_gradients(Group& group, std::span<const at::Tensor> parameters) {
  std::vector<float> out;
  for (const at::Tensor& one : parameters) out.push_back(one.grad().defined() ? 1.0f : 0.0f);
  group.sum(out);
  return out;
}

// In 16 bits, each of which a float32 has room for: whatever they are, added to zeros they stay the same.
void give_bytes(Group& group, std::span<std::byte> bytes) {
  std::vector<float> words;
  for (std::size_t at = 0; at < bytes.size(); at += words.size() * sizeof(std::uint16_t)) {
    const std::span<std::byte> part = bytes.subspan(at, std::min(bytes.size() - at, kPiece));
    std::vector<std::uint16_t> own((part.size() + 1) / sizeof(std::uint16_t));
    if (is_first(&group)) std::memcpy(own.data(), part.data(), part.size());
    words.assign(own.begin(), own.end());
    group.sum(words);
    std::ranges::transform(words, own.begin(), [](float word) { return static_cast<std::uint16_t>(word); });
    std::memcpy(part.data(), own.data(), part.size());
  }
}

}  // namespace

Share share_of(std::size_t count, const Group* group) {
  if (!group) return {0, count};
  const auto rank = static_cast<std::size_t>(group->rank()), size = static_cast<std::size_t>(group->size());
  return {count * rank / size, count * (rank + 1) / size};
}

bool is_first(const Group* group) { return !group || group->rank() == 0; }

double summed(Group* group, const std::function<double()>& work) {
  if (!group) return work();
  std::optional<double> own;
  try {
    own = work();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
  }
  const std::vector<std::string> all =
      group->gather(own ? std::to_string(std::bit_cast<std::uint64_t>(*own)) : kStopped);
  if (std::ranges::find(all, kStopped) != all.end()) throw Error(ErrorCode::kInterrupted, "stopped");
  double out = 0;
  for (const std::string& each : all) out += std::bit_cast<double>(std::uint64_t{std::stoull(each)});
  return out;
}

namespace {

// What rank 0 says of its work in the end; its error then.
std::string said_of(std::future<void>& work, std::exception_ptr& error) {
  try {
    work.get();
    return kDone;
  } catch (const Error& problem) {
    error = std::current_exception();
    return kFailed + std::to_string(static_cast<int>(problem.code())) + " " +
           std::string(problem.what()).substr(0, kMostProblem);
  } catch (...) {
    error = std::current_exception();
    return kFailed + std::to_string(static_cast<int>(ErrorCode::kIo)) + " rank 0 failed in what the others waited for";
  }
}

}  // namespace

void by_first(Group* group, const std::function<void()>& work) {
  if (!group) return work();
  std::future<void> own;
  if (is_first(group)) {
    own = std::async(std::launch::async, [&] {
      const at::NoGradGuard without;  // which is each thread's
      work();
    });
  }
  std::exception_ptr error;
  for (std::string said; said != kDone;) {
    const bool is_ready = own.valid() && own.wait_for(kBeat) == std::future_status::ready;
    said = group->gather(is_ready ? said_of(own, error) : "").at(0);
    if (error) std::rethrow_exception(error);
    if (!said.starts_with(kFailed)) continue;
    const std::size_t number = std::string_view(kFailed).size(), end = said.find(' ', number);
    throw Error(static_cast<ErrorCode>(std::stoi(said.substr(number, end - number))), said.substr(end + 1));
  }
}

void sum_gradients(Group& group, std::span<const at::Tensor> parameters) {
  const at::NoGradGuard without;
  const std::vector<float> with = ranks_with_gradients(group, parameters);
  Message message(group);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (with[i] == 0) continue;
    at::Tensor& gradient = at::Tensor(parameters[i]).mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameters[i]);
    gradient = gradient.contiguous();
    message.add(gradient);
  }
  message.send();
}

void take_from_first(Group& group, std::span<const at::Tensor> tensors) {
  for (const at::Tensor& one : tensors) give_bytes(group, bytes_of(one));
}

std::string taken_from_first(Group& group, const std::string& text) {
  std::string out = text;
  out.resize(std::stoull(group.gather(std::to_string(text.size())).at(0)));
  give_bytes(group, std::as_writable_bytes(std::span(out)));
  return out;
}

void check_same_values(Group& group, std::span<const at::Tensor> tensors) {
  std::uint64_t hash = 0;
  for (const at::Tensor& one : tensors) hash = likeness(bytes_of(one.detach().contiguous()), hash);
  const std::string own = halfbyte::likeness_text(hash);
  check_alike(group, std::span(&own, 1), "has other parameters");
}

std::vector<std::string> rounding_things() {
  return {std::string("instruction set ") + quant::isa_name(),
          "LibTorch " TORCH_VERSION ", its " + at::get_cpu_capability(),
          "threads " + std::to_string(at::get_num_threads())};
}

std::string likeness_text(std::span<const Sequence> sequences) {
  std::uint64_t hash = sequences.size();
  for (const Sequence& one : sequences) {
    for (const auto* numbers : {&one.tokens, &one.labels, &one.lengths})
      hash = likeness(std::as_bytes(std::span(*numbers)), hash);
  }
  return halfbyte::likeness_text(hash);
}

}  // namespace halfbyte::training

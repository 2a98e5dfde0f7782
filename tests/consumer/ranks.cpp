// ranks CKPT: a host with a c10d backend of its own, whose ranks (threads here) run one model together.
#include <barrier>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <halfbyte/c10d_group.h>
#include <halfbyte/load_low_bit.h>

namespace {

constexpr int kRanks = 2;

// What a host would have a network for.
struct Meeting {
  std::barrier<> barrier{kRanks};
  std::vector<at::Tensor> given = std::vector<at::Tensor>(kRanks);

  // What all ranks give.
  std::vector<at::Tensor> exchange(int rank, const at::Tensor& own) {
    given[static_cast<std::size_t>(rank)] = own.clone();
    barrier.arrive_and_wait();
    const std::vector<at::Tensor> all = given;
    barrier.arrive_and_wait();
    return all;
  }
};

class ThreadsBackend : public c10d::Backend {
 public:
  ThreadsBackend(Meeting& meeting, int rank) : Backend(rank, kRanks), meeting_(meeting) {}
  const std::string getBackendName() const override { return "threads"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
    const std::vector<at::Tensor> all = meeting_.exchange(getRank(), tensors[0]);
    tensors[0].copy_(all[0] + all[1]);
    return {};  // done already
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& out, std::vector<at::Tensor>& tensors,
                                           const c10d::AllgatherOptions&) override {
    const std::vector<at::Tensor> all = meeting_.exchange(getRank(), tensors[0]);
    for (std::size_t i = 0; i < all.size(); ++i) out[0][i].copy_(all[i]);
    return {};
  }

 private:
  Meeting& meeting_;
};

std::vector<std::int64_t> tokens_of(const char* checkpoint, const halfbyte::LoadOptions& options) {
  const halfbyte::Model model = halfbyte::load_low_bit(checkpoint, options);
  return model.generate({{1, 300, 260}}, {.max_gen_len = 16, .temperature = 0})[0].tokens;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  halfbyte::LoadOptions options;
  options.dtype = halfbyte::DtypePolicy::parse("float32");
  const std::vector<std::int64_t> alone = tokens_of(argv[1], options);
  Meeting meeting;
  std::vector<std::vector<std::int64_t>> found(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      halfbyte::LoadOptions own = options;
      own.group = halfbyte::group_of(c10::make_intrusive<ThreadsBackend>(meeting, rank));
      found[static_cast<std::size_t>(rank)] = tokens_of(argv[1], own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : found) {
    if (each != alone) return 1;
  }
  std::printf("%d ranks, %zu tokens as one process has them\n", kRanks, alone.size());
  return 0;
}

#include <halfbyte/network_group.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <halfbyte/error.h>

#include "tests/catch.h"

namespace halfbyte {
namespace {

std::uint16_t free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool is_bound = ::bind(descriptor, generic, size) == 0 && ::getsockname(descriptor, generic, &size) == 0;
  ::close(descriptor);
  if (!is_bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

// Threads that are ranks of one group over loopback, which is named as if machines lay behind it. What each threw.
std::vector<std::exception_ptr> errors_of(int ranks, const std::function<void(Group& group)>& work) {
  const NetworkOptions options{
      .port = free_port(), .interface = "lo", .secret = "of this test", .timeout = std::chrono::minutes(1)};
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(*join_network(rank, ranks, options));
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Throws what the first of them threw.
void run(int ranks, const std::function<void(Group& group)>& work) {
  for (const std::exception_ptr& error : errors_of(ranks, work)) {
    if (error) std::rethrow_exception(error);
  }
}

// Whether one of two ranks finds the other elsewhere, which may lose it when that one ends.
bool is_told(const std::function<void(Group& group)>& work) {
  bool out = false;
  for (const std::exception_ptr& error : errors_of(2, work)) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const Error& said) {
      out |= std::string(said.what()).find("is at another step") != std::string::npos;
    }
  }
  return out;
}

// Of this process's threads whose names begin so: how many there are, and in how many a broken pipe is no signal.
struct Threads {
  int count = 0, without_signal = 0;
};

Threads threads_named(const std::string& beginning) {
  Threads out;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::map<std::string, std::string> fields;
    for (std::string name, rest; std::getline(status, name, ':') && std::getline(status >> std::ws, rest);)
      fields[name] = rest;
    if (!fields["Name"].starts_with(beginning)) continue;
    ++out.count;
    out.without_signal += static_cast<int>(std::stoull(fields["SigBlk"], nullptr, 16) >> (SIGPIPE - 1) & 1);
  }
  return out;
}

float value(int rank, std::size_t i) { return std::sin(static_cast<float>(rank) + 0.37f * static_cast<float>(i)); }

struct Sums {
  double worst = 0;       // difference to those in double precision
  bool are_alike = true;  // the same bits in all ranks
};

// Some of each length, one after another.
Sums sums_of(int ranks, const std::vector<std::size_t>& counts, void (Group::*sum)(std::span<float>)) {
  std::vector<std::vector<float>> found(static_cast<std::size_t>(ranks));
  run(ranks, [&](Group& group) {
    for (const std::size_t count : counts) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = value(group.rank(), i);
      (group.*sum)(values);
      auto& all = found[static_cast<std::size_t>(group.rank())];
      all.insert(all.end(), values.begin(), values.end());
    }
  });
  Sums out;
  std::size_t at = 0;
  for (const std::size_t count : counts) {
    for (std::size_t i = 0; i < count; ++i, ++at) {
      double wanted = 0;
      for (int rank = 0; rank < ranks; ++rank) wanted += value(rank, i);
      out.worst = std::max(out.worst, std::abs(found[0][at] - wanted));
    }
  }
  for (const auto& each : found) out.are_alike &= each == found[0];
  return out;
}

}  // namespace

TEST_CASE("networks: sums of any number of ranks and values are the same bits in each", "[ranks]") {
  const int ranks = GENERATE(2, 3, 4, 5);
  CAPTURE(ranks);
  // A place's values and more; small ones again and again, so that places come round.
  const std::vector<std::size_t> counts{1, 2048, 7, 7, 7, 7, 7, 7, 131'070, 131'071, 300'000, 2048};
  const Sums exact = sums_of(ranks, counts, &Group::sum);
  CHECK(exact.worst < 1e-6);
  CHECK(exact.are_alike);
  const Sums rounded = sums_of(ranks, counts, &Group::sum_rounded);
  CHECK(rounded.worst < ranks * 0x1p-8);
  CHECK(rounded.worst > 1e-4);  // they are
  CHECK(rounded.are_alike);
}

TEST_CASE("networks: what ranks say, in parts of a group too", "[ranks]") {
  const int ranks = GENERATE(2, 3, 6);
  CAPTURE(ranks);
  run(ranks, [&](Group& group) {
    const auto said = [](int rank) {
      return std::string(static_cast<std::size_t>(rank) * 100, '\0') + "\xff" + std::to_string(rank);
    };
    const auto is = [](bool is_so) {
      if (!is_so) throw std::runtime_error("other texts");
    };
    for (int round = 0; round < 5; ++round) {
      const auto all = group.gather(said(group.rank()));
      is(all.size() == static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank) is(all[static_cast<std::size_t>(rank)] == said(rank));
    }
    is(group.gather("").back().empty());
    std::vector<int> later(static_cast<std::size_t>(ranks - 1));
    std::iota(later.begin(), later.end(), 1);
    if (group.rank() == 0 || ranks == 2) return;
    const auto texts = group.part(later)->gather(std::to_string(group.rank()));
    is(texts.front() == "1" && texts.back() == std::to_string(ranks - 1));
  });
}

TEST_CASE("networks: letters of any length come in their order, some ahead of who takes them", "[ranks]") {
  run(3, [](Group& group) {
    const int to = (group.rank() + 1) % 3, from = (group.rank() + 2) % 3;
    const auto value_of = [](int rank, int round) { return static_cast<float>(10 * rank + round); };
    const std::vector<std::size_t> counts{1, 2048, 1, 300'000, 3'000'000, 5};
    const auto sent = [&](int round) {
      const std::vector<float> values(counts[static_cast<std::size_t>(round)], value_of(group.rank(), round));
      group.send(values, to);
    };
    const int rounds = static_cast<int>(counts.size());
    for (int round = 0; round < 3; ++round) sent(round);  // nobody has come to take them
    for (int round = 0; round < rounds; ++round) {
      if (round + 3 < rounds && group.rank() != 0) sent(round + 3);
      std::vector<float> values(counts[static_cast<std::size_t>(round)]);
      group.receive(values, from);
      if (round + 3 < rounds && group.rank() == 0) sent(round + 3);
      for (const float value : values) {
        if (value != value_of(from, round)) throw std::runtime_error("other values");
      }
    }
  });
}

TEST_CASE("networks: no thread of c10d or Gloo ends a process by what it writes to a rank that is gone", "[ranks]") {
  constexpr int kRanks = 3;
  Threads devices, loops;
  run(kRanks, [&](Group& group) {
    std::vector<float> values(300'000);  // so many go by Gloo's ring, in a thread of each rank's
    group.sum(values);
    if (group.rank() == 0) devices = threads_named("gloo_"), loops = threads_named("pt_");
    group.gather("");  // the others' threads are there until then
  });
  CHECK(devices.count >= kRanks);
  CHECK(devices.without_signal == devices.count);
  CHECK(loops.count > kRanks);  // with the store's
  CHECK(loops.without_signal == loops.count);
}

TEST_CASE("networks: ranks at different calls are told so", "[ranks]") {
  // In one place, in one and in several, in several.
  const auto [first, second] =
      GENERATE(table<std::size_t, std::size_t>({{5, 6}, {100'000, 200'000}, {300'000, 200'000}}));
  CAPTURE(first, second);
  CHECK(is_told([&](Group& group) {
    std::vector<float> values(group.rank() == 0 ? first : second);
    group.sum(values);
  }));
  CHECK(is_told([&](Group& group) {
    std::vector<float> values(15 * (group.rank() == 0 ? first : second));
    if (group.rank() == 0) return group.receive(values, 1);
    group.send(values, 0);
    group.gather("");  // it is there until the other has looked
  }));
}

}  // namespace halfbyte

// What of c10d needs Gloo's own headers stands here alone. Those that there are (Debian's) are older than LibTorch's
// Gloo, and GlooStore differs in its virtual functions: it is not touched.
#include <halfbyte/network_group.h>

#include <algorithm>
#include <map>
#include <optional>

#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO  // LibTorch's own package says so too
#endif
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <halfbyte/c10d_group.h>
#include <halfbyte/error.h>

#include "models/parallel/broken_pipes.h"
#include "models/parallel/network_address.h"
#include "models/parallel/peers.h"
#include "models/parallel/roster.h"
#include "models/parallel/within.h"

namespace halfbyte {
namespace {

using models::Roster;
using Store = c10::intrusive_ptr<c10d::Store>;

// Where a group's members meet.
struct Meeting {
  Store store;
  std::string address;  // where this rank listens
  bool is_here;         // all ranks are of this machine: a sum takes processor time, and no way
  std::chrono::milliseconds timeout;
};

constexpr std::chrono::seconds kAnswer{2};  // of what has a timeout of its own, beyond it

c10::intrusive_ptr<c10d::Backend> connected(const Meeting& meeting, int rank, int size) {
  const models::BrokenPipesAreErrors in_its_threads;  // the device's and the backend's
  const auto options = c10d::ProcessGroupGloo::Options::create(meeting.timeout);
  options->threads = 1;  // calls come one after another
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(meeting.address));
  return models::within(meeting.timeout + kAnswer, [store = meeting.store, rank, size, options] {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  });
}

// What connects a group's members.
struct Connection {
  explicit Connection(const c10::intrusive_ptr<c10d::Backend>& backend) : group(group_of(backend)), peers(backend) {}

  std::shared_ptr<Group> group;
  models::Peers peers;
};

class NetworkGroup : public Group {
 public:
  // `ranks`: which of the roster's they are.
  NetworkGroup(std::shared_ptr<Roster> roster, Meeting meeting, std::vector<int> ranks)
      : roster_(std::move(roster)),
        meeting_(std::move(meeting)),
        ranks_(std::move(ranks)),
        rank_(static_cast<int>(std::ranges::find(ranks_, roster_->rank()) - ranks_.begin())) {
    try {
      connection_.emplace(connected(meeting_, rank_, size()));
    } catch (const std::exception& error) {
      throw roster_->explained(ranks_, "joining", models::one_line(error));
    }
  }

  ~NetworkGroup() override {
    if (connection_ && size() == roster_->size()) roster_->leave();
  }
  NetworkGroup(const NetworkGroup&) = delete;
  NetworkGroup& operator=(const NetworkGroup&) = delete;

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(ranks_.size()); }
  void sum(std::span<float> values) override {
    explaining(ranks_, "a sum of all ranks", [&](Connection& all) {
      if (!meeting_.is_here && all.peers.is_better_for(values.size()))
        all.peers.sum(values, /*rounded=*/false);
      else
        all.group->sum(values);
    });
  }
  void sum_rounded(std::span<float> values) override {
    explaining(ranks_, "a sum of all ranks", [&](Connection& all) { all.peers.sum(values, /*rounded=*/true); });
  }
  std::vector<std::string> gather(const std::string& text) override {
    std::vector<std::string> out;
    explaining(ranks_, "what all ranks say to each other", [&](Connection& all) { out = all.peers.gather(text); });
    return out;
  }
  void send(std::span<const float> values, int to) override {
    explaining(own_and(to), "sending to it", [&](Connection& all) { all.peers.send(values, to); });
  }
  void receive(std::span<float> values, int from) override {
    explaining(own_and(from), "receiving from it", [&](Connection& all) { all.peers.receive(values, from); });
  }

  std::shared_ptr<Group> part(const std::vector<int>& ranks) override {
    std::shared_ptr<Group>& known = parts_[ranks];
    if (known) return known;
    std::vector<int> theirs;
    for (const int rank : ranks) theirs.push_back(ranks_.at(static_cast<std::size_t>(rank)));
    std::string name = "part";
    for (const int rank : theirs) name += "-" + std::to_string(rank);
    Meeting meeting = meeting_;
    meeting.store = c10::make_intrusive<c10d::PrefixStore>(name, meeting_.store);
    known = std::make_shared<NetworkGroup>(roster_, std::move(meeting), std::move(theirs));
    return known;
  }

 private:
  std::vector<int> own_and(int rank) const { return {roster_->rank(), ranks_.at(static_cast<std::size_t>(rank))}; }

  template <class Work>
  void explaining(const std::vector<int>& ranks, const std::string& doing, const Work& work) {
    if (!connection_) throw Error(ErrorCode::kIo, "this group of ranks has ended by an error");
    const models::BrokenPipesAreErrors here;
    try {
      work(*connection_);
    } catch (const std::exception& error) {
      const std::string said = models::one_line(error);
      connection_.reset();  // closes it, so that it fails for all
      throw roster_->explained(ranks, doing, said);
    }
  }

  std::shared_ptr<Roster> roster_;
  Meeting meeting_;
  std::vector<int> ranks_;
  int rank_;
  std::optional<Connection> connection_;  // nothing: it has failed
  std::map<std::vector<int>, std::shared_ptr<Group>> parts_;
};

Store open_store(int rank, const NetworkOptions& options) {
  c10d::TCPStoreOptions wanted;
  wanted.port = options.port;
  wanted.isServer = rank == 0 && !options.is_store_there;
  wanted.waitWorkers = false;  // the roster does, and says who is missing
  wanted.timeout = options.timeout;
  if (wanted.isServer) wanted.masterListenFd = models::listen_at(options.host, options.port);
  try {
    return models::within(options.timeout + kAnswer,
                          [host = options.host, wanted] { return c10::make_intrusive<c10d::TCPStore>(host, wanted); });
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kIo, "rank " + std::to_string(rank) + " does not reach rank 0 at " + options.host +
                                    ", port " + std::to_string(options.port) + ": " + models::one_line(error));
  }
}

void check(int rank, int size, const NetworkOptions& options) {
  if (size < 2 || rank < 0 || rank >= size)
    throw Error(ErrorCode::kInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                                 " cannot join: a group has at least 2 ranks, from 0 on");
  if (options.interface.empty() && !models::is_loopback(options.host)) {
    throw Error(ErrorCode::kInvalidArgument,
                "ranks meet at " + options.host +
                    ", and listen on the loopback interface alone: name this machine's interface of the network "
                    "between them (" +
                    Option::kInterface + ", or GLOO_SOCKET_IFNAME)");
  }
}

}  // namespace

bool has_network_groups() noexcept { return true; }

std::shared_ptr<Group> join_network(int rank, int size, const NetworkOptions& options) {
  check(rank, size, options);
  const models::BrokenPipesAreErrors in_its_threads;  // the store's too
  const std::string address = models::address_of(options.interface);
  const Store store = c10::make_intrusive<c10d::PrefixStore>("halfbyte/" + options.name, open_store(rank, options));
  auto roster = std::make_shared<Roster>(store, rank, size, options.secret, options.timeout);
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(i);
  return std::make_shared<NetworkGroup>(
      std::move(roster), Meeting{store, address, options.interface.empty(), options.timeout}, std::move(ranks));
}

}  // namespace halfbyte

#include "models/parallel/roster.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>

#include <nlohmann/json.hpp>

#include "models/json/printable.h"
#include "models/parallel/within.h"

namespace halfbyte::models {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMourning{2000};  // for ranks to say that a call failed for them too
constexpr milliseconds kParting{2000};   // for ranks that are done to wait for the others
constexpr milliseconds kLook{25};
constexpr milliseconds kAnswer{2000};    // for the store's
constexpr const char* kLate = "late";    // how a call failed
constexpr std::size_t kMostText = 4096;  // bytes of what a rank says of itself

std::string hex(const unsigned char* bytes, std::size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out;
}

std::string random_text() {
  std::array<unsigned char, 32> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw Error(ErrorCode::kNoResources, "no random numbers for the ranks' secret");
  return hex(bytes.data(), bytes.size());
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

std::string key(const char* what, int rank) { return std::string(what) + "/" + std::to_string(rank); }

std::string seconds(milliseconds time) {
  return std::to_string(std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::seconds>(time).count())) +
         " s";
}

bool was_late(std::string said) {
  std::ranges::transform(said, said.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return said.find("timed out") != std::string::npos || said.find("timeout") != std::string::npos;
}

}  // namespace

std::string one_line(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  std::string out = torch ? torch->what_without_backtrace() : error.what();
  out.resize(std::min(out.find('\n'), out.size()));
  return out;
}

Roster::Roster(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const std::string& secret,
               milliseconds timeout)
    : store_(std::move(store)), rank_(rank), timeout_(timeout), members_(static_cast<std::size_t>(size)) {
  std::vector<int> all(members_.size());
  std::iota(all.begin(), all.end(), 0);
  try {
    take_seat();
    try {
      meet();
      prove(secret);
    } catch (const Error&) {
      part_from("who", all);
      throw;
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kIo, "the ranks' store, which is rank 0's, cannot be reached any more: " + one_line(error));
  }
}

bool Roster::has(const std::string& key) const {
  return within(kAnswer, [store = store_, key] { return store->check({key}); });
}

std::string Roster::get(const std::string& key) const {
  return within(kAnswer, [store = store_, key] { return store->get_to_str(key); });
}

void Roster::set(const std::string& key, const std::string& text) const {
  within(kAnswer, [store = store_, key, text] { store->set(key, text); });
}

std::string Roster::named(int rank) const {
  const Member& member = members_.at(static_cast<std::size_t>(rank));
  return "rank " + std::to_string(rank) + " of " + std::to_string(size()) +
         (member.host.empty() ? "" : " (" + member.host + ", process " + std::to_string(member.process) + ")");
}

void Roster::take_seat() {
  if (within(kAnswer, [store = store_, seat = key("seat", rank_)] { return store->add(seat, 1); }) == 1) return;
  throw Error(ErrorCode::kContract, named(rank_) + " is there already: two processes were given the same rank");
}

void Roster::meet() {
  const nlohmann::json own = {
      {"host", host_name()}, {"process", ::getpid()}, {"nonce", random_text()}, {"ranks", size()}};
  set(key("who", rank_), own.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  for (int rank = 0; rank < size(); ++rank) {
    await("who", rank, " has not joined for ");
    members_[static_cast<std::size_t>(rank)] = read(rank);
  }
}

// Errors: kIo, the same in all ranks: who gives up first says it for all.
void Roster::await(const char* what, int rank, const std::string& missing) {
  const auto end = std::chrono::steady_clock::now() + timeout_;
  while (!has(key(what, rank))) {
    if (has("verdict")) throw Error(ErrorCode::kIo, told());
    if (std::chrono::steady_clock::now() >= end)
      throw Error(ErrorCode::kIo, tell(named(rank) + missing + seconds(timeout_)));
    std::this_thread::sleep_for(kLook);
  }
}

std::string Roster::told() const { return printable(get("verdict"), kMostText); }

// What is the truth for all: this, unless another was first.
std::string Roster::tell(const std::string& verdict) const {
  return printable(within(kAnswer, [store = store_, verdict] { return store->compareSet("verdict", "", verdict); }),
                   kMostText);
}

Roster::Member Roster::read(int rank) const {
  const std::string text = get(key("who", rank));
  const auto said = text.size() <= kMostText ? nlohmann::json::parse(text, nullptr, false) : nlohmann::json();
  const auto is = [&](const char* field, bool (nlohmann::json::*kind)() const noexcept) {
    return said.is_object() && said.contains(field) && (said[field].*kind)();
  };
  if (!is("host", &nlohmann::json::is_string) || !is("nonce", &nlohmann::json::is_string) ||
      !is("process", &nlohmann::json::is_number_integer) || !is("ranks", &nlohmann::json::is_number_integer)) {
    throw Error(ErrorCode::kContract, named(rank) + " does not say who it is: another program uses the ranks' port");
  }
  if (const auto ranks = said["ranks"].get<std::int64_t>(); ranks != size()) {
    throw Error(ErrorCode::kContract, "rank " + std::to_string(rank) + " is one of " + std::to_string(ranks) +
                                          " ranks, and rank " + std::to_string(rank_) + " one of " +
                                          std::to_string(size()));
  }
  return {printable(said["host"].get<std::string>()), said["process"].get<std::int64_t>(),
          said["nonce"].get<std::string>()};
}

// Of all nonces, so that what one rank says is of no use to another, nor another time.
std::string Roster::proof_of(int rank, const std::string& secret) const {
  std::string text = std::to_string(rank) + " of " + std::to_string(size());
  for (const Member& member : members_) text += "\n" + member.nonce;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int count = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &count);
  return hex(digest.data(), count);
}

void Roster::prove(const std::string& secret) {
  set(key("proof", rank_), proof_of(rank_, secret));
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    await("proof", rank, " has not come on for ");
    const std::string given = get(key("proof", rank)), wanted = proof_of(rank, secret);
    if (given.size() == wanted.size() && CRYPTO_memcmp(given.data(), wanted.data(), wanted.size()) == 0) continue;
    throw Error(ErrorCode::kContract, named(rank) + " has another secret than rank " + std::to_string(rank_));
  }
}

// Which others have not said so.
std::vector<int> Roster::without(const char* what, const std::vector<int>& ranks) const {
  std::vector<int> out;
  for (const int rank : ranks) {
    if (rank != rank_ && !has(key(what, rank))) out.push_back(rank);
  }
  return out;
}

// Before an error ends this process: what those who have said `what` have yet to read is rank 0's.
void Roster::part_from(const char* what, const std::vector<int>& ranks) const {
  try {
    set(key("left", rank_), "1");
    if (rank_ > 0) return;
    const std::vector<int> away = without(what, ranks);
    for (milliseconds waited{0}; waited < kMourning; waited += kLook) {
      if (without("left", ranks).size() <= away.size()) return;
      std::this_thread::sleep_for(kLook);
    }
  } catch (const std::exception&) {  // then nobody is there to read it
  }
}

std::string Roster::verdict(const std::vector<int>& ranks, const std::string& doing, const std::string& said) const {
  set(key("failed", rank_), was_late(said) ? kLate : "closed");
  std::vector<int> gone = without("failed", ranks);
  for (milliseconds waited{0}; !gone.empty() && waited < kMourning && !has("verdict"); waited += kLook) {
    std::this_thread::sleep_for(kLook);
    gone = without("failed", ranks);
  }
  if (has("verdict")) return told();
  if (gone.empty()) return "the ranks lost each other in " + doing + ": " + said;
  // Who gives up first closes its connections to the others, which were as patient.
  const bool is_late = std::ranges::any_of(
      ranks, [&](int rank) { return has(key("failed", rank)) && get(key("failed", rank)) == kLate; });
  return tell(named(gone.front()) + (is_late ? " has not come on for " + seconds(timeout_) : " has gone") + "; rank " +
              std::to_string(rank_) + " waited for it in " + doing);
}

void Roster::leave() const noexcept {
  try {
    std::vector<int> all(members_.size());
    std::iota(all.begin(), all.end(), 0);
    set(key("done", rank_), "1");
    const auto end = std::chrono::steady_clock::now() + kParting;
    while (std::chrono::steady_clock::now() < end && !without("done", all).empty() && !has("verdict"))
      std::this_thread::sleep_for(kLook);
    part_from("done", all);
  } catch (const std::exception&) {  // then the others have left
  }
}

Error Roster::explained(const std::vector<int>& ranks, const std::string& doing, const std::string& said) const {
  try {
    const std::string out = verdict(ranks, doing, said);
    part_from("failed", ranks);
    return {ErrorCode::kIo, out};
  } catch (const std::exception&) {
    // The store is rank 0's, unless the launcher has it.
    const std::string what = was_late(said) ? " has not come on for " + seconds(timeout_) : " has gone";
    return {ErrorCode::kIo, named(0) + what + ", or cannot be reached any more; rank " + std::to_string(rank_) +
                                " waited for the others in " + doing};
  }
}

}  // namespace halfbyte::models

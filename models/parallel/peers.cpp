#include "models/parallel/peers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <halfbyte/error.h>

#include "models/parallel/framed.h"

namespace halfbyte::models {
namespace {

constexpr std::size_t kAhead = 3;  // places asked for: one is on its way while another is being used

constexpr std::size_t kMostTexts = 500 << 10;  // bytes of all ranks': they have a place

[[noreturn]] void fail_elsewhere() {
  throw Error(ErrorCode::kContract,
              "a rank is at another step than this one: ranks are to be given the same input and options");
}

// Values on their way, of which all have equally many.
class Values {
 public:
  Values(std::span<float> values, bool rounded)
      : values_(at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kFloat)),
        rounded_(rounded) {}

  // Of another rank's message; nothing: as long as it says.
  std::optional<std::int64_t> bytes(bool is_last) const { return values_.nbytes() / (rounded_ && !is_last ? 2 : 1); }
  void prepare() {  // so that both of a pair add the same two
    if (rounded_) values_.copy_(values_.to(at::kBFloat16));
  }
  at::Tensor packed(bool is_last) const {
    const at::Tensor out = rounded_ && !is_last ? values_.to(at::kBFloat16) : values_;
    return at::from_blob(
        out.mutable_data_ptr(), {static_cast<std::int64_t>(out.nbytes())}, [out](void*) {}, at::kByte);
  }
  void take(const at::Tensor& bytes, bool is_last) {
    const at::ScalarType kind = rounded_ && !is_last ? at::kBFloat16 : at::kFloat;
    const at::Tensor theirs = at::from_blob(bytes.mutable_data_ptr(), values_.sizes(), kind);
    if (is_last)
      values_.copy_(theirs);
    else
      values_.add_(theirs);
  }

 private:
  at::Tensor values_;
  bool rounded_;
};

// What some ranks say.
class Texts {
 public:
  Texts(int size, int rank, const std::string& text) : texts_(static_cast<std::size_t>(size)) {
    texts_[static_cast<std::size_t>(rank)] = text;
  }

  static std::optional<std::int64_t> bytes(bool) { return std::nullopt; }
  static void prepare() {}
  at::Tensor packed(bool) const {
    std::vector<std::string> all;
    for (const auto& text : texts_) all.push_back(text ? "+" + *text : "");
    const std::string message = framed(all);
    if (message.size() > kMostTexts) throw Error(ErrorCode::kInvalidArgument, "what ranks say is too long");
    const at::Tensor out = at::empty({static_cast<std::int64_t>(message.size())}, at::kByte);
    std::ranges::copy(message, out.mutable_data_ptr<std::uint8_t>());
    return out;
  }
  void take(const at::Tensor& bytes, bool) {
    const auto all = unframed({reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()), bytes.nbytes()});
    if (all.size() != texts_.size()) fail_elsewhere();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].empty()) texts_[i] = all[i].substr(1);
    }
  }

  std::vector<std::string> all() const {
    std::vector<std::string> out;
    for (const auto& text : texts_) {
      if (!text) fail_elsewhere();
      out.push_back(*text);
    }
    return out;
  }

 private:
  std::vector<std::optional<std::string>> texts_;  // by rank
};

constexpr std::int64_t kHead = sizeof(std::uint64_t);

at::Tensor with_head(const at::Tensor& bytes) {
  const std::uint64_t length = bytes.nbytes();
  const at::Tensor out = at::empty({kHead + bytes.numel()}, at::kByte);
  std::memcpy(out.mutable_data_ptr(), &length, kHead);
  std::memcpy(out.mutable_data_ptr<std::uint8_t>() + kHead, bytes.const_data_ptr(), length);
  return out;
}

at::Tensor without_head(const at::Tensor& message, std::optional<std::int64_t> wanted) {
  std::uint64_t length = 0;
  std::memcpy(&length, message.const_data_ptr(), kHead);
  if (length > message.nbytes() - kHead || (wanted && length != static_cast<std::uint64_t>(*wanted))) fail_elsewhere();
  return message.narrow(0, kHead, static_cast<std::int64_t>(length));
}

}  // namespace

bool Peers::is_better_for(std::size_t values) const {
  return backend_->getSize() == 2 || kShared.fits(kHead + static_cast<std::int64_t>(values * sizeof(float)));
}

Peers::Place Peers::asked(int other, const at::Tensor& into, int tag) {
  std::vector<at::Tensor> bytes{into};
  return {into, backend_->recv(bytes, other, tag)};
}

// `bytes`: how many they are; nothing: they say so, and have a place. `use` is done with them when it returns.
template <class Use>
void Peers::take(int other, const Kind& kind, std::optional<std::int64_t> bytes, const Use& use) {
  if (bytes && !kind.fits(kHead + *bytes)) {
    const std::int64_t size = kHead + *bytes;
    const Place own = asked(other, at::empty({size}, at::kByte), kind.tag_of(size));
    own.work->wait();
    return use(without_head(own.bytes, bytes));
  }
  std::deque<Place>& places = places_[{other, kind.tag}];
  while (places.size() < kAhead) places.push_back(asked(other, at::empty({kind.room}, at::kByte), kind.tag));
  const Place first = std::move(places.front());
  places.pop_front();
  first.work->wait();
  use(without_head(first.bytes, bytes));
  places.push_back(asked(other, first.bytes, kind.tag));
}

template <class Message>
void Peers::give(int other, Message& message, bool is_last) {
  std::vector<at::Tensor> bytes{with_head(message.packed(is_last))};
  backend_->send(bytes, other, kShared.tag_of(bytes[0].numel()))->wait();
}

template <class Message>
void Peers::take(int other, Message& message, bool is_last) {
  take(other, kShared, message.bytes(is_last), [&](const at::Tensor& bytes) { message.take(bytes, is_last); });
}

// Both give before they take.
template <class Message>
void Peers::exchange(int other, Message& message) {
  message.prepare();
  std::vector<at::Tensor> bytes{with_head(message.packed(false))};
  const Work given = backend_->send(bytes, other, kShared.tag_of(bytes[0].numel()));
  take(other, message, false);
  given->wait();
}

template <class Message>
void Peers::in_pairs(Message& message) {
  const int size = backend_->getSize(), rank = backend_->getRank();
  const int paired = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  if (rank >= paired) {
    give(rank - paired, message, false);
    take(rank - paired, message, true);
    return;
  }
  const bool has_more = rank + paired < size;
  if (has_more) take(rank + paired, message, false);
  for (int apart = 1; apart < paired; apart *= 2) exchange(rank ^ apart, message);
  if (has_more) give(rank + paired, message, true);
}

void Peers::sum(std::span<float> values, bool rounded) {
  Values message(values, rounded);
  in_pairs(message);
}

std::vector<std::string> Peers::gather(const std::string& text) {
  Texts message(backend_->getSize(), backend_->getRank(), text);
  in_pairs(message);
  return message.all();
}

void Peers::send(std::span<const float> values, int to) {
  const at::Tensor bytes = at::from_blob(const_cast<float*>(values.data()),  // it is read
                                         {static_cast<std::int64_t>(values.size_bytes())}, at::kByte);
  std::deque<Sent>& sent = letters_[to];
  for (; sent.size() >= kAhead; sent.pop_front()) sent.front().work->wait();
  std::vector<at::Tensor> message{with_head(bytes)};
  sent.push_back({message[0], backend_->send(message, to, kLetters.tag_of(message[0].numel()))});
}

void Peers::receive(std::span<float> values, int from) {
  take(from, kLetters, static_cast<std::int64_t>(values.size_bytes()),
       [&](const at::Tensor& bytes) { std::memcpy(values.data(), bytes.const_data_ptr(), values.size_bytes()); });
}

}  // namespace halfbyte::models

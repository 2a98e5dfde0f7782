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

// How long the message is that begins so.
std::int64_t length_of(const at::Tensor& first, std::optional<std::int64_t> wanted) {
  std::uint64_t length = 0;
  std::memcpy(&length, first.const_data_ptr(), kHead);
  if (wanted ? length != static_cast<std::uint64_t>(*wanted) : length > kMostTexts) fail_elsewhere();
  return static_cast<std::int64_t>(length);
}

}  // namespace

bool Peers::is_better_for(std::size_t values) const {
  return backend_->getSize() == 2 || kHead + static_cast<std::int64_t>(values * sizeof(float)) <= kShared.room;
}

void Peers::Sent::wait() const {
  for (const Work& piece : pieces) piece->wait();
}

// On its way: in as many pieces as places are needed for.
Peers::Sent Peers::given(int other, const Kind& kind, const at::Tensor& bytes) {
  Sent out{with_head(bytes), {}};
  for (std::int64_t at = 0; at < out.bytes.numel(); at += kind.room) {
    std::vector<at::Tensor> piece{out.bytes.narrow(0, at, std::min(kind.room, out.bytes.numel() - at))};
    out.pieces.push_back(backend_->send(piece, other, kind.tag));
  }
  return out;
}

void Peers::ask(int other, const Kind& kind, const at::Tensor& into) {
  std::vector<at::Tensor> bytes{into};
  places_[{other, kind.tag}].push_back({into, backend_->recv(bytes, other, kind.tag)});
}

Peers::Place Peers::next_place(int other, const Kind& kind) {
  std::deque<Place>& places = places_[{other, kind.tag}];
  while (places.size() < kAhead) ask(other, kind, at::empty({kind.room}, at::kByte));
  Place out = std::move(places.front());
  places.pop_front();
  out.work->wait();
  return out;
}

// `bytes`: how many they are; nothing: they say so. `use` is done with them when it returns.
template <class Use>
void Peers::take(int other, const Kind& kind, std::optional<std::int64_t> bytes, const Use& use) {
  Place piece = next_place(other, kind);
  const std::int64_t length = length_of(piece.bytes, bytes);
  if (kHead + length <= kind.room) {
    use(piece.bytes.narrow(0, kHead, length));
    return ask(other, kind, piece.bytes);
  }
  const at::Tensor whole = at::empty({kHead + length}, at::kByte);
  for (std::int64_t at = 0;; piece = next_place(other, kind)) {
    const std::int64_t count = std::min(kind.room, whole.numel() - at);
    whole.narrow(0, at, count).copy_(piece.bytes.narrow(0, 0, count));
    ask(other, kind, piece.bytes);
    if ((at += count) == whole.numel()) break;
  }
  use(whole.narrow(0, kHead, length));
}

template <class Message>
void Peers::give(int other, Message& message, bool is_last) {
  given(other, kShared, message.packed(is_last)).wait();
}

template <class Message>
void Peers::take(int other, Message& message, bool is_last) {
  take(other, kShared, message.bytes(is_last), [&](const at::Tensor& bytes) { message.take(bytes, is_last); });
}

// Both give before they take.
template <class Message>
void Peers::exchange(int other, Message& message) {
  message.prepare();
  const Sent sent = given(other, kShared, message.packed(false));
  take(other, message, false);
  sent.wait();
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
  for (; sent.size() >= kAhead; sent.pop_front()) sent.front().wait();
  sent.push_back(given(to, kLetters, bytes));
}

void Peers::receive(std::span<float> values, int from) {
  take(from, kLetters, static_cast<std::int64_t>(values.size_bytes()),
       [&](const at::Tensor& bytes) { std::memcpy(values.data(), bytes.const_data_ptr(), values.size_bytes()); });
}

}  // namespace halfbyte::models

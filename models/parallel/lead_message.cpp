#include "models/parallel/lead_message.h"

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

constexpr int kBits = 7;  // a byte; its first bit says that more follow

void put(std::string& out, std::uint64_t value) {
  for (; value >= (1u << kBits); value >>= kBits) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}
void put(std::string& out, std::int64_t value) { put(out, static_cast<std::uint64_t>(value)); }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::uint64_t number() {
    std::uint64_t out = 0;
    for (int shift = 0; shift < 64; shift += kBits) {
      if (at_ == text_.size()) fail();
      const auto byte = static_cast<std::uint8_t>(text_[at_++]);
      out |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return out;
    }
    fail();
  }
  std::int64_t whole() {
    const std::uint64_t out = number();
    if (out >> 63 != 0) fail();
    return static_cast<std::int64_t>(out);
  }
  // Of `last` and those before it.
  template <class Enum>
  Enum one_of(Enum last) {
    const std::uint64_t out = number();
    if (out > static_cast<std::uint64_t>(last)) fail();
    return static_cast<Enum>(out);
  }
  // Each takes a byte at least.
  template <class Read>
  auto several(const Read& read) {
    const std::uint64_t count = number();
    if (count > text_.size() - at_) fail();
    std::vector<decltype(read())> out;
    for (std::uint64_t i = 0; i < count; ++i) out.push_back(read());
    return out;
  }
  void end() const {
    if (at_ != text_.size()) fail();
  }

 private:
  [[noreturn]] static void fail() {
    throw Error(ErrorCode::kContract, "what rank 0 says is not what a rank that leads would say");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string text_of(const LeadMessage& message) {
  std::string out;
  put(out, static_cast<std::uint64_t>(message.work));
  put(out, static_cast<std::uint64_t>(message.kind));
  put(out, static_cast<std::uint64_t>(message.changes.size()));
  for (const SessionChange& change : message.changes) {
    put(out, static_cast<std::uint64_t>(change.act));
    put(out, change.session);
    put(out, change.value);
  }
  put(out, static_cast<std::uint64_t>(message.rows.size()));
  for (const LedRow& row : message.rows) {
    put(out, row.session);
    put(out, row.tokens);
    put(out, row.expected);
  }
  put(out, static_cast<std::uint64_t>(message.tokens.size()));
  for (const std::int64_t token : message.tokens) put(out, token);
  put(out, message.count);
  put(out, message.dtype);
  put(out, static_cast<std::uint64_t>(message.given.size()));
  for (const GivenRow& one : message.given) {
    put(out, one.step);
    put(out, one.row);
  }
  put(out, static_cast<std::uint64_t>(message.forgotten.size()));
  for (const std::uint64_t step : message.forgotten) put(out, step);
  return out;
}

LeadMessage lead_message(std::string_view text) {
  Reader in(text);
  LeadMessage out;
  out.work = in.one_of(LedWork::kEnd);
  out.kind = in.one_of(quant::RowsKind::kMany);
  out.changes = in.several([&] {
    SessionChange change{in.one_of(SessionAct::kDrop), in.number()};
    change.value = in.number();
    return change;
  });
  out.rows = in.several([&] {
    LedRow row{in.number(), in.whole(), 0};
    row.expected = in.whole();
    return row;
  });
  out.tokens = in.several([&] { return in.whole(); });
  out.count = in.whole();
  out.dtype = in.whole();
  out.given = in.several([&] {
    GivenRow one{in.number(), 0};
    one.row = in.whole();
    return one;
  });
  out.forgotten = in.several([&] { return in.number(); });
  in.end();
  return out;
}

}  // namespace halfbyte::models

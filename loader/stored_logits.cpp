#include "loader/stored_logits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/topk.h>

#include <halfbyte/accuracy.h>
#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 16> kMagic = {'h', 'a', 'l', 'f', 'b', 'y', 't', 'e',
                                         ' ', 'l', 'o', 'g', 'i', 't', 's', '1'};
constexpr float kDepth = 32;  // of codes below a row's largest log-probability
constexpr float kLastCode = 65535;
constexpr std::int64_t kMost = std::int64_t{1} << 31;  // of anything that a header counts

// The beginning of the file; the name and the tokens follow.
struct Fields {
  std::array<char, 16> magic = kMagic;
  std::int64_t vocab_size = 0, windows = 0, context = 0, scored = 0, name_bytes = 0;
};

struct RowFields {
  float largest = 0, step = 0;
  std::array<std::int32_t, kTopTokens> top{};
};

template <class T>
std::span<std::byte> bytes_of(T* values, std::size_t count) {
  return std::as_writable_bytes(std::span(values, count));
}

// Shapes: values, codes (vocab_size).
RowFields encode(const float* values, const std::int64_t* top, std::int64_t tops, std::int64_t size,
                 std::uint16_t* codes) {
  RowFields row;
  row.largest = *std::max_element(values, values + size);
  const float smallest = std::max(*std::min_element(values, values + size), row.largest - kDepth);
  row.step = (row.largest - smallest) / kLastCode;
  const float scale = row.step > 0 ? 1 / row.step : 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const float below = std::min((row.largest - values[i]) * scale, kLastCode);
    codes[i] = static_cast<std::uint16_t>(std::lrintf(below));
  }
  for (std::int64_t i = 0; i < tops; ++i) row.top[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(top[i]);
  return row;
}

// What rounding made equal is told apart again among the most likely.
void decode(const RowFields& row, const std::uint16_t* codes, std::int64_t size, float* values) {
  for (std::int64_t i = 0; i < size; ++i) values[i] = row.largest - row.step * static_cast<float>(codes[i]);
  const std::int64_t tops = std::min(size, kTopTokens);
  for (std::int64_t i = 0; i < tops; ++i) {
    const std::int64_t token = row.top[static_cast<std::size_t>(i)];
    if (token >= 0 && token < size) values[token] += row.step * 0.01f * static_cast<float>(tops - i);
  }
}

void write_header(files::OutputFile& file, const LogitsHeader& header, const models::Windows& windows) {
  Fields fields;
  fields.vocab_size = header.vocab_size;
  fields.windows = header.windows;
  fields.context = header.context;
  fields.scored = header.scored;
  fields.name_bytes = static_cast<std::int64_t>(header.made_of.size());
  file.write(0, bytes_of(&fields, 1));
  file.write(sizeof fields, std::as_bytes(std::span(header.made_of)));
  std::uint64_t at = sizeof fields + header.made_of.size();
  for (std::int64_t i = 0; i < windows.count; ++i) {
    const TokenIds tokens = windows.window(i);
    file.write(at, std::as_bytes(std::span(tokens)));
    at += tokens.size() * sizeof(std::int64_t);
  }
}

LogitsHeader header_of(const models::Windows& windows, std::int64_t vocab_size, const std::string& made_of) {
  return {made_of, vocab_size, windows.count, windows.context, windows.scored};
}

LogitsHeader read_header(const files::InputFile& file) {
  const auto bad = [&](const std::string& what) {
    return Error(ErrorCode::kCorrupt, files::printable_path(file.path()) + ": " + what +
                                          "; delete it, and it is made again of the original");
  };
  Fields fields;
  if (file.size_bytes() < sizeof fields) throw bad("is no file of log-probabilities");
  file.read(0, bytes_of(&fields, 1));
  if (fields.magic != kMagic) throw bad("is no file of log-probabilities");
  const auto is_count = [](std::int64_t value) { return value > 0 && value < kMost; };
  const bool is_sound = is_count(fields.vocab_size) && is_count(fields.windows) && is_count(fields.context) &&
                        is_count(fields.scored) && fields.scored < fields.context && fields.name_bytes >= 0 &&
                        fields.name_bytes < (1 << 16) && fields.windows <= kMost / fields.context;
  if (!is_sound) throw bad("its header is damaged");
  LogitsHeader header{std::string(static_cast<std::size_t>(fields.name_bytes), ' '), fields.vocab_size, fields.windows,
                      fields.context, fields.scored};
  if (file.size_bytes() / header.row_bytes() < static_cast<std::uint64_t>(header.windows * header.scored) ||
      file.size_bytes() != header.file_bytes()) {
    throw bad("has " + std::to_string(file.size_bytes()) + " bytes where its header says otherwise");
  }
  file.read(sizeof fields, bytes_of(header.made_of.data(), header.made_of.size()));
  return header;
}

}  // namespace

std::uint64_t LogitsHeader::row_bytes() const noexcept {
  return sizeof(RowFields) + static_cast<std::uint64_t>(vocab_size) * sizeof(std::uint16_t);
}

std::uint64_t LogitsHeader::rows_begin() const noexcept {
  return sizeof(Fields) + made_of.size() + static_cast<std::uint64_t>(windows * context) * sizeof(std::int64_t);
}

std::uint64_t LogitsHeader::file_bytes() const noexcept {
  return rows_begin() + static_cast<std::uint64_t>(windows * scored) * row_bytes();
}

RecordedLogits::RecordedLogits(models::LogitSource& source, const std::filesystem::path& path,
                               const models::Windows& windows, std::int64_t vocab_size, const std::string& made_of)
    : source_(source), header_(header_of(windows, vocab_size, made_of)), file_(path, header_.file_bytes()) {
  write_header(file_, header_, windows);
}

void RecordedLogits::begin(const models::WindowBatch& batch) {
  source_.begin(batch);
  first_row_ = batch.first_window * batch.scored;
}

at::Tensor RecordedLogits::rows(std::int64_t begin, std::int64_t count) {
  const at::Tensor logits = source_.rows(begin, count);
  const at::Tensor values = logits.log_softmax(-1).contiguous();
  const std::int64_t size = header_.vocab_size, tops = std::min(size, kTopTokens);
  const at::Tensor top = std::get<1>(values.topk(tops, -1)).contiguous();
  std::vector<std::byte> out(static_cast<std::size_t>(count) * header_.row_bytes());
  at::parallel_for(0, count, 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<std::uint16_t> codes(static_cast<std::size_t>(size));
    for (std::int64_t i = first; i < last; ++i) {
      const RowFields row = encode(values.const_data_ptr<float>() + i * size,
                                   top.const_data_ptr<std::int64_t>() + i * tops, tops, size, codes.data());
      std::byte* const place = out.data() + static_cast<std::size_t>(i) * header_.row_bytes();
      std::memcpy(place, &row, sizeof row);
      std::memcpy(place + sizeof row, codes.data(), codes.size() * sizeof codes[0]);
    }
  });
  file_.write(header_.rows_begin() + static_cast<std::uint64_t>(first_row_ + begin) * header_.row_bytes(), out);
  return logits;
}

StoredLogits::StoredLogits(const std::filesystem::path& path) : file_(path), header_(read_header(file_)) {}

void StoredLogits::check(const models::Windows& windows, std::int64_t vocab_size) const {
  const auto differ = [&](const std::string& what) {
    return Error(ErrorCode::kInvalidArgument, files::printable_path(file_.path()) + ": its log-probabilities are of " +
                                                  what + "; take the text, windows and model of then, or another file");
  };
  if (vocab_size != header_.vocab_size) {
    throw differ("a vocabulary of " + std::to_string(header_.vocab_size) + " tokens, the model's has " +
                 std::to_string(vocab_size));
  }
  if (windows.context != header_.context || windows.scored != header_.scored || windows.count > header_.windows) {
    throw differ(std::to_string(header_.windows) + " windows of " + std::to_string(header_.context) +
                 " tokens, and now it is " + std::to_string(windows.count) + " of " + std::to_string(windows.context));
  }
  std::uint64_t at = sizeof(Fields) + header_.made_of.size();
  TokenIds tokens(static_cast<std::size_t>(windows.context));
  for (std::int64_t i = 0; i < windows.count; ++i, at += tokens.size() * sizeof tokens[0]) {
    file_.read(at, bytes_of(tokens.data(), tokens.size()));
    if (tokens != windows.window(i)) throw differ("another text, from window " + std::to_string(i) + " on");
  }
}

void StoredLogits::begin(const models::WindowBatch& batch) { first_row_ = batch.first_window * batch.scored; }

at::Tensor StoredLogits::rows(std::int64_t begin, std::int64_t count) {
  std::vector<std::byte> in(static_cast<std::size_t>(count) * header_.row_bytes());
  file_.read(header_.rows_begin() + static_cast<std::uint64_t>(first_row_ + begin) * header_.row_bytes(), in);
  const std::int64_t size = header_.vocab_size;
  at::Tensor out = at::empty({count, size}, at::kFloat);
  float* const values = out.mutable_data_ptr<float>();
  at::parallel_for(0, count, 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<std::uint16_t> codes(static_cast<std::size_t>(size));
    for (std::int64_t i = first; i < last; ++i) {
      const std::byte* const place = in.data() + static_cast<std::size_t>(i) * header_.row_bytes();
      RowFields row;
      std::memcpy(&row, place, sizeof row);
      std::memcpy(codes.data(), place + sizeof row, codes.size() * sizeof codes[0]);
      decode(row, codes.data(), size, values + i * size);
    }
  });
  return out;
}

}  // namespace halfbyte

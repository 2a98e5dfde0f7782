#include "convert/calibrate/states.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "models/sessions/pass_watch.h"

namespace halfbyte::convert::calibrate {

void for_each_batch(const StatesShape& shape, std::int64_t tokens,
                    const std::function<void(std::int64_t begin, std::int64_t count)>& work) {
  const std::int64_t batch = std::max<std::int64_t>(1, tokens / shape.tokens);
  for (std::int64_t begin = 0; begin < shape.sequences; begin += batch) {
    models::PassWatch::check();
    work(begin, std::min(batch, shape.sequences - begin));
  }
}

at::Tensor StatesFile::read(std::int64_t begin, std::int64_t count) const {
  at::Tensor out = at::empty({count, shape_.tokens, shape_.hidden_size}, at::kFloat);
  const std::uint64_t each = shape_.size_bytes() / static_cast<std::uint64_t>(shape_.sequences);
  file_.read(static_cast<std::uint64_t>(begin) * each, {static_cast<std::byte*>(out.mutable_data_ptr()), out.nbytes()});
  return out;
}

StatesWriter::StatesWriter(const files::fs::path& path, StatesShape shape) {
  file_ = std::make_unique<files::OutputFile>(path, shape.size_bytes(), files::OutputFile::Existing::kGoOn);
}

std::string StatesWriter::close() {
  if (file_) file_->close();
  file_.reset();
  return hash_.hex();
}

void StatesWriter::write(const at::Tensor& states) {
  const at::Tensor values = states.to(at::kFloat).contiguous();
  const std::span bytes(static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes());
  hash_.update(bytes);
  if (file_) file_->write(written_, bytes);
  written_ += bytes.size();
}

}  // namespace halfbyte::convert::calibrate

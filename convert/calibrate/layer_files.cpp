#include "convert/calibrate/layer_files.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "convert/output/write_progress.h"
#include "loader/files/file_tree.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte::convert::calibrate {
namespace {

using files::fs::path;
using nlohmann::json;

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

void hash_bytes(const files::DataFile& file, std::uint64_t begin, std::uint64_t size, const std::stop_token& stop,
                files::Hash128& hash) {
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < size; at += block.size()) {
    check_stop(stop);
    models::PassWatch::check();  // other parts want a sign of life
    block.resize(std::min(kBlockBytes, size - at));
    file.read(begin + at, block);
    hash.update(block);
  }
}

}  // namespace

json json_of(const LayerRecord& record) {
  json matrices = json::array();
  for (const StoredMatrix& each : record.matrices) matrices.push_back({each.tensor, each.matrix, each.begin});
  json out{{"given", record.given},   {"source", record.source},       {"codes", record.codes},
           {"states", record.states}, {"quantized", record.quantized}, {"searched", record.searched},
           {"matrices", matrices}};
  if (!record.part_states.empty()) out["part"] = {record.part_states, record.part_quantized};
  return out;
}

std::optional<LayerRecord> layer_record(const json& value) try {
  LayerRecord out{value.at("given"),
                  value.at("source"),
                  value.at("codes"),
                  value.at("states"),
                  value.at("quantized"),
                  {},
                  {},
                  value.at("searched"),
                  {}};
  if (const auto part = value.find("part"); part != value.end()) {
    out.part_states = part->at(0);
    out.part_quantized = part->at(1);
  }
  for (const json& each : value.at("matrices")) out.matrices.push_back({each.at(0), each.at(1), each.at(2)});
  return out;
} catch (const json::exception&) {
  return std::nullopt;
}

CodesWriter::CodesWriter(const path& path)
    : file_(std::make_unique<files::OutputFile>(path, 0, files::OutputFile::Existing::kGoOn)) {}

std::uint64_t CodesWriter::add(std::span<const std::byte> bytes) {
  const std::uint64_t begin = written_;
  if (file_) file_->write(begin, bytes);
  hash_.update(bytes);
  written_ += bytes.size();
  return begin;
}

std::string CodesWriter::close() {
  if (file_) file_->close();
  file_.reset();
  return hash_.hex();
}

path LayerFiles::codes(std::int64_t layer) const { return directory_ / ("codes-" + std::to_string(layer)); }

path LayerFiles::states(std::int64_t layer) const { return own_ / ("states-" + std::to_string(layer % 2)); }

path LayerFiles::quantized_states(std::int64_t layer) const {
  return layer == 0 ? states(0) : own_ / ("quantized-" + std::to_string(layer % 2));
}

bool LayerFiles::holds(const path& path, const std::string& hash, const std::stop_token& stop) const try {
  if (!files::is_sole_regular_file(path)) return false;
  const files::InputFile file(path);
  files::Hash128 found;
  hash_bytes(file, 0, file.size_bytes(), stop, found);
  return found.hex() == hash;
} catch (const Error& error) {
  if (error.code() == ErrorCode::kInterrupted) throw;
  return false;
}

void LayerFiles::remove_links() const {
  for (const path& inside : files::entries(directory_)) {
    if (!files::is_sole_regular_file(inside)) files::remove_tree(inside);
  }
}

std::string hash_of_tensors(const files::Checkpoint& source, const std::string& prefix, const std::stop_token& stop) {
  files::Hash128 hash;
  for (const files::StoredTensor& tensor : source.tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    hash.update(tensor.name);
    hash_bytes(*source.data_files[tensor.file], tensor.offset, tensor.size_bytes, stop, hash);
  }
  return hash.hex();
}

}  // namespace halfbyte::convert::calibrate

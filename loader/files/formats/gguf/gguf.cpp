#include "loader/files/formats/gguf/gguf.h"

#include <charconv>
#include <deque>
#include <map>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/parts.h"
#include "loader/files/formats/gguf/pieces.h"
#include "loader/files/formats/gguf/tokenizer.h"
#include "loader/files/printable.h"
#include "models/architectures/architecture.h"

namespace halfbyte::files {
namespace {

std::string with_expert(std::string name, std::int64_t expert) {
  return name.replace(name.find("{}"), 2, std::to_string(expert));
}

class GgufTensors {
 public:
  GgufTensors(const GgufParts& parts, const GgufFamily* family, Checkpoint& checkpoint)
      : parts_(parts), family_(family), checkpoint_(checkpoint), wholes_(checkpoint) {
    if (!family) return;
    names_.emplace(*family, family_of(*family).namings.front());
    layers_ = gguf_layers(parts.front(), *family);
    has_layers_ahead_ = parts.front().integer(std::string(family->architecture) + "." + kLayersAhead).value_or(0) > 0;
  }

  std::vector<TensorRecord> run() {
    for (const GgufFile& part : parts_) {
      checkpoint_.data_files.push_back(std::const_pointer_cast<InputFile>(part.shared_file()));
      checkpoint_.data_offsets.push_back(part.data_offset());
    }
    for (const GgufFile& part : parts_) translations_.emplace_back(checkpoint_, part.file().path());
    for (file_ = 0; file_ < parts_.size(); ++file_) {
      for (const GgufTensor& tensor : parts_[file_].tensors()) add_tensor(tensor);
    }
    for (const auto& [name, shared] : shared_)
      wholes_.add(name, shape_of(name, shared.front().shape), shared, translations_[shared.front().file]);
    for (Translation& translation : translations_) translation.finish();
    keep_rows();
    add_notes();
    return wholes_.take_records();
  }

 private:
  // Of a layer behind the last.
  bool is_ahead(const std::string& name) const {
    if (!has_layers_ahead_ || !name.starts_with("blk.")) return false;
    std::int64_t layer = 0;
    const char* const begin = name.data() + 4;
    const auto read = std::from_chars(begin, name.data() + name.size(), layer);
    return read.ec == std::errc() && layer >= layers_;
  }

  // What the metadata come to. Only some tensors ask for it.
  const models::ModelConfig& model() {
    if (!model_) {
      const nlohmann::json config(*checkpoint_.config);
      model_ = models::find_architecture(config)->parse(config);  // named as the family usually is
      for (models::ExpectedTensor& tensor : models::Architecture::expected(*model_))
        shapes_.emplace(std::move(tensor.name), std::move(tensor.shape));
    }
    return *model_;
  }

  // As transformers has it; of a tensor that the model has not, as the file does.
  std::vector<std::int64_t> shape_of(const std::string& name, const std::vector<std::int64_t>& own) {
    model();
    const auto found = shapes_.find(name);
    return found == shapes_.end() ? own : found->second;
  }

  void add_tensor(const GgufTensor& tensor) {
    if (is_ahead(tensor.name)) {
      ++ahead_;
      return;
    }
    const auto known = names_ ? names_->find(tensor.name) : std::nullopt;
    if (!known && family_ && is_rope_tensor(tensor.name)) return;
    if (!known && family_) unknown_.push_back(tensor.name);
    if (known && known->is_stack) return add_experts(*known, tensor);
    GgufPiece piece{tensor.name, file_, tensor.offset, tensor.type, tensor.shape};
    std::string name = known ? known->name : tensor.name;
    if (!known) return wholes_.add(name, tensor.shape, {piece}, translations_[file_]);
    piece.values = known->values;
    if (known->layout) piece.layout = layout_of(*known, tensor);
    if (!piece.layout.is_plain()) {
      shared_[std::move(name)].push_back(std::move(piece));
      return;
    }
    const auto shape = known->is_reshaped ? reshaped(name, tensor) : tensor.shape;
    wholes_.add(name, shape, {piece}, translations_[file_]);
  }

  GgufLayout layout_of(const GgufName& known, const GgufTensor& tensor) {
    GgufLayout out = known.layout(model());
    const std::int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
    if (out.is_plain() || known.layout != turned_heads || rows % out.period == 0) return out;
    parts_[file_].fail(ErrorCode::kCorrupt, "tensor " + in_quotes(tensor.name) + " has " + std::to_string(rows) +
                                                " rows, which are no heads of " + std::to_string(out.period));
  }

  // The shape that transformers has, where it is of as many values.
  std::vector<std::int64_t> reshaped(const std::string& name, const GgufTensor& tensor) {
    std::vector<std::int64_t> out = shape_of(name, tensor.shape), wanted = out, own = tensor.shape;
    std::erase(wanted, 1);
    std::erase(own, 1);
    return wanted == own ? out : tensor.shape;
  }

  void add_experts(const GgufName& known, const GgufTensor& tensor) {
    const bool is_fused = !known.second.empty();
    if (tensor.shape.size() != 3 || (is_fused && tensor.shape[1] % 2 != 0)) {
      parts_[file_].fail(ErrorCode::kCorrupt, "tensor " + in_quotes(tensor.name) + " of shape " +
                                                  printable(tensor.shape) + " is no stack of experts");
    }
    const std::int64_t experts = tensor.shape.front(), shares = is_fused ? 2 : 1;
    const std::uint64_t each = tensor.size_bytes / static_cast<std::uint64_t>(experts * shares);
    const std::vector<std::int64_t> shape = {tensor.shape[1] / shares, tensor.shape[2]};
    for (std::int64_t at = 0; at < experts * shares; ++at) {
      const std::string& name = at % shares == 0 ? known.name : known.second;
      const GgufPiece piece{tensor.name, file_, tensor.offset + static_cast<std::uint64_t>(at) * each, tensor.type,
                            shape};
      wholes_.add(with_expert(name, at / shares), shape, {piece}, translations_[file_]);
    }
  }

  // Experts lie row by row here, whatever their family does.
  void keep_rows() const {
    if (!names_) return;
    const models::Naming& naming = family_of(*family_).namings.front();
    if (!naming.are_stacks_transposed) return;
    for (const StoredTensor& tensor : checkpoint_.tensors) {
      if (tensor.shape.size() == 3 && is_weight_dtype(tensor.dtype)) checkpoint_.row_stacks.insert(tensor.name);
    }
  }

  void add_notes() const {
    std::string counts;
    for (const auto& [type, count] : wholes_.dequantised())
      counts += (counts.empty() ? "" : ", ") + std::to_string(count) + " of " + std::string(type);
    if (ahead_ > 0) {
      checkpoint_.notes.push_back(std::to_string(ahead_) +
                                  " tensors of layers that predict several tokens ahead are left out");
    }
    if (!counts.empty()) {
      checkpoint_.notes.push_back("tensors that no scheme here says exactly are dequantised to float32: " + counts);
    }
    if (unknown_.empty()) return;
    checkpoint_.notes.push_back(std::to_string(unknown_.size()) + " tensors are none that the family " +
                                std::string(family_->model_type) + " has, " + in_quotes(unknown_.front()) +
                                " among them; they keep their names");
  }

  const GgufParts& parts_;
  const GgufFamily* family_;
  Checkpoint& checkpoint_;
  GgufWholes wholes_;
  std::optional<GgufNames> names_;
  std::deque<Translation> translations_;                  // of each file
  std::map<std::string, std::vector<GgufPiece>> shared_;  // by what they are shares of
  std::optional<models::ModelConfig> model_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;  // of the model's tensors
  std::int64_t layers_ = 0;
  bool has_layers_ahead_ = false;
  int ahead_ = 0;  // tensors left out
  std::size_t file_ = 0;
  std::vector<std::string> unknown_;
};

void describe_unknown(const GgufFile& file, Checkpoint& checkpoint) {
  const auto architecture = file.text("general.architecture");
  checkpoint.notes.push_back("the architecture " + in_quotes(architecture.value_or("")) +
                             " is not known: the tensors keep the names that the file gives them");
}

}  // namespace

bool is_gguf(const InputFile& file) { return starts_as_gguf(file); }

std::vector<std::string> pick_gguf(const fs::path& directory, const std::vector<std::string>& names) {
  return choose_gguf_files(directory, names);
}

std::vector<TensorRecord> open_gguf(std::span<const fs::path> paths, Checkpoint& checkpoint) {
  const GgufParts parts = open_gguf_parts(paths[0]);
  const GgufFamily* family = find_gguf_family(parts.front());
  if (family) {
    checkpoint.config = gguf_config(parts, *family, checkpoint.notes);
  } else {
    describe_unknown(parts.front(), checkpoint);
  }
  checkpoint.says_its_model = true;
  add_gguf_tokenizer(std::make_shared<GgufFile>(parts.front()), checkpoint);
  return GgufTensors(parts, family, checkpoint).run();
}

}  // namespace halfbyte::files

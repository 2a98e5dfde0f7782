#include "convert/training/corpus.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/calibrate/text_values.h"
#include "convert/training/json_documents.h"
#include "convert/training/packing.h"
#include "loader/files/hash.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using calibrate::TextShape;
using training::Sequence;

// Pieces of all documents, and what became of them.
class Collector {
 public:
  explicit Collector(std::int64_t context) : context_(context) {}

  // What one document of the file, or one line, came to.
  void add(const std::vector<Document>& documents) {
    ++documents_;
    const std::size_t before = pieces_.size();
    bool is_cut = false;
    for (const Document& document : documents) {
      is_cut = is_cut || std::ssize(document.ids) > context_;
      for (Sequence& piece : cut(document, context_)) {
        is_cut ? left_out_ += piece.tokens.empty() : 0;
        if (!piece.tokens.empty()) pieces_.push_back(std::move(piece));
      }
    }
    cut_ += is_cut;
    empty_ += pieces_.size() == before;
  }

  Corpus take(bool packs) && {
    Corpus out;
    out.sequences = packs ? pack(std::move(pieces_), context_ - 1) : std::move(pieces_);
    out.documents = documents_;
    for (const Sequence& each : out.sequences)
      out.scored += std::ssize(each.labels) - std::ranges::count(each.labels, training::kUnscored);
    return out;
  }

  std::vector<Text> notes() const {
    std::vector<Text> out;
    if (empty_ > 0)
      out.push_back("documents: " + std::to_string(empty_) + " of " + std::to_string(documents_) +
                    " are left out, since nothing in them is to be learnt");
    if (cut_ > 0)
      out.push_back("documents: " + std::to_string(cut_) + " of " + std::to_string(documents_) + " have more than " +
                    std::to_string(context_) + " tokens and are cut" +
                    (left_out_ > 0 ? "; " + std::to_string(left_out_) +
                                         " pieces of them are left out, since nothing in them is to be learnt"
                                   : ""));
    return out;
  }

 private:
  std::int64_t context_;
  std::vector<Sequence> pieces_;
  std::int64_t documents_ = 0, empty_ = 0, cut_ = 0, left_out_ = 0;
};

}  // namespace

Corpus read_corpus(const std::filesystem::path& file, const CorpusOptions& options) {
  if (options.context < 2) throw Error(ErrorCode::kInvalidArgument, "sequences have two tokens at least");
  const std::string text = calibrate::read_text_file(file);
  const TextShape shape = options.is_json_lines ? TextShape::kJsonLines : calibrate::shape_of(file);
  DocumentReader reader({options.tokenizer, options.vocab_size, options.chat_template});
  Collector collector(options.context);
  if (shape == TextShape::kPlain) {
    collector.add({reader.read_plain(text)});
  } else {
    calibrate::each_json_value(text, file, shape, [&](const nlohmann::ordered_json& value, const std::string& where) {
      if (options.stop.stop_requested()) throw Error(ErrorCode::kInterrupted, where + ": stopped");
      collector.add(reader.read(value, where));
      return true;
    });
  }
  std::vector<Text> notes = reader.notes();
  if (shape != TextShape::kPlain) std::ranges::copy(collector.notes(), std::back_inserter(notes));
  Corpus out = std::move(collector).take(options.packs);
  if (out.sequences.empty())
    throw Error(ErrorCode::kInvalidArgument,
                files::printable_path(file) + ": there is nothing to learn: no token is scored that follows another");
  out.hash = files::hash_hex(text);
  out.notes = std::move(notes);
  return out;
}

}  // namespace halfbyte::convert

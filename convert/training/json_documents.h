// Texts and JSON values to documents, by a checkpoint's tokenizer and chat template.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <halfbyte/text.h>

#include "convert/training/document.h"

namespace halfbyte::convert {

struct DocumentOptions {
  std::filesystem::path tokenizer;  // a checkpoint, or a directory with a tokenizer
  std::int64_t vocab_size;          // ids are smaller
  std::string chat_template = {};   // of a family, instead of the checkpoint's own
};

// The tokenizer and the template are read when something first needs them.
class DocumentReader {
 public:
  explicit DocumentReader(DocumentOptions options);
  ~DocumentReader();

  // A whole text, every token of which is scored; what it spells is text. Errors: as load_tokenizer; kInvalidArgument
  // where there is none, or its tokens are beyond the model's.
  Document read_plain(std::string_view text);
  // {"text"}, {"prompt", "completion"}, {"messages"}, {"input_ids"} or [ids]; "labels" beside ids are as transformers
  // has them: of each id, -100 for one that is not scored. One document, but for conversations (documents_of).
  // Errors: kCorrupt for something else, as those that reading it has; all begin with `where`.
  std::vector<Document> read(const nlohmann::ordered_json& value, const std::string& where);
  // What is to be said of all that was read.
  std::vector<Text> notes() const;

 private:
  class Texts;
  Texts& texts();
  std::vector<Document> read_value(const nlohmann::ordered_json& value, const std::string& where);

  DocumentOptions options_;
  std::unique_ptr<Texts> texts_;
};

}  // namespace halfbyte::convert

// Replaces tensors in another layout by translated ones, in an opened checkpoint.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

// The data file on the disk from which a data file's bytes come: itself, or the one that a translated one is made of.
std::size_t file_on_disk(const Checkpoint& checkpoint, std::size_t file);

class Translation {
 public:
  // `path`: a data file of the checkpoint, from which the tensors come. The checkpoint must outlive this.
  Translation(Checkpoint& checkpoint, const fs::path& path);

  // A tensor of the checkpoint that is explained by translated ones and is listed no more.
  void consume(const StoredTensor& tensor);
  // One in halfbyte's layout. Errors: kCorrupt when its bytes are not as many as its shape and dtype say.
  void add(std::string name, Dtype dtype, std::vector<std::int64_t> shape, std::unique_ptr<TensorBytes> bytes);
  // Changes the checkpoint's tensors; StoredTensor pointers into it end here. Errors: kCorrupt when a name is there
  // twice.
  void finish();
  // The same for several, the tensors' index made once.
  static void finish_all(std::span<Translation* const> translations);

 private:
  void change_tensors();

  Checkpoint& checkpoint_;
  std::shared_ptr<TranslatedFile> file_;
  std::set<std::string> consumed_;
  std::vector<StoredTensor> added_;
};

}  // namespace halfbyte::files

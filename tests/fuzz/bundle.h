// An input that is several files, and the folder on a memory disk that they are written into.
//
// A line "@@ NAME" begins a file, which ends where the next such line begins. A name that ends with ".tensors" is a
// checkpoint's file said in short, so that a changed byte changes a tensor and not a sum of sizes: the first line is a
// JSON object {"a.weight": ["F16", [2, 3], VALUES]}, what follows is the bytes of tensors without VALUES (a string, or
// numbers), over and over. "model.safetensors.tensors" becomes model.safetensors, other names become what torch.save
// writes. A file whose name ends with ".zeros" is followed by 64 KiB of zeros.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::fuzz {

namespace fs = std::filesystem;

struct BundledFile {
  std::string name;
  std::string bytes;
};

// Names that would leave the folder are left out.
std::vector<BundledFile> unpack(std::string_view input);

// A folder of this process that is emptied for every input.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const noexcept { return path_; }
  fs::path operator/(std::string_view name) const { return path_ / name; }
  void write(std::string_view name, std::string_view bytes, std::string_view rest = {}) const;
  void write(const std::vector<BundledFile>& files) const;

 private:
  fs::path path_;
};

// The same, of a bundle.
Folder& folder_of(std::string_view bundle);

}  // namespace halfbyte::fuzz

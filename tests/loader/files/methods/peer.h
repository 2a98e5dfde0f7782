// Checkpoints that other programs wrote, compared with what an independent implementation made of them.
#pragma once

#include <cstring>
#include <vector>

#include "loader/files/checkpoint.h"
#include "loader/files/tensor_reader.h"
#include "tests/loader/files/read_values.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte::testing {

// Every tensor of expected.safetensors, bit for bit. `peer`: a folder of shared/fixtures/peers.
inline void check_peer(const std::string& peer, const std::string& kind) {
  const fs::path directory = shared_data() / "fixtures" / "peers" / peer;
  if (!fs::exists(directory)) HALFBYTE_SKIP(directory.string() + " is not here");
  const auto opened = files::open_checkpoint(directory);
  CHECK(opened.kind == kind);
  CHECK(opened.is_quantized());
  const auto expected = files::open_checkpoint(directory / "expected.safetensors");
  CHECK_FALSE(expected.tensors.empty());
  for (const auto& tensor : expected.tensors) {
    INFO(peer << " " << tensor.name);
    REQUIRE(opened.manifest.find(tensor.name));
    CHECK(opened.manifest.find(tensor.name)->shape == tensor.shape);
    const std::vector<float> found = values_of(opened, tensor.name);
    REQUIRE(found.size() * sizeof(float) == tensor.size_bytes);
    std::vector<float> wanted(found.size());
    files::read_stored(expected, tensor, 0, std::as_writable_bytes(std::span(wanted)));
    CHECK(std::memcmp(found.data(), wanted.data(), tensor.size_bytes) == 0);
  }
}

}  // namespace halfbyte::testing

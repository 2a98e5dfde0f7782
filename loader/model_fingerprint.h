// What two models must have in common for the keys and values of one to be those of the other.
#pragma once

#include <string>
#include <vector>

#include <halfbyte/load_low_bit.h>

namespace halfbyte {

struct FingerprintPart {
  const char* key;         // in a file's metadata
  const char* difference;  // what another value means: "another dtype policy"
  bool is_for_people;      // else the value is a hash
  std::string value = {};
};

// Of names and some rows of all weights.
std::string rows_hash(const models::CausalLM& model);

// Not what only rounds otherwise: kernels, threads, devices. Reads some rows of every weight where not all hashes are
// on record.
std::vector<FingerprintPart> fingerprint_of(const Model& model);

}  // namespace halfbyte

// What products are given in the batches of all parts of a shared calibration: each part keeps that of its own, and
// sums up its panels of all, in the order in which one run would see them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "convert/calibrate/meeting.h"
#include "convert/calibrate/moments.h"

namespace halfbyte::convert::calibrate {

class KeptInputs {
 public:
  KeptInputs(Meeting& meeting, at::ScalarType factors) : meeting_(meeting), factors_(factors) {}

  // As Moments::add(). Errors: as Meeting::give().
  void add(const models::Linear& linear, const at::Tensor& input, const at::Tensor& original = {});
  // After the last one. Returns what each part says. Errors: as Meeting::meet() and Meeting::read(); kCorrupt where
  // what another gave means nothing here.
  std::vector<std::string> meet(const std::string& text);
  // Those of all parts, by the product's path. Until the next meeting.
  void for_each(const std::function<void(const std::string& path, const KeptInput& input)>& work) const;

 private:
  struct Input {
    std::uint64_t begin;
    std::int64_t tokens, columns;
    bool has_change;
  };
  struct Given {
    std::string path;
    std::size_t input;
  };
  struct Kept {
    std::vector<Input> inputs;
    std::vector<Given> givens;
  };

  std::uint64_t give(const at::Tensor& rows);
  InputRows read(int part, const Input& input) const;
  std::string index() const;
  Kept read_index(int part, std::uint64_t begin) const;
  bool is_there(int part, const Input& input) const;

  Meeting& meeting_;
  at::ScalarType factors_;
  Kept own_;
  at::Tensor last_;         // held, so that no other input can lie where it does
  std::vector<Kept> kept_;  // by part, once they have met
};

// Until each part has the sums that are for all. Errors: as Meeting::meet().
void share_sums(Moments& moments, Meeting& meeting);

}  // namespace halfbyte::convert::calibrate

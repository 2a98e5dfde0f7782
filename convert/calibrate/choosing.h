// The codes of products whose inputs were gathered: chosen in blocks of rows, by one run or by several that share them.
#pragma once

#include <functional>
#include <vector>

#include "convert/calibrate/meeting.h"
#include "convert/calibrate/method.h"
#include "convert/calibrate/moments.h"
#include "convert/calibrate/share_loads.h"
#include "loader/files/checkpoint.h"

namespace halfbyte::convert::calibrate {

// A weight's place among the tensors of the plan.
struct Place {
  std::size_t tensor;
  std::size_t matrix;  // of a stack
};

class Choosing {
 public:
  struct Job {
    const Method& method;
    const files::Checkpoint& source;
    const Plan& plan;
    int threads;
    Meeting* meeting;  // null: alone
    std::function<Place(const models::Linear&)> place_of;
  };
  using Take = std::function<void(const models::Linear& linear, Place place, const PackedMatrix& matrix)>;

  explicit Choosing(Job job);

  // `take` gets each product's codes, those of other parts too, in the order of the sums, which are gone then. Returns
  // how many matrices saw too few tokens for the method. Errors: kInterrupted; as Meeting::meet().
  std::int64_t run(Moments& moments, const Take& take);

 private:
  // Rows that are chosen by themselves, by one of the runs.
  struct Block {
    std::int64_t first, count;
    int owner;
    std::vector<std::byte> bytes;  // once they are here
  };
  struct Matrix {
    const models::Linear* linear;
    Place place;
    MatrixSize size;
    std::vector<Block> blocks;
  };

  const PlannedTensor& planned(const Matrix& matrix) const { return job_.plan.tensors[matrix.place.tensor]; }
  int own() const noexcept { return job_.meeting ? job_.meeting->index() : 0; }
  std::vector<Matrix> divided(const Part& part);
  void choose(Part& part, std::vector<Matrix>& matrices) const;
  void share(std::vector<Matrix>& matrices) const;
  void give(const Matrix& matrix, const Take& take) const;

  Job job_;
  ShareLoads loads_;
};

}  // namespace halfbyte::convert::calibrate

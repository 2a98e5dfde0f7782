// What ranks that train one model together give each other: losses, gradients, and what the first of them goes on from.
// A null group: there is one process, and nothing to give.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/group.h>
#include <halfbyte/sequence.h>

namespace halfbyte::training {

// Of things that ranks divide: neighbours, as many for each as for any other or one more.
struct Share {
  std::size_t begin, end;
};
Share share_of(std::size_t count, const Group* group);

bool is_first(const Group* group);  // the one that writes, or alone

// What each rank's work gives, added in the order of the ranks: the same bits in all. Errors: kInterrupted in all of
// them where that of one was stopped; other errors of a rank's work are its own, and the others find it gone.
double summed(Group* group, const std::function<double()>& work);

// Work of rank 0 alone, however long it takes: the others wait for it. Errors: what the work throws, in all of them.
void by_first(Group* group, const std::function<void()>& work);

// Makes each parameter's gradient the sum of all ranks', which are added in float32: the same bits in each. One that a
// rank has none of counts as zeros there, and one that none has stays undefined.
void sum_gradients(Group& group, std::span<const at::Tensor> parameters);

// Rank 0's values, bit by bit. Shapes and dtypes: alike in all. On the CPU.
void take_from_first(Group& group, std::span<const at::Tensor> tensors);
std::string taken_from_first(Group& group, const std::string& text);

// Errors: kContract naming a rank with other bits than rank 0's.
void check_same_values(Group& group, std::span<const at::Tensor> tensors);

// What rounds otherwise where ranks differ in it, for check_alike().
std::vector<std::string> rounding_things();
// For the same: of all tokens and labels.
std::string likeness_text(std::span<const Sequence> sequences);

}  // namespace halfbyte::training

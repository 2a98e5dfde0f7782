// Masters on the CPU of what is learnt on another device.
#pragma once

#include <memory>

#include "convert/training/learned.h"

namespace halfbyte::convert {

// The optimizer, clipping and what training goes on from are those of the CPU: each step begins by copying the masters
// to where passes see them, and gradients come back when they are all there.
std::unique_ptr<Learned> with_host_masters(std::unique_ptr<Learned> learned);

}  // namespace halfbyte::convert

// Catch2, version 2 or 3, beside LibTorch or not. Every test includes this instead of Catch2.
//
// c10's logging header defines a CHECK of its own that ends the process; whichever is defined last wins. So where
// LibTorch is in use it is included here first, its macro is dropped, and then Catch2 comes.
#pragma once

#ifdef HALFBYTE_TESTS_WITH_TORCH
#include <torch/nn/module.h>
#undef CHECK
#endif

#if __has_include(<catch2/catch_all.hpp>)
#include <string>

#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace Catch {  // as version 2 calls them
using Matchers::EndsWith;
using Matchers::StartsWith;
inline auto Contains(const std::string& part) { return Matchers::ContainsSubstring(part); }
}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif

// Ends a test that cannot run here, with the reason in the log.
#ifdef SKIP
#define HALFBYTE_SKIP(reason) SKIP(reason)
#else
#define HALFBYTE_SKIP(reason)    \
  do {                           \
    WARN("skipped: " << reason); \
    return;                      \
  } while (false)
#endif

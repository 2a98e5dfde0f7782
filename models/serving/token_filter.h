// Which tokens may come next in an answer that must have some form. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <vector>

namespace halfbyte::serving {

// Of one answer; one thread at a time.
class TokenFilter {
 public:
  virtual ~TokenFilter() = default;
  // Whether the token may come next. `room`: tokens that the answer may still have, this one included: it must be able
  // to end within them, where it was before.
  virtual bool allows(std::int64_t token, std::int64_t room) const = 0;
  // Whether most tokens are allowed, so that trying what is drawn is faster than asking for all.
  virtual bool is_loose() const = 0;
  // As allows() says it of each token. Shape: (vocab_size).
  virtual void allowed(std::int64_t room, std::vector<bool>& out) const = 0;
  // It is part of the answer now. Precondition: allows().
  virtual void choose(std::int64_t token) = 0;
  // Whether the answer may end here, and whether nothing else may come.
  virtual bool may_end() const = 0;
  virtual bool must_end() const = 0;
};

}  // namespace halfbyte::serving

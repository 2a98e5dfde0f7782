// What a leading rank says to those that follow it. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/parallel/session_log.h"
#include "quant/rows_alike.h"

namespace halfbyte::models {

// A row of a step: which session, how many tokens of the step's, and how long it is expected to become.
struct LedRow {
  std::uint64_t session;
  std::int64_t tokens, expected;

  bool operator==(const LedRow&) const = default;
};

// A row of what a step gave.
struct GivenRow {
  std::uint64_t step;  // counted from 0 on
  std::int64_t row;

  bool operator==(const GivenRow&) const = default;
};

enum class LedWork : std::uint8_t {
  kNothing,  // it is there
  kStep,
  kHead,    // of the rows that come next, in a sum of all ranks
  kHeadOf,  // of what steps gave, in the last stage
  kStates,  // what steps gave there, in all ranks
  kEnd,
};

struct LeadMessage {
  LedWork work = LedWork::kNothing;
  std::vector<SessionChange> changes = {};  // before it
  quant::RowsKind kind = quant::RowsKind::kCounted;
  std::vector<LedRow> rows = {};          // kStep
  std::vector<std::int64_t> tokens = {};  // kStep, of all rows
  std::int64_t count = 0;                 // kHead: rows
  std::int64_t dtype = 0;                 // and their at::ScalarType
  std::vector<GivenRow> given = {};       // kHeadOf, kStates
  // Steps of which nobody asks any more what they gave.
  std::vector<std::uint64_t> forgotten = {};

  bool operator==(const LeadMessage&) const = default;
};

std::string text_of(const LeadMessage& message);
// Errors: kContract for what text_of() never gives.
LeadMessage lead_message(std::string_view text);

// What one message takes at most, and is surely not too long for a group then.
inline constexpr std::size_t kMostChanges = 2048;
inline constexpr std::int64_t kMostLedTokens = 16'384;
inline constexpr std::int64_t kMostLedRows = 4096;

}  // namespace halfbyte::models

// What one pass of a model must read from memory and compute: what its speed is compared with.
#pragma once

#include <cstdint>

#include <halfbyte/load_report.h>

#include "models/architectures/model_config.h"

namespace halfbyte::cli {

// Weights that a pass of one token in each of `batch` sequences reads: every layer, the head, a row of the embedding a
// sequence, and of the experts as many as chance picks. Units: bytes.
double decode_weight_bytes(const models::ModelConfig& config, const LoadReport& report, std::int64_t batch);

// Keys and values (or latents) that a token after `past` others of its sequence attends to, and states that it reads; a
// layer that slides reads its window. Units: bytes, of all layers; `value_bytes` is one value's of keys and values.
double attended_bytes(const models::ModelConfig& config, double past, double value_bytes);

// Multiplications and additions of a prompt of `tokens` after `past` others: products with weights (the head for the
// last token only), attention, and what recurrent layers do to their states.
double prefill_flop(const models::ModelConfig& config, std::int64_t tokens, std::int64_t past);

}  // namespace halfbyte::cli

// The loop over a text's windows that every way of evaluating shares.
#pragma once

#include <functional>

#include <halfbyte/accuracy.h>

#include "models/evaluation/logits.h"
#include "models/evaluation/windows.h"

namespace halfbyte::models {

WindowBatch batch_of(const Windows& windows, std::int64_t first, std::int64_t count);

// Calls `run` for the windows, several at once, each of which makes `passes` passes of models, and reports what the
// options ask for. Errors: kInterrupted, and those of `run`.
void for_each_batch(const Windows& windows, const PerplexityOptions& options, std::int64_t passes,
                    const std::function<void(const WindowBatch&)>& run);

// For who records a source's logits: nothing is scored.
void run_through(const Windows& windows, std::int64_t vocab_size, LogitSource& source,
                 const PerplexityOptions& options);

// `original` may be null. `passes`: of models, a batch. Errors: kInterrupted when stopped before a batch was finished;
// those of the sources.
Accuracy measure(const Windows& windows, std::int64_t vocab_size, LogitSource& model, LogitSource* original,
                 std::int64_t passes, const PerplexityOptions& options);

}  // namespace halfbyte::models

#include "convert/embedding_advice.h"

#include "tests/convert/described.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::QuantizeOptions;

TEST_CASE("advice: an embedding that is much of the result is worth a line", "[plan][advice]") {
  struct Row {
    bool is_tied;
    QuantizeOptions options;
    const char* advice;
  };
  const Row rows[] = {
      {true,
       {},
       "the embedding, which is the output head too, is 4.10 kB of 9.52 kB; embedding sym_int8 halfbyte_only makes "
       "that "
       "2.19 kB, which halfbyte alone reads"},
      {true,
       {.halfbyte_only = true},
       "the embedding, which is the output head too, is 4.10 kB of 9.52 kB; embedding sym_int8 makes that 2.19 kB, "
       "which "
       "halfbyte alone reads"},
      {true, {.embedding = "keep"}, ""},
      {true, {.head = "keep"}, ""},
      {true, {.keep = {"*embed*"}}, ""},
      {true, {.keep = {"*"}}, ""},
      {false,
       {},
       "the embedding and the output head are 5.12 kB of 10.54 kB; head sym_int8 embedding sym_int8 halfbyte_only "
       "makes "
       "that 2.75 kB, which halfbyte alone reads; without embedding others do too"},
      {false,
       {.head = "sym_int8"},
       "the embedding is 4.10 kB of 10.08 kB; embedding sym_int8 halfbyte_only makes that 2.19 kB, which halfbyte "
       "alone "
       "reads"},
      {false, {.embedding = "keep"}, ""},  // a head that is a tenth
  };
  for (const Row& row : rows) {
    auto tensors = llama_tensors(!row.is_tied);
    tensors.front() = float_tensor("model.embed_tokens.weight", {64, 32});
    const auto source = described(tensors, llama_config(row.is_tied));
    CHECK(convert::embedding_advice(source, convert::plan(source, row.options), row.options).str() == row.advice);
  }
  auto tensors = llama_tensors(false);
  tensors.front() = float_tensor("model.embed_tokens.weight", {64, 34});  // no group size divides its rows
  const auto source = described(tensors, llama_config(true));
  CHECK(convert::embedding_advice(source, convert::plan(source, {}), {}).empty());
}

// libsentencepiece.so and libc10.so both define FLAGS_minloglevel: a class of 32 bytes and an int. Linked into one program,
// SentencePiece's constructor wrote over the flags of LibTorch that follow, and a failed allocation ended the process.
#include "tests/catch.h"

#include <dlfcn.h>

#include "models/tokenizers/tokenizer.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

TEST_CASE("isolation: SentencePiece leaves LibTorch's flags alone", "[isolation]") {
  const auto tokenizer = models::load_tokenizer(tests::data("tiny-llama"));
  REQUIRE(tokenizer);
  CHECK(tokenizer->decode(tokenizer->encode("Once upon a time")) == "Once upon a time");
  // By name, since a reference from here would move the flag into this program.
  const auto* ends_the_process = static_cast<const bool*>(dlsym(RTLD_DEFAULT, "FLAGS_caffe2_use_fatal_for_enforce"));
  REQUIRE(ends_the_process != nullptr);
  CHECK(*reinterpret_cast<const unsigned char*>(ends_the_process) == 0);
  CHECK(dlsym(RTLD_DEFAULT, "FLAGS_help") == nullptr);  // SentencePiece's alone
}

}  // namespace
}  // namespace halfbyte

// Which difference between the library that is running and the one halfbyte was built against is refused, and which
// only told.
#include "loader/versions.h"

#include <halfbyte/error.h>

#include "quant/kernels/onednn/onednn.h"
#include "tests/catch.h"

namespace halfbyte {
namespace {

TEST_CASE("versions agree by major, minor and patch number", "[versions]") {
  CHECK(agreement("2.13.0", "2.13.0") == Agreement::kSame);
  CHECK(agreement("2.13.0", "2.13.0+cpu") == Agreement::kSame);
  CHECK(agreement("2.13.0a0+git123", "2.13.0") == Agreement::kSame);
  CHECK(agreement("2.13.0", "2.13.1") == Agreement::kOtherPatch);
  CHECK(agreement("2.13.1", "2.13.10") == Agreement::kOtherPatch);
  CHECK(agreement("2.13.0", "") == Agreement::kOtherPatch);
  CHECK(agreement("2.13.0", "2.12.0") == Agreement::kOtherMinor);
  CHECK(agreement("2.1.0", "2.13.0") == Agreement::kOtherMinor);
  CHECK(agreement("2.13.0", "3.13.0") == Agreement::kOtherMinor);
}

TEST_CASE("LibTorch of another minor version is refused by name, with the cure", "[versions]") {
  const LibraryVersion other{"LibTorch", "2.13.0", "2.12.1+cpu"};
  try {
    check_torch_version(other);
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(std::string(error.what()) ==
          "LibTorch 2.12.1+cpu is running; halfbyte was built against 2.13.0, and minor versions are not binary "
          "compatible; build halfbyte again (tools/setup.sh), or install LibTorch 2.13");
  }
  CHECK_NOTHROW(check_torch_version({"LibTorch", "2.13.0", "2.13.4"}));
  CHECK_NOTHROW(check_torch_version({"LibTorch", "2.13.0", ""}));
}

TEST_CASE("another patch version is told and taken", "[versions]") {
  CHECK(version_note({"LibTorch", "2.13.0", "2.13.0"}).empty());
  CHECK(version_note({"oneDNN", "2.6.3", "2.6.4"}) == "oneDNN 2.6.4 is running; halfbyte was built against 2.6.3");
  CHECK(version_note({"LibTorch", "2.13.0", ""}) == "LibTorch does not say which version it is");
}

TEST_CASE("the oneDNN that is opened is the one halfbyte was built against", "[versions]") {
  if (!quant::onednn::available()) HALFBYTE_SKIP("oneDNN is switched off or not there: " << quant::onednn::why_not());
  const LibraryVersion onednn = onednn_version();
  CHECK(onednn.built_against.find('.') != std::string::npos);
  CHECK(agreement(onednn.built_against, onednn.running) != Agreement::kOtherMinor);
}

}  // namespace
}  // namespace halfbyte

#include "convert/calibrate/layer_files.h"

#include "convert/calibrate/layer_runner.h"
#include "loader/files/hash.h"
#include "models/sessions/pass_watch.h"
#include "tests/catch.h"
#include "tests/loader/files/scratch.h"
#include "tests/places.h"

using namespace halfbyte;
using namespace halfbyte::convert::calibrate;
using halfbyte::testing::Scratch;
using halfbyte::testing::write_text;

// Other parts of a calibration give up one that gives no sign meanwhile.
TEST_CASE("layer files: whoever looks on is asked while files are hashed and a layer is loaded", "[calibrate][parts]") {
  const Scratch scratch;
  const std::string text(std::size_t{5} << 20, 'x');
  const LayerFiles files(scratch.path(), scratch.path(), {1, 1, 1});
  write_text(files.codes(0), text);
  int looks = 0;
  const models::PassWatch watch({}, {}, models::PassWatch::kProducts, [&] { ++looks; });
  CHECK(files.holds(files.codes(0), files::hash_hex(text), {}));
  CHECK(looks == 5);
  const files::Checkpoint source = files::open_checkpoint(tests::data("tiny-llama"));
  looks = 0;
  hash_of_tensors(source, "model.layers.1.", {});
  CHECK(looks == 9);  // its tensors
  looks = 0;
  LayerRunner runner(source, DtypePolicy::float32());
  runner.load(1);
  CHECK(looks == 9);
}

// A checkpoint served by a host program: two servers in one process, and none left behind.
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/catch.h"

#include <halfbyte/server.h>

#include "tests/loader/quantized.h"
#include "tests/places.h"
#include "tests/tools/server/client.h"

namespace halfbyte {
namespace {

using tests::body_of;
using tests::status_of;

TEST_CASE("a host serves a checkpoint, says how far it is, and ends it", "[server]") {
  Server server({.port = 0});
  std::thread network([&] { server.run(); });
  CHECK(body_of(tests::get(server.port(), "/health")) == R"({"status":"starting"})");
  CHECK(status_of(tests::post(server.port(), "/v1/completions", R"({"prompt": "a"})")) == 503);
  const Serving serving = server.serve(tests::quantized_tiny_llama(), {.name = "mine", .context = 128});
  CHECK(serving.name == "mine");
  CHECK(serving.context == 128);
  CHECK(serving.bytes_of_sequence > 0);
  CHECK(serving.kept_bytes == 8 * serving.bytes_of_sequence);
  CHECK(status_of(tests::get(server.port(), "/health")) == 200);
  Server other({.port = 0});
  std::thread others([&] { other.run(); });
  other.serve(tests::quantized_tiny_llama());
  const std::string body = R"({"prompt": "Once", "max_tokens": 8, "temperature": 0})";
  const auto text = [&](const Server& one) {
    return nlohmann::json::parse(body_of(tests::post(one.port(), "/v1/completions", body)))["choices"][0]["text"];
  };
  CHECK(text(server) == text(other));
  const auto report = nlohmann::json::parse(body_of(tests::get(server.port(), "/v1/halfbyte/report")));
  CHECK(report["policy"] == "amp:bfloat16");
  CHECK(report["checkpoint"]["schemes"]["sym_int4"] == 28);
  CHECK(report["checkpoint"]["rel_rmse"].get<double>() == Approx(0.09).margin(0.01));
  server.drain(std::chrono::seconds(5));
  network.join();
  other.stop();
  others.join();
}

TEST_CASE("a checkpoint that cannot be served says why, and the server may go", "[server]") {
  Server server({.port = 0});
  CHECK_THROWS_AS(server.serve(tests::data("nowhere")), Error);
  CHECK_THROWS_AS(server.serve(tests::quantized_tiny_llama(), {.context = 1 << 30}), Error);
  CHECK_THROWS_AS(server.serve(tests::quantized_tiny_llama(), {.chat_template = "no-such"}), Error);
}

}  // namespace
}  // namespace halfbyte

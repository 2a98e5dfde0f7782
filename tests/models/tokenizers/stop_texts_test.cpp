// Stop texts: found over any borders of pieces, and nothing of them or after them is shown.
#include "models/tokenizers/stop_texts.h"

#include <random>

#include "tests/catch.h"

namespace halfbyte::models {
namespace {

struct Shown {
  std::string text;
  bool is_found;
};

// In pieces of the sizes given, the last of which goes on to the end.
Shown shown(const std::string& text, const std::vector<std::string>& stops, const std::vector<std::size_t>& sizes) {
  StopTexts stream(stops);
  std::string out;
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    out += stream.push(text.substr(at, size));
    at = std::min(at + size, text.size());
  }
  out += stream.push(text.substr(at));
  return {out + stream.finish(), stream.is_found()};
}

// One byte after another: the text is cut where the first stop text that is complete begins.
Shown slow(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST_CASE("a stop text ends the text wherever the pieces have their borders", "[stop_texts]") {
  std::mt19937 random(7);
  const auto draw = [&](int most) { return static_cast<std::size_t>(random() % static_cast<unsigned>(most)); };
  const auto word = [&](std::size_t size) {
    std::string out;
    for (std::size_t i = 0; i < size; ++i) out += static_cast<char>('a' + draw(2));
    return out;
  };
  int found = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const std::string text = word(draw(24));
    std::vector<std::string> stops;
    for (std::size_t i = draw(4); i > 0; --i) stops.push_back(word(1 + draw(7)));
    std::vector<std::size_t> sizes;
    for (std::size_t i = draw(8); i > 0; --i) sizes.push_back(draw(5));
    const Shown wanted = slow(text, stops);
    const Shown ours = shown(text, stops, sizes);
    INFO(text);
    CHECK(ours.text == wanted.text);
    CHECK(ours.is_found == wanted.is_found);
    CHECK(before_stop_text(text, 0, stops) == wanted.text);
    found += wanted.is_found ? 1 : 0;
  }
  CHECK(found > 1000);
}

TEST_CASE("what may begin a stop text is held back, and no more than that", "[stop_texts]") {
  StopTexts stream({"\nUser:", "</s>"});
  CHECK(stream.push("Yes.\nUs") == "Yes.");
  CHECK(stream.push("eful.<") == "\nUseful.");
  CHECK(stream.push("/s") == "");
  CHECK_FALSE(stream.is_found());
  CHECK(stream.push("> more") == "");
  CHECK(stream.is_found());
  CHECK(stream.push("more") == "");
  CHECK(stream.finish() == "");
  StopTexts cut({"end"});
  CHECK(cut.push("the en") == "the ");
  CHECK(cut.finish() == "en");
  CHECK(before_stop_text("a prompt\n and \n more", 9, {"\n"}) == "a prompt\n and ");
}

}  // namespace
}  // namespace halfbyte::models

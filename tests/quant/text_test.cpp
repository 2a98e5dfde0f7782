// Options in messages: by the names of their fields in C++, and by another program's words where it asks.
#include <set>
#include <string>

#include <halfbyte/backend_error.h>
#include <halfbyte/text.h>

#include "tests/catch.h"

using namespace halfbyte;

namespace {

constexpr Spelling kShouted{.option = [](Option option) { return "<" + std::string(name(option)) + ">"; },
                            .call =
                                [](const OperationCall& call) {
                                  std::string out = "<" + std::string(name(call.operation));
                                  for (const auto& argument : call.arguments) out += " " + argument;
                                  for (const auto& [option, value] : call.options)
                                    out += " " + std::string(name(option)) + ":" + value;
                                  return out + ">";
                                }};

}  // namespace

TEST_CASE("text: every option and operation has a name of its own", "[text]") {
  std::set<std::string_view> names;
  for (const Option option : options()) names.insert(name(option));
  CHECK(names.size() == options().size());
  CHECK_FALSE(names.contains(""));
  names.clear();
  for (const Operation operation : operations()) names.insert(name(operation));
  CHECK(names.size() == operations().size());
  CHECK_FALSE(names.contains(""));
}

TEST_CASE("text: an option is spelt as who reads it writes it", "[text]") {
  for (const Option option : options()) {
    const std::string field(name(option));
    CAPTURE(field);
    const Text text = "dst: exists; " + option + " replaces it";
    CHECK(text.str() == text.str(cpp_spelling()));
    CHECK(text.str(kShouted) == "dst: exists; <" + field + "> replaces it");
  }
  CHECK(("give " + Option::kMemoryLimit + " 3MB").str() == "give memory_limit 3MB");
}

TEST_CASE("text: an operation is a call in C++", "[text]") {
  const OperationCall quantize{Operation::kQuantize, {"llama", "Q"}, {{Option::kScheme, "nf4"}}};
  CHECK(Text(quantize).str() == "quantize(llama, Q, {.scheme = \"nf4\"})");
  CHECK(Text(OperationCall{Operation::kQuantize, {}, {{Option::kOverwrite, ""}, {Option::kScheme, "nf4"}}}).str() ==
        "quantize({.overwrite = true, .scheme = \"nf4\"})");
  CHECK((quantize + ", then " + Operation::kDoctor).str(kShouted) == "<quantize llama Q scheme:nf4>, then <doctor>");
  // What the libraries have no function for is a verb of the program.
  CHECK(Text(Operation::kDoctor).str() == "halfbyte doctor");
}

TEST_CASE("text: names from files are no options, whatever they are", "[text]") {
  for (const std::string file : {"overwrite", "--overwrite", "<overwrite>", "quantize(a)", ""}) {
    const Text text = file + ": exists; " + Option::kOverwrite + " replaces " + file;
    CHECK(text.str(kShouted) == file + ": exists; <overwrite> replaces " + file);
  }
}

TEST_CASE("text: pieces keep their places", "[text]") {
  Text text = Option::kKeep + "=" + Option::kScheme;
  CHECK(text.str(kShouted) == "<keep>=<scheme>");
  text += text;
  CHECK(text.str(kShouted) == "<keep>=<scheme><keep>=<scheme>");
  text += ".";
  CHECK(text.str() == "keep=schemekeep=scheme.");
  CHECK(Text().empty());
  CHECK(Text().str(kShouted).empty());
}

TEST_CASE("errors: what() has field names, text() what they stand for", "[text]") {
  const Error plain(ErrorCode::kIo, "src: cannot be read");
  CHECK(plain.what() == std::string("src: cannot be read"));
  CHECK(plain.text().str(kShouted) == "src: cannot be read");
  const BackendError marked(ErrorCode::kContract, "y: load with " + Option::kDtype + " float32", "detail");
  const Error copy = marked;
  CHECK(copy.what() == std::string("y: load with dtype float32"));
  CHECK(copy.text().str(kShouted) == "y: load with <dtype> float32");
  const Error longer(copy.code(), "x: " + copy.text());
  CHECK(longer.text().str(kShouted) == "x: y: load with <dtype> float32");
}

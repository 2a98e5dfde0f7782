// halfbyte.Tokenizer.
#include <halfbyte/tokenizer.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "tools/python/parts.h"
#include "tools/python/source.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;

TokenIds encode(const Tokenizer& tokenizer, const std::string& text, bool special) {
  const py::gil_scoped_release unlocked;
  return tokenizer.encode(text, special ? SpecialSpelling::kToken : SpecialSpelling::kText);
}

// What is no UTF-8, as half a character, becomes U+FFFD, as in Python's other tokenizers.
py::str decode(const Tokenizer& tokenizer, const TokenIds& ids, bool skip_special) {
  const std::string text = tokenizer.decode(ids, skip_special);
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

TokenIds encode_chat(const Tokenizer& tokenizer, const std::vector<py::dict>& messages) {
  std::vector<ChatTurn> turns;
  for (const py::dict& message : messages)
    turns.push_back({message["role"].cast<std::string>(), message["content"].cast<std::string>()});
  return tokenizer.encode_chat(turns);
}

}  // namespace

void add_tokenizer(py::module_& module) {
  py::class_<Tokenizer>(module, "Tokenizer", "A checkpoint's tokenizer and chat template.")
      .def(py::init([](const Source& checkpoint) { return Tokenizer(checkpoint.path); }), py::arg("checkpoint"))
      .def("encode", &encode, py::arg("text"), py::kw_only(), py::arg("special") = true,
           "Token ids, with what the checkpoint puts around a whole text. special=False: \"</s>\" in it is text.")
      .def("decode", &decode, py::arg("ids"), py::kw_only(), py::arg("skip_special") = true)
      .def("encode_chat", &encode_chat, py::arg("messages"),
           "A conversation of {\"role\", \"content\"} as the checkpoint's template has it, up to where the answer "
           "begins.")
      .def_property_readonly("chat_stop_tokens", &Tokenizer::chat_stop_tokens)
      .def_property_readonly("vocab_size", &Tokenizer::vocab_size);
}

}  // namespace halfbyte::python

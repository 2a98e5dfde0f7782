#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <halfbyte/error.h>

#include "tools/cli/exit_status.h"
#include "tools/python/parts.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;

// As os.fsdecode has it: bytes that are no UTF-8 stay what they are.
py::str text_of(std::string_view bytes) {
  PyObject* text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape");
  if (!text) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

std::string utf8_of(char32_t code) {
  const auto later = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), later(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), later(6), later(0)};
  return {static_cast<char>(0xF0 | code >> 18), later(12), later(6), later(0)};
}

struct Escape {
  char letter;
  std::size_t digits;
};
constexpr Escape kEscapes[] = {{'x', 2}, {'u', 4}, {'U', 8}};

// What printable() (models/json/printable.h) was given. A name that had such a text in it by itself is taken for one
// that was escaped: a backslash is not.
std::string without_escapes(std::string_view shown) {
  std::string out;
  while (!shown.empty()) {
    const auto* row = std::ranges::find(kEscapes, shown.size() > 1 ? shown[1] : '\0', &Escape::letter);
    const std::size_t size = row == std::end(kEscapes) ? 0 : 2 + row->digits;
    unsigned code = 0;
    const bool is_escape = shown[0] == '\\' && size > 0 && size <= shown.size() &&
                           std::from_chars(shown.data() + 2, shown.data() + size, code, 16).ptr == shown.data() + size;
    if (!is_escape) {
      out += shown[0];
    } else if (row->letter == 'x') {
      out += static_cast<char>(code);
    } else {
      out += utf8_of(code);
    }
    shown.remove_prefix(is_escape ? size : 1);
  }
  return out;
}

// The first `tensor "NAME"`.
std::string tensor_in(std::string_view message) {
  constexpr std::string_view kBefore = "tensor \"";
  const std::size_t found = message.find(kBefore), begin = found + kBefore.size();
  if (found == std::string_view::npos) return {};
  const std::size_t end = message.find('"', begin);
  return end == std::string_view::npos ? std::string() : without_escapes(message.substr(begin, end - begin));
}

// Of "PATH: what is wrong": what stands there, or looks like a path. Others begin so too ("threads: -1 is negative",
// "model.layers.0: ...").
std::string file_in(std::string_view message) {
  const std::size_t end = message.find(": ");
  if (end == std::string_view::npos || message.substr(0, end).find('"') != std::string_view::npos) return {};
  const std::string path = without_escapes(message.substr(0, end));
  const bool is_word = path.find(' ') == std::string::npos, has_folder = path.find('/') != std::string::npos;
  std::error_code ignored;
  const bool is_path = path.starts_with('/') || (is_word && has_folder) || std::filesystem::exists(path, ignored);
  return is_path ? path : std::string();
}

py::object error_of(const py::handle& type, const std::string& code, std::string_view message) {
  py::object out = py::reinterpret_borrow<py::object>(type)(text_of(message));
  out.attr("code") = code;
  out.attr("tensor") = text_of(tensor_in(message));
  out.attr("file") = text_of(file_in(message));
  return out;
}

}  // namespace

// halfbyte.Error is a RuntimeError with .code, and with what its message names; Ctrl-C is what Python has for it.
void add_errors(py::module_& module) {
  static py::exception<Error> type(module, "Error", PyExc_RuntimeError);
  type.attr("__module__") = "halfbyte";
  for (const char* name : {"code", "tensor", "file"}) type.attr(name) = "";
  // What the program says as JSON.
  module.def(
      "error_of", [](const std::string& code, const std::string& message) { return error_of(type, code, message); },
      py::arg("code"), py::arg("message"));
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      PyErr_SetObject(type.ptr(), error_of(type, std::string(cli::name(error.code())), error.what()).ptr());
    }
  });
}

}  // namespace halfbyte::python

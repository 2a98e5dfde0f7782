#include <halfbyte/text.h>

#include <utility>

namespace halfbyte {
namespace {

std::string spelt(const std::variant<Option, OperationCall>& what, const Spelling& spelling) {
  if (const auto* option = std::get_if<Option>(&what)) return spelling.option(*option);
  return spelling.call(std::get<OperationCall>(what));
}

}  // namespace

Text::Text(Option option) : text_(cpp_spelling().option(option)), marks_{{0, text_.size(), option}} {}

Text::Text(OperationCall call) : text_(cpp_spelling().call(call)), marks_{{0, text_.size(), std::move(call)}} {}

Text::Text(Operation operation) : Text(OperationCall{operation}) {}

std::string Text::str(const Spelling& spelling) const {
  std::string out;
  std::size_t at = 0;
  for (const Mark& mark : marks_) {
    out.append(text_, at, mark.begin - at);
    out += spelt(mark.what, spelling);
    at = mark.end;
  }
  return out.append(text_, at);
}

Text& Text::operator+=(const Text& more) {
  const std::size_t before = text_.size();
  const std::size_t count = more.marks_.size();  // of `more`, which may be this text
  text_ += more.text_;
  for (std::size_t i = 0; i < count; ++i) {
    Mark mark = more.marks_[i];
    mark.begin += before;
    mark.end += before;
    marks_.push_back(std::move(mark));
  }
  return *this;
}

Text operator+(Text text, const Text& more) {
  text += more;
  return text;
}

}  // namespace halfbyte

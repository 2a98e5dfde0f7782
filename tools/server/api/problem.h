// What is wrong with a request, as OpenAI's clients are told it.
#pragma once

#include <exception>
#include <string>

#include "tools/server/http/exchange.h"

namespace halfbyte::server {

struct Problem : std::exception {
  // `field`: of the body, that it is about; empty: none. `code`: for programs; empty: none.
  Problem(int status_, std::string message_, std::string field_ = "", std::string code_ = "")
      : status(status_), message(std::move(message_)), field(std::move(field_)), code(std::move(code_)) {}
  const char* what() const noexcept override { return message.c_str(); }

  int status;
  std::string message;
  std::string field;
  std::string code;
};

// {"error": {"message", "type", "param", "code"}}.
std::string json_of(const Problem& problem);
HttpResponse response_of(const Problem& problem);

}  // namespace halfbyte::server

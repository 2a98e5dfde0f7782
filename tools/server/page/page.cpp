#include "tools/server/page/page.h"

#include <random>

#include "page_text.h"  // page.html with page.js in it, written by CMake

namespace halfbyte::server {
namespace {

std::string any_number() {
  std::random_device random;
  std::string out;
  for (int i = 0; i < 4; ++i) out += std::to_string(random()) + "-";
  return out + "0";
}

}  // namespace

HttpResponse chat_page() {
  constexpr std::string_view kPlace = "@NONCE@";
  const std::string nonce = any_number();
  std::string text;
  std::size_t at = 0;
  for (std::size_t found; (found = kPageText.find(kPlace, at)) != std::string_view::npos; at = found + kPlace.size()) {
    text += kPageText.substr(at, found - at);
    text += nonce;
  }
  text += kPageText.substr(at);
  const std::string own = "'nonce-" + nonce + "'";
  HttpResponse out{.content_type = "text/html; charset=utf-8", .body = std::move(text)};
  out.headers.push_back({"Content-Security-Policy",
                         "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
                         "form-action 'none'; frame-ancestors 'none'; script-src " +
                             own + "; style-src " + own});
  out.headers.push_back({"Referrer-Policy", "no-referrer"});
  return out;
}

}  // namespace halfbyte::server

// The page to talk in: one file, no network but this server.
#pragma once

#include "tools/server/http/exchange.h"

namespace halfbyte::server {

// With a policy that lets no script run but its own, under a number that is used once.
HttpResponse chat_page();

}  // namespace halfbyte::server

// What loading did, as JSON.
#pragma once

#include <halfbyte/load_report.h>

#include "models/json/held.h"

namespace halfbyte::server {

models::HeldOrderedJson json_of(const LoadReport& report);

}  // namespace halfbyte::server

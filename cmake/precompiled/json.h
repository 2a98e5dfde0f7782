// What sources include that use nlohmann-json.
#pragma once

#include "cmake/precompiled/core.h"
#include "models/json/instances.h"

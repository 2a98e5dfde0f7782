// What the verbs include.
#pragma once

#include "cmake/precompiled/core.h"

#include <CLI/CLI.hpp>

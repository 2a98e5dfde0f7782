// What sources with LibTorch include.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <torch/nn/module.h>

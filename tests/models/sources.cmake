set(HALFBYTE_MODELS_TESTS models/families_test.cpp models/fused_test.cpp models/generate_test.cpp models/low_bit_linear_test.cpp
                          models/overflow_test.cpp models/prompt_cache_test.cpp models/rotary_test.cpp)

set(HALFBYTE_MODELS_TESTS
    models/cpu/fused_test.cpp
    models/families_test.cpp
    models/generation/generate_test.cpp
    models/generation/prompt_cache_test.cpp
    models/modules/low_bit_linear_test.cpp
    models/modules/overflow_test.cpp
    models/modules/rotary_test.cpp)

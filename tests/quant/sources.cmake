# Sources of the quant tests, relative to tests/.
set(HALFBYTE_QUANT_TESTS
    quant/activations_test.cpp
    quant/dispatch_test.cpp
    quant/golden_bytes_test.cpp
    quant/heads_test.cpp
    quant/int8_test.cpp
    quant/kernels_test.cpp
    quant/linear_test.cpp
    quant/nested_scales_test.cpp
    quant/onednn_test.cpp
    quant/parts_test.cpp
    quant/quantize_test.cpp
    quant/row_scales_test.cpp
    quant/scale_search_test.cpp
    quant/special_numbers_test.cpp
    quant/text_test.cpp
    quant/thread_pool_test.cpp)

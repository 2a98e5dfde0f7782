set(HALFBYTE_OPERATORS_TESTS quant/operators/backward_test.cpp quant/operators/device_test.cpp quant/operators/operators_test.cpp)

set(HALFBYTE_OPERATORS_TESTS quant/operators/operators_test.cpp)

set(HALFBYTE_OPERATORS_TESTS quant/operators_test.cpp)

set(HALFBYTE_LOADER_TESTS loader/bit_flips_test.cpp loader/inv_freq_test.cpp loader/load_cost_test.cpp loader/load_errors_test.cpp loader/policies_test.cpp
                          loader/round_trip_test.cpp)

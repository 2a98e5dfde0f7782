set(HALFBYTE_LOADER_TESTS loader/bit_flips_test.cpp loader/device_test.cpp loader/inv_freq_test.cpp loader/lifetime_test.cpp
                          loader/load_cost_test.cpp loader/load_errors_test.cpp loader/load_state_test.cpp
                          loader/original_test.cpp loader/overrides_test.cpp loader/peers_test.cpp loader/policies_test.cpp loader/restore_into_test.cpp
                          loader/round_trip_test.cpp loader/unknown_family_test.cpp)

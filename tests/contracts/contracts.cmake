# The failures that people report of other tools, each first made with plain LibTorch or oneDNN calls, then met by halfbyte.
# A program of its own: it registers a device that the other tests must not see.
halfbyte_test_program(contract_tests
  SOURCES contracts/backend_test.cpp contracts/fake_device.cpp
  LIBRARIES halfbyte::loader halfbyte::convert)
target_compile_definitions(contract_tests PRIVATE HALFBYTE_TESTS_WITH_TORCH)
target_precompile_headers(contract_tests REUSE_FROM torch_tests)
catch_discover_tests(contract_tests PROPERTIES LABELS contracts)

# The failures that people report of other tools, each first made with plain LibTorch or oneDNN calls, then met by halfbyte.
# A program of its own: it registers a device that the other tests must not see.
halfbyte_test_program(contract_tests
  SOURCES contracts/backend_test.cpp contracts/fake_device.cpp contracts/optimizer_test.cpp contracts/primitive_descriptor_test.cpp
  LIBRARIES halfbyte::loader halfbyte::convert)
target_compile_definitions(contract_tests PRIVATE HALFBYTE_TESTS_WITH_TORCH)
halfbyte_precompiled(contract_tests torch)
catch_discover_tests(contract_tests PROPERTIES LABELS contracts TIMEOUT ${HALFBYTE_TEST_SECONDS} SKIP_REGULAR_EXPRESSION "${skipped_case}")

# The same on lesser CPUs, and without oneDNN. Each variable is read once, when its library is first used. isa_check ends with
# 77 where this CPU lacks the kernels.
function(halfbyte_contracts_under name)
  add_test(NAME contracts.${name}
           COMMAND sh -c "'$<TARGET_FILE:isa_check>' $HALFBYTE_ISA && exec '$<TARGET_FILE:contract_tests>'")
  set_tests_properties(contracts.${name} PROPERTIES LABELS contracts SKIP_RETURN_CODE 77 TIMEOUT ${HALFBYTE_TEST_SECONDS}
                       ENVIRONMENT "${ARGN}")
endfunction()
halfbyte_contracts_under(avx2 HALFBYTE_ISA=avx2 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2)
halfbyte_contracts_under(ref HALFBYTE_ISA=ref ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default)
halfbyte_contracts_under(avx2_without_onednn HALFBYTE_ISA=avx2 HALFBYTE_ONEDNN=off)

if(TARGET DNNL::dnnl)
  add_executable(onednn_contract contracts/onednn_contract.cpp)
  halfbyte_flags(onednn_contract)
  target_link_libraries(onednn_contract PRIVATE halfbyte::quant DNNL::dnnl)
  foreach(isa IN ITEMS DEFAULT AVX2)
    add_test(NAME contracts.onednn.${isa} COMMAND onednn_contract)
    set_tests_properties(contracts.onednn.${isa} PROPERTIES LABELS contracts TIMEOUT ${HALFBYTE_TEST_SECONDS}
                         ENVIRONMENT "ONEDNN_MAX_CPU_ISA=${isa}")
  endforeach()
endif()

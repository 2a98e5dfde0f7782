set(HALFBYTE_FILES_TESTS loader/arithmetic_choice_test.cpp loader/device_choice_test.cpp loader/versions_test.cpp
                         loader/files/checkpoint_test.cpp loader/files/compressed_tensors_test.cpp
                         loader/files/difference_test.cpp loader/files/formats/bitsandbytes_test.cpp
                         loader/files/formats/float4_test.cpp loader/files/formats/gptq_test.cpp loader/files/formats/hqq_test.cpp
                         loader/files/formats/ipex_llm_test.cpp
                         loader/files/formats/meta_test.cpp loader/files/formats/pickle_test.cpp
                         loader/files/formats/pytorch_test.cpp loader/files/formats/zip_test.cpp
                         loader/files/gguf_hostile_test.cpp loader/files/gguf_test.cpp
                         loader/files/llama2c_test.cpp loader/files/manifest_check_test.cpp loader/files/manifest_test.cpp
                         loader/files/platform_test.cpp loader/files/safetensors_test.cpp loader/files/verify_test.cpp)

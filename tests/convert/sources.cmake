set(HALFBYTE_CONVERT_TESTS convert/convert_tensors_test.cpp convert/data_file_layout_test.cpp
                           convert/dequantize_test.cpp convert/destination_test.cpp convert/export_changes_test.cpp convert/export_checkpoint_test.cpp convert/export_gguf_test.cpp convert/golden_test.cpp
                           convert/in_order_test.cpp convert/memory_test.cpp convert/plan_test.cpp
                           convert/quantization_config_test.cpp convert/quantize_test.cpp convert/repack_test.cpp convert/repack_test.cpp convert/resume_test.cpp
                           convert/synth_test.cpp)

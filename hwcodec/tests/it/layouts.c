/* Prints size and offsets of every struct we declare, one `name value` a line. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
typedef void *CUcontext;
typedef void *CUstream;
typedef int CUresult;
#define CUDAAPI
#include <ffnvcodec/dynlink_cuviddec.h>
#include <ffnvcodec/dynlink_nvcuvid.h>
#include <ffnvcodec/nvEncodeAPI.h>

#define S(type) printf("%s %zu\n", #type, sizeof(type))
#define O(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))
#define V(name) printf("%s %lu\n", #name, (unsigned long)(name))
static void guid(const char *name, GUID g) {
    printf("%s %08x%04x%04x", name, g.Data1, g.Data2, g.Data3);
    for (int i = 0; i < 8; i++) printf("%02x", g.Data4[i]);
    printf("\n");
}
#define G(name) guid(#name, name)

int main(void) {
    S(CUVIDDECODECAPS); O(CUVIDDECODECAPS, bIsSupported); O(CUVIDDECODECAPS, nMaxMBCount); O(CUVIDDECODECAPS, nMinHeight);
    S(CUVIDDECODECREATEINFO); O(CUVIDDECODECREATEINFO, CodecType); O(CUVIDDECODECREATEINFO, bitDepthMinus8);
    O(CUVIDDECODECREATEINFO, display_area); O(CUVIDDECODECREATEINFO, OutputFormat); O(CUVIDDECODECREATEINFO, vidLock);
    O(CUVIDDECODECREATEINFO, target_rect);
    S(CUVIDPICPARAMS); O(CUVIDPICPARAMS, CurrPicIdx); O(CUVIDPICPARAMS, pBitstreamData); O(CUVIDPICPARAMS, CodecSpecific);
    S(CUVIDPROCPARAMS); O(CUVIDPROCPARAMS, output_stream); O(CUVIDPROCPARAMS, histogram_dptr);
    S(CUVIDGETDECODESTATUS);
    S(CUVIDEOFORMAT); O(CUVIDEOFORMAT, coded_width); O(CUVIDEOFORMAT, display_area); O(CUVIDEOFORMAT, chroma_format);
    O(CUVIDEOFORMAT, seqhdr_data_length);
    S(CUVIDSOURCEDATAPACKET); O(CUVIDSOURCEDATAPACKET, payload);
    S(CUVIDPARSERDISPINFO); O(CUVIDPARSERDISPINFO, timestamp);
    S(CUVIDPARSERPARAMS); O(CUVIDPARSERPARAMS, pUserData); O(CUVIDPARSERPARAMS, pfnDisplayPicture); O(CUVIDPARSERPARAMS, pExtVideoInfo);
    V(cudaVideoCodec_H264); V(cudaVideoCodec_HEVC); V(cudaVideoSurfaceFormat_YUV444_16Bit); V(CUVID_PKT_ENDOFPICTURE);
    S(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS); O(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS, apiVersion);
    S(NV_ENC_CAPS_PARAM); S(NV_ENC_CREATE_INPUT_BUFFER); O(NV_ENC_CREATE_INPUT_BUFFER, inputBuffer);
    S(NV_ENC_CREATE_BITSTREAM_BUFFER); O(NV_ENC_CREATE_BITSTREAM_BUFFER, bitstreamBuffer);
    S(NV_ENC_RC_PARAMS); O(NV_ENC_RC_PARAMS, averageBitRate); O(NV_ENC_RC_PARAMS, minQP);
    S(NV_ENC_CONFIG); O(NV_ENC_CONFIG, gopLength); O(NV_ENC_CONFIG, monoChromeEncoding); O(NV_ENC_CONFIG, rcParams);
    O(NV_ENC_CONFIG, encodeCodecConfig); O(NV_ENC_CONFIG, reserved);
    S(NV_ENC_CODEC_CONFIG); O(NV_ENC_CONFIG_H264, idrPeriod); O(NV_ENC_CONFIG_H264, disableDeblockingFilterIDC);
    O(NV_ENC_CONFIG_H264, chromaFormatIDC); O(NV_ENC_CONFIG_HEVC, idrPeriod);
    S(NV_ENC_PRESET_CONFIG); O(NV_ENC_PRESET_CONFIG, presetCfg);
    S(NV_ENC_INITIALIZE_PARAMS); O(NV_ENC_INITIALIZE_PARAMS, encodeWidth); O(NV_ENC_INITIALIZE_PARAMS, enablePTD);
    O(NV_ENC_INITIALIZE_PARAMS, encodeConfig); O(NV_ENC_INITIALIZE_PARAMS, tuningInfo);
    S(NV_ENC_PIC_PARAMS); O(NV_ENC_PIC_PARAMS, inputBuffer); O(NV_ENC_PIC_PARAMS, bufferFmt);
    O(NV_ENC_PIC_PARAMS, codecPicParams); O(NV_ENC_PIC_PARAMS, meHintCountsPerBlock); O(NV_ENC_PIC_PARAMS, qpDeltaMap);
    S(NV_ENC_LOCK_BITSTREAM); O(NV_ENC_LOCK_BITSTREAM, bitstreamSizeInBytes); O(NV_ENC_LOCK_BITSTREAM, bitstreamBufferPtr);
    S(NV_ENC_LOCK_INPUT_BUFFER); O(NV_ENC_LOCK_INPUT_BUFFER, pitch);
    S(NV_ENCODE_API_FUNCTION_LIST); O(NV_ENCODE_API_FUNCTION_LIST, nvEncGetEncodeCaps);
    O(NV_ENCODE_API_FUNCTION_LIST, nvEncInitializeEncoder); O(NV_ENCODE_API_FUNCTION_LIST, nvEncUnlockInputBuffer);
    O(NV_ENCODE_API_FUNCTION_LIST, nvEncDestroyEncoder); O(NV_ENCODE_API_FUNCTION_LIST, nvEncOpenEncodeSessionEx);
    O(NV_ENCODE_API_FUNCTION_LIST, nvEncGetEncodePresetConfigEx);
    V(NV_ENC_CONFIG_VER); V(NV_ENC_INITIALIZE_PARAMS_VER); V(NV_ENC_PIC_PARAMS_VER); V(NV_ENC_PRESET_CONFIG_VER);
    V(NV_ENC_LOCK_BITSTREAM_VER); V(NV_ENCODE_API_FUNCTION_LIST_VER); V(NV_ENC_CAPS_PARAM_VER);
    V(NV_ENC_CAPS_SUPPORT_MONOCHROME); V(NV_ENC_CAPS_SUPPORT_YUV444_ENCODE); V(NV_ENC_CAPS_SUPPORT_LOSSLESS_ENCODE);
    V(NV_ENC_CAPS_SUPPORT_10BIT_ENCODE); V(NV_ENC_CAPS_NUM_ENCODER_ENGINES); V(NV_ENC_CAPS_WIDTH_MAX); V(NV_ENC_CAPS_HEIGHT_MAX);
    V(NV_ENC_ERR_UNSUPPORTED_DEVICE); V(NV_ENC_ERR_NEED_MORE_INPUT); V(NV_ENC_ERR_RESOURCE_NOT_MAPPED);
    V(NV_ENC_BUFFER_FORMAT_YUV444_10BIT); V(NV_ENC_PARAMS_RC_CBR); V(NV_ENC_TUNING_INFO_LOSSLESS);
    G(NV_ENC_CODEC_H264_GUID); G(NV_ENC_CODEC_HEVC_GUID); G(NV_ENC_CODEC_PROFILE_AUTOSELECT_GUID);
    G(NV_ENC_H264_PROFILE_HIGH_GUID); G(NV_ENC_H264_PROFILE_HIGH_444_GUID); G(NV_ENC_HEVC_PROFILE_MAIN_GUID);
    G(NV_ENC_HEVC_PROFILE_MAIN10_GUID); G(NV_ENC_HEVC_PROFILE_FREXT_GUID); G(NV_ENC_PRESET_P4_GUID);
    return 0;
}

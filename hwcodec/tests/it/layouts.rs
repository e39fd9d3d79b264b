//! Our declarations against the C headers, by asking a C compiler.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::process::Command;
use trinity_hwcodec::sys::cuvid::*;
use trinity_hwcodec::sys::nvenc as e;

fn ours() -> Vec<(&'static str, String)> {
    let mut rows: Vec<(&'static str, String)> = Vec::new();
    macro_rules! size {
        ($c:literal, $rust:ty) => {
            rows.push(($c, size_of::<$rust>().to_string()))
        };
    }
    macro_rules! offset {
        ($c:literal, $rust:ty, $field:ident) => {
            rows.push(($c, offset_of!($rust, $field).to_string()))
        };
    }
    size!("CUVIDDECODECAPS", CUVIDDECODECAPS);
    offset!("CUVIDDECODECAPS.bIsSupported", CUVIDDECODECAPS, bIsSupported);
    offset!("CUVIDDECODECAPS.nMaxMBCount", CUVIDDECODECAPS, nMaxMBCount);
    offset!("CUVIDDECODECAPS.nMinHeight", CUVIDDECODECAPS, nMinHeight);
    size!("CUVIDDECODECREATEINFO", CUVIDDECODECREATEINFO);
    offset!("CUVIDDECODECREATEINFO.CodecType", CUVIDDECODECREATEINFO, CodecType);
    offset!("CUVIDDECODECREATEINFO.bitDepthMinus8", CUVIDDECODECREATEINFO, bitDepthMinus8);
    offset!("CUVIDDECODECREATEINFO.display_area", CUVIDDECODECREATEINFO, display_area);
    offset!("CUVIDDECODECREATEINFO.OutputFormat", CUVIDDECODECREATEINFO, OutputFormat);
    offset!("CUVIDDECODECREATEINFO.vidLock", CUVIDDECODECREATEINFO, vidLock);
    offset!("CUVIDDECODECREATEINFO.target_rect", CUVIDDECODECREATEINFO, target_rect);
    size!("CUVIDPICPARAMS", CUVIDPICPARAMS);
    offset!("CUVIDPICPARAMS.CurrPicIdx", CUVIDPICPARAMS, CurrPicIdx);
    offset!("CUVIDPICPARAMS.pBitstreamData", CUVIDPICPARAMS, pBitstreamData);
    offset!("CUVIDPICPARAMS.CodecSpecific", CUVIDPICPARAMS, CodecSpecific);
    size!("CUVIDPROCPARAMS", CUVIDPROCPARAMS);
    offset!("CUVIDPROCPARAMS.output_stream", CUVIDPROCPARAMS, output_stream);
    offset!("CUVIDPROCPARAMS.histogram_dptr", CUVIDPROCPARAMS, histogram_dptr);
    size!("CUVIDGETDECODESTATUS", CUVIDGETDECODESTATUS);
    size!("CUVIDEOFORMAT", CUVIDEOFORMAT);
    offset!("CUVIDEOFORMAT.coded_width", CUVIDEOFORMAT, coded_width);
    offset!("CUVIDEOFORMAT.display_area", CUVIDEOFORMAT, display_area);
    offset!("CUVIDEOFORMAT.chroma_format", CUVIDEOFORMAT, chroma_format);
    offset!("CUVIDEOFORMAT.seqhdr_data_length", CUVIDEOFORMAT, seqhdr_data_length);
    size!("CUVIDSOURCEDATAPACKET", CUVIDSOURCEDATAPACKET);
    offset!("CUVIDSOURCEDATAPACKET.payload", CUVIDSOURCEDATAPACKET, payload);
    size!("CUVIDPARSERDISPINFO", CUVIDPARSERDISPINFO);
    offset!("CUVIDPARSERDISPINFO.timestamp", CUVIDPARSERDISPINFO, timestamp);
    size!("CUVIDPARSERPARAMS", CUVIDPARSERPARAMS);
    offset!("CUVIDPARSERPARAMS.pUserData", CUVIDPARSERPARAMS, pUserData);
    offset!("CUVIDPARSERPARAMS.pfnDisplayPicture", CUVIDPARSERPARAMS, pfnDisplayPicture);
    offset!("CUVIDPARSERPARAMS.pExtVideoInfo", CUVIDPARSERPARAMS, pExtVideoInfo);
    size!("NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS", e::OpenSessionParams);
    offset!("NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS.apiVersion", e::OpenSessionParams, apiVersion);
    size!("NV_ENC_CAPS_PARAM", e::CapsParam);
    size!("NV_ENC_CREATE_INPUT_BUFFER", e::CreateInputBuffer);
    offset!("NV_ENC_CREATE_INPUT_BUFFER.inputBuffer", e::CreateInputBuffer, inputBuffer);
    size!("NV_ENC_CREATE_BITSTREAM_BUFFER", e::CreateBitstreamBuffer);
    offset!("NV_ENC_CREATE_BITSTREAM_BUFFER.bitstreamBuffer", e::CreateBitstreamBuffer, bitstreamBuffer);
    size!("NV_ENC_RC_PARAMS", e::RcParams);
    offset!("NV_ENC_RC_PARAMS.averageBitRate", e::RcParams, averageBitRate);
    offset!("NV_ENC_RC_PARAMS.minQP", e::RcParams, rest);
    size!("NV_ENC_CONFIG", e::Config);
    offset!("NV_ENC_CONFIG.gopLength", e::Config, gopLength);
    offset!("NV_ENC_CONFIG.monoChromeEncoding", e::Config, monoChromeEncoding);
    offset!("NV_ENC_CONFIG.rcParams", e::Config, rcParams);
    offset!("NV_ENC_CONFIG.encodeCodecConfig", e::Config, codec);
    offset!("NV_ENC_CONFIG.reserved", e::Config, reserved);
    size!("NV_ENC_CODEC_CONFIG", e::CodecConfig);
    size!("NV_ENC_PRESET_CONFIG", e::PresetConfig);
    offset!("NV_ENC_PRESET_CONFIG.presetCfg", e::PresetConfig, presetCfg);
    size!("NV_ENC_INITIALIZE_PARAMS", e::InitializeParams);
    offset!("NV_ENC_INITIALIZE_PARAMS.encodeWidth", e::InitializeParams, encodeWidth);
    offset!("NV_ENC_INITIALIZE_PARAMS.enablePTD", e::InitializeParams, enablePTD);
    offset!("NV_ENC_INITIALIZE_PARAMS.encodeConfig", e::InitializeParams, encodeConfig);
    offset!("NV_ENC_INITIALIZE_PARAMS.tuningInfo", e::InitializeParams, tuningInfo);
    size!("NV_ENC_PIC_PARAMS", e::PicParams);
    offset!("NV_ENC_PIC_PARAMS.inputBuffer", e::PicParams, inputBuffer);
    offset!("NV_ENC_PIC_PARAMS.bufferFmt", e::PicParams, bufferFmt);
    offset!("NV_ENC_PIC_PARAMS.codecPicParams", e::PicParams, codecPicParams);
    offset!("NV_ENC_PIC_PARAMS.meHintCountsPerBlock", e::PicParams, meHintCountsPerBlock);
    offset!("NV_ENC_PIC_PARAMS.qpDeltaMap", e::PicParams, qpDeltaMap);
    size!("NV_ENC_LOCK_BITSTREAM", e::LockBitstream);
    offset!("NV_ENC_LOCK_BITSTREAM.bitstreamSizeInBytes", e::LockBitstream, bitstreamSizeInBytes);
    offset!("NV_ENC_LOCK_BITSTREAM.bitstreamBufferPtr", e::LockBitstream, bitstreamBufferPtr);
    size!("NV_ENC_LOCK_INPUT_BUFFER", e::LockInputBuffer);
    offset!("NV_ENC_LOCK_INPUT_BUFFER.pitch", e::LockInputBuffer, pitch);
    size!("NV_ENCODE_API_FUNCTION_LIST", e::FunctionList);
    offset!("NV_ENCODE_API_FUNCTION_LIST.nvEncGetEncodeCaps", e::FunctionList, nvEncGetEncodeCaps);
    offset!("NV_ENCODE_API_FUNCTION_LIST.nvEncInitializeEncoder", e::FunctionList, nvEncInitializeEncoder);
    offset!("NV_ENCODE_API_FUNCTION_LIST.nvEncUnlockInputBuffer", e::FunctionList, nvEncUnlockInputBuffer);
    offset!("NV_ENCODE_API_FUNCTION_LIST.nvEncDestroyEncoder", e::FunctionList, nvEncDestroyEncoder);
    offset!(
        "NV_ENCODE_API_FUNCTION_LIST.nvEncOpenEncodeSessionEx",
        e::FunctionList,
        nvEncOpenEncodeSessionEx
    );
    offset!(
        "NV_ENCODE_API_FUNCTION_LIST.nvEncGetEncodePresetConfigEx",
        e::FunctionList,
        nvEncGetEncodePresetConfigEx
    );
    rows.extend(values());
    rows
}

/// Enumerators, version words, word indices and GUIDs.
fn values() -> Vec<(&'static str, String)> {
    let guid = |g: e::Guid| {
        let tail: String = g.3.iter().map(|b| format!("{b:02x}")).collect();
        format!("{:08x}{:04x}{:04x}{tail}", g.0, g.1, g.2)
    };
    let numbers: [(&str, u64); 25] = [
        ("cudaVideoCodec_H264", CODEC_H264 as u64),
        ("cudaVideoCodec_HEVC", CODEC_HEVC as u64),
        ("cudaVideoSurfaceFormat_YUV444_16Bit", SURFACE_YUV444_16 as u64),
        ("CUVID_PKT_ENDOFPICTURE", PKT_ENDOFPICTURE),
        ("NV_ENC_CONFIG_H264.idrPeriod", 4 * e::H264_IDR_PERIOD as u64),
        ("NV_ENC_CONFIG_H264.disableDeblockingFilterIDC", 4 * e::H264_DISABLE_DEBLOCKING as u64),
        ("NV_ENC_CONFIG_H264.chromaFormatIDC", 4 * e::H264_CHROMA_FORMAT as u64),
        ("NV_ENC_CONFIG_HEVC.idrPeriod", 4 * e::HEVC_IDR_PERIOD as u64),
        ("NV_ENC_CONFIG_VER", e::struct_version_high(7).into()),
        ("NV_ENC_INITIALIZE_PARAMS_VER", e::struct_version_high(5).into()),
        ("NV_ENC_PIC_PARAMS_VER", e::struct_version_high(4).into()),
        ("NV_ENC_PRESET_CONFIG_VER", e::struct_version_high(4).into()),
        ("NV_ENC_LOCK_BITSTREAM_VER", e::struct_version(1).into()),
        ("NV_ENCODE_API_FUNCTION_LIST_VER", e::struct_version(2).into()),
        ("NV_ENC_CAPS_PARAM_VER", e::struct_version(1).into()),
        ("NV_ENC_CAPS_SUPPORT_MONOCHROME", e::CAPS_MONOCHROME.into()),
        ("NV_ENC_CAPS_SUPPORT_YUV444_ENCODE", e::CAPS_YUV444.into()),
        ("NV_ENC_CAPS_SUPPORT_LOSSLESS_ENCODE", e::CAPS_LOSSLESS.into()),
        ("NV_ENC_CAPS_SUPPORT_10BIT_ENCODE", e::CAPS_10BIT.into()),
        ("NV_ENC_CAPS_NUM_ENCODER_ENGINES", e::CAPS_ENGINES.into()),
        ("NV_ENC_CAPS_WIDTH_MAX", e::CAPS_WIDTH_MAX.into()),
        ("NV_ENC_CAPS_HEIGHT_MAX", e::CAPS_HEIGHT_MAX.into()),
        ("NV_ENC_ERR_UNSUPPORTED_DEVICE", e::UNSUPPORTED_DEVICE.into()),
        ("NV_ENC_ERR_NEED_MORE_INPUT", e::NEED_MORE_INPUT.into()),
        ("NV_ENC_ERR_RESOURCE_NOT_MAPPED", e::STATUS.len() as u64 - 1),
    ];
    let more: [(&str, u64); 3] = [
        ("NV_ENC_BUFFER_FORMAT_YUV444_10BIT", e::FORMAT_YUV444_10.into()),
        ("NV_ENC_PARAMS_RC_CBR", e::RC_CBR.into()),
        ("NV_ENC_TUNING_INFO_LOSSLESS", e::TUNING_LOSSLESS.into()),
    ];
    let guids = [
        ("NV_ENC_CODEC_H264_GUID", e::CODEC_H264),
        ("NV_ENC_CODEC_HEVC_GUID", e::CODEC_HEVC),
        ("NV_ENC_CODEC_PROFILE_AUTOSELECT_GUID", e::PROFILE_AUTOSELECT),
        ("NV_ENC_H264_PROFILE_HIGH_GUID", e::PROFILE_H264_HIGH),
        ("NV_ENC_H264_PROFILE_HIGH_444_GUID", e::PROFILE_H264_HIGH_444),
        ("NV_ENC_HEVC_PROFILE_MAIN_GUID", e::PROFILE_HEVC_MAIN),
        ("NV_ENC_HEVC_PROFILE_MAIN10_GUID", e::PROFILE_HEVC_MAIN10),
        ("NV_ENC_HEVC_PROFILE_FREXT_GUID", e::PROFILE_HEVC_FREXT),
        ("NV_ENC_PRESET_P4_GUID", e::PRESET_P4),
    ];
    let numbers = numbers.into_iter().chain(more).map(|(name, v)| (name, v.to_string()));
    numbers.chain(guids.map(|(name, g)| (name, guid(g)))).collect()
}

#[test]
fn layouts_match_the_c_headers() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = super::compile("layouts.c", &[], &folder.path().join("layouts")) else { return };
    let output = Command::new(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let theirs: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let ours = ours();
    let wrong: Vec<_> =
        ours.iter().filter(|(name, value)| theirs.get(name) != Some(&value.as_str())).collect();
    assert!(wrong.is_empty(), "differ from the header: {wrong:?}");
    assert_eq!(ours.len(), theirs.len(), "a line of layouts.c is not checked here");
}

//! Our declarations against the C headers, by asking a C compiler.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::process::Command;
use trinity_hwcodec::sys::cuvid::*;
use trinity_hwcodec::sys::nvenc as e;

fn ours() -> Vec<(String, String)> {
    let mut rows = Vec::new();
    macro_rules! layout {
        ($c:literal, $rust:ty $(, $field:ident)*) => {
            rows.push(($c.to_string(), size_of::<$rust>().to_string()));
            $(rows.push((
                format!("{}.{}", $c, stringify!($field)),
                offset_of!($rust, $field).to_string(),
            ));)*
        };
    }
    layout!("CUVIDDECODECAPS", CUVIDDECODECAPS, bIsSupported, nMaxMBCount, nMinHeight);
    layout!(
        "CUVIDDECODECREATEINFO",
        CUVIDDECODECREATEINFO,
        CodecType,
        bitDepthMinus8,
        display_area,
        OutputFormat,
        vidLock,
        target_rect
    );
    layout!("CUVIDPICPARAMS", CUVIDPICPARAMS, CurrPicIdx, pBitstreamData, CodecSpecific);
    layout!("CUVIDPROCPARAMS", CUVIDPROCPARAMS, output_stream, histogram_dptr);
    layout!("CUVIDGETDECODESTATUS", CUVIDGETDECODESTATUS);
    layout!("CUVIDEOFORMAT", CUVIDEOFORMAT, coded_width, display_area, chroma_format, seqhdr_data_length);
    layout!("CUVIDSOURCEDATAPACKET", CUVIDSOURCEDATAPACKET, payload);
    layout!("CUVIDPARSERDISPINFO", CUVIDPARSERDISPINFO, timestamp);
    layout!("CUVIDPARSERPARAMS", CUVIDPARSERPARAMS, pUserData, pfnDisplayPicture, pExtVideoInfo);
    layout!("NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS", e::OpenSessionParams, apiVersion);
    layout!("NV_ENC_CAPS_PARAM", e::CapsParam);
    layout!("NV_ENC_CREATE_INPUT_BUFFER", e::CreateInputBuffer, inputBuffer);
    layout!("NV_ENC_CREATE_BITSTREAM_BUFFER", e::CreateBitstreamBuffer, bitstreamBuffer);
    layout!("NV_ENC_RC_PARAMS", e::RcParams, averageBitRate);
    rows.push(("NV_ENC_RC_PARAMS.minQP".into(), offset_of!(e::RcParams, rest).to_string()));
    layout!("NV_ENC_CONFIG", e::Config, gopLength, monoChromeEncoding, rcParams, reserved);
    rows.push(("NV_ENC_CONFIG.encodeCodecConfig".into(), offset_of!(e::Config, codec).to_string()));
    layout!("NV_ENC_CODEC_CONFIG", e::CodecConfig);
    layout!("NV_ENC_PRESET_CONFIG", e::PresetConfig, presetCfg);
    layout!(
        "NV_ENC_INITIALIZE_PARAMS",
        e::InitializeParams,
        encodeWidth,
        enablePTD,
        encodeConfig,
        tuningInfo
    );
    layout!(
        "NV_ENC_PIC_PARAMS",
        e::PicParams,
        inputBuffer,
        bufferFmt,
        codecPicParams,
        meHintCountsPerBlock,
        qpDeltaMap
    );
    layout!("NV_ENC_LOCK_BITSTREAM", e::LockBitstream, bitstreamSizeInBytes, bitstreamBufferPtr);
    layout!("NV_ENC_LOCK_INPUT_BUFFER", e::LockInputBuffer, pitch);
    layout!(
        "NV_ENCODE_API_FUNCTION_LIST",
        e::FunctionList,
        nvEncGetEncodeCaps,
        nvEncInitializeEncoder,
        nvEncUnlockInputBuffer,
        nvEncDestroyEncoder,
        nvEncOpenEncodeSessionEx,
        nvEncGetEncodePresetConfigEx
    );
    rows.extend(values());
    rows
}

/// Enumerators, version words, word indices and GUIDs.
fn values() -> Vec<(String, String)> {
    let guid = |g: e::Guid| {
        let tail: String = g.3.iter().map(|b| format!("{b:02x}")).collect();
        format!("{:08x}{:04x}{:04x}{tail}", g.0, g.1, g.2)
    };
    let numbers: [(&str, u64); 28] = [
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
    let numbers = numbers.into_iter().map(|(name, v)| (name.into(), v.to_string()));
    numbers.chain(guids.map(|(name, g)| (name.into(), guid(g)))).collect()
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
        ours.iter().filter(|(name, value)| theirs.get(name.as_str()) != Some(&value.as_str())).collect();
    assert!(wrong.is_empty(), "differ from the header: {wrong:?}");
    assert_eq!(ours.len(), theirs.len(), "a line of layouts.c is not checked here");
}

/* A stand-in for libnvidia-encode: no GPU, but the same interface and the same
 * manners. It refuses calls out of order or with wrong arguments, and its
 * "bitstream" says what it was told, so that a test can read it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ffnvcodec/nvEncodeAPI.h>

#define MAX 16
typedef struct { int used, locked; uint8_t *data; uint32_t pitch, rows; NV_ENC_BUFFER_FORMAT format; } Input;
typedef struct { int used, locked, pending; char *text; uint32_t size; } Output;
typedef struct {
    int initialized, ended, open_buffers, in_flight, most_in_flight;
    NV_ENC_CONFIG config;
    NV_ENC_INITIALIZE_PARAMS init;
    Input inputs[MAX];
    Output outputs[MAX];
} Session;

static int sessions_open;
/* For the test: sessions and buffers must all be given back. */
int stand_in_open_sessions(void) { return sessions_open; }

static NVENCSTATUS open_session(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS *p, void **encoder) {
    if (p->version != NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS_VER || p->apiVersion != NVENCAPI_VERSION) return NV_ENC_ERR_INVALID_VERSION;
    if (p->deviceType != NV_ENC_DEVICE_TYPE_CUDA) return NV_ENC_ERR_INVALID_DEVICE;
    /* A null context stands for a GPU without an encoder. */
    if (!p->device) return NV_ENC_ERR_UNSUPPORTED_DEVICE;
    *encoder = calloc(1, sizeof(Session));
    sessions_open++;
    return NV_ENC_SUCCESS;
}

static int same(GUID a, GUID b) { return memcmp(&a, &b, sizeof a) == 0; }

static NVENCSTATUS get_caps(void *encoder, GUID codec, NV_ENC_CAPS_PARAM *p, int *value) {
    if (!encoder || p->version != NV_ENC_CAPS_PARAM_VER) return NV_ENC_ERR_INVALID_PARAM;
    int hevc = same(codec, NV_ENC_CODEC_HEVC_GUID);
    if (!hevc && !same(codec, NV_ENC_CODEC_H264_GUID)) return NV_ENC_ERR_UNSUPPORTED_PARAM;
    switch (p->capsToQuery) {
    case NV_ENC_CAPS_NUM_ENCODER_ENGINES: *value = 3; break;
    case NV_ENC_CAPS_WIDTH_MAX: *value = hevc ? 8192 : 4096; break;
    case NV_ENC_CAPS_HEIGHT_MAX: *value = hevc ? 8192 : 4096; break;
    case NV_ENC_CAPS_SUPPORT_MONOCHROME: *value = !hevc; break;
    case NV_ENC_CAPS_SUPPORT_10BIT_ENCODE: *value = hevc; break;
    case NV_ENC_CAPS_SUPPORT_YUV444_ENCODE:
    case NV_ENC_CAPS_SUPPORT_LOSSLESS_ENCODE: *value = 1; break;
    default: return NV_ENC_ERR_UNSUPPORTED_PARAM;
    }
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS get_preset(void *encoder, GUID codec, GUID preset, NV_ENC_TUNING_INFO tuning, NV_ENC_PRESET_CONFIG *p) {
    if (!encoder || p->version != NV_ENC_PRESET_CONFIG_VER || p->presetCfg.version != NV_ENC_CONFIG_VER) return NV_ENC_ERR_INVALID_VERSION;
    if (!same(preset, NV_ENC_PRESET_P4_GUID) || tuning == NV_ENC_TUNING_INFO_UNDEFINED) return NV_ENC_ERR_INVALID_PARAM;
    /* Defaults a caller must override for intra-only coding. */
    p->presetCfg.gopLength = 250;
    p->presetCfg.frameIntervalP = 3;
    p->presetCfg.rcParams.enableAQ = 1;
    p->presetCfg.rcParams.rateControlMode = NV_ENC_PARAMS_RC_VBR;
    if (same(codec, NV_ENC_CODEC_HEVC_GUID)) p->presetCfg.encodeCodecConfig.hevcConfig.chromaFormatIDC = 1;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS initialize(void *encoder, NV_ENC_INITIALIZE_PARAMS *p) {
    Session *s = encoder;
    if (p->version != NV_ENC_INITIALIZE_PARAMS_VER || !p->encodeConfig || p->encodeConfig->version != NV_ENC_CONFIG_VER) return NV_ENC_ERR_INVALID_VERSION;
    if (s->initialized || !p->encodeWidth || !p->encodeHeight || !p->enablePTD || p->enableEncodeAsync || !p->frameRateDen) return NV_ENC_ERR_INVALID_PARAM;
    if (p->encodeConfig->gopLength != 1 || p->encodeConfig->frameIntervalP != 0 || p->encodeConfig->rcParams.enableAQ) return NV_ENC_ERR_UNSUPPORTED_PARAM;
    s->init = *p;
    s->config = *p->encodeConfig;
    s->initialized = 1;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS create_input(void *encoder, NV_ENC_CREATE_INPUT_BUFFER *p) {
    Session *s = encoder;
    if (!s->initialized) return NV_ENC_ERR_ENCODER_NOT_INITIALIZED;
    if (p->version != NV_ENC_CREATE_INPUT_BUFFER_VER || p->width != s->init.encodeWidth || p->height != s->init.encodeHeight) return NV_ENC_ERR_INVALID_PARAM;
    int deep = p->bufferFmt == NV_ENC_BUFFER_FORMAT_YUV420_10BIT || p->bufferFmt == NV_ENC_BUFFER_FORMAT_YUV444_10BIT;
    int full = p->bufferFmt == NV_ENC_BUFFER_FORMAT_YUV444 || p->bufferFmt == NV_ENC_BUFFER_FORMAT_YUV444_10BIT;
    for (int i = 0; i < MAX; i++) {
        Input *in = &s->inputs[i];
        if (in->used) continue;
        in->used = 1;
        in->format = p->bufferFmt;
        /* A pitch larger than the width, as hardware has. */
        in->pitch = (p->width * (deep ? 2 : 1) + 1 + 255) & ~255u;
        in->rows = full ? p->height * 3 : p->height + (p->height + 1) / 2;
        in->data = malloc((size_t)in->pitch * in->rows);
        s->open_buffers++;
        p->inputBuffer = in;
        return NV_ENC_SUCCESS;
    }
    return NV_ENC_ERR_OUT_OF_MEMORY;
}

static NVENCSTATUS destroy_input(void *encoder, NV_ENC_INPUT_PTR buffer) {
    Session *s = encoder;
    Input *in = buffer;
    if (!in->used || in->locked) return NV_ENC_ERR_INVALID_CALL;
    free(in->data);
    in->used = 0;
    s->open_buffers--;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS create_output(void *encoder, NV_ENC_CREATE_BITSTREAM_BUFFER *p) {
    Session *s = encoder;
    if (!s->initialized || p->version != NV_ENC_CREATE_BITSTREAM_BUFFER_VER) return NV_ENC_ERR_INVALID_CALL;
    for (int i = 0; i < MAX; i++) {
        Output *out = &s->outputs[i];
        if (out->used) continue;
        out->used = 1;
        s->open_buffers++;
        p->bitstreamBuffer = out;
        return NV_ENC_SUCCESS;
    }
    return NV_ENC_ERR_OUT_OF_MEMORY;
}

static NVENCSTATUS destroy_output(void *encoder, NV_ENC_OUTPUT_PTR buffer) {
    Session *s = encoder;
    Output *out = buffer;
    if (!out->used || out->locked) return NV_ENC_ERR_INVALID_CALL;
    free(out->text);
    memset(out, 0, sizeof *out);
    s->open_buffers--;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS lock_input(void *encoder, NV_ENC_LOCK_INPUT_BUFFER *p) {
    Input *in = p->inputBuffer;
    if (!encoder || p->version != NV_ENC_LOCK_INPUT_BUFFER_VER) return NV_ENC_ERR_INVALID_VERSION;
    if (in->locked) return NV_ENC_ERR_LOCK_BUSY;
    in->locked = 1;
    p->bufferDataPtr = in->data;
    p->pitch = in->pitch;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS unlock_input(void *encoder, NV_ENC_INPUT_PTR buffer) {
    Input *in = buffer;
    if (!encoder || !in->locked) return NV_ENC_ERR_INVALID_CALL;
    in->locked = 0;
    return NV_ENC_SUCCESS;
}

static uint32_t hash(const Input *in, uint32_t row_bytes) {
    uint32_t h = 2166136261u;
    for (uint32_t y = 0; y < in->rows; y++)
        for (uint32_t x = 0; x < row_bytes; x++) h = (h ^ in->data[(size_t)y * in->pitch + x]) * 16777619u;
    return h;
}

static NVENCSTATUS encode(void *encoder, NV_ENC_PIC_PARAMS *p) {
    Session *s = encoder;
    if (p->version != NV_ENC_PIC_PARAMS_VER) return NV_ENC_ERR_INVALID_VERSION;
    if (!s->initialized || s->ended) return NV_ENC_ERR_INVALID_CALL;
    if (p->encodePicFlags & NV_ENC_PIC_FLAG_EOS) {
        s->ended = 1;
        return NV_ENC_SUCCESS;
    }
    Input *in = p->inputBuffer;
    Output *out = p->outputBitstream;
    if (!in || !out || in->locked || out->locked || out->pending) return NV_ENC_ERR_INVALID_CALL;
    if (p->bufferFmt != in->format || p->inputPitch != in->pitch || p->pictureStruct != NV_ENC_PIC_STRUCT_FRAME) return NV_ENC_ERR_INVALID_PARAM;
    if (!(p->encodePicFlags & NV_ENC_PIC_FLAG_FORCEIDR) || !(p->encodePicFlags & NV_ENC_PIC_FLAG_OUTPUT_SPSPPS)) return NV_ENC_ERR_INVALID_PARAM;
    int deep = in->format == NV_ENC_BUFFER_FORMAT_YUV420_10BIT || in->format == NV_ENC_BUFFER_FORMAT_YUV444_10BIT;
    int full = in->format == NV_ENC_BUFFER_FORMAT_YUV444 || in->format == NV_ENC_BUFFER_FORMAT_YUV444_10BIT;
    uint32_t row = p->inputWidth;
    if (!full) row = (row + 1) & ~1u;
    const NV_ENC_CONFIG *c = &s->config;
    char text[512];
    int hevc = same(s->init.encodeGUID, NV_ENC_CODEC_HEVC_GUID);
    int n = snprintf(text, sizeof text, "frame %u %s %ux%u format %x mono %u chroma %u depth %u rc %u qp %u rate %u lossless %u samples %08x",
        p->frameIdx, hevc ? "hevc" : "h264", p->inputWidth, p->inputHeight, in->format, c->monoChromeEncoding,
        hevc ? c->encodeCodecConfig.hevcConfig.chromaFormatIDC : c->encodeCodecConfig.h264Config.chromaFormatIDC,
        hevc ? c->encodeCodecConfig.hevcConfig.pixelBitDepthMinus8 + 8 : 8,
        c->rcParams.rateControlMode, c->rcParams.constQP.qpIntra, c->rcParams.averageBitRate,
        hevc ? s->init.tuningInfo == NV_ENC_TUNING_INFO_LOSSLESS : c->encodeCodecConfig.h264Config.qpPrimeYZeroTransformBypassFlag,
        hash(in, row * (deep ? 2 : 1)));
    free(out->text);
    out->text = strdup(text);
    out->size = n;
    out->pending = 1;
    if (++s->in_flight > s->most_in_flight) s->most_in_flight = s->in_flight;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS lock_output(void *encoder, NV_ENC_LOCK_BITSTREAM *p) {
    Session *s = encoder;
    Output *out = p->outputBitstream;
    if (p->version != NV_ENC_LOCK_BITSTREAM_VER) return NV_ENC_ERR_INVALID_VERSION;
    if (!out->pending || out->locked) return NV_ENC_ERR_INVALID_CALL;
    out->locked = 1;
    out->pending = 0;
    s->in_flight--;
    p->bitstreamBufferPtr = out->text;
    p->bitstreamSizeInBytes = out->size;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS unlock_output(void *encoder, NV_ENC_OUTPUT_PTR buffer) {
    Output *out = buffer;
    if (!encoder || !out->locked) return NV_ENC_ERR_INVALID_CALL;
    out->locked = 0;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS destroy(void *encoder) {
    Session *s = encoder;
    if (s->open_buffers || (s->initialized && !s->ended)) return NV_ENC_ERR_INVALID_CALL;
    free(s);
    sessions_open--;
    return NV_ENC_SUCCESS;
}

NVENCSTATUS NvEncodeAPIGetMaxSupportedVersion(uint32_t *version) {
    *version = 13 << 4;
    return NV_ENC_SUCCESS;
}

NVENCSTATUS NvEncodeAPICreateInstance(NV_ENCODE_API_FUNCTION_LIST *f) {
    if (f->version != NV_ENCODE_API_FUNCTION_LIST_VER) return NV_ENC_ERR_INVALID_VERSION;
    f->nvEncOpenEncodeSessionEx = open_session;
    f->nvEncGetEncodeCaps = get_caps;
    f->nvEncGetEncodePresetConfigEx = get_preset;
    f->nvEncInitializeEncoder = initialize;
    f->nvEncCreateInputBuffer = create_input;
    f->nvEncDestroyInputBuffer = destroy_input;
    f->nvEncCreateBitstreamBuffer = create_output;
    f->nvEncDestroyBitstreamBuffer = destroy_output;
    f->nvEncLockInputBuffer = lock_input;
    f->nvEncUnlockInputBuffer = unlock_input;
    f->nvEncEncodePicture = encode;
    f->nvEncLockBitstream = lock_output;
    f->nvEncUnlockBitstream = unlock_output;
    f->nvEncDestroyEncoder = destroy;
    return NV_ENC_SUCCESS;
}
